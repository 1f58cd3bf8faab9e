package policy

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

//go:embed minference_tables.txt
var minferenceText string

// lineSizes are the numbers of columns and diagonals of one head.
type lineSizes struct{ vertical, slash int }

// lineTable has the sizes of each layer's query heads, as the authors of MInference searched and published them for a model.
type lineTable struct {
	name  string
	sizes [][]lineSizes // [layers][heads]
}

// fits reports whether a model has the table's layers and heads.
func (t *lineTable) fits(m Model) bool {
	heads, _, same := m.Layers.Same()
	return same && len(t.sizes) == len(m.Layers) && len(t.sizes[0]) == heads
}

// minferenceTables reads the embedded tables.
var minferenceTables = sync.OnceValue(func() []lineTable {
	var out []lineTable
	var letters map[byte]lineSizes
	lines := strings.Split(minferenceText, "\n")
	for i, line := range lines {
		switch {
		case line == "" || line[0] == '#':
		case i > 0 && lines[i-1] == "":
			out, letters = append(out, lineTable{name: line}), map[byte]lineSizes{}
		case strings.Contains(line, "="):
			for _, word := range strings.Fields(line) {
				var letter byte
				var s lineSizes
				if _, err := fmt.Sscanf(word, "%c=%d/%d", &letter, &s.vertical, &s.slash); err != nil {
					panic("policy: minference_tables.txt: " + word + ": " + err.Error())
				}
				letters[letter] = s
			}
		default:
			row := make([]lineSizes, len(line))
			for h := range row {
				row[h] = letters[line[h]]
			}
			t := &out[len(out)-1]
			t.sizes = append(t.sizes, row)
		}
	}
	return out
})
