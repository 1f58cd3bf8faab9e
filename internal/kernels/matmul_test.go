package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/internal/kernels/ref"
)

// halfScales are the byte offsets of the float16 scales in a block: random bytes there would be NaN or huge.
var halfScales = map[quant.Type][]int{
	quant.Q4_0: {0}, quant.Q4_1: {0, 2}, quant.Q5_0: {0}, quant.Q5_1: {0, 2}, quant.Q8_0: {0}, quant.Q2_K: {80, 82},
	quant.Q3_K: {108}, quant.Q4_K: {0, 2}, quant.Q5_K: {0, 2}, quant.Q6_K: {208}, quant.IQ4_NL: {0}, quant.IQ4_XS: {0},
	quant.IQ1_S: {0}, quant.IQ2_XXS: {0}, quant.IQ2_XS: {0}, quant.IQ2_S: {0}, quant.IQ3_XXS: {0}, quant.IQ3_S: {0}, quant.TQ1_0: {52}, quant.TQ2_0: {64},
}

// randomWeights makes rows × cols weights of any type whose bits are all in use.
func randomWeights(rnd *rand.Rand, t quant.Type, rows, cols int) []byte {
	w := make([]byte, rows*t.RowBytes(cols))
	for i := range w {
		w[i] = byte(rnd.Uint32())
	}
	for at := 0; at < len(w); at += t.BlockBytes() {
		switch b := w[at : at+t.BlockBytes()]; t {
		case quant.F32:
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(rnd.NormFloat64())))
		case quant.F16:
			binary.LittleEndian.PutUint16(b, uint16(rnd.Uint32())&0x8FFF|uint16(8+rnd.IntN(8))<<10)
		case quant.BF16:
			binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(float32(rnd.NormFloat64()))>>16))
		case quant.MXFP4:
			b[0] = byte(118 + rnd.IntN(10))
		case quant.NVFP4:
			for i := range 4 { // every code, the odd ones too
				b[i] = byte(rnd.Uint32())
			}
		case quant.NVFP4_F32:
			for i := range 2 {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(0.1+rnd.Float64())))
			}
		case quant.F8_E4M3:
			binary.LittleEndian.PutUint32(b, math.Float32bits(float32(0.1+rnd.Float64())))
			for i := range b[4:] {
				if b[4+i]&127 == 127 { // NaN
					b[4+i] = 0x80
				}
			}
		case quant.IQ1_M: // the scale's nibbles lie above the others' scales
			d := uint16(rnd.Uint32())&0x83FF | uint16(5+rnd.IntN(6))<<10
			for i := range 4 {
				b[49+2*i] = b[49+2*i]&15 | byte(d>>(4*i))<<4
			}
		default:
			for _, o := range halfScales[t] {
				binary.LittleEndian.PutUint16(b[o:], uint16(rnd.Uint32())&0x83FF|uint16(5+rnd.IntN(6))<<10)
			}
		}
	}
	return w
}

func randomRows(rnd *rand.Rand, n, cols int) []float32 {
	x := make([]float32, n*cols)
	for i := range x {
		x[i] = float32(rnd.NormFloat64() * math.Exp(rnd.NormFloat64()))
	}
	return x
}

// eachPath runs the body once for every path of this machine and restores the selection.
func eachPath(t *testing.T, body func(t *testing.T)) {
	was := Path()
	defer func() { _ = Select(was) }()
	for _, path := range Available() {
		if err := Select(path); err != nil {
			t.Fatal(err)
		}
		t.Run(path, body)
	}
}

func newMatrix(t testing.TB, typ quant.Type, rows, cols int, w []byte) *Matrix {
	m, err := NewMatrix(typ, rows, cols, w)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// oracle holds one product's inputs and, once asked for, its results by class of arithmetic.
type oracle struct {
	typ           quant.Type
	rows, cols, n int
	w             []byte
	x             []float32
	want          map[class]ref.Product
}

func newOracle(typ quant.Type, w []byte, rows, cols int, x []float32, n int) *oracle {
	return &oracle{typ: typ, rows: rows, cols: cols, n: n, w: w, x: x, want: map[class]ref.Product{}}
}

// splitProduct is the product with what two bf16 hold of an activation.
func splitProduct(typ quant.Type, w []byte, rows, cols int, x []float32, n int) ref.Product {
	parts := make([]float32, len(x))
	for i, v := range x {
		high := ref.RoundBF16(v)
		parts[i] = high + ref.RoundBF16(v-high)
	}
	return ref.MatMul(typ, w, rows, cols, parts, n)
}

// check compares results with the oracle of the class. Errors are relative to the sum of magnitudes: float32 sums of up
// to 1000 terms, with a scale's rounding on top in the integer arithmetic.
func (o *oracle) check(c class, got []float32) error {
	limit := 2e-6
	if c == classFloat || c == classPlain {
		c, limit = classFloat, 1e-6
	}
	if _, ok := o.want[c]; !ok {
		f := map[class]func(quant.Type, []byte, int, int, []float32, int) ref.Product{
			classFloat: ref.MatMul, classInteger: ref.MatMulInt8, classMatrix: ref.MatMulBF16, classSplit: splitProduct}[c]
		o.want[c] = f(o.typ, o.w, o.rows, o.cols, o.x, o.n)
	}
	want := o.want[c]
	for i, s := range want.Sum {
		if e := math.Abs(float64(got[i])-s) / max(want.Magnitude[i], 1e-30); !(e <= limit) {
			return fmt.Errorf("%v [%d, %d] by %d rows: result %d of row %d: got %v, want %v: error %.3g of the magnitudes, limit %.3g",
				o.typ, o.rows, o.cols, o.n, i%o.rows, i/o.rows, got[i], s, e, limit)
		}
	}
	return nil
}

var phaseNames = map[Phase]string{Prefill: "prefill", Decode: "decode", Exact: "exact"}

// TestMatMulAgainstRef: every path, phase and type, with row counts around the tile height and every size of group.
func TestMatMulAgainstRef(t *testing.T) {
	was := Path()
	defer func() { _ = Select(was) }()
	pool := NewPool(2)
	defer pool.Close()
	for _, typ := range quant.Types() {
		rnd := rand.New(rand.NewPCG(1, uint64(typ)))
		for _, shape := range [][3]int{{1, 256, 1}, {16, 512, 3}, {37, 768, 21}, {20, 256, 40}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			if n := typ.BlockLen(); n == 32 || n == 64 {
				cols -= 3 * n
			}
			if typ.BlockLen() == 1 {
				cols -= 5
			}
			o := newOracle(typ, randomWeights(rnd, typ, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
			m := newMatrix(t, typ, rows, cols, o.w)
			for _, path := range Available() {
				if err := Select(path); err != nil {
					t.Fatal(err)
				}
				for ph, name := range phaseNames {
					dst := make([]float32, n*rows)
					pool.MatMul(ph, o.x, n, Product{W: m, Dst: dst})
					if err := o.check(classOf(ph, m), dst); err != nil {
						t.Errorf("%s: %s: %v", path, name, err)
					}
				}
			}
		}
	}
}

// TestMatMulRowsAlone: a row's bits do not depend on the rows beside it, on the threads, nor on the other products.
func TestMatMulRowsAlone(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		one, three := NewPool(1), NewPool(3)
		defer one.Close()
		defer three.Close()
		for _, typ := range quant.Types() {
			rnd := rand.New(rand.NewPCG(2, uint64(typ)))
			const rows, cols, n = 34, 256, 31
			m := newMatrix(t, typ, rows, cols, randomWeights(rnd, typ, rows, cols))
			q2 := newMatrix(t, quant.Q2_K, rows, cols, randomWeights(rnd, quant.Q2_K, rows, cols))
			x := randomRows(rnd, n, cols)
			for ph, name := range phaseNames {
				all, other := make([]float32, n*rows), make([]float32, n*rows)
				three.MatMul(ph, x, n, Product{W: m, Dst: all}, Product{W: q2, Dst: other})
				for r := range n {
					alone := make([]float32, rows)
					one.MatMul(ph, x[r*cols:(r+1)*cols], 1, Product{W: m, Dst: alone})
					if !slices.Equal(alone, all[r*rows:(r+1)*rows]) {
						t.Fatalf("%v %s: row %d alone differs from the same row among %d", typ, name, r, n)
					}
				}
			}
		}
	})
}

// TestUnpackEqualsDequantize: the panels of the Exact phase hold the very values of quant.Dequantize.
func TestUnpackEqualsDequantize(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		if simd == nil {
			t.Skip("plain Go dequantises with package quant itself")
		}
		pool := NewPool(1)
		defer pool.Close()
		for _, typ := range quant.Types() {
			unpack := simd.tiles[typ].unpack
			if unpack == nil {
				continue
			}
			const rows, cols = 19, 768
			m := newMatrix(t, typ, rows, cols, randomWeights(rand.New(rand.NewPCG(3, uint64(typ))), typ, rows, cols))
			pool.mu.Lock()
			pool.ensurePacked(m)
			pool.mu.Unlock()
			row := make([]float32, cols)
			panel := make([]float32, cols*tileRows)
			for tile := range tilesOf(rows) {
				for c := 0; c < cols; c += panelCols {
					unpack(&panel[c*tileRows], m.tileAt(tile), c/recordCols, panelCols/recordCols)
				}
				for r := range min(tileRows, rows-tile*tileRows) {
					m.Row(row, tile*tileRows+r)
					for k, v := range row {
						if got := panel[k*tileRows+r]; got != v {
							t.Fatalf("%v: row %d column %d: got %v, want %v", typ, tile*tileRows+r, k, got, v)
						}
					}
				}
			}
		}
	})
}

// TestMatMulNotFinite: NaN or Inf in a row of activations makes that row's results not finite, and no other row's.
func TestMatMulNotFinite(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		pool := NewPool(1)
		defer pool.Close()
		for _, typ := range quant.Types() {
			const rows, cols, n = 16, 256, 3
			rnd := rand.New(rand.NewPCG(4, uint64(typ)))
			m := newMatrix(t, typ, rows, cols, randomWeights(rnd, typ, rows, cols))
			for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				x := randomRows(rnd, n, cols)
				x[cols+77] = float32(bad)
				for ph, name := range phaseNames {
					dst := make([]float32, n*rows)
					pool.MatMul(ph, x, n, Product{W: m, Dst: dst})
					for i, v := range dst {
						finite := !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
						if finite == (i/rows == 1) {
							t.Fatalf("%v %s: %v in row 1: result %d of row %d is %v", typ, name, bad, i%rows, i/rows, v)
						}
					}
				}
			}
		}
	})
}

func TestMatMulAllocatesNothing(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		pool := NewPool(2)
		defer pool.Close()
		rnd := rand.New(rand.NewPCG(5, 5))
		const rows, cols, n = 64, 256, 5
		a := newMatrix(t, quant.Q4_K, rows, cols, randomWeights(rnd, quant.Q4_K, rows, cols))
		b := newMatrix(t, quant.F16, rows, cols, randomWeights(rnd, quant.F16, rows, cols))
		x, dst := randomRows(rnd, n, cols), make([]float32, 2*n*rows)
		for ph, name := range phaseNames {
			if got := testing.AllocsPerRun(20, func() {
				pool.MatMul(ph, x, n, Product{W: a, Dst: dst[:n*rows]}, Product{W: b, Dst: dst[n*rows:]})
			}); got != 0 {
				t.Errorf("%s: %v allocations a call, want 0", name, got)
			}
		}
	})
}

// TestOnPacked: the parts handed back are the matrix's bytes, each once, in order.
func TestOnPacked(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		pool := NewPool(2)
		defer pool.Close()
		const rows, cols = 5000, 2048
		w := make([]byte, rows*quant.F16.RowBytes(cols))
		m := newMatrix(t, quant.F16, rows, cols, w)
		released := 0
		m.OnPacked(func(part []byte) {
			if &part[0] != &w[released] || len(part) > packChunkBytes {
				t.Errorf("%d bytes from an unexpected place after %d", len(part), released)
			}
			released += len(part)
		})
		for range 2 {
			pool.MatMul(Decode, make([]float32, cols), 1, Product{W: m, Dst: make([]float32, rows)})
		}
		if want := len(w); simd != nil && released != want {
			t.Errorf("%d bytes released, want %d", released, want)
		}
	})
}

func TestNewMatrixRefusesWrongShapes(t *testing.T) {
	for _, c := range []struct {
		typ               quant.Type
		rows, cols, bytes int
	}{{quant.Q4_0, 2, 33, 36}, {quant.Q4_0, 0, 32, 0}, {quant.Q4_0, 2, 32, 35}, {quant.Q4_K, 1, 128, 72}, {quant.Type(99), 1, 1, 1}, {quant.F32, -1, 4, 16}} {
		if _, err := NewMatrix(c.typ, c.rows, c.cols, make([]byte, c.bytes)); err == nil {
			t.Errorf("%+v: want an error", c)
		} else if msg := fmt.Sprint(err); msg == "" {
			t.Error("empty message")
		}
	}
}

// TestPackedGrowth: what an estimate of memory has to add to a file's bytes.
func TestPackedGrowth(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for typ, ratio := range map[quant.Type]float64{quant.IQ2_XXS: 848. / 528, quant.IQ3_S: 1104. / 880, quant.TQ2_0: 592. / 528, quant.Q4_K: 1, quant.Q6_K: 1, quant.F16: 1} {
			const rows, cols = 160, 512
			want := int64(math.Round((ratio - 1) * float64(rows*typ.RowBytes(cols))))
			if simd == nil {
				want = 0
			}
			if got := PackedGrowth(typ, rows, cols); got != want {
				t.Errorf("%v: %d bytes, want %d", typ, got, want)
			}
		}
	})
}

// TestTransient: computed bytes go once they are packed, and come back where a path reads them.
func TestTransient(t *testing.T) {
	pool := NewPool(1)
	defer pool.Close()
	const rows, cols = 40, 256
	w := randomWeights(rand.New(rand.NewPCG(9, 9)), quant.Q4_K, rows, cols)
	x := randomRows(rand.New(rand.NewPCG(9, 1)), 1, cols)
	was := Path()
	defer func() { _ = Select(was) }()
	for _, path := range Available() {
		if err := Select(path); err != nil {
			t.Fatal(err)
		}
		want, got := make([]float32, rows), make([]float32, rows)
		pool.MatMul(Exact, x, 1, Product{W: newMatrix(t, quant.Q4_K, rows, cols, w), Dst: want})
		m, drops, loads := newMatrix(t, quant.Q4_K, rows, cols, slices.Clone(w)), 0, 0
		m.Transient(func() { drops++ }, func() ([]byte, error) { loads++; return slices.Clone(w), nil })
		for range 2 {
			pool.MatMul(Exact, x, 1, Product{W: m, Dst: got})
		}
		packs := simd != nil
		if !slices.Equal(got, want) || packs != (drops == 1) || m.HasRows() == packs || loads != 0 {
			t.Errorf("%s: %d drops, %d loads, rows %v; results %v, want %v", path, drops, loads, m.HasRows(), got[:3], want[:3])
		}
		if err := Select("purego"); err != nil {
			t.Fatal(err)
		}
		pool.MatMul(Exact, x, 1, Product{W: m, Dst: got})
		if packs != (loads == 1) || math.Abs(float64(got[0]-want[0])) > 1e-3*math.Abs(float64(want[0]))+1e-6 {
			t.Errorf("%s, then plain Go: %d loads; %v, want %v", path, loads, got[0], want[0])
		}
	}
}
