package ruler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"terrace/eval"
)

// essays are the words of all essays, one after the other.
type essays struct {
	words  []string
	digest string
}

// readEssays reads every .txt file of dir or dir/essays, in the order of their names.
func readEssays(dir string) (*essays, error) {
	if info, err := os.Stat(filepath.Join(dir, "essays")); err == nil && info.IsDir() {
		dir = filepath.Join(dir, "essays")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("ruler: %s has no .txt essays: %w", dir, eval.ErrData)
	}
	slices.Sort(files)
	h := sha256.New()
	e := &essays{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("ruler: %w: %w", eval.ErrData, err)
		}
		h.Write(raw)
		e.words = append(e.words, strings.Fields(strings.ToValidUTF8(string(raw), "\uFFFD"))...)
	}
	if len(e.words) == 0 {
		return nil, fmt.Errorf("ruler: the essays in %s are empty: %w", dir, eval.ErrData)
	}
	e.digest = hex.EncodeToString(h.Sum(nil)[:12])
	return e, nil
}

// text is the first n words, from the beginning again where the essays are shorter.
func (e *essays) text(n int) string {
	var out []string
	for len(out) < n {
		out = append(out, e.words[:min(len(e.words), n-len(out))]...)
	}
	return strings.Join(out, " ")
}

// sentences splits after ., ! and ? before a blank.
func sentences(text string) []string {
	var out []string
	from := 0
	for i := 0; i+1 < len(text); i++ {
		if text[i+1] == ' ' && strings.IndexByte(".!?", text[i]) >= 0 {
			out = append(out, text[from:i+1])
			from = i + 2
		}
	}
	return append(out, text[from:])
}

// insert puts needles into sentences at depths in percent (0 = before the first sentence, 100 = after the last).
func insert(text string, needles []string, depths []float64) string {
	sents := sentences(text)
	depths = slices.Sorted(slices.Values(depths))
	var out []string
	last := 0
	for i, n := range needles {
		at := max(last, min(len(sents), int(float64(len(sents))*depths[i]/100)))
		out = append(append(out, sents[last:at]...), n)
		last = at
	}
	return strings.Join(append(out, sents[last:]...), " ")
}
