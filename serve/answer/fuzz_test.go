package answer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// allForms is one form of each row of the table, and of each variant that templates choose.
func allForms() (all []Form) {
	for _, row := range append(slices.Clone(families), plainFamily) {
		all = append(all, row.of(strings.Join(turnEnds, " ")+"</think>[/THINK]"))
		if row.variant != nil {
			all = append(all, row.of("```json [ARGS] <|/tool_call|> ｜DSML｜function_calls> ｜GCML｜function_calls>"))
		}
	}
	return all
}

// pieces are what random answers are made of: the form's marks, whole and in part, and what stands between them.
func pieces(f Form) []string {
	all := f.Marks()
	for _, m := range f.Marks() {
		all = append(all, m[:len(m)/2], m[len(m)/2:])
	}
	for _, row := range families {
		if row.name == f.Name {
			all = append(all, row.example, row.example)
		}
	}
	return append(all, "§", "§ ", " ", "\n", "f", "get_time", "x", "s", "\"", "'", "{", "}", "[", "]", "(", ")", ":", ",", "=", "1", "tr", "ue", "ü", "\xff", "\\", "\\u00", "to=f", "analysis",
		`{"name": "f", "arguments": {"x": 1}}`, `"name": "`, `"arguments": {`, `{"x": 1, "s": "§"}`, "f(x=1)", "call:", "```json", "functions.f:0")
}

// checkAnswer reads a text whole and in pieces: what comes out is the same, and nothing of it is lost.
func checkAnswer(t *testing.T, f Form, prompt, text string, cuts []int) {
	t.Helper()
	whole := readAll(f, testTools, prompt, text)
	got := read(t, whole)
	var parts []string
	from := 0
	for _, cut := range cuts {
		parts, from = append(parts, text[from:cut]), cut
	}
	if cut := readAll(f, testTools, prompt, append(parts, text[from:])...); !slices.Equal(cut, whole) {
		t.Fatalf("form %s, prompt %q, %q cut at %d:\n got %v\nwant %v", f.Name, prompt, text, cuts, cut, whole)
	}
	all := got.thought + got.text
	for _, c := range got.calls {
		all += c.arguments
	}
	if strings.Count(all, "§") > strings.Count(text, "§") {
		t.Fatalf("form %s, prompt %q, %q: more came out than was written: %s", f.Name, prompt, text, got)
	}
	plain := read(t, readAll(f, nil, prompt, text))
	if n := strings.Count(plain.thought+plain.text, "§"); n != strings.Count(text, "§") || len(plain.calls)+len(plain.problems) > 0 {
		t.Fatalf("form %s without tools, prompt %q, %q: something is lost: %s", f.Name, prompt, text, plain)
	}
}

// TestRandomAnswers reads random texts of every form's own marks.
func TestRandomAnswers(t *testing.T) {
	n := 300
	if testing.Short() {
		n = 60
	}
	for i, f := range allForms() {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		of := pieces(f)
		for range n {
			var b strings.Builder
			for range rng.IntN(14) {
				b.WriteString(of[rng.IntN(len(of))])
			}
			var cuts []int
			for at := range b.Len() {
				if rng.IntN(3) == 0 {
					cuts = append(cuts, at)
				}
			}
			prompt := ""
			if rng.IntN(3) == 0 {
				prompt = f.Thoughts[0].Open
			}
			checkAnswer(t, f, prompt, b.String(), cuts)
		}
	}
}

// FuzzAnswer: no text of any form, however it is cut, loses anything.
func FuzzAnswer(f *testing.F) {
	forms := allForms()
	for i, row := range families {
		f.Add(uint8(i), false, "One. "+row.example+" § two", uint64(3))
	}
	f.Fuzz(func(t *testing.T, form uint8, inside bool, text string, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var cuts []int
		for at := range len(text) {
			if rng.IntN(4) == 0 {
				cuts = append(cuts, at)
			}
		}
		f, prompt := forms[int(form)%len(forms)], ""
		if inside {
			prompt = f.Thoughts[0].Open
		}
		checkAnswer(t, f, prompt, text, cuts)
	})
}

// TestLongAnswers reads each form's marks again and again: it ends because time is linear in the text.
func TestLongAnswers(t *testing.T) {
	for _, row := range append(slices.Clone(families), plainFamily) {
		f := row.of("")
		for _, m := range append(f.Marks(), "{", "[", " ", `{"name": "f", "arguments": {"x": "`, "f(x=[", "call:f{o:{o:") {
			p := f.Parser(testTools, "")
			for range 20 {
				p.Push(strings.Repeat(m, 5000/len(m)))
			}
			p.End()
		}
	}
}
