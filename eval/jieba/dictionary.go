package jieba

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

//go:embed data/jieba.zst
var packed []byte

// tables are the unpacked dictionary and HMM.
type tables struct {
	text     string   // "WORD FREQ" lines, sorted by bytes
	lines    []uint32 // where each line starts in text, and one past the end
	logTotal float64
	emit     [4]map[rune]float64 // by state, in the order of states
}

var load = sync.OnceValue(func() *tables {
	t, err := unpack(packed)
	if err != nil {
		panic("jieba: embedded tables: " + err.Error()) // a broken build, never user input
	}
	return t
})

func unpack(packed []byte) (*tables, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	raw, err := d.DecodeAll(packed, nil)
	if err != nil {
		return nil, err
	}
	head, rest, _ := bytes.Cut(raw, []byte("\n"))
	total, err := strconv.Atoi(string(head))
	if err != nil {
		return nil, err
	}
	words, emissions, ok := bytes.Cut(rest, []byte("\n\n"))
	if !ok {
		return nil, fmt.Errorf("no emission table")
	}
	t := &tables{text: string(words) + "\n", logTotal: math.Log(float64(total))}
	t.lines = append(make([]uint32, 0, 1<<19), 0)
	for i := 0; i < len(t.text); i++ {
		if t.text[i] == '\n' {
			t.lines = append(t.lines, uint32(i+1))
		}
	}
	return t, t.readEmissions(string(emissions))
}

func (t *tables) readEmissions(text string) error {
	for s := range t.emit {
		t.emit[s] = map[rune]float64{}
	}
	for line := range strings.Lines(text) {
		var state, hex, prob string
		if f := strings.Fields(line); len(f) == 3 {
			state, hex, prob = f[0], f[1], f[2]
		}
		r, err := strconv.ParseUint(hex, 16, 32)
		if err != nil {
			return fmt.Errorf("emission %q: %w", line, err)
		}
		p, err := strconv.ParseFloat(prob, 64)
		if err != nil {
			return fmt.Errorf("emission %q: %w", line, err)
		}
		t.emit[strings.Index(states, state)][rune(r)] = p
	}
	return nil
}

// line is the i-th "WORD FREQ".
func (t *tables) line(i int) string { return t.text[t.lines[i] : t.lines[i+1]-1] }

// narrow returns the range of lines within [lo, hi) that begin with the fragment.
func (t *tables) narrow(lo, hi int, fragment string) (int, int) {
	n := len(fragment)
	lo += sort.Search(hi-lo, func(i int) bool { return clip(t.line(lo+i), n) >= fragment })
	hi = lo + sort.Search(hi-lo, func(i int) bool { return clip(t.line(lo+i), n) > fragment })
	return lo, hi
}

func clip(s string, n int) string { return s[:min(n, len(s))] }

// all is the range of every word.
func (t *tables) all() (int, int) { return 0, len(t.lines) - 1 }

// freq is the frequency of the word if line lo, the first of a narrowed range, is that word, else 0.
func (t *tables) freq(lo, hi int, word string) int {
	if lo >= hi {
		return 0
	}
	line := t.line(lo)
	if len(line) <= len(word) || line[len(word)] != ' ' {
		return 0
	}
	n, err := strconv.Atoi(line[len(word)+1:])
	if err != nil {
		panic("jieba: embedded tables: " + line)
	}
	return n
}
