package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestConvolver: a row is the sum of its inputs by their weights, however rows are cut into calls, and the tail is the last inputs.
func TestConvolver(t *testing.T) {
	const channels, from, to, stride = 70, 3, 67, 75
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	for _, kernel := range []int{1, 2, 4} {
		for _, rows := range []int{1, 2, 3, 9} {
			keep := kernel - 1
			w, bias, tail, x := random(channels*kernel), random(channels), random(keep*channels), random(rows*stride)
			want, inputs := slices.Clone(x), func(row, c int) float32 {
				if row < 0 {
					return tail[(keep+row)*channels+c]
				}
				return x[row*stride+c]
			}
			last := slices.Clone(tail)
			for c := from; c < to; c++ {
				for row := range rows {
					sum := inputs(row, c) * w[keep*channels+c]
					for j := range keep {
						sum += float32(w[j*channels+c] * inputs(row-keep+j, c))
					}
					want[row*stride+c] = sum + bias[c]
				}
				for j := range keep {
					last[j*channels+c] = inputs(rows-keep+j, c)
				}
			}
			near := func(got, want float32) bool { return math.Abs(float64(got-want)) <= 1e-6*(4+math.Abs(float64(want))) }
			var uncut []float32
			for cut := range rows {
				got, end := slices.Clone(x), slices.Clone(tail)
				v := newConvolver(channels, from, to, kernel, w, bias)
				v.run(got, cut, stride, end)
				v.run(got[cut*stride:], rows-cut, stride, end)
				if name := fmt.Sprintf("%d weights, %d rows cut at %d", kernel, rows, cut); !slices.EqualFunc(got, want, near) || !slices.Equal(end, last) {
					t.Errorf("%s: rows right: %v, tail right: %v", name, slices.EqualFunc(got, want, near), slices.Equal(end, last))
				} else if uncut == nil {
					uncut = got
				} else if !slices.Equal(got, uncut) {
					t.Errorf("%s: other bits than uncut", name)
				}
			}
		}
	}
}
