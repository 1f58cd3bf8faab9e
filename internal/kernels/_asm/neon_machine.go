package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// arm64 kernels: Go's assembler lacks most vector instructions, so a kernel's body is written in GNU syntax, assembled by
// binutils, and committed as words, each with its mnemonic beside it. Only the loading of parameters and the storing of
// results are Go assembly. A body is a leaf without a frame that uses neither x18 (the platform's) nor x27 and up (Go's).

// armUnit is one generated file: build adds its functions.
type armUnit struct {
	name, isa string
	build     func(f *armFile)
}

var armUnits []armUnit

func registerARM(name, isa string, build func(f *armFile)) {
	armUnits = append(armUnits, armUnit{name, isa, build})
}

// gnuAssembler is binutils for arm64, Debian's package binutils-aarch64-linux-gnu.
const gnuAssembler = "aarch64-linux-gnu-as"

type armFile struct{ functions []*armFunction }

type armFunction struct {
	name, signature, doc string
	params               []armParam
	results              []armParam
	frame                int
	where                map[string]string
	body                 []string // GNU lines; labels end in a colon
	general              int      // general registers in use
	vectors              int      // vector registers in use, from v0 up
	scalars              int      // float parameters, from v31 down
	out                  []string // Go assembly behind the body
}

type armParam struct {
	name, suffix, typ string
	offset, size      int
}

// function starts a kernel. Parameters are in x0, x1, … in order, a slice's base and then its length (name.len); float32 and
// float64 parameters are in the lowest lane of v31, v30, ….
func (f *armFile) function(name, signature, doc string) *armFunction {
	a := &armFunction{name: name, signature: signature, doc: doc, where: map[string]string{}}
	a.parse()
	for _, p := range a.params {
		switch {
		case p.suffix == "cap":
		case p.typ == "float32" || p.typ == "float64":
			a.where[p.name] = fmt.Sprint(31 - a.scalars)
			a.scalars++
		case p.suffix == "len":
			a.where[p.name+".len"] = a.g()
		default:
			a.where[p.name] = a.g()
		}
	}
	f.functions = append(f.functions, a)
	return a
}

func (a *armFunction) parse() {
	e, err := parser.ParseExpr(a.signature)
	fatal(err)
	t := e.(*ast.FuncType)
	at := 0
	list := func(fields *ast.FieldList, into *[]armParam) {
		if fields == nil {
			return
		}
		for _, field := range fields.List {
			names := []string{"ret"}
			if len(field.Names) > 0 {
				names = nil
				for _, n := range field.Names {
					names = append(names, n.Name)
				}
			}
			for _, n := range names {
				switch typ := field.Type.(type) {
				case *ast.ArrayType:
					for i, suffix := range []string{"base", "len", "cap"} {
						*into = append(*into, armParam{n, suffix, "int", at + 8*i, 8})
					}
					at += 24
				case *ast.Ident:
					size := map[string]int{"float32": 4, "bool": 1}[typ.Name]
					if size == 0 {
						size = 8
					}
					at = (at + size - 1) / size * size
					*into = append(*into, armParam{n, "", typ.Name, at, size})
					at += size
				default:
					*into = append(*into, armParam{n, "", "pointer", at, 8})
					at += 8
				}
			}
		}
	}
	list(t.Params, &a.params)
	if t.Results != nil {
		at = (at + 7) / 8 * 8
	}
	list(t.Results, &a.results)
	a.frame = at
}

// arg is the register of a parameter.
func (a *armFunction) arg(name string) string {
	r, ok := a.where[name]
	if !ok {
		panic(a.name + " has no parameter " + name)
	}
	return r
}

// g is a free general register.
func (a *armFunction) g() string {
	if a.general == 17 { // scratch of word, and the platform's
		a.general += 2
	}
	if a.general > 26 {
		panic(a.name + ": out of general registers")
	}
	a.general++
	return fmt.Sprintf("x%d", a.general-1)
}

func (a *armFunction) gs(n int) []string {
	r := make([]string, n)
	for i := range r {
		r[i] = a.g()
	}
	return r
}

// v is a free vector register's number.
func (a *armFunction) v() int {
	if a.vectors == 32-a.scalars {
		panic(a.name + ": out of vector registers")
	}
	a.vectors++
	return a.vectors - 1
}

func (a *armFunction) vs(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = a.v()
	}
	return r
}

// i adds an instruction in GNU syntax; @name is a label of this function.
func (a *armFunction) i(format string, args ...any) {
	a.body = append(a.body, fmt.Sprintf(format, args...))
}

// label sets a label.
func (a *armFunction) label(name string) { a.body = append(a.body, "@"+name+":") }

// loadPair loads consecutive vector registers of 16 bytes, two an instruction.
func (a *armFunction) load(v []int, base string, offset int) {
	for i := 0; i < len(v); i += 2 {
		if i+1 < len(v) && offset+16*i <= 1008 {
			a.i("ldp q%d, q%d, [%s, #%d]", v[i], v[i+1], base, offset+16*i)
			continue
		}
		a.i("ldr q%d, [%s, #%d]", v[i], base, offset+16*i)
		if i+1 < len(v) {
			a.i("ldr q%d, [%s, #%d]", v[i+1], base, offset+16*i+16)
		}
	}
}

// loadNext is load with the base moved behind what was read.
func (a *armFunction) loadNext(v []int, base string) {
	for i := 0; i < len(v); i += 2 {
		if i+1 < len(v) {
			a.i("ldp q%d, q%d, [%s], #32", v[i], v[i+1], base)
		} else {
			a.i("ldr q%d, [%s], #16", v[i], base)
		}
	}
}

func (a *armFunction) store(v []int, base string, offset int) {
	for i := 0; i < len(v); i += 2 {
		if i+1 < len(v) {
			a.i("stp q%d, q%d, [%s, #%d]", v[i], v[i+1], base, offset+16*i)
		} else {
			a.i("str q%d, [%s, #%d]", v[i], base, offset+16*i)
		}
	}
}

func (a *armFunction) zero(v []int) {
	for _, r := range v {
		a.i("movi v%d.4s, #0", r)
	}
}

// word fills a vector register with one 32-bit value.
func (a *armFunction) word(value uint32, v int) {
	t := "w17"
	a.i("movz %s, #%#x", t, value&0xffff)
	if value>>16 != 0 {
		a.i("movk %s, #%#x, lsl #16", t, value>>16)
	}
	a.i("dup v%d.4s, %s", v, t)
}

// constant is a register with a number in all lanes.
func (a *armFunction) constant(x float32) int {
	v := a.v()
	a.word(math.Float32bits(x), v)
	return v
}

func f32bits(x float32) uint32 { return math.Float32bits(x) }

// halves widens the float16 numbers of v[0] (eight, or four where v is one register) to the registers of v.
func (a *armFunction) halves(v []int) {
	if len(v) == 2 {
		a.i("fcvtl2 v%d.4s, v%d.8h", v[1], v[0])
	}
	a.i("fcvtl v%d.4s, v%d.4h", v[0], v[0])
}

// widen loads 16 numbers of a float type as four registers of float32 from base, moved on where next is set.
func (a *armFunction) widen(e element, v []int, base string, offset int, next bool) {
	if e.size == 4 {
		if next {
			a.loadNext(v, base)
		} else {
			a.load(v, base, offset)
		}
		return
	}
	switch {
	case next:
		a.i("ldp q%d, q%d, [%s], #32", v[0], v[2], base)
	default:
		a.i("ldp q%d, q%d, [%s, #%d]", v[0], v[2], base, offset)
	}
	for i := 0; i < 4; i += 2 {
		if e.name == "F16" {
			a.halves(v[i : i+2])
		} else {
			a.i("shll2 v%d.4s, v%d.8h, #16", v[i+1], v[i])
			a.i("shll v%d.4s, v%d.4h, #16", v[i], v[i])
		}
	}
}

// returns stores the lowest lane of a vector register (float32, float64) or w0 (bool) as result i.
func (a *armFunction) returns(i, v int) {
	p := a.results[i]
	switch p.typ {
	case "float32":
		a.out = append(a.out, fmt.Sprintf("FMOVS F%d, %s+%d(FP)", v, p.name, p.offset))
	case "float64":
		a.out = append(a.out, fmt.Sprintf("FMOVD F%d, %s+%d(FP)", v, p.name, p.offset))
	case "bool":
		a.out = append(a.out, fmt.Sprintf("MOVB R0, %s+%d(FP)", p.name, p.offset))
	default:
		a.out = append(a.out, fmt.Sprintf("MOVD R0, %s+%d(FP)", p.name, p.offset))
	}
}

var armLabel = regexp.MustCompile(`@(\w+)`)

// files are the unit's assembly and stubs.
func (u armUnit) files() (text, stubs []byte) {
	f := &armFile{}
	u.build(f)
	words := f.assemble()
	const head = "// Code generated by internal/kernels/_asm. DO NOT EDIT.\n\n//go:build !purego\n\n"
	var s, g bytes.Buffer
	s.WriteString(head + "#include \"textflag.h\"\n")
	fmt.Fprintf(&g, "%spackage %s\n", head, u.isa)
	for _, a := range f.functions {
		fmt.Fprintf(&g, "\n// %s\n//\n//go:noescape\nfunc %s%s\n", a.doc, a.name, strings.TrimPrefix(a.signature, "func"))
		fmt.Fprintf(&s, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", a.name, strings.TrimPrefix(a.signature, "func"), a.name, a.frame)
		for _, p := range a.params {
			name := p.name
			if p.suffix != "" {
				name += "_" + p.suffix
			}
			switch {
			case p.suffix == "cap":
			case p.typ == "float32":
				fmt.Fprintf(&s, "\tFMOVS %s+%d(FP), F%s\n", name, p.offset, a.arg(p.name))
			case p.typ == "float64":
				fmt.Fprintf(&s, "\tFMOVD %s+%d(FP), F%s\n", name, p.offset, a.arg(p.name))
			case p.suffix == "len":
				fmt.Fprintf(&s, "\tMOVD %s+%d(FP), R%s\n", name, p.offset, a.arg(p.name + ".len")[1:])
			default:
				fmt.Fprintf(&s, "\tMOVD %s+%d(FP), R%s\n", name, p.offset, a.arg(p.name)[1:])
			}
		}
		for _, line := range a.body {
			if strings.HasSuffix(line, ":") {
				fmt.Fprintf(&s, "\t// %s\n", line[1:])
				continue
			}
			fmt.Fprintf(&s, "\tWORD $0x%08x // %s\n", words[0], armLabel.ReplaceAllString(line, "$1"))
			words = words[1:]
		}
		for _, line := range a.out {
			fmt.Fprintf(&s, "\t%s\n", line)
		}
		s.WriteString("\tRET\n")
	}
	return s.Bytes(), g.Bytes()
}

// assemble turns the bodies of all functions to words: every line but a label is one.
func (f *armFile) assemble() []uint32 {
	var source strings.Builder
	n := 0
	for i, a := range f.functions {
		for _, line := range a.body {
			source.WriteString(armLabel.ReplaceAllString(line, fmt.Sprintf(".L%d_$1", i)) + "\n")
			if !strings.HasSuffix(line, ":") {
				n++
			}
		}
	}
	temp, err := os.MkdirTemp("", "asm")
	fatal(err)
	defer os.RemoveAll(temp)
	in, object := filepath.Join(temp, "a.s"), filepath.Join(temp, "a.o")
	fatal(os.WriteFile(in, []byte(source.String()), 0o644))
	out, err := exec.Command(gnuAssembler, "-march=armv8.4-a+i8mm+fp16", "-o", object, in).CombinedOutput()
	if err != nil {
		fatal(fmt.Errorf("%s (Debian: binutils-aarch64-linux-gnu): %w\n%s", gnuAssembler, err, out))
	}
	file, err := elf.Open(object)
	fatal(err)
	defer file.Close()
	code, err := file.Section(".text").Data()
	fatal(err)
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	if len(words) != n {
		fatal(fmt.Errorf("%d words for %d instructions", len(words), n))
	}
	return words
}

// write generates the unit's two files; with check it compares instead and returns how many differ.
func (u armUnit) write(check bool) (stale int) {
	text, stubs := u.files()
	folder := filepath.Join("..", "arm64", u.isa)
	return put(filepath.Join(folder, u.name+"_arm64.s"), text, check) + put(filepath.Join(folder, u.name+"_arm64.go"), stubs, check)
}
