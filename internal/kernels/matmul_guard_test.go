//go:build unix

package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"terrace/internal/kernels/quant"
)

// guarded returns size bytes that end where an unreadable page begins, and are preceded by one if head.
func guarded(t *testing.T, size int, head bool) []byte {
	page := unix.Getpagesize()
	body := (size + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, body+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	for _, guard := range [][]byte{b[:page], b[page+body:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if head {
		return b[page : page+size]
	}
	return b[page+body-size : page+body]
}

// eachGuard runs body with buffers against the page behind them and against the page before them.
func eachGuard(t *testing.T, body func(t *testing.T, head bool)) {
	eachPath(t, func(t *testing.T) {
		if simd == nil {
			t.Skip("plain Go is checked by the compiler's bounds checks")
		}
		for _, head := range []bool{false, true} {
			body(t, head)
		}
	})
}

// TestIntegerKernelsStayInside: no kernel touches a byte outside the tile, the activations and the results.
func TestIntegerKernelsStayInside(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		for _, typ := range quant.Types() {
			k := simd.tiles[typ]
			cols := map[int]int{1: 96, 32: 96, 64: 192, 256: 512}[typ.BlockLen()]
			for _, d := range k.dot {
				tile := guarded(t, tileBytes(typ, cols), head)
				m := newMatrix(t, typ, tileRows, cols, randomWeights(rand.New(rand.NewPCG(1, 1)), typ, tileRows, cols))
				m.packTile(tile, 0)
				act := guarded(t, d.rows*cols/recordCols*actBytes, head)
				x := floatsOf(guarded(t, cols*4, head))
				copy(x, randomRows(rand.New(rand.NewPCG(2, 2)), 1, cols))
				for r := range d.rows {
					simd.quantize(&act[0], d.rows, r, &x[0], cols/recordCols)
				}
				dst := floatsOf(guarded(t, d.rows*tileRows*4, head))
				d.run(&dst[0], tileRows*4, &tile[0], &act[0], cols/recordCols)
				panel := floatsOf(guarded(t, cols*tileRows*4, head))
				k.unpack(&panel[0], &tile[0], 0, cols/recordCols)
			}
		}
	})
}

// TestManyRowsKernelsStayInside: nor do spreading and multiplying panels, of whole and of partly filled ones.
func TestManyRowsKernelsStayInside(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		for _, typ := range quant.Types() {
			if simd.tiles[typ].many.spread == nil {
				continue
			}
			counts := []int{1, 3, 8, 9, 17}
			switch typ.BlockLen() {
			case 64:
				counts = []int{2, 8, 10, 18}
			case 256:
				counts = []int{8, 24}
			}
			for _, records := range counts {
				for _, groups := range []int{1, 2, 5} {
					if err := manyProduct(t, typ, records, groups, func(size int) []byte { return guarded(t, size, head) }); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// TestPackKernelsEqualPlainGo: bit for bit, and without touching a byte outside the rows or the tile.
func TestPackKernelsEqualPlainGo(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		packed := 0
		for _, typ := range quant.Types() {
			if simd.pack[typ] == nil {
				continue
			}
			packed++
			for blocks := 1; blocks <= 5; blocks++ {
				cols := blocks * max(2, typ.BlockLen())
				w := guarded(t, tileRows*typ.RowBytes(cols), head)
				copy(w, randomWeights(rand.New(rand.NewPCG(4, uint64(blocks))), typ, tileRows, cols))
				m := newMatrix(t, typ, tileRows, cols, w)
				got, want := guarded(t, m.tile, head), make([]byte, m.tile)
				m.packTile(got, 0)
				machine := simd
				simd = nil
				m.packTile(want, 0)
				simd = machine
				if !bytes.Equal(got, want) {
					t.Errorf("%v, %d columns: tiles differ", typ, cols)
				}
			}
		}
		if runtime.GOARCH == "amd64" && packed != 12 { // arm64 has none
			t.Errorf("kernels pack %d types, want 12", packed)
		}
	})
}

// TestPanelKernelsAtAllLengths: every number of columns from 1 to four vectors and one, every row count, unaligned and
// against guard pages, equal to the single-row kernel and near the oracle.
func TestPanelKernelsAtAllLengths(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		for _, typ := range []quant.Type{quant.F32, quant.F16, quant.BF16} {
			for _, kernel := range simd.panels[typ] {
				for k := 1; k <= 65; k++ {
					rnd := rand.New(rand.NewPCG(3, uint64(k)))
					m := newMatrix(t, typ, tileRows, k, randomWeights(rnd, typ, tileRows, k))
					panel := guarded(t, tileBytes(typ, k), head)
					m.packTile(panel, 0)
					x := floatsOf(guarded(t, kernel.rows*k*4, head))
					copy(x, randomRows(rnd, kernel.rows, k))
					out := floatsOf(guarded(t, kernel.rows*tileRows*4, head))
					kernel.run(&out[0], &panel[0], &x[0], uintptr(k)*4, k)
					row := make([]float32, k)
					for r := range tileRows {
						m.Row(row, r)
						for n := range kernel.rows {
							var want, most float64
							for i, w := range row {
								p := float64(w) * float64(x[n*k+i])
								want, most = want+p, most+max(p, -p)
							}
							if e := (float64(out[n*tileRows+r]) - want) / most; !(e < 1e-6 && e > -1e-6) {
								t.Fatalf("%v x%d, %d columns: row %d: got %v, want %v", typ, kernel.rows, k, r, out[n*tileRows+r], want)
							}
						}
					}
				}
			}
		}
	})
}

// TestQuantizeExtremes: zeros, denormals, the largest numbers and unaligned rows give finite, bounded records.
func TestQuantizeExtremes(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if simd == nil {
			t.Skip("plain Go does not quantise activations")
		}
		buffer := make([]float32, 64+16)
		for offset := range 16 {
			for _, v := range []float32{0, 1e-45, -1e-40, 1e-38, 1, -3.4e38} {
				x := buffer[offset : offset+64]
				for i := range x {
					x[i] = v * (float32(i%3) / 2)
				}
				act := make([]byte, 2*actBytes)
				simd.quantize(&act[0], 1, 0, &x[0], 2)
				f := floatsOf(act[32:])
				for i := range 32 {
					got, want := float64(int8(act[i]))*float64(f[0]), float64(x[i])
					half := 1e-30 + math.Abs(float64(v))*(0.5/127+1e-6) // a step is max|x|/127
					if d := math.Abs(got - want); !(d <= half) {
						t.Errorf("value %v at offset %d: column %d reads back as %v", v, offset, i, got)
					}
				}
			}
		}
	})
}

// TestQuantizeGroupEqualsRows: 16 rows at once give the very bytes of 16 rows one by one. Where a row is not finite, its
// scale is not finite either way, and the rest does not matter.
func TestQuantizeGroupEqualsRows(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		if simd.group == nil {
			t.Skip("this path quantises row by row")
		}
		for records := 1; records <= 5; records++ {
			cols := records * recordCols
			x := floatsOf(guarded(t, 16*cols*4, head))
			rnd := rand.New(rand.NewPCG(6, uint64(records)))
			copy(x, randomRows(rnd, 16, cols))
			clear(x[:recordCols])
			for i, v := range []float32{1e-45, -1e-38, -3.4e38, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1))} {
				x[(i+3)*cols+i] = v
			}
			got, want := guarded(t, 16*records*actBytes, head), make([]byte, 16*records*actBytes)
			simd.group(&got[0], &x[0], uintptr(cols)*4, records)
			for r := range 16 {
				simd.quantize(&want[0], 16, r, &x[r*cols], records)
			}
			for i := range want {
				at := i % (16 * actBytes)
				row := at / 32
				if at >= 16*32 {
					row = at % 64 / 4
				}
				notFinite := row == 3+4 && i/(16*actBytes) == 0 || row == 3+5 && i/(16*actBytes) == 0
				if got[i] != want[i] && (!notFinite || at/64 == 8) {
					t.Fatalf("%d records: byte %d of a record, row %d: got %d, want %d", records, at, row, got[i], want[i])
				}
			}
		}
	})
}

// FuzzMatMul compares every path with the oracle on random shapes, types, phases and seeds.
func FuzzMatMul(f *testing.F) {
	for i := range 16 {
		f.Add(uint8(i), uint8(3*i), uint8(i), uint8(i+1), uint8(i), uint64(i))
	}
	pool := NewPool(2)
	f.Cleanup(pool.Close)
	f.Fuzz(func(t *testing.T, kind, rows, blocks, n, phase uint8, seed uint64) {
		types := quant.Types()
		typ, ph := types[int(kind)%len(types)], Phase(phase%3)
		r, c, k := 1+int(rows)%70, typ.BlockLen()*(1+int(blocks)%(1024/max(64, typ.BlockLen()))), 1+int(n)%34
		err := checkAllPaths(pool, typ, ph, r, c, k, seed)
		if err != nil {
			t.Fatal(err)
		}
	})
}

func checkAllPaths(pool *Pool, typ quant.Type, ph Phase, rows, cols, n int, seed uint64) error {
	was := Path()
	defer func() { _ = Select(was) }()
	rnd := rand.New(rand.NewPCG(seed, 9))
	o := newOracle(typ, randomWeights(rnd, typ, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
	m, err := NewMatrix(typ, rows, cols, o.w)
	if err != nil {
		return err
	}
	for _, path := range Available() {
		if err := Select(path); err != nil {
			return err
		}
		dst := make([]float32, n*rows)
		pool.MatMul(ph, o.x, n, Product{W: m, Dst: dst})
		if err := o.check(classOf(ph, m), dst); err != nil {
			return fmt.Errorf("%s: phase %d: %w", path, ph, err)
		}
	}
	return nil
}
