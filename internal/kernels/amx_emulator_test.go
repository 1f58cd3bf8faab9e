package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
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
	if strings.HasSuffix(arg, ")") {
		return binary.LittleEndian.Uint64(e.at(e.address(arg), 8))
	}
	return *e.register(arg)
}

// set writes a register or memory.
func (e *amxEmulator) set(arg string, v uint64) {
	if strings.HasSuffix(arg, ")") {
		binary.LittleEndian.PutUint64(e.at(e.address(arg), 8), v)
		return
	}
	*e.register(arg) = v
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
			e.set(s.args[1], e.value(s.args[0]))
		case "ADDQ", "SUBQ", "SHLQ", "DECQ", "TESTQ":
			e.arithmetic(s)
		case "CMPQ":
			e.zero = e.value(s.args[0]) == e.value(s.args[1])
		case "LEAQ":
			e.set(s.args[1], e.address(s.args[0]))
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
		case "VZEROUPPER", "PREFETCHT0", "PREFETCHT1":
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
	to := s.args[len(s.args)-1]
	result := e.value(to)
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
		e.set(to, result)
	}
}

// execute decodes one AMX instruction, VEX-coded in map 0F38, as Intel's manual gives it, or a prefetch, and returns its length.
func (e *amxEmulator) execute(code []byte) int {
	if len(code) >= 5 && [4]byte(code) == [4]byte{0x41, 0x0f, 0x0d, 0x48} { // PREFETCHW 8 bits(R8)
		return 5
	}
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
	case op == 0x4b && prefix != 0 && mod != 3 && modrm&7 == 4 && vvvv == 0:
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

// move is TILELOADD, TILELOADDT1 and TILESTORED: rows at base + disp, index·scale apart.
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
