package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"terrace/internal/kernels/quant"
	"terrace/internal/kernels/ref"
)

// emulatedTiles is amd64/amx.Tiles in the emulator.
func emulatedTiles(t testing.TB, text *amxText) tileProduct {
	return func(config *byte, a *tileArgs) {
		e := &amxEmulator{}
		rows, steps, groups := a.groups*groupRows, a.steps, a.groups
		fields := make([]byte, unsafe.Sizeof(*a))
		put := func(offset, value uintptr) { binary.LittleEndian.PutUint64(fields[offset:], uint64(value)) }
		point := func(offset uintptr, p unsafe.Pointer, n int) {
			put(offset, uintptr(e.pointer(unsafe.Slice((*byte)(p), n))))
		}
		point(unsafe.Offsetof(a.dst), unsafe.Pointer(a.dst), (rows-1)*int(a.strideBytes)+4*groupRows)
		point(unsafe.Offsetof(a.panel), unsafe.Pointer(a.panel), (steps-1)*int(a.panelStep)+stepBytes/2)
		point(unsafe.Offsetof(a.panel2), unsafe.Pointer(a.panel2), (steps-1)*int(a.panelStep)+stepBytes/2)
		put(unsafe.Offsetof(a.panelStep), a.panelStep)
		point(unsafe.Offsetof(a.act), unsafe.Pointer(a.act), (groups-1)*int(a.groupBytes)+steps*stepBytes)
		if a.from != nil {
			point(unsafe.Offsetof(a.from), unsafe.Pointer(a.from), rows*groupRows*4)
		}
		put(unsafe.Offsetof(a.strideBytes), a.strideBytes)
		put(unsafe.Offsetof(a.groupBytes), a.groupBytes)
		put(unsafe.Offsetof(a.steps), uintptr(steps))
		put(unsafe.Offsetof(a.groups), uintptr(groups))
		e.arguments = map[string]uint64{"config": e.pointer(unsafe.Slice(config, 64)), "args": e.pointer(fields)}
		if err := e.run(text); err != nil {
			t.Error(err)
		}
		if got, want := e.count["TDPBF16PS"], 4*steps*groups; got != want {
			t.Errorf("%d TDPBF16PS for %d steps of %d groups, want %d", got, steps, groups, want)
		}
	}
}

// TestAMXMatMulInEmulator: whole products through the matrix unit whose tiles are those of AMX's assembly, instruction by
// instruction, on any machine. Rounding and unpacking to bf16, which are AVX-512, are plain Go here.
func TestAMXMatMulInEmulator(t *testing.T) {
	texts := map[string]*amxText{}
	for _, name := range []string{"Tiles", "TilesOnce"} {
		text, err := readAMX("amd64/amx/matmul_tiles_amd64.s", name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = text
	}
	was := simd
	defer func() { simd = was }()
	emulated := machine{}
	if was != nil {
		emulated = *was
	}
	put := func(b *byte, at int, x float32) {
		binary.LittleEndian.PutUint16(unsafe.Slice(b, at+2)[at:], uint16(math.Float32bits(ref.RoundBF16(x))>>16))
	}
	unit := &matrixUnit{multiply: emulatedTiles(t, texts["Tiles"]), once: emulatedTiles(t, texts["TilesOnce"]), round: func(act *byte, x *float32, records int) {
		for i, v := range unsafe.Slice(x, records*recordCols) {
			put(act, i/recordCols*stepBytes+i%recordCols*2, v)
		}
	}}
	unit.split = func(act *byte, x *float32, records int) {
		unit.round(act, x, records)
		left := make([]float32, records*recordCols)
		for i, v := range unsafe.Slice(x, records*recordCols) {
			left[i] = v - ref.RoundBF16(v)
		}
		unit.round((*byte)(unsafe.Add(unsafe.Pointer(act), stepBytes/2)), &left[0], records)
	}
	for _, typ := range quant.Types() {
		unpack := emulated.tiles[typ].unpack
		if typ == quant.BF16 && !pairedBF16 {
			unpack = func(panel *float32, tile *byte, _, records int) {
				for i := range records * recordCols * tileRows {
					*(*float32)(unsafe.Add(unsafe.Pointer(panel), 4*i)) = math.Float32frombits(uint32(binary.LittleEndian.Uint16(unsafe.Slice(tile, 2*i+2)[2*i:])) << 16)
				}
			}
		}
		if unpack == nil {
			continue
		}
		unit.unpack[typ] = func(panel, tile *byte, records int) {
			wide := make([]float32, records*recordCols*tileRows)
			unpack(&wide[0], tile, 0, records)
			for i, v := range wide { // [column][16 rows] to steps of [pairs of columns][16 rows][2]
				column, row := i/tileRows, i%tileRows
				put(panel, column/recordCols*stepBytes+column%recordCols/2*64+row*4+column%2*2, v)
			}
		}
	}
	emulated.matrix = unit
	simd = &emulated
	pool := NewPool(2)
	defer pool.Close()
	for _, typ := range []quant.Type{quant.BF16, quant.Q8_0, quant.Q4_K} {
		if !unit.takes(typ) {
			continue // plain Go has no panels of quantised types
		}
		rnd := rand.New(rand.NewPCG(10, uint64(typ)))
		for _, shape := range [][3]int{{1, 256, 1}, {37, 512, 21}, {64, 768, 70}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			o := newOracle(typ, randomWeights(rnd, typ, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
			m, phases := newMatrix(t, typ, rows, cols, o.w), map[Phase]class{Prefill: classMatrix}
			if typ == quant.BF16 && pairedBF16 {
				phases[Decode] = classSplit
			}
			for ph, want := range phases {
				dst := make([]float32, n*rows)
				pool.MatMul(ph, o.x, n, Product{W: m, Dst: dst})
				if c := classOf(ph, m); c != want {
					t.Fatalf("%v: class %d, want %d", typ, c, want)
				}
				if err := o.check(want, dst); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestAMXGemmInEmulator: the blockwise product of attention, c = scale·c + a·b, by AMX's assembly.
func TestAMXGemmInEmulator(t *testing.T) {
	text, err := readAMX("amd64/amx/attn_tiles_amd64.s", "GemmTiles")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rows, steps int
		scaled      bool
	}{{32, 1, false}, {32, 4, true}, {40, 2, true}, {70, 2, false}} {
		rnd := rand.New(rand.NewPCG(11, uint64(c.rows)))
		k, padded := c.steps*recordCols, (c.rows+31)/32*32
		const cStride = PanelCols + 16
		aStride := k + 32
		got, a, b, scale := make([]float32, padded*cStride), make([]uint16, padded*aStride), make([]uint16, k*PanelCols), make([]float32, c.rows)
		whole := func(n int) float32 { return float32(rnd.IntN(2*n+1) - n) } // sums of which are exact
		for i := range got {
			got[i] = whole(100)
		}
		for i := range scale {
			scale[i] = whole(8) / 4
		}
		for _, x := range [][]uint16{a, b} {
			for i := range x {
				x[i] = uint16(math.Float32bits(whole(60)) >> 16)
			}
		}
		want := append([]float32(nil), got...)
		for r := range c.rows {
			for n := range PanelCols {
				var sum float32
				if c.scaled {
					sum = scale[r] * want[r*cStride+n]
				}
				for i := range k {
					sum += math.Float32frombits(uint32(a[r*aStride+i])<<16) * math.Float32frombits(uint32(b[i/2*2*PanelCols+2*n+i%2])<<16)
				}
				want[r*cStride+n] = sum
			}
		}
		e := &amxEmulator{}
		bytesOf := func(p unsafe.Pointer, n int) uint64 { return e.pointer(unsafe.Slice((*byte)(p), n)) }
		e.arguments = map[string]uint64{
			"config": e.pointer(tileConfig[:]), "c": bytesOf(unsafe.Pointer(&got[0]), 4*len(got)), "cBytes": 4 * cStride,
			"a": bytesOf(unsafe.Pointer(&a[0]), 2*len(a)), "aBytes": uint64(2 * aStride), "b": bytesOf(unsafe.Pointer(&b[0]), 2*len(b)),
			"steps": uint64(c.steps), "rows": uint64(c.rows), "scale": 0,
		}
		if c.scaled {
			e.arguments["scale"] = bytesOf(unsafe.Pointer(&scale[0]), 4*len(scale))
		}
		if err := e.run(text); err != nil {
			t.Fatal(err)
		}
		for r := range c.rows {
			for n := range PanelCols {
				if got[r*cStride+n] != want[r*cStride+n] {
					t.Fatalf("%+v: c[%d][%d] = %v, want %v", c, r, n, got[r*cStride+n], want[r*cStride+n])
				}
			}
			for n := PanelCols; n < cStride; n++ {
				if got[r*cStride+n] != want[r*cStride+n] {
					t.Fatalf("%+v: c[%d][%d] behind the columns was written", c, r, n)
				}
			}
		}
	}
}
