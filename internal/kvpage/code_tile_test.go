package kvpage

import (
	"math/rand/v2"
	"testing"
)

// TestCodeTiles writes 16 vectors of every length up to a few groups in any order and reads every number back.
func TestCodeTiles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for e, limit := range map[Elem]int{I8: 127, I4: 7} {
		for dim := 1; dim <= 33; dim++ {
			tile := make([]byte, CodeTileBytes(e, dim))
			var want [Tile][]int8
			for _, slot := range append(rnd.Perm(Tile), 3, 9) {
				want[slot] = make([]int8, dim)
				for d := range dim {
					want[slot][d] = int8(rnd.IntN(2*limit+1) - limit)
				}
				PutCode(e, tile, slot, want[slot])
			}
			for slot, codes := range want {
				for d, c := range codes {
					if got := codeAt(e, tile, slot, d); got != c {
						t.Fatalf("%v, %d dimensions: number %d of slot %d is %d, want %d", e, dim, d, slot, got, c)
					}
				}
			}
		}
	}
}

// codeAt is number d of the vector in a slot.
func codeAt(e Elem, tile []byte, slot, d int) int8 {
	if e == I8 {
		return int8(tile[(d/4*Tile+slot)*4+d%4])
	}
	return int8(tile[(d/8*Tile+slot)*4+d%4]>>(d%8/4*4)&15) - 8
}
