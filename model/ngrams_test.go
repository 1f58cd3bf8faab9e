package model

import (
	"slices"
	"testing"
)

// TestRecentTokens: n-grams do not reach behind the beginning of a text, nor behind a token that ends one.
func TestRecentTokens(t *testing.T) {
	g := &NGrams{Size: 4, End: 9}
	for _, c := range []struct {
		history []float32 // plus 1
		want    []int
	}{
		{[]float32{0, 0, 0, 6}, []int{5, 9, 9, 9}},
		{[]float32{2, 3, 4, 6}, []int{5, 3, 2, 1}},
		{[]float32{2, 10, 4, 6}, []int{5, 3, 9, 9}},
		{[]float32{2, 3, 10, 6}, []int{5, 9, 9, 9}},
		{[]float32{2, 3, 4, 10}, []int{9, 3, 2, 1}},
		{[]float32{0, 3, 4, 1}, []int{0, 3, 2, 9}},
	} {
		last := make([]int, g.Size)
		if g.recent(c.history, last); !slices.Equal(last, c.want) {
			t.Errorf("%v: %v, want %v", c.history, last, c.want)
		}
	}
}
