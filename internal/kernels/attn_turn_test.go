package kernels

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// turned runs TurnKeys on the selected path and in plain Go over random bytes; rows start anywhere.
func turned(rnd *rand.Rand, e KVElem, dim int, get func(n int) []byte) bool {
	size := e.KeyTileBytes(1) / TileTokens
	rows := make([][]byte, TileTokens)
	for i := range rows {
		rows[i] = get(dim * size)
		for j := range rows[i] {
			rows[i][j] = byte(rnd.Uint32())
		}
	}
	got, want := get(e.KeyTileBytes(dim)), make([]byte, e.KeyTileBytes(dim))
	TurnKeys(e, got, rows, dim)
	ref.TurnKeys(size, want, rows, dim)
	return bytes.Equal(got, want)
}

// TestTurnKeys: all dimensions up to several vectors, with and without assembly, bytes at odd addresses.
func TestTurnKeys(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 1))
		for _, e := range []KVElem{KVF32, KVF16, KVBF16} {
			for dim := 1; dim <= 136; dim++ {
				if !turned(rnd, e, dim, heapBytes) {
					t.Fatalf("type %d, dim %d: tile differs", e, dim)
				}
			}
		}
	})
}

// TestCopyRows: every size, any addresses, none to some rows; nothing behind dst is written.
func TestCopyRows(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(2, 1))
		for size := 1; size <= 300; size++ {
			for _, n := range []int{0, 1, 5} {
				var rows []*byte
				var want []byte
				for range n {
					row := heapBytes(size)
					for j := range row {
						row[j] = byte(rnd.Uint32())
					}
					rows, want = append(rows, &row[0]), append(want, row...)
				}
				got := heapBytes(n*size + 64)
				CopyRows(got[:n*size], rows, size)
				if !bytes.Equal(got[:n*size], want) || !bytes.Equal(got[n*size:], make([]byte, 64)) {
					t.Fatalf("%d rows of %d bytes differ", n, size)
				}
			}
		}
	})
}

// TestCopyOut: every length up to several blocks, from and to any address; nothing before or behind dst is written.
func TestCopyOut(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(3, 1))
		for n := 0; n <= 5*outBlock; n++ {
			from, to := rnd.IntN(outLine), outLine+rnd.IntN(outLine)
			src, dst := make([]byte, from+n), make([]byte, to+n+2*outLine)
			for i := range src {
				src[i] = byte(rnd.Uint32())
			}
			want := slices.Clone(dst)
			copy(want[to:], src[from:])
			if CopyOut(dst[to:to+n], src[from:]); !bytes.Equal(dst, want) {
				t.Fatalf("%d bytes from %d to %d differ", n, from, to)
			}
		}
	})
}

// BenchmarkTurnKeys turns one cached tile of 64 dimensions.
func BenchmarkTurnKeys(b *testing.B) {
	for name, e := range map[string]KVElem{"f16": KVF16, "f32": KVF32} {
		rows := make([][]byte, TileTokens)
		for i := range rows {
			rows[i] = make([]byte, 4*64)
		}
		tile := make([]byte, e.KeyTileBytes(64))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(tile)))
			for b.Loop() {
				TurnKeys(e, tile, rows, 64)
			}
		})
	}
}
