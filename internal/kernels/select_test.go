package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// TestCompare: all lengths up to several vectors, bounds among the numbers, infinities, NaN and both zeros; in place too.
func TestCompare(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		odd := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 1e-42}
		for n := range 90 {
			x := normals(rnd, heap(n))
			for i := range x {
				if rnd.IntN(6) == 0 {
					x[i] = odd[rnd.IntN(len(odd))]
				}
			}
			for _, bound := range append(odd, 0.3) {
				for name, f := range map[string][2]func(dst, x []float32, bound float32) int{
					"AtLeast": {AtLeast, ref.AtLeast}, "Below": {Below, ref.Below}} {
					got, want := append(slices.Clone(x), make([]float32, Room)...), make([]float32, n+Room)
					a, b := f[0](got, got[:n], bound), f[1](want, x, bound)
					same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
					if !slices.EqualFunc(got[:a], want[:b], same) {
						t.Fatalf("%s of %d numbers, bound %v: %v, want %v", name, n, bound, got[:a], want[:b])
					}
				}
				got, want := make([]int32, n+Room), make([]int32, n+Room)
				a, b := Reaching(got, x, bound, 7), ref.Reaching(want, x, bound, 7)
				if !slices.Equal(got[:a], want[:b]) {
					t.Fatalf("Reaching of %d numbers, bound %v: %v, want %v", n, bound, got[:a], want[:b])
				}
			}
		}
	})
}

// TestHide: any number of tiles and any bits; what is longer than the masks stays.
func TestHide(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(2, 2))
		for tiles := range 20 {
			masks := make([]uint16, tiles)
			for i := range masks {
				masks[i] = []uint16{0, 0xffff, uint16(rnd.Uint32())}[rnd.IntN(3)]
			}
			got := normals(rnd, heap(16*tiles+5))
			want := slices.Clone(got)
			Hide(got, masks)
			ref.Hide(want, masks)
			if !slices.Equal(got, want) {
				t.Fatalf("%d tiles: %v, want %v", tiles, got, want)
			}
		}
	})
}
