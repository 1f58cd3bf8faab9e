package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/quant"
)

// eachMany runs the body on every path with kernels for many rows, and calls without with those taken away.
func eachMany(t *testing.T, body func(t *testing.T, without func(f func()))) {
	eachPath(t, func(t *testing.T) {
		if simd == nil || simd.tiles[quant.Q4_0].many.spread == nil {
			t.Skip("no kernels for many rows")
		}
		body(t, func(f func()) {
			whole, poor := simd, *simd
			for i := range poor.tiles {
				poor.tiles[i].many = manyKernels{}
			}
			simd = &poor
			defer func() { simd = whole }()
			f()
		})
	})
}

// manyCounts are numbers of rows around those from which and up to which a panel is used, with all remainders of groups of 4.
var manyCounts = []int{fewestMany - 1, fewestMany, fewestMany + 1, fewestMany + 2, fewestMany + 3, mostMany - 1, mostMany + fewestMany + 7}

// TestManyRowsEqualFew: products of many rows are those of the dot kernels bit for bit, for every quantised type, stored and
// added, with tiles that are not full, records that do not fill a panel, and numbers of rows that are no multiple of a group.
func TestManyRowsEqualFew(t *testing.T) {
	eachMany(t, func(t *testing.T, without func(f func())) {
		p := NewPool(2)
		defer p.Close()
		for _, typ := range quant.Types() {
			if simd.tiles[typ].dot == nil {
				continue
			}
			if simd.tiles[typ].many.spread == nil || simd.tiles[typ].many.multiply == nil {
				t.Fatalf("%v has no kernel for many rows", typ)
			}
			for _, cols := range []int{typ.BlockLen(), map[int]int{32: 9, 64: 10, 256: 24}[typ.BlockLen()] * recordCols} {
				const rows = 3*tileRows + 5
				rnd := rand.New(rand.NewPCG(7, uint64(typ)))
				m := newMatrix(t, typ, rows, cols, randomWeights(rnd, typ, rows, cols))
				for _, n := range manyCounts {
					x, sums := randomRows(rnd, n, cols), randomRows(rnd, n, rows)
					for _, add := range []bool{false, true} {
						got, want := slices.Clone(sums), slices.Clone(sums)
						p.MatMul(Decode, x, n, Product{W: m, Dst: got, Add: add})
						without(func() { p.MatMul(Decode, x, n, Product{W: m, Dst: want, Add: add}) })
						if !slices.Equal(got, want) {
							t.Fatalf("%v [%d, %d], %d rows, added %v: differs from the dot kernels", typ, rows, cols, n, add)
						}
					}
				}
			}
		}
	})
}

// TestManyGatedEqualsFew is the same of gated networks, whose inner records are quantised group by group.
func TestManyGatedEqualsFew(t *testing.T) {
	eachMany(t, func(t *testing.T, without func(f func())) {
		p := NewPool(2)
		defer p.Close()
		for _, types := range [][3]quant.Type{{quant.Q4_K, quant.Q6_K, quant.Q4_1}, {quant.Q8_0, quant.Q2_K, quant.IQ4_NL}} {
			for _, n := range manyCounts {
				f := newFused(t, types, 256, 3*recordCols, n)
				got, want := make([]float32, n*f.cols), make([]float32, n*f.cols)
				g := func(dst []float32) *Gated {
					return &Gated{Gate: f.gate, Up: f.up, Act: SiluMul, Down: Product{W: f.down, Dst: dst}}
				}
				done := p.MatMulGated(Decode, f.x, n, g(got))
				without(func() { done = p.MatMulGated(Decode, f.x, n, g(want)) && done })
				if !done || !slices.Equal(got, want) {
					t.Fatalf("%v, %d rows: done %v, or differs from the dot kernels", types, n, done)
				}
			}
		}
	})
}

// manyProduct multiplies a tile with groups of 4 rows from a panel, in memory that get provides, and says whether the sums are
// those of the dot kernel.
func manyProduct(t *testing.T, typ quant.Type, records, groups int, get func(size int) []byte) error {
	k, cols := simd.tiles[typ], records*recordCols
	rnd := rand.New(rand.NewPCG(uint64(records), uint64(typ)))
	m := newMatrix(t, typ, tileRows, cols, randomWeights(rnd, typ, tileRows, cols))
	tile, act := get(tileBytes(typ, cols)), get(groups*manyRows*records*actBytes)
	m.packTile(tile, 0)
	for g := range groups {
		for r := range manyRows {
			x := randomRows(rnd, 1, cols)
			simd.quantize(&act[g*manyRows*records*actBytes], manyRows, r, &x[0], records)
		}
	}
	dst, want := floatsOf(get(groups*manyRows*tileRows*4)), make([]float32, groups*manyRows*tileRows)
	clear(dst)
	for r := 0; r < records; r += manyRecords {
		n := min(manyRecords, records-r)
		panel := get(n * panelRecordBytes(typ))
		k.many.spread(&panel[0], &tile[0], r, n)
		k.many.multiply(&dst[0], tileRows*4, &panel[0], &act[r*manyRows*actBytes], uintptr(manyRows*records*actBytes), n, groups)
	}
	run := kernelFor(k.dot, manyRows)
	for g := range groups {
		run(&want[g*manyRows*tileRows], tileRows*4, &tile[0], &act[g*manyRows*records*actBytes], records)
	}
	if !slices.Equal(dst, want) {
		return fmt.Errorf("%v, %d records, %d groups: differs from the dot kernel", typ, records, groups)
	}
	return nil
}

// panelRecordBytes is the size of a panel's record: 512 whole bytes, then scales, and minima where the type has such, of 16 rows,
// twice for types with two scales to 32 columns.
func panelRecordBytes(typ quant.Type) int {
	switch {
	case typ == quant.Q2_K:
		return 512 + 4*64
	case scaledHalves[typ]:
		return 512 + 2*64
	}
	switch typ {
	case quant.Q4_1, quant.Q5_1, quant.Q4_K, quant.Q5_K:
		return 512 + 2*64
	}
	return 512 + 64
}
