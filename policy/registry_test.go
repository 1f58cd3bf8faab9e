package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/internal/cacheshape"
)

// TestGrammar reads specifications and prints their canonical form, needs or error (testdata/grammar).
func TestGrammar(t *testing.T) {
	datadriven.RunTest(t, "testdata/grammar", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			spec, err := Parse(line)
			if err != nil {
				kind := "?"
				for _, s := range []error{ErrUnknown, ErrParam, ErrClash, ErrModel} {
					if errors.Is(err, s) {
						kind = s.Error()
					}
				}
				text := strings.TrimSuffix(err.Error(), ": "+kind)
				if known, all := strings.Join(Names(), ", "), "(every name)"; errors.Is(err, ErrUnknown) {
					text = strings.Replace(text, known, all, 1)
				}
				fmt.Fprintf(&out, "error: %s (%s)\n", text, kind)
				continue
			}
			again, err := Parse(spec.String())
			if err != nil || again.String() != spec.String() {
				t.Fatalf("%s: canonical form %s does not parse back: %v", line, spec, err)
			}
			switch d.Cmd {
			case "needs":
				fmt.Fprintf(&out, "%s: %s\n", spec, strings.Join(spec.checked.sees(), ", "))
			default:
				fmt.Fprintln(&out, spec)
			}
		}
		return out.String()
	})
}

// FuzzParse: whatever is given for a specification is one that parses back and builds, or an error of one line that wraps a sentinel.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		f.Add(registry[plain(name)].info.Spec())
	}
	for _, spec := range []string{"adakv:criticalkv/", "adakv:/snapkv", "decoding:/", "topp:adakv/", "chunkkv:criticalkv/,ratio=0.4", "adakv:criticalkv/snapkv,ratio=0.5", "decoding:knorm:target_size=1k",
		"adakv:/", "adakv:press=", "adakv: / ", "h2o+quest", "+", ":", "adakv:" + strings.Repeat("adakv/", 100) + "knorm", "adakv:" + strings.Repeat("adakv/", 7) + "adakv", "h2o:budget=-1", "snapkv:budget=NaN",
		"adakv:0\n0", "h2o:budget=1\n0", "h2o:a\rb=1", "snapkv:budget=1,\n ratio=0\x000"} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") || !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrParam) && !errors.Is(err, ErrClash) && !errors.Is(err, ErrModel) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := Parse(spec.String())
		if err != nil || again.String() != spec.String() {
			t.Errorf("%q: canonical form %q does not parse back: %v", text, spec, err)
		}
		spec.Needs()
	})
}

// TestBudget gives the tokens that a budget keeps of a context (testdata/budget).
func TestBudget(t *testing.T) {
	datadriven.RunTest(t, "testdata/budget", func(t *testing.T, d *datadriven.TestData) string {
		var n int
		d.ScanArgs(t, "n", &n)
		const kvBytes = 1024
		var out strings.Builder
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			parse := parseBudget
			text, removed := strings.CutPrefix(line, "ratio ")
			if removed {
				parse = parseRatio
			}
			b, err := parse(text)
			if err != nil {
				fmt.Fprintf(&out, "%s: error: %v\n", line, err)
				continue
			}
			fmt.Fprintf(&out, "%s: %d\n", line, b.Tokens(n, kvBytes))
		}
		return out.String()
	})
}

// TestOneToken: beside a budget a bare 1 is one token; of a budget it stays refused, as all and as one.
func TestOneToken(t *testing.T) {
	l := &Layer{Heads: 1, KVHeads: 1, N: 100, KVBytes: 64}
	for _, spec := range []string{"h2o:budget=10,recent=1", "pqcache:budget=20,recent=1", "sparq:budget=20,local=1,rank=1"} {
		s, err := Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if s.String() != spec {
			t.Errorf("%s is written %s", spec, s)
		}
		set, err := s.New(Model{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 32, ValueDim: 32})})
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if h, ok := set.Dropper.(*h2o); ok && h.recent.Of(l, 100) != 1 {
			t.Errorf("%s: %d newest tokens of 100", spec, h.recent.Of(l, 100))
		}
	}
	if _, err := Parse("h2o:budget=1"); err == nil {
		t.Error("a budget of a bare 1 is taken")
	}
}

// TestSystems: a system's name is the method with its parameters, which the user's own go before.
func TestSystems(t *testing.T) {
	for text, want := range map[string]string{
		"flexgen": "full", "DeepSpeed": "full", "flexgen_sparq": "sparq:sketch=storage", "flexgen-sparq:budget=10%": "sparq:budget=10%,sketch=storage",
		"flexgen_sparq:sketch=memory": "sparq:sketch=memory", "insti_dense": "sparf:mode=dense",
	} {
		spec, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		same, err := Parse(want)
		if err != nil || spec.String() != same.String() {
			t.Errorf("%s is %s, want %s (%v)", text, spec, want, err)
		}
	}
	if _, err := Parse("flexgen:budget=10%"); !errors.Is(err, ErrParam) {
		t.Errorf("full has no budget under another name either: %v", err)
	}
	for _, i := range Infos() {
		for _, s := range i.Systems {
			if s.Doc == "" {
				t.Errorf("%s: nothing is said of it", s.Name)
			}
		}
	}
}
