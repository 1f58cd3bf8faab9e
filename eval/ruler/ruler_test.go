package ruler

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"terrace/eval"
	"terrace/eval/fakes"
)

// essayFolder has one essay of numbered sentences.
func essayFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	for range 400 {
		b.WriteString("The essay goes on and on here. Does it end? ")
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

// Every task fits its length closely, has its answers in its text, is the same at every call, and scores 1 for a perfect
// answer and 0 for an empty one.
func TestTasks(t *testing.T) {
	for _, length := range []int{3000, 9000} {
		dir := essayFolder(t)
		if err := os.CopyFS(filepath.Join(dir, "qa"), os.DirFS("testdata/qa")); err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{Data: dir, Lengths: []int{length}, Samples: 2, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		r := &fakes.Runner{}
		samples, err := s.Samples(context.Background(), r)
		if err != nil || len(samples) != 2*len(TaskNames()) {
			t.Fatalf("%d samples, %v", len(samples), err)
		}
		for _, x := range samples {
			p := s.make(x.Data.(*spec))
			for _, a := range p.answers {
				if !strings.Contains(p.input, a) {
					t.Errorf("%s: answer %q is not in the text", x.Task, a)
				}
			}
			if again := s.make(x.Data.(*spec)); again.input != p.input || again.prefix != p.prefix {
				t.Errorf("%s: not the same at a second call", x.Task)
			}
			r.Answer = func(prompt, policy string) string {
				if policy == "full" {
					return "they are " + strings.ToUpper(strings.Join(p.answers, ", "))
				}
				return ""
			}
			var got []eval.Outcome
			if err := s.Evaluate(context.Background(), r, x, []string{"full", "few"}, func(o eval.Outcome) error { got = append(got, o); return nil }); err != nil {
				t.Fatal(err)
			}
			want := 1.0
			if x.Data.(*spec).task.tokens < len(p.answers)*12 {
				want = *got[0].Score // the fake's one token a byte cuts the answer
			}
			if *got[0].Score != want || *got[1].Score != 0 {
				t.Errorf("%s: scores %v %v", x.Task, *got[0].Score, *got[1].Score)
			}
			n := got[0].Prompt + x.Data.(*spec).task.tokens
			if n > length || n < length-length/4 {
				t.Errorf("%s at %d: %d tokens", x.Task, length, n)
			}
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	dir := essayFolder(t)
	a, _ := New(Options{Data: dir, Seed: 1})
	b, _ := New(Options{Data: dir, Seed: 2})
	x := &spec{task: tasks[1], length: 4096, size: 500}
	y := *x
	y.index = 1
	if a.make(x).input == b.make(x).input || a.make(x).input == a.make(&y).input {
		t.Error("another seed or index gives the same sample")
	}
}

func TestNeedleQuestions(t *testing.T) {
	dir := essayFolder(t)
	e, err := readEssays(dir)
	if err != nil {
		t.Fatal(err)
	}
	one := needleTask{"essay", names, numbers, 1, 1, 1}
	p := one.build(rng(1), e, 300, nil)
	if !regexp.MustCompile(`^A special magic number is hidden within .* the number afterwards\.\n(?s:.*)\nWhat is the special magic number for \S+ mentioned in the provided text\?$`).MatchString(p.input) ||
		!regexp.MustCompile(`^ The special magic number for \S+ mentioned in the provided text is$`).MatchString(p.prefix) || !regexp.MustCompile(`^\d{7}$`).MatchString(p.answers[0]) {
		t.Errorf("%q %q %q", p.input[:90], p.prefix, p.answers)
	}
	four := needleTask{"essay", names, numbers, 1, 1, 4}
	p = four.build(rng(1), e, 300, nil)
	if strings.Count(p.input, "One of the special magic numbers for ") != 4 || len(p.answers) != 4 || !strings.Contains(p.prefix, ", and ") || !strings.HasSuffix(p.prefix, " are") {
		t.Errorf("multiquery: %q %q", p.prefix, p.answers)
	}
	values := needleTask{"essay", names, numbers, 1, 4, 1}
	if p = values.build(rng(1), e, 300, nil); len(p.answers) != 4 || strings.Count(p.input, "One of the special") != 4 {
		t.Errorf("multivalue: %q", p.answers)
	}
	keys := needleTask{"needle", uuids, uuids, 1, 1, 1}
	p = keys.build(rng(1), nil, 40, nil)
	if strings.Count(p.input, "One of the special magic uuids for ") != 41 || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(p.answers[0]) {
		t.Errorf("multikey_3: %q", p.answers)
	}
}

// A needle at a depth stands there, between whole sentences.
func TestDepth(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("One two. ", 100))
	for depth, want := range map[float64]float64{0: 0, 25: 0.25, 50: 0.5, 100: 1} {
		got := insert(text, []string{"NEEDLE"}, []float64{depth})
		if at := float64(strings.Index(got, "NEEDLE")) / float64(len(got)-len("NEEDLE")); math.Abs(at-want) > 0.01 {
			t.Errorf("depth %v: at %v", depth, at)
		}
		if strings.Count(got, "One two.") != 100 {
			t.Errorf("depth %v: sentences lost", depth)
		}
	}
}

func TestGrid(t *testing.T) {
	s, err := New(Options{Data: essayFolder(t), Lengths: []int{1000, 2000}, Depths: []float64{0, 50, 100}, Samples: 2})
	if err != nil {
		t.Fatal(err)
	}
	samples, err := s.Samples(context.Background(), &fakes.Runner{})
	if err != nil || len(samples) != 12 || s.Name() != "niah" {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	var got eval.Outcome
	if err := s.Evaluate(context.Background(), &fakes.Runner{}, samples[2], []string{"full"}, func(o eval.Outcome) error { got = o; return nil }); err != nil {
		t.Fatal(err)
	}
	if got.Labels["context"] != "1000" || got.Labels["depth"] != "50" {
		t.Errorf("labels %v", got.Labels)
	}
}

func TestChain(t *testing.T) {
	p := tracking(rng(3), 20)
	main := p.input[strings.LastIndex(p.input, "Memorize and track"):]
	last := -1
	for i, v := range p.answers {
		at := strings.Index(main, "VAR "+v+" = ")
		if at < last || (i > 0 && !strings.Contains(main, "VAR "+v+" = VAR "+p.answers[i-1]+" ")) {
			t.Errorf("variable %d (%s) at %d after %d", i, v, at, last)
		}
		last = at
	}
	if strings.Count(p.input, "Memorize and track") != 2 || strings.Count(p.input, "VAR ") != 2*9 {
		t.Errorf("example or chain is missing: %d VAR", strings.Count(p.input, "VAR "))
	}
}

func TestWordCounts(t *testing.T) {
	if n := len(vocabulary().all); n < 8000 {
		t.Fatalf("%d words", n)
	}
	p := commonWords(rng(3), 60, 8192)
	counts := count(regexp.MustCompile(`\d+\. (\S+)`), p.input[strings.LastIndex(p.input, "Below is"):])
	if len(p.answers) != 10 || len(counts) != 60 {
		t.Fatalf("%d answers, %d words", len(p.answers), len(counts))
	}
	for w, n := range counts {
		if want := map[bool]int{true: 30, false: 3}[slices.Contains(p.answers, w)]; n != want {
			t.Errorf("cwe: %q %d times, want %d", w, n, want)
		}
	}
	p = frequentWords(rng(3), 1000, 4096)
	counts = count(regexp.MustCompile(`\b([a-z]{6})\b`), p.input[strings.Index(p.input, "coded words. ")+13:strings.Index(p.input, "\nQuestion")])
	for i, want := range []int{151, 67, 37} { // 1000·k⁻²/ζ(2), k = 2, 3, 4
		if counts[p.answers[i]] != want {
			t.Errorf("fwe: rank %d %d times, want %d", i+2, counts[p.answers[i]], want)
		}
	}
}

func count(re *regexp.Regexp, text string) map[string]int {
	out := map[string]int{}
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		out[m[1]]++
	}
	return out
}

func TestBadOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"length": {Lengths: []int{10}}, "depth": {Depths: []float64{101}}, "nan": {Depths: []float64{math.NaN()}}, "task": {Tasks: []string{"x"}},
	} {
		if _, err := New(o); !errors.Is(err, eval.ErrOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Options{Data: t.TempDir()}); !errors.Is(err, eval.ErrData) {
		t.Errorf("no essays: %v", err)
	}
	s, err := New(Options{Tasks: []string{"cwe"}, Lengths: []int{256}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Samples(context.Background(), &fakes.Runner{}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("too short: %v", err)
	}
}
