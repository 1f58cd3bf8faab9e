package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"terrace/internal/kernels/quant"
	"terrace/internal/kernels/ref"
)

// amxText is a function of the AMX assembly, read from its source: instructions that Go's assembler knows as text, AMX's as the
// bytes that the CPU would decode.
type amxText struct {
	name   string
	steps  []amxStep
	labels map[string]int
}

type amxStep struct {
	op    string
	args  []string
	bytes []byte // of a run of BYTEs
}

var amxArgument = regexp.MustCompile(`^(\w+)\+\d+\(FP\)$`)

// readAMX reads one function of a generated file.
func readAMX(file, name string) (*amxText, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	_, body, found := strings.Cut(string(source), "TEXT ·"+name+"(SB)")
	if !found {
		return nil, fmt.Errorf("%s has no function %s", file, name)
	}
	body, _, _ = strings.Cut(body, "TEXT ·")
	t := &amxText{name: name, labels: map[string]int{}}
	for _, line := range strings.Split(body, "\n")[1:] {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		if label, is := strings.CutSuffix(line, ":"); is {
			t.labels[label] = len(t.steps)
			continue
		}
		op, rest, _ := strings.Cut(line, " ")
		if op == "" {
			continue
		}
		s := amxStep{op: op}
		for _, a := range strings.Split(rest, ",") {
			if a = strings.TrimSpace(a); a != "" {
				s.args = append(s.args, a)
			}
		}
		if op == "BYTE" {
			b, err := strconv.ParseUint(s.args[0][1:], 0, 8)
			if err != nil {
				return nil, err
			}
			s.bytes = []byte{byte(b)}
		}
		t.steps = append(t.steps, s)
	}
	return t, nil
}

// amxEmulator is what the emulated instructions change: general registers, vectors of 16 float32, eight tiles.
type amxEmulator struct {
	general    [16]uint64
	vectors    map[string][16]float32
	arguments  map[string]uint64
	zero, less bool
	configured bool
	tiles      [8]amxTile
	memory     [][]byte // segment i lies at (i+1)<<32
	count      map[string]int
}

type amxTile struct {
	rows, rowBytes int
	data           [16][64]byte
}

// pointer gives the emulator a segment of memory.
func (e *amxEmulator) pointer(b []byte) uint64 {
	e.memory = append(e.memory, b)
	return uint64(len(e.memory)) << 32
}

// at is n bytes of memory; outside the segments it panics, as the CPU would.
func (e *amxEmulator) at(address uint64, n int) []byte {
	segment, offset := int(address>>32)-1, int(address&(1<<32-1))
	if segment < 0 || segment >= len(e.memory) || offset+n > len(e.memory[segment]) {
		panic(fmt.Sprintf("%d bytes at %#x lie outside memory", n, address))
	}
	return e.memory[segment][offset : offset+n]
}

var amxRegisters = strings.Fields("AX CX DX BX SP BP SI DI R8 R9 R10 R11 R12 R13 R14 R15")

func (e *amxEmulator) register(name string) *uint64 {
	for i, r := range amxRegisters {
		if r == name {
			return &e.general[i]
		}
	}
	panic("no register " + name)
}

// value reads an operand: a number, a parameter or a register.
func (e *amxEmulator) value(arg string) uint64 {
	if n, is := strings.CutPrefix(arg, "$"); is {
		v, err := strconv.ParseUint(n, 0, 64)
		if err != nil {
			panic(err)
		}
		return v
	}
	if m := amxArgument.FindStringSubmatch(arg); m != nil {
		v, known := e.arguments[m[1]]
		if !known {
			panic("no argument " + m[1])
		}
		return v
	}
	return *e.register(arg)
}

// address is what an operand like 64(CX) points at.
func (e *amxEmulator) address(arg string) uint64 {
	offset, base, _ := strings.Cut(strings.TrimSuffix(arg, ")"), "(")
	n, _ := strconv.Atoi(offset)
	return *e.register(base) + uint64(n)
}

// lanes reads a vector operand.
func (e *amxEmulator) lanes(arg string) (v [16]float32) {
	if !strings.HasSuffix(arg, ")") {
		return e.vectors[arg]
	}
	b := e.at(e.address(arg), 64)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// run executes the function to its RET; err says what the CPU would have refused.
func (e *amxEmulator) run(t *amxText) (err error) {
	pc := 0
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: step %d: %v", t.name, pc, r)
		}
	}()
	e.vectors, e.count = map[string][16]float32{}, map[string]int{}
	for {
		s := t.steps[pc]
		if s.op == "BYTE" {
			var code []byte
			for i := pc; i < len(t.steps) && t.steps[i].op == "BYTE" && len(code) < 15; i++ {
				code = append(code, t.steps[i].bytes...)
			}
			pc += e.execute(code)
			continue
		}
		pc++
		jump := false
		switch s.op {
		case "RET":
			if e.configured {
				panic("RET before TILERELEASE")
			}
			return nil
		case "MOVQ":
			*e.register(s.args[1]) = e.value(s.args[0])
		case "ADDQ", "SUBQ", "SHLQ", "DECQ", "TESTQ":
			e.arithmetic(s)
		case "JMP":
			jump = true
		case "JZ":
			jump = e.zero
		case "JNZ":
			jump = !e.zero
		case "JG":
			jump = !e.zero && !e.less
		case "VBROADCASTSS":
			var v [16]float32
			for i := range v {
				v[i] = math.Float32frombits(binary.LittleEndian.Uint32(e.at(e.address(s.args[0]), 4)))
			}
			e.vectors[s.args[1]] = v
		case "VMULPS":
			a, b := e.lanes(s.args[0]), e.lanes(s.args[1])
			for i := range a {
				a[i] *= b[i]
			}
			e.vectors[s.args[2]] = a
		case "VMOVUPS":
			b := e.at(e.address(s.args[1]), 64)
			for i, x := range e.lanes(s.args[0]) {
				binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
			}
		case "VZEROUPPER":
		default:
			panic("no emulation of " + s.op)
		}
		if jump {
			to, known := t.labels[s.args[0]]
			if !known {
				panic("no label " + s.args[0])
			}
			pc = to
		}
	}
}

// arithmetic executes an instruction on general registers and sets the flags.
func (e *amxEmulator) arithmetic(s amxStep) {
	to := e.register(s.args[len(s.args)-1])
	result := *to
	switch s.op {
	case "ADDQ":
		result += e.value(s.args[0])
	case "SUBQ":
		result -= e.value(s.args[0])
	case "SHLQ":
		result <<= e.value(s.args[0])
	case "DECQ":
		result--
	case "TESTQ":
		result &= e.value(s.args[0])
	}
	e.zero, e.less = result == 0, int64(result) < 0
	if s.op != "TESTQ" {
		*to = result
	}
}

// execute decodes one AMX instruction, VEX-coded in map 0F38, as Intel's manual gives it, and returns its length.
func (e *amxEmulator) execute(code []byte) int {
	if len(code) < 5 || code[0] != 0xc4 || code[1]&31 != 2 || code[2]&0x84 != 0 {
		panic(fmt.Sprintf("% x is no VEX instruction of map 0F38, W0, L0", code))
	}
	high := func(bit int) int { return int(^code[1]>>bit&1) << 3 } // R, X, B in bits 7, 6, 5
	prefix, vvvv, op, modrm := code[2]&3, int(^code[2]>>3&15), code[3], code[4]
	mod, reg, rm := modrm>>6, int(modrm>>3&7)|high(7), int(modrm&7)|high(5)
	switch {
	case op == 0x49 && mod == 3 && prefix == 0 && modrm == 0xc0 && vvvv == 0:
		e.count["TILERELEASE"]++
		e.configured, e.tiles = false, [8]amxTile{}
		return 5
	case op == 0x49 && mod == 3 && prefix == 3 && rm == 0 && vvvv == 0:
		e.count["TILEZERO"]++
		e.tile(reg).data = [16][64]byte{}
		return 5
	case op == 0x49 && mod == 0 && prefix == 0 && reg == 0 && modrm&7 != 4 && modrm&7 != 5 && vvvv == 0:
		e.count["LDTILECFG"]++
		e.configure(e.at(e.general[rm], 64))
		return 5
	case op == 0x4b && (prefix == 2 || prefix == 3) && mod != 3 && modrm&7 == 4 && vvvv == 0:
		return e.move(code, mod, reg, prefix == 2, high)
	case op == 0x5c && mod == 3 && prefix == 2:
		e.count["TDPBF16PS"]++
		e.multiply(reg, rm, vvvv)
		return 5
	}
	panic(fmt.Sprintf("% x is no AMX instruction that the kernels use", code))
}

func (e *amxEmulator) tile(n int) *amxTile {
	if !e.configured || n > 7 || e.tiles[n].rows == 0 {
		panic(fmt.Sprintf("tile %d is not configured", n))
	}
	return &e.tiles[n]
}

// configure takes the palette of 64 bytes.
func (e *amxEmulator) configure(b []byte) {
	if b[0] != 1 {
		panic(fmt.Sprintf("palette %d", b[0]))
	}
	for i, x := range b {
		if x != 0 && (i >= 2 && i < 16 || i >= 32 && i < 48 || i >= 56) {
			panic(fmt.Sprintf("byte %d of the palette is reserved", i))
		}
	}
	e.configured, e.tiles = true, [8]amxTile{}
	for t := range e.tiles {
		rowBytes, rows := int(binary.LittleEndian.Uint16(b[16+2*t:])), int(b[48+t])
		if rowBytes > 64 || rows > 16 {
			panic(fmt.Sprintf("tile %d of %d rows of %d bytes", t, rows, rowBytes))
		}
		e.tiles[t].rows, e.tiles[t].rowBytes = rows, rowBytes
	}
}

// move is TILELOADD and TILESTORED: rows at base + disp, index·scale apart.
func (e *amxEmulator) move(code []byte, mod byte, reg int, store bool, high func(int) int) int {
	sib, n, disp := code[5], 6, 0
	switch mod {
	case 1:
		disp, n = int(int8(code[6])), 7
	case 2:
		disp, n = int(int32(binary.LittleEndian.Uint32(code[6:]))), 10
	}
	index, base := int(sib>>3&7)|high(6), int(sib&7)|high(5)
	if index == 4 || mod == 0 && sib&7 == 5 {
		panic("a tile without an index or a base")
	}
	start, stride := e.general[base]+uint64(disp), e.general[index]<<(sib>>6)
	t := e.tile(reg)
	for r := range t.rows {
		row := e.at(start+uint64(r)*stride, t.rowBytes)
		if store {
			copy(row, t.data[r][:t.rowBytes])
			continue
		}
		t.data[r] = [64]byte{}
		copy(t.data[r][:], row)
	}
	e.count[map[bool]string{false: "TILELOADD", true: "TILESTORED"}[store]]++
	return n
}

// multiply is TDPBF16PS: to[m][n] += Σ over k of the pair a[m][k] · the pair b[k][n].
func (e *amxEmulator) multiply(to, a, b int) {
	if to == a || to == b || a == b {
		panic("TDPBF16PS of one tile twice")
	}
	c, x, y := e.tile(to), e.tile(a), e.tile(b)
	if x.rowBytes/4 != y.rows || x.rows != c.rows || y.rowBytes != c.rowBytes {
		panic("TDPBF16PS of tiles that do not fit")
	}
	bf16 := func(b []byte) float32 { return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16) }
	for m := range c.rows {
		for n := 0; n < c.rowBytes; n += 4 {
			sum := math.Float32frombits(binary.LittleEndian.Uint32(c.data[m][n:]))
			for k := range y.rows {
				sum += bf16(x.data[m][4*k:]) * bf16(y.data[k][n:])
				sum += bf16(x.data[m][4*k+2:]) * bf16(y.data[k][n+2:])
			}
			binary.LittleEndian.PutUint32(c.data[m][n:], math.Float32bits(sum))
		}
	}
}

// emulatedTiles is amd64/amx.Tiles in the emulator.
func emulatedTiles(t testing.TB, text *amxText) func(config *byte, dst *float32, strideBytes uintptr, panel, act *byte, steps, groups int) {
	return func(config *byte, dst *float32, strideBytes uintptr, panel, act *byte, steps, groups int) {
		e := &amxEmulator{}
		rows := groups * groupRows
		e.arguments = map[string]uint64{
			"config": e.pointer(unsafe.Slice(config, 64)), "strideBytes": uint64(strideBytes), "steps": uint64(steps), "groups": uint64(groups),
			"dst":   e.pointer(unsafe.Slice((*byte)(unsafe.Pointer(dst)), (rows-1)*int(strideBytes)+4*groupRows)),
			"panel": e.pointer(unsafe.Slice(panel, steps*stepBytes)), "act": e.pointer(unsafe.Slice(act, groups*steps*stepBytes)),
		}
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
	text, err := readAMX("amd64/amx/matmul_tiles_amd64.s", "Tiles")
	if err != nil {
		t.Fatal(err)
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
	unit := &matrixUnit{multiply: emulatedTiles(t, text), round: func(act *byte, x *float32, records int) {
		for i, v := range unsafe.Slice(x, records*recordCols) {
			put(act, i/recordCols*stepBytes+i%recordCols*2, v)
		}
	}}
	for _, typ := range quant.Types() {
		unpack := emulated.tiles[typ].unpack
		if typ == quant.BF16 {
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
		if unit.unpack[typ] == nil {
			continue // plain Go has no panels of quantised types
		}
		rnd := rand.New(rand.NewPCG(10, uint64(typ)))
		for _, shape := range [][3]int{{1, 256, 1}, {37, 512, 21}, {64, 256, 70}} {
			rows, cols, n := shape[0], shape[1], shape[2]
			o := newOracle(typ, randomWeights(rnd, typ, rows, cols), rows, cols, randomRows(rnd, n, cols), n)
			m, dst := newMatrix(t, typ, rows, cols, o.w), make([]float32, n*rows)
			pool.MatMul(Prefill, o.x, n, Product{W: m, Dst: dst})
			if c := classOf(Prefill, m); c != classMatrix {
				t.Fatalf("%v: class %d, want the matrix unit's", typ, c)
			}
			if err := o.check(classMatrix, dst); err != nil {
				t.Error(err)
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
