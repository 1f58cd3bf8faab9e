package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
	"terrace/policy"
)

// letters turns id n into one letter.
type letters struct{}

func (letters) Push(id int) string { return string(rune('a' + id%26)) }
func (letters) Flush() string      { return "" }

func TestGenerate(t *testing.T) {
	e := small(t, Options{Context: 80})
	prompt := fakes.IDs(30, 12)
	ask := func(r Request) *Result {
		t.Helper()
		r.IDs, r.Sampler.Temperature = prompt, 0
		res, err := e.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	long := ask(Request{MaxTokens: 20, Text: letters{}})
	if len(long.IDs) != 20 || long.Finish != "length" || len(long.Text) != 20 || long.KV.Tokens < 49 || long.KV.Fraction != 1 || long.Timings.DecodeTPS <= 0 {
		t.Fatalf("%+v", long)
	}
	// Greedy decoding is what forced steps give.
	steps := forced(t, e, prompt, long.IDs)
	for i, id := range long.IDs {
		if best := slices.Index(steps[i], slices.Max(steps[i])); best != id {
			t.Fatalf("token %d is %d, the likeliest is %d", i, id, best)
		}
	}
	end := long.IDs[5]
	first := slices.Index(long.IDs, end)
	if res := ask(Request{MaxTokens: 20, IsEnd: func(id int) bool { return id == end }}); res.Finish != "stop" || len(res.IDs) != first {
		t.Errorf("end at id %d: %+v", end, res)
	}
	stop := long.Text[3:6]
	if res := ask(Request{MaxTokens: 20, Text: letters{}, Stops: []string{stop}}); res.Finish != "stop" || res.Text != long.Text[:strings.Index(long.Text, stop)] {
		t.Errorf("stop %q: %q of %q", stop, res.Text, long.Text)
	}
	if res := ask(Request{MaxTokens: 90, Overflow: OverflowShift, IgnoreEOS: true}); len(res.IDs) != 90 || res.Dropped == 0 {
		t.Errorf("shifted: %d tokens, %d dropped", len(res.IDs), res.Dropped)
	}
	if res := ask(Request{MaxTokens: 90, CutToFit: true}); len(res.IDs) != 50 {
		t.Errorf("cut to fit: %d tokens", len(res.IDs))
	}
	if _, err := e.Generate(t.Context(), Request{IDs: prompt, MaxTokens: 90}); !errors.Is(err, ErrContext) {
		t.Errorf("90 tokens after 30 in a context of 80: %v", err)
	}
	res, err := e.Generate(t.Context(), Request{IDs: fakes.IDs(200, 1), MaxTokens: 10, Overflow: OverflowTruncateMiddle})
	if err != nil || res.Dropped < 130 || len(res.IDs) != 10 {
		t.Errorf("truncated: %+v, %v", res, err)
	}
	for _, s := range []string{"error", "shift", "truncate-middle", ""} {
		if _, err := ParseOverflow(s); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseOverflow("nothing"); !errors.Is(err, ErrOption) {
		t.Errorf("overflow nothing: %v", err)
	}
}

// TestForkedSessionsPart: two continuations of one prefix share its pages and are what each would be alone.
func TestForkedSessionsPart(t *testing.T) {
	for _, o := range []Options{{}, {KVTypeSet: true, KType: 3, VType: 4, KVWindow: 16}} {
		e := small(t, o)
		prompt, a, b := fakes.IDs(75, 13), fakes.IDs(30, 14), fakes.IDs(30, 15)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		before := e.KV().InUseBytes
		f, err := s.Fork(s.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if e.KV().InUseBytes != before {
			t.Error("a fork took memory before it wrote")
		}
		var got [2][][]float32
		for i := range a {
			if err := errors.Join(s.Decode(a[i]), f.Decode(b[i])); err != nil {
				t.Fatal(err)
			}
			got[0], got[1] = append(got[0], slices.Clone(s.Logits())), append(got[1], slices.Clone(f.Logits()))
		}
		s.Close()
		f.Close()
		for i, next := range [][]int{a, b} {
			if d := fakes.Worst(got[i], forced(t, e, prompt, next)[1:]); d != 0 {
				t.Errorf("continuation %d differs by %g from the one alone", i, d)
			}
		}
	}
}

// TestDecompositionIsKept: the file is made once, read the second time, and refused when damaged.
func TestDecompositionIsKept(t *testing.T) {
	for _, spec := range []string{"infinigen:budget=40", "kvswap:budget=40,calibrate=model", "double_sparsity:budget=40,calibrate=model,dense_layers=0"} {
		decompositionIsKept(t, spec)
	}
}

// TestCalibratedOnThePrompt: kvswap and double_sparsity with the keys of a sample read what they read with the prompt's own, where the sample is
// the prompt; a session may ask for it of an engine under another policy.
func TestCalibratedOnThePrompt(t *testing.T) {
	calibratedOnThePrompt(t, "kvswap:budget=40,rank=6", "keys")
	calibratedOnThePrompt(t, "double_sparsity:budget=40,rank=6,dense_layers=0", "channels")
}

func calibratedOnThePrompt(t *testing.T, own, what string) {
	t.Helper()
	prompt, next := fakes.IDs(300, 17), fakes.IDs(5, 18)
	o := Options{Policy: own, Calibration: prompt}
	want := forced(t, small(t, o), prompt, next)
	o.Policy = own + ",calibrate=model"
	if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
	e := small(t, Options{Calibration: fakes.IDs(300, 19)})
	under, err := policy.Parse(o.Policy)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(under)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	o.Calibration = fakes.IDs(300, 19)
	for i, row := range forced(t, small(t, o), prompt, next)[1:] {
		if err := s.Decode(next[i]); err != nil {
			t.Fatal(err)
		}
		if d := fakes.Worst([][]float32{row}, [][]float32{s.Logits()}); d != 0 {
			t.Errorf("step %d of a session of its own: logits differ by %g", i, d)
		}
	}
	if _, err := Open(e.m, Options{Policy: o.Policy}); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), what) {
		t.Errorf("without a sample text: %v", err)
	}
}

func decompositionIsKept(t *testing.T, spec string) {
	t.Helper()
	dir := t.TempDir()
	o := Options{Policy: spec, Calibration: fakes.IDs(80, 16), CacheDir: dir}
	prompt, next := fakes.IDs(120, 17), fakes.IDs(5, 18)
	want := forced(t, small(t, o), prompt, next)
	files, _ := filepath.Glob(filepath.Join(dir, "*.svd"))
	if len(files) != 1 {
		t.Fatalf("files %v", files)
	}
	if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
		t.Errorf("with the file read back logits differ by %g", d)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(files[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(small(t, Options{}).m, o); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestAccessors(t *testing.T) {
	e := small(t, Options{})
	for _, o := range []Options{{Threads: -1}, {Threads: 4096}, {Context: -1}, {ChunkTokens: -1}, {Exact: true, KVTypeSet: true, KType: 1, VType: 1}} {
		if _, err := Open(e.m, o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(e.m, Options{Backend: "abacus"}); !errors.Is(err, model.ErrUnknownBackend) {
		t.Errorf("an unknown backend: %v", err)
	}
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), nil, PrefillHooks{}); !errors.Is(err, ErrOption) {
		t.Errorf("an empty prompt: %v", err)
	}
	if err := s.Prefill(t.Context(), []int{1, 999999}, PrefillHooks{}); !errors.Is(err, model.ErrToken) || s.Tokens() != 0 {
		t.Errorf("an unknown id: %v", err)
	}
	if err := s.Prefill(t.Context(), []int{1, 2}, PrefillHooks{}); err != nil || !slices.Equal(s.IDs(), []int{1, 2}) || s.Sequence().Tokens(0, 0) != 2 {
		t.Errorf("ids %v: %v", s.IDs(), err)
	}
}

// TestChunksOfThePrompt: how the prompt is cut changes logits by rounding only; with weights of the whole prompt or of its
// end the policy sees the same rows.
func TestChunksOfThePrompt(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(200, 20), fakes.IDs(4, 21)
	for _, spec := range []string{"full", "snapkv:budget=80", "h2o:budget=80", "expected_attention:budget=80"} {
		want := forced(t, small(t, Options{Exact: true, Policy: spec}), prompt, next)
		for _, chunk := range []int{1, 33, 64, 150} {
			got := forced(t, small(t, Options{Exact: true, Policy: spec, ChunkTokens: chunk}), prompt, next)
			if d := fakes.Worst(want, got); d > 1e-3 {
				t.Errorf("%s in chunks of %d: logits differ by %g", spec, chunk, d)
			}
		}
	}
}
