package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// countLoops prints, for the products of quantised weights, the instructions that the loop over a tile's records executes for
// each multiply-add, read from the committed assembly: a figure of work, not of time. Of many rows, those that spread a record
// are shared by spreadRows.
func countLoops() {
	fmt.Println("| kernel | avx2 x1 | neon x1 | dotprod x1 | avx2 x4 | neon x2 | dotprod x4 | i8mm x4 | avx2 many | i8mm many |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, f := range formats {
		row := "| " + f.name + " |"
		for _, c := range []struct {
			arch, isa    string
			rows, passes int
		}{{"amd64", "avx2", 1, 1}, {"arm64", "neon", 1, 1}, {"arm64", "dotprod", 1, 1}, {"amd64", "avx2", 4, 2},
			{"arm64", "neon", 2, 2}, {"arm64", "dotprod", 4, 2}, {"arm64", "i8mm", 4, 2}} {
			n := recordInstructions(c.arch, c.isa, "matmul_dot", fmt.Sprintf("Dot%sx%d", f.name, c.rows))
			row += fmt.Sprintf(" %.3f |", float64(n*c.passes)/float64(512*c.rows))
		}
		for _, c := range []struct {
			arch, isa, kernel    string
			passes, spreadPasses int
		}{{"amd64", "avx2", f.manyAVX2(), 1, 2}, {"arm64", "i8mm", f.manyMMLA(), 2, 1}} {
			n := float64(c.passes*recordInstructions(c.arch, c.isa, "matmul_many", "Many"+c.kernel)) / manyRows
			n += float64(c.spreadPasses*recordInstructions(c.arch, c.isa, "matmul_many", "Spread"+f.name)) / spreadRows
			row += fmt.Sprintf(" %.3f |", n/512)
		}
		fmt.Println(row)
	}
}

const spreadRows = 64 // the fewest of a chunk, see internal/kernels/matmul_many.go

// manyAVX2 and manyMMLA name the type whose kernel multiplies a panel of f.
func (f format) manyAVX2() string {
	switch {
	case f.parts() == 2:
		return f.name
	case f.bias == 7:
		return "Q8_0"
	case f.min:
		return fmt.Sprintf("Q%d_1", f.bits)
	}
	return f.name
}

func (f format) manyMMLA() string {
	return [...]string{"Q8_0", "Q4_1", "Q3_K", "Q2_K"}[2*(f.parts()-1)+map[bool]int{true: 1}[f.min]]
}

var recordLoop = map[string]*regexp.Regexp{
	"amd64": regexp.MustCompile(`(?s)\nrecord0?:\n(.*?\bJNZ +record0?\n)`),
	"arm64": regexp.MustCompile(`(?s)\n\t// record:\n(.*?// b\.ne record\n)`),
}

// recordInstructions is the length of the loop over the records of one pass.
func recordInstructions(arch, isa, unit, name string) (n int) {
	source, err := os.ReadFile(filepath.Join("..", arch, isa, unit+"_"+arch+".s"))
	fatal(err)
	_, body, _ := strings.Cut(string(source), "TEXT ·"+name+"(SB)")
	loop := recordLoop[arch].FindStringSubmatch(body)
	if loop == nil {
		fatal(fmt.Errorf("%s: no loop over records", name))
	}
	for _, line := range strings.Split(loop[1], "\n") {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "//")
		if line != "" && !strings.HasSuffix(line, ":") {
			n++
		}
	}
	return n
}
