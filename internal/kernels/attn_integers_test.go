package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestIntegerTilesAreThoseOfEveryPath: scores and outputs over quantised tiles have the same bits on every path that multiplies
// them as integers, for weights and queries that are huge, tiny and not finite too.
func TestIntegerTilesAreThoseOfEveryPath(t *testing.T) {
	was := Path()
	defer func() { _ = Select(was) }()
	compared := 0
	for _, c := range []struct{ dim, tiles int }{{64, 1}, {64, 5}, {128, 40}, {192, 3}, {512, 2}, {48, 4}} {
		for heads := 1; heads <= GroupHeads; heads++ {
			for _, e := range []KVElem{KVI8, KVI4, KVI3, KVI2} {
				if e == KVI4 && c.dim%32 != 0 {
					continue
				}
				for _, x := range []float32{1, 1e30, 1e-33, float32(math.NaN())} {
					var first []float32
					for _, path := range Available() {
						if err := Select(path); err != nil {
							t.Fatal(err)
						}
						if !HasIntegerKV(e) {
							continue
						}
						got := integerTilesOf(e, c.dim, c.tiles, heads, x)
						if first == nil {
							first = got
							continue
						}
						compared++
						for i := range got {
							if math.Float32bits(got[i]) != math.Float32bits(first[i]) && !(got[i] != got[i] && first[i] != first[i]) {
								t.Fatalf("type %d, dim %d, %d tiles, %d heads, a factor of %v: [%d] is %v on %s, %v before", e, c.dim, c.tiles, heads, x, i, got[i], path, first[i])
							}
						}
					}
				}
			}
		}
	}
	if compared == 0 {
		t.Skip("one path at most multiplies tiles as integers")
	}
}

// integerTilesOf are scores and outputs of random tiles, of which some tokens are not read; one query and weight is x times as large.
func integerTilesOf(e KVElem, dim, n, heads int, x float32) []float32 {
	rnd := rand.New(rand.NewPCG(9, uint64(dim*n)))
	k := newTiles(rnd, e, n, dim, heapBytes)
	for i := range k.masks {
		k.masks[i] |= 0x7ffe // most are read: others are multiplied in float32
	}
	q, p := normals(rnd, heap(heads*dim)), normals(rnd, heap(heads*TileTokens*n))
	q[dim/2] *= x
	p[TileTokens/2] *= x
	s, out := heap(heads*TileTokens*n), normals(rnd, heap(heads*dim))
	ScoreTilesThen(e, s, q, k.keys, k.masks, heads, dim, k.values)
	if dim%64 != 0 { // values of part of a group are weighed in float32
		return s
	}
	WeighTilesThen(e, out, p, k.values, k.masks, heads, dim, k.keys)
	return append(s, out...)
}
