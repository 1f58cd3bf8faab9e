package local

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/engine"
	"terrace/eval"
	"terrace/internal/golden"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// open makes a runner on the shared tiny llama.
func open(t *testing.T) *Runner {
	t.Helper()
	return openPath(t, golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
}

func openPath(t *testing.T, path string) *Runner {
	t.Helper()
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vocab.FromModel(file.Meta(), "")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	r := New(eval.Model{Name: "tiny", Vocab: m.Vocab, Context: m.Context}, tok, func(p string) (*engine.Engine, error) {
		return engine.Open(m, engine.Options{Policy: p, Threads: 2, Calibration: promptIDs(64)})
	})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		file.Close()
	})
	return r
}

func promptIDs(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 3 + i*7%250
	}
	return ids
}

var policies = []string{"full", "streaming_llm:budget=0.5", "snapkv:budget=0.5,window=8", "h2o:budget=0.5", "knorm:budget=0.5", "quest:budget=0.5", "infinigen:budget=0.2,alpha=8,dense_layers=0",
	"topp:select=infinigen,budget=0.4,p=0.9", "infinigen:budget=0.2,alpha=8,dense_layers=0"}

// What Continue says is what Generate does and what Force's logits give, under every policy; afterwards the session stands
// where it stood.
func TestSessionsAgreeWithThemselves(t *testing.T) {
	r := open(t)
	ctx := context.Background()
	ids := promptIDs(60)
	for _, p := range policies {
		var answer []int
		err := r.Prompt(ctx, ids, []string{p}, func(_ int, s eval.Session, err error) error {
			if err != nil {
				return err
			}
			before := slices.Clone(s.Logits())
			g, err := s.Generate(ctx, eval.Generate{MaxTokens: 6, MinTokens: 6})
			if err != nil {
				return err
			}
			answer = g.IDs
			if len(answer) != 6 || len(g.Gaps) != 5 || g.Finish != "length" || slices.Equal(before, s.Logits()) {
				t.Errorf("%s: %d tokens, %d gaps, %s", p, len(answer), len(g.Gaps), g.Finish)
			}
			c := s.Cost()
			if c.Kept <= 0 || c.Kept > 65 || c.KVBytes["host"] <= 0 || c.Prefill <= 0 {
				t.Errorf("%s: cost %+v", p, c)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		err = r.Prompt(ctx, ids, []string{"full", p}, func(i int, s eval.Session, err error) error { // most share its prompt
			if err != nil || i == 0 {
				return err
			}
			first := slices.Clone(s.Logits())
			scores, err := s.Continue(ctx, answer)
			if err != nil {
				return err
			}
			if !slices.Equal(first, s.Logits()) {
				t.Errorf("%s: Continue moved the session", p)
			}
			want := []float64{float64(first[answer[0]]) - logSumExp(first)}
			var after []eval.TokenScore
			err = s.Force(ctx, answer[:5], func(i int, l []float32) error {
				want = append(want, float64(l[answer[i+1]])-logSumExp(l))
				if i == 2 {
					after, err = s.Continue(ctx, answer[3:])
				}
				return err
			})
			for i, x := range scores {
				if !x.Greedy || math.Abs(x.LogProb-want[i]) > 1e-9 {
					t.Errorf("%s: token %d: %+v, want greedy and %v", p, i, x, want[i])
				}
			}
			if err != nil {
				return err
			}
			for i, x := range after {
				if math.Abs(x.LogProb-want[3+i]) > 1e-9 {
					t.Errorf("%s: token %d after three that were forced: %+v, want %v", p, i, x, want[3+i])
				}
			}
			if len(after) != 3 {
				t.Errorf("%s: %d scores after tokens that were forced", p, len(after))
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
	}
}

// Policies that are run together give the logits they give alone, bit for bit, whether the prompt was shared or not.
func TestTogetherIsAlone(t *testing.T) {
	r := open(t)
	ctx := context.Background()
	ids := promptIDs(90)
	logits := func(ps []string) (out [][]float32) {
		err := r.Prompt(ctx, ids, ps, func(_ int, s eval.Session, err error) error {
			if err != nil {
				return err
			}
			row := slices.Clone(s.Logits())
			err = s.Force(ctx, []int{5, 6, 7}, func(_ int, l []float32) error { row = append(row, l...); return nil })
			out = append(out, row)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	together := logits(policies)
	for i, p := range policies {
		if alone := logits([]string{p}); !slices.Equal(alone[0], together[i]) {
			t.Errorf("%s: other logits together with other policies", p)
		}
	}
}

// What each policy has to see of a prompt decides who shares; h2o sums the weights of every row and reads all itself.
func TestPlan(t *testing.T) {
	r := open(t)
	e, err := r.engine("full")
	if err != nil {
		t.Fatal(err)
	}
	p := planShared(e, policies, 90)
	if p.common != 82 || p.specs[3] != nil || p.specs[0] == nil || p.specs[2] == nil || p.specs[6] == nil {
		t.Errorf("%+v", p)
	}
	for name, few := range map[string][]string{"one policy": {"full"}, "only h2o besides": {"h2o", "full"}} {
		if p := planShared(e, few, 90); p.common != 0 || slices.ContainsFunc(p.specs, func(s *policy.Spec) bool { return s != nil }) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// One policy that the engine cannot run fails alone.
func TestBadPolicyFailsAlone(t *testing.T) {
	r := open(t)
	var failed, ran int
	err := r.Prompt(context.Background(), promptIDs(20), []string{"full", "adakv:nonsense", "full"}, func(_ int, s eval.Session, err error) error {
		if err != nil {
			failed++
		} else {
			ran++
		}
		return nil
	})
	if err != nil || failed != 1 || ran != 2 {
		t.Errorf("%d failed, %d ran, %v", failed, ran, err)
	}
}

func TestCancel(t *testing.T) {
	r := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	err := r.Prompt(ctx, promptIDs(20), []string{"full"}, func(_ int, s eval.Session, _ error) error {
		cancel()
		_, err := s.Generate(ctx, eval.Generate{MaxTokens: 5})
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := r.Prompt(ctx, promptIDs(20), []string{"full"}, func(int, eval.Session, error) error { t.Error("called"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Round trip of text, with the model's own special tokens left out.
func TestText(t *testing.T) {
	r := open(t)
	ids, err := r.EncodePlain("hello world")
	if err != nil || r.Decode(ids) != "hello world" {
		t.Errorf("%v %q", err, r.Decode(ids))
	}
	if _, ok := r.BOS(); ok && !r.tok.AddsBOS() {
		t.Error("BOS")
	}
}

// TestStops: an answer ends before the first of its stop texts, alone and in a batch, wherever tokens begin; the token that
// completed it is the last of the ids.
func TestStops(t *testing.T) {
	r := open(t)
	answer := func(ctx context.Context, r eval.Runner, stops []string) (g *eval.Generation, err error) {
		err = r.Prompt(ctx, promptIDs(40), []string{"full"}, func(_ int, s eval.Session, err error) error {
			if err == nil {
				g, err = s.Generate(ctx, eval.Generate{MaxTokens: 40, MinTokens: 40, Stops: stops})
			}
			return err
		})
		return g, err
	}
	whole, err := answer(t.Context(), r, nil)
	if err != nil || whole.Text != r.Decode(whole.IDs) || whole.Finish != "length" {
		t.Fatalf("%+v, %v", whole, err)
	}
	stop, last := "", 0
	for i := 8; i+4 < len(whole.IDs) && stop == ""; i++ { // four tokens, less the first byte: whole characters
		if text := r.Decode(whole.IDs[i : i+4]); !strings.ContainsRune(text, '\uFFFD') && len(text) > 4 && text[0] < 0x80 {
			stop, last = text[1:], i+4
		}
	}
	at := strings.Index(whole.Text, stop)
	if stop == "" || at < 0 {
		t.Fatalf("the tiny model says %q", whole.Text)
	}
	var together [2]*eval.Generation
	err = r.Batch(t.Context(), 2, func(yield func(func(context.Context, eval.Runner) error) bool) {
		for i := range together {
			if !yield(func(ctx context.Context, r eval.Runner) (err error) {
				together[i], err = answer(ctx, r, [][]string{{"never said", stop}, nil}[i])
				return err
			}) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := answer(t.Context(), r, []string{stop, "never said"})
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []*eval.Generation{alone, together[0]} {
		if g.Text != whole.Text[:at] || g.Finish != "stop" || len(g.IDs) > last || !slices.Equal(g.IDs, whole.IDs[:len(g.IDs)]) || !strings.Contains(r.Decode(g.IDs), stop) {
			t.Errorf("stopped at %q: %+v, want %q", stop, g, whole.Text[:at])
		}
	}
	if !slices.Equal(together[1].IDs, whole.IDs) {
		t.Errorf("beside it: %v, want %v", together[1].IDs, whole.IDs)
	}
}

// TestCheck sees that the model's file was written over.
func TestCheck(t *testing.T) {
	data, err := os.ReadFile(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "over.gguf")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	r := openPath(t, path)
	check := func() error {
		err := r.Prompt(t.Context(), promptIDs(8), []string{"full"}, func(_ int, _ eval.Session, err error) error { return err })
		if err != nil {
			return err
		}
		return r.Check()
	}
	if err := check(); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(); !errors.Is(err, weights.ErrFileChanged) {
		t.Errorf("%v, want ErrFileChanged", err)
	}
}
