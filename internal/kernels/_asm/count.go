package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// countLoops prints, for the products of quantised weights, the instructions that the loop over a tile's records executes for
// each multiply-add, read from the committed assembly: a figure of work, not of time.
func countLoops() {
	fmt.Println("| kernel | avx2 x1 | neon x1 | dotprod x1 | avx2 x4 | neon x2 | dotprod x4 |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, f := range formats {
		row := "| " + f.name + " |"
		for _, c := range []struct {
			arch, isa    string
			rows, passes int
		}{{"amd64", "avx2", 1, 1}, {"arm64", "neon", 1, 1}, {"arm64", "dotprod", 1, 1}, {"amd64", "avx2", 4, 2}, {"arm64", "neon", 2, 2}, {"arm64", "dotprod", 4, 2}} {
			n := recordInstructions(c.arch, c.isa, fmt.Sprintf("Dot%sx%d", f.name, c.rows))
			row += fmt.Sprintf(" %.3f |", float64(n*c.passes)/float64(512*c.rows))
		}
		fmt.Println(row)
	}
}

var recordLoop = map[string]*regexp.Regexp{
	"amd64": regexp.MustCompile(`(?s)\nrecord0:\n(.*?\bJNZ +record0\n)`),
	"arm64": regexp.MustCompile(`(?s)\n\t// record:\n(.*?// b\.ne record\n)`),
}

// recordInstructions is the length of the loop over the records of one pass.
func recordInstructions(arch, isa, name string) (n int) {
	source, err := os.ReadFile(filepath.Join("..", arch, isa, "matmul_dot_"+arch+".s"))
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
