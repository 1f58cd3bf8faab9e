package model

import (
	"slices"
	"testing"
)

// TestRotatorFar: a position far behind the others is turned to as one near them would be, there and back, and the table does not grow up
// to it.
func TestRotatorFar(t *testing.T) {
	for _, interlaced := range []bool{false, true} {
		c := &Config{Layer: make([]LayerConfig, 1)}
		c.Ropes = []Rope{{Dim: 8, InvFreq: invFreq(10000, 8), Interlaced: interlaced, Amplitude: 1.25}}
		near, far := c.NewRotator(0, false), c.NewRotator(0, false)
		for _, pos := range []int{70000, 70001, 70000, 3, 70000} {
			x := []float32{1, -2, 3, 0.5, 4, 1, -1, 2}
			y := slices.Clone(x)
			near.table.row(pos)
			near.Rotate(x, pos)
			far.Rotate(y, pos)
			if !slices.Equal(x, y) || y[0] == 1 {
				t.Errorf("position %d: %v, want %v", pos, y, x)
			}
			far.Unrotate(y, pos)
			near.Unrotate(x, pos)
			if !slices.Equal(x, y) {
				t.Errorf("position %d, back: %v, want %v", pos, y, x)
			}
		}
		for ahead := 1; ahead <= 1<<16; ahead *= 2 { // as triattention looks ahead
			far.Rotate(make([]float32, 8), 300+ahead)
		}
		if far.table.upTo > 8*nearRows {
			t.Errorf("the table grew to %d rows", far.table.upTo)
		}
	}
}
