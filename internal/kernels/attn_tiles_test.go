//go:build unix && amd64 && !purego

package kernels

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"terrace/internal/kernels/ref"
)

// modelGemmTiles is amx.GemmTiles instruction by instruction on the model of the tile registers (see
// _asm/attn_tiles.go).
func modelGemmTiles(c *float32, cBytes int, a *uint16, aBytes int, b *uint16, steps, rows int, scale *float32) {
	var u tileUnit
	for r := range rows {
		for i := range PanelCols {
			if scale != nil {
				*(*float32)(unsafe.Add(unsafe.Pointer(c), r*cBytes+4*i)) *= unsafe.Slice(scale, rows)[r]
			}
		}
	}
	for from := 0; from < rows; from += 32 {
		top, low := unsafe.Add(unsafe.Pointer(c), from*cBytes), unsafe.Add(unsafe.Pointer(c), (from+16)*cBytes)
		a0, a1 := unsafe.Add(unsafe.Pointer(a), from*aBytes), unsafe.Add(unsafe.Pointer(a), (from+16)*aBytes)
		for off := 0; off < 256; off += 128 {
			u.tile = [8][16][64]byte{}
			if scale != nil {
				for i, at := range []unsafe.Pointer{top, top, low, low} {
					u.load(i, unsafe.Add(at, off+i%2*64), uintptr(cBytes))
				}
			}
			for s := range steps {
				u.load(4, unsafe.Add(a0, 64*s), uintptr(aBytes))
				u.load(6, unsafe.Add(unsafe.Pointer(b), s*16*256+off), 256)
				u.load(7, unsafe.Add(unsafe.Pointer(b), s*16*256+off+64), 256)
				u.load(5, unsafe.Add(a1, 64*s), uintptr(aBytes))
				u.dotBF16(0, 4, 6)
				u.dotBF16(1, 4, 7)
				u.dotBF16(2, 5, 6)
				u.dotBF16(3, 5, 7)
			}
			for i, at := range []unsafe.Pointer{top, top, low, low} {
				u.store(i, unsafe.Add(at, off+i%2*64), uintptr(cBytes))
			}
		}
	}
}

// TestGemmTilesModel compares the tiles' steps with VDPBF16PS on rows beside and over whole groups, and, where the CPU
// has tiles, the instructions themselves with the model.
func TestGemmTilesModel(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512BF16) {
		t.Skip("needs AVX512_BF16")
	}
	units := map[string]bf16Ops{"model": tiledBF16(modelGemmTiles)}
	if indexOfPath("amx") >= 0 {
		units["amx"] = bf16AMX
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for name, unit := range units {
		for _, k := range []int{32, 64, 128, 80} {
			for _, rows := range []int{1, 31, 32, 33, 64, 70} {
				padded := (rows + groupRows - 1) / groupRows * groupRows
				a, b := make([]uint16, padded*(k+8)), make([]uint16, k*PanelCols)
				ref.F32ToBF16(a, normals(rnd, make([]float32, len(a))))
				ref.F32ToBF16(b, normals(rnd, make([]float32, len(b))))
				for _, scale := range [][]float32{nil, normals(rnd, make([]float32, rows))} {
					got := normals(rnd, make([]float32, padded*130))
					want := append([]float32(nil), got...)
					unit.gemm(got, 130, a, k+8, b, k, rows, scale)
					bf16AVX512.gemm(want, 130, a, k+8, b, k, rows, scale)
					for r := range rows {
						if err := nearly(got[r*130:][:PanelCols], want[r*130:][:PanelCols], 4e-6); err != nil {
							t.Fatalf("%s: k %d, %d rows, row %d: %v", name, k, rows, r, err)
						}
					}
				}
			}
		}
	}
}
