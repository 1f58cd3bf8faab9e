//go:build unix && amd64 && !purego

package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"terrace/internal/kernels/quant"
	"terrace/internal/kernels/ref"
)

// tileUnit models AMX's eight tile registers of 16 rows by 64 bytes (Intel SDM, chapter 18 of volume 1 and the
// instruction pages).
type tileUnit struct{ tile [8][16][64]byte }

func (u *tileUnit) load(t int, base unsafe.Pointer, strideBytes uintptr) {
	for r := range 16 {
		copy(u.tile[t][r][:], unsafe.Slice((*byte)(unsafe.Add(base, uintptr(r)*strideBytes)), 64))
	}
}

func (u *tileUnit) store(t int, base unsafe.Pointer, strideBytes uintptr) {
	for r := range 16 {
		copy(unsafe.Slice((*byte)(unsafe.Add(base, uintptr(r)*strideBytes)), 64), u.tile[t][r][:])
	}
}

// dotBF16 is TDPBF16PS: C[m][n] += sum over k of the pairs A[m][2k..] B[k][2n..].
func (u *tileUnit) dotBF16(c, a, b int) {
	bf16 := func(row *[64]byte, i int) float32 {
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
	}
	for m := range 16 {
		for n := range 16 {
			cell := u.tile[c][m][4*n:]
			sum := math.Float32frombits(binary.LittleEndian.Uint32(cell))
			for k := range 16 {
				sum += bf16(&u.tile[a][m], 2*k) * bf16(&u.tile[b][k], 2*n)
				sum += bf16(&u.tile[a][m], 2*k+1) * bf16(&u.tile[b][k], 2*n+1)
			}
			binary.LittleEndian.PutUint32(cell, math.Float32bits(sum))
		}
	}
}

// modelTiles is amx.Tiles instruction by instruction on the model (see _asm/matmul_tiles.go).
func modelTiles(_ *byte, args *tileArgs) {
	dst, strideBytes, from, steps := args.dst, args.strideBytes, args.from, args.steps
	var u tileUnit
	out, a, b := unsafe.Pointer(dst), unsafe.Pointer(args.act), unsafe.Pointer(args.panel)
	for g := range args.groups {
		for c := range 4 {
			if u.tile[c] = [16][64]byte{}; from != nil {
				u.load(c, unsafe.Add(unsafe.Pointer(from), 4096*g+2048*(c/2)+64*(c%2)), 128)
			}
		}
		for s := range steps {
			aAt, bAt := g*int(args.groupBytes)+s*2048, s*int(args.panelStep)
			u.load(4, unsafe.Add(a, aAt), 64)
			u.load(6, unsafe.Add(b, bAt), 64)
			u.load(7, unsafe.Add(unsafe.Pointer(args.panel2), bAt), 64)
			u.load(5, unsafe.Add(a, aAt+1024), 64)
			u.dotBF16(0, 4, 6)
			u.dotBF16(1, 4, 7)
			u.dotBF16(2, 5, 6)
			u.dotBF16(3, 5, 7)
		}
		top := unsafe.Add(out, uintptr(32*g)*strideBytes)
		low := unsafe.Add(out, uintptr(32*g+16)*strideBytes)
		u.store(0, top, strideBytes)
		u.store(1, unsafe.Add(top, 64), strideBytes)
		u.store(2, low, strideBytes)
		u.store(3, unsafe.Add(low, 64), strideBytes)
	}
}

// modelMatrixUnit selects the AMX path with a stand-in for the tile instructions (the model in Go, or VDPBF16PS, whose
// equality to the model has a test): everything else (packing, rounding, panels, addresses, edges) then runs on any
// CPU with AVX512_BF16.
func modelMatrixUnit(t *testing.T, multiply tileProduct) {
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512BF16, cpuid.AVX512VNNI) {
		t.Skip("needs AVX512_BF16")
	}
	m, unit := amxMachine, *amxMachine.matrix
	unit.multiply = multiply
	m.matrix = &unit
	was := simd
	simd = &m
	t.Cleanup(func() { simd = was })
}

func TestMatrixUnit(t *testing.T) {
	modelMatrixUnit(t, pairsUnit.multiply)
	for _, shape := range [][3]int{{16, 256, 1}, {50, 512, 33}, {64, 256, 70}, {33, 768, 64}} {
		for _, typ := range quant.Types() {
			checkMatrixUnit(t, typ, shape[0], shape[1], shape[2])
		}
	}
}

// TestMatrixUnitBlocks: more columns than a slice, more rows of activations than a task, more panels than a block.
func TestMatrixUnitBlocks(t *testing.T) {
	modelMatrixUnit(t, pairsUnit.multiply)
	checkMatrixUnit(t, quant.Q8_0, 50, sliceSteps*recordCols+96, blockRows*groupRows+40)
	checkMatrixUnit(t, quant.BF16, (2*mostPanels*16+1)*tileRows, sliceSteps*recordCols+32, 3)
}

// TestSplitRows: few rows of BF16, within a group of 16 and in several, with rows that are added, alone and together.
func TestSplitRows(t *testing.T) {
	modelMatrixUnit(t, pairsUnit.multiply)
	pool := NewPool(2)
	defer pool.Close()
	units := map[string]tileProduct{"pairs": pairsUnit.multiply}
	if slices.Contains(available, isaAMX) {
		units["amx"] = amxMachine.matrix.once
	}
	for name, unit := range units {
		simd.matrix.once = unit
		for _, shape := range [][3]int{{50, 1120, 1}, {33, 64, 16}, {64, 544, 17}, {40, 96, 150}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			rnd := rand.New(rand.NewPCG(6, uint64(rows)))
			o := newOracle(quant.BF16, randomWeights(rnd, quant.BF16, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
			m, dst, added, alone := newMatrix(t, quant.BF16, rows, cols, o.w), make([]float32, n*rows), make([]float32, n*rows), make([]float32, rows)
			if c := classOf(Decode, m); c != classSplit {
				t.Fatalf("class %d, want that of split rows", c)
			}
			pool.MatMul(Decode, o.x, n, Product{W: m, Dst: dst})
			if err := o.check(classSplit, dst); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			pool.MatMul(Decode, o.x[(n-1)*cols:], 1, Product{W: m, Dst: alone})
			for i := range added {
				added[i] = float32(i)
			}
			pool.MatMul(Decode, o.x, n, Product{W: m, Dst: added, Add: true})
			for i, v := range dst {
				if added[i] != float32(i)+v {
					t.Fatalf("%s [%d, %d] by %d: result %d added to %d is %v, want %v", name, rows, cols, n, i, i, added[i], float32(i)+v)
				}
			}
			if !slices.Equal(alone, dst[(n-1)*rows:]) {
				t.Errorf("%s [%d, %d]: the last row alone differs from the same among %d", name, rows, cols, n)
			}
		}
	}
}

// TestMatrixUnitModel runs amx.Tiles' own steps on the model of the tile registers.
func TestMatrixUnitModel(t *testing.T) {
	modelMatrixUnit(t, modelTiles)
	checkMatrixUnit(t, quant.Q4_1, 40, 64, 35)
	checkMatrixUnit(t, quant.Q4_K, 32, 256, 64)
}

func checkMatrixUnit(t *testing.T, typ quant.Type, rows, cols, n int) {
	pool := NewPool(2)
	defer pool.Close()
	rnd := rand.New(rand.NewPCG(1, uint64(typ)))
	o := newOracle(typ, randomWeights(rnd, typ, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
	m := newMatrix(t, typ, rows, cols, o.w)
	if got := classOf(Prefill, m); (got == classMatrix) == (typ == quant.F32) {
		t.Errorf("%v: class %d", typ, got)
	}
	dst := make([]float32, n*rows)
	pool.MatMul(Prefill, o.x, n, Product{W: m, Dst: dst})
	if err := o.check(classOf(Prefill, m), dst); err != nil {
		t.Error(err)
	}
	alone := make([]float32, rows)
	pool.MatMul(Prefill, o.x[(n-1)*cols:], 1, Product{W: m, Dst: alone})
	if !slices.Equal(alone, dst[(n-1)*rows:]) {
		t.Errorf("%v [%d, %d]: the last row alone differs from the same among %d", typ, rows, cols, n)
	}
}

// TestMatrixKernelsStayInside: panels, activations and results of exact size against guard pages, for the unpackers of
// every type and the VDPBF16PS product, whose results equal the model's within rounding.
func TestMatrixKernelsStayInside(t *testing.T) {
	modelMatrixUnit(t, modelTiles)
	const steps, cols = 8, 256
	for _, head := range []bool{false, true} {
		for _, typ := range quant.Types() {
			unpack := simd.matrix.unpack[typ]
			if unpack == nil {
				continue
			}
			rnd := rand.New(rand.NewPCG(5, uint64(typ)))
			panel, act := guarded(t, steps*stepBytes, head), guarded(t, steps*stepBytes, head)
			m := newMatrix(t, typ, groupRows, cols, randomWeights(rnd, typ, groupRows, cols))
			for i := range 2 {
				tile := guarded(t, m.tile, head)
				m.packTile(tile, i*tileRows)
				unpack(&panel[1024*i:][0], &tile[0], steps)
			}
			x := floatsOf(guarded(t, groupRows*cols*4, head))
			copy(x, randomRows(rnd, groupRows, cols))
			a := rounded{buf: act, steps: steps, groups: 1, rows: groupRows}
			a.fill(simd.matrix, 0, x, groupRows)
			got, want := floatsOf(guarded(t, groupRows*groupRows*4, head)), make([]float32, groupRows*groupRows)
			args := func(dst []float32) *tileArgs {
				return &tileArgs{dst: &dst[0], strideBytes: groupRows * 4, panel: &panel[0], panel2: &panel[stepBytes/2], panelStep: stepBytes,
					act: &act[0], steps: steps, groups: 1}
			}
			pairsUnit.multiply(nil, args(got))
			if typ > quant.Q4_1 && head {
				continue // the model is slow; the panels of all types have the same form
			}
			modelTiles(nil, args(want))
			size := ref.MatMulBF16(typ, m.data, groupRows, cols, x, groupRows).Magnitude
			for i := range want {
				if e := math.Abs(float64(got[i]-want[i])) / size[i]; !(e < 1e-6) {
					t.Fatalf("%v: result %d: VDPBF16PS gives %v, the model %v", typ, i, got[i], want[i])
				}
			}
		}
	}
}

// TestRoundBF16: the conversion of activations equals the oracle on every exponent, ties, Inf and NaN.
func TestRoundBF16(t *testing.T) {
	modelMatrixUnit(t, modelTiles)
	rnd := rand.New(rand.NewPCG(2, 2))
	x := make([]float32, 64*32)
	for i := range x {
		x[i] = math.Float32frombits(rnd.Uint32())
		if i%3 == 0 { // ties and near-ties
			x[i] = math.Float32frombits(rnd.Uint32()&^0xFFFF | 0x8000 + uint32(rnd.IntN(3)) - 1)
		}
	}
	copy(x, []float32{0, 1e-40, -1e-40, float32(math.Inf(1)), float32(math.Inf(-1)), 3.4e38})
	act := make([]byte, 64*stepBytes)
	simd.matrix.round(&act[0], &x[0], 64)
	for i, v := range x {
		got := uint32(binary.LittleEndian.Uint16(act[i/32*stepBytes+i%32*2:])) << 16
		if want := math.Float32bits(ref.RoundBF16(v)); got != want&^0xFFFF {
			t.Fatalf("%v (%08x): got %08x, want %08x", v, math.Float32bits(v), got, want)
		}
	}
}
