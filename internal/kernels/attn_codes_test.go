package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// codeKernel runs DotCodes and ScoreCodes on the selected path and in plain Go over n tiles of random codes.
func codeKernel(rnd *rand.Rand, e CodeElem, rows, dim, n int, get func(int) []float32, getBytes func(int) []byte) error {
	d := e.CodeDim(dim)
	codes := getBytes(n * d / e.groupDims() * 64)
	for i := range codes {
		if codes[i] = byte(rnd.Uint32()); e == Codes8 && codes[i] == 0x80 {
			codes[i] = 0x81 // -127 is the least code
		}
	}
	q, scales, unit := make([]int8, rows*d), normals(rnd, get(n*TileTokens)), normals(rnd, get(rows))
	for i := range q {
		q[i] = [...]int8{127, -127, int8(rnd.IntN(255) - 127)}[rnd.IntN(3)]
	}
	got, want := make([]int32, rows*n*TileTokens), make([]int32, rows*n*TileTokens)
	DotCodes(e, got, n*TileTokens, q, codes, rows, dim)
	ref.DotCodes(int(e), want, n*TileTokens, q, codes, rows, d)
	if !slices.Equal(got, want) {
		return fmt.Errorf("integers differ")
	}
	for _, s := range [][]float32{scales, nil} {
		stride := n*TileTokens + 5
		f, wantF := get((rows-1)*stride+n*TileTokens), make([]float32, (rows-1)*stride+n*TileTokens)
		ScoreCodes(e, f, stride, q, codes, rows, dim, unit, s)
		ref.ScoreCodes(int(e), wantF, stride, q, codes, rows, d, unit, s)
		if !slices.Equal(f, wantF) {
			return fmt.Errorf("floats differ")
		}
	}
	return nil
}

// TestCodeKernels: exact on every path, for all group counts, rows, numbers of tiles and extreme codes.
func TestCodeKernels(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		for _, e := range []CodeElem{Codes8, Codes4} {
			for _, dim := range []int{1, 4, 7, 8, 16, 36, 64, 80, 128, 256} {
				for rows := 1; rows <= GroupHeads; rows++ {
					for _, n := range []int{0, 1, 2, 5} {
						if err := codeKernel(rnd, e, rows, dim, n, heap, heapBytes); err != nil {
							t.Fatalf("%d bits, dim %d, %d rows, %d tiles: %v", e, dim, rows, n, err)
						}
					}
				}
			}
		}
	})
}

// BenchmarkScoreCodes scans 8,000 keys of 64 dimensions for 3 heads.
func BenchmarkScoreCodes(b *testing.B) {
	for _, e := range []CodeElem{Codes8, Codes4} {
		const dim, rows, n = 64, 3, 500
		q, unit, dst, scales := make([]int8, rows*dim), heap(rows), heap(rows*n*TileTokens), heap(n*TileTokens)
		codes := make([]byte, n*dim/e.groupDims()*64)
		b.Run(fmt.Sprint(int(e)), func(b *testing.B) {
			b.SetBytes(int64(len(codes)))
			for b.Loop() {
				ScoreCodes(e, dst, n*TileTokens, q, codes, rows, dim, unit, scales)
			}
		})
	}
}
