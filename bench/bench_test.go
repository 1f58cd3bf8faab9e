package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"terrace/engine"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/convert"
)

// small opens a random llama of 3 layers.
func small(t testing.TB, o engine.Options) *engine.Engine {
	t.Helper()
	return smallAt(t, filepath.Join(t.TempDir(), "small.gguf"), o)
}

// smallAt is small in a file of a path.
func smallAt(t testing.TB, path string, o engine.Options) *engine.Engine {
	t.Helper()
	err := convert.Synthesize(context.Background(), path, convert.Spec{Arch: "llama", Layers: 3, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 32,
		FFN: 192, Vocab: 300, Context: 2048, Seed: 5}, convert.Options{Type: quant.Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), file.Close()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func someIDs(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 9))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(256)
	}
	return ids
}

// lastLogits are those after the last of the ids.
func lastLogits(t testing.TB, e *engine.Engine, ids []int) []float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), ids, engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(s.Logits())
}

// benchRows measures the rows that the options ask for.
func benchRows(ctx context.Context, e *engine.Engine, o Options) (rows []Row, err error) {
	for _, generation := range []bool{false, true} {
		if !generation && o.P == 0 && o.N > 0 || generation && o.N == 0 {
			continue
		}
		b, err := Open(ctx, e, generation, o)
		if err != nil {
			return nil, err
		}
		for range o.Repeats {
			if err := b.Repeat(ctx); err != nil {
				b.Close()
				return nil, err
			}
		}
		rows = append(rows, b.Row())
		b.Close()
	}
	return rows, nil
}

func TestBenchRows(t *testing.T) {
	for _, spec := range []string{"", "snapkv:budget=50%+quest:budget=16"} {
		e := small(t, engine.Options{Policy: spec})
		rows, err := benchRows(t.Context(), e, Options{P: 8, N: 3, D: 70, Repeats: 2, Batch: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 2 || rows[0].Test != "pp8 @ d70" || rows[1].Test != "tg3 @ d70" {
			t.Fatalf("rows %+v", rows)
		}
		for _, r := range rows {
			if len(r.TPS) != 2 || !(r.MedianTPS() > 0) {
				t.Errorf("row %+v", r)
			}
		}
	}
	e := small(t, engine.Options{Policy: "quest:budget=16"})
	text := someIDs(30, 3)
	b, err := Open(t.Context(), e, true, Options{N: 3, D: 40, Repeats: 2, Batch: 2, Text: text, Continue: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := b.Repeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		for k, s := range b.sessions() { // 3 steps before the first repeat
			want := 40 + 3*(i+2)
			if s.Tokens() != want || s.IDs()[want-1] != text[(k*43+want-1)%30] {
				t.Errorf("sequence %d after repeat %d: %d tokens, the last %d", k, i, s.Tokens(), s.IDs()[len(s.IDs())-1])
			}
		}
	}
	b.Close()
	e = small(t, engine.Options{Context: 64})
	for _, o := range []Options{{}, {P: -1, N: 1}, {N: 1, D: 64}, {P: 65}} {
		if _, err := benchRows(t.Context(), e, o); !errors.Is(err, engine.ErrOption) && !errors.Is(err, engine.ErrContext) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if rows, err := benchRows(t.Context(), e, Options{N: 2, Repeats: 3}); err != nil || rows[0].Test != "tg2" || len(rows[0].TPS) != 3 {
		t.Errorf("bench at depth 0: %+v, %v", rows, err)
	}
}

// TestPerplexityAgainstPrefill: the same numbers as from the logits of each prefix.
func TestPerplexityAgainstPrefill(t *testing.T) {
	e := small(t, engine.Options{Exact: true})
	ids := someIDs(40, 11)
	var base []float64
	p, err := Perplex(t.Context(), e, ids, PerplexityOptions{Chunk: 16, BOS: -1, OnLogits: func(l []float64) { base = append(base, l...) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Chunks) != 2 || p.Tokens == 0 || math.Abs(math.Log(p.PPL)-p.NLL) > 1e-9 {
		t.Fatalf("%+v", p)
	}
	if len(base) != p.Tokens*e.Model().Vocab {
		t.Fatalf("%d log-probabilities for %d positions", len(base), p.Tokens)
	}
	// The last prediction of the first chunk.
	logits := lastLogits(t, e, ids[:15])
	lp := make([]float64, len(logits))
	logSoftmax(lp, logits)
	per := p.Tokens / 2
	if d := math.Abs(lp[ids[15]] - base[(per-1)*e.Model().Vocab+ids[15]]); d > 1e-5 {
		t.Errorf("the last scored token of chunk 1 is off by %g nats", d)
	}
	at := 0
	again, err := Perplex(t.Context(), e, ids, PerplexityOptions{Chunk: 16, BOS: -1, Base: func() ([]float64, error) {
		at++
		return base[(at-1)*e.Model().Vocab : at*e.Model().Vocab], nil
	}})
	if err != nil || again.KL > 1e-9 || again.SameTop != 1 {
		t.Errorf("against itself: %+v, %v", again, err)
	}
	for _, o := range []PerplexityOptions{{Chunk: 2}, {Chunk: 64}} {
		if _, err := Perplex(t.Context(), e, ids, o); !errors.Is(err, engine.ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Perplex(t.Context(), e, ids, PerplexityOptions{Chunk: 1 << 20}); !errors.Is(err, engine.ErrContext) {
		t.Errorf("a chunk longer than the context: %v", err)
	}
}

// TestModelChanges: a model file that is written over while it is measured is an error, not a figure.
func TestModelChanges(t *testing.T) {
	for name, run := range map[string]func(e *engine.Engine, change func()) error{
		"perplexity": func(e *engine.Engine, change func()) error {
			_, err := Perplex(t.Context(), e, someIDs(40, 3), PerplexityOptions{Chunk: 20, BOS: -1, OnLogits: func([]float64) { change() }})
			return err
		},
		"bench": func(e *engine.Engine, change func()) error {
			b, err := Open(t.Context(), e, true, Options{N: 2, Repeats: 1})
			if err != nil {
				return err
			}
			defer b.Close()
			change()
			return b.Repeat(t.Context())
		},
	} {
		path := filepath.Join(t.TempDir(), "over.gguf")
		e := smallAt(t, path, engine.Options{})
		err := run(e, func() {
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(path, later, later); err != nil {
				t.Fatal(err)
			}
		})
		if !errors.Is(err, weights.ErrFileChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReadShare: generation says what steps read of weights and how fast that can be read; prompt processing does not.
func TestReadShare(t *testing.T) {
	e := small(t, engine.Options{Threads: 2})
	for _, generation := range []bool{false, true} {
		b, err := Open(context.Background(), e, generation, Options{P: 4, N: 4, Repeats: 2, Batch: 2})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := b.Repeat(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r := b.Row()
		b.Close()
		if !generation {
			if r.WeightBytes != 0 || len(r.ReadRate) != 0 || r.ReadShare() != 0 {
				t.Errorf("prompt: %d bytes, rates %v, share %g, want none", r.WeightBytes, r.ReadRate, r.ReadShare())
			}
			continue
		}
		// q, k, v, o, gate, up and down of 3 layers and the output, rows of 34 bytes a 32 weights; packed rows fill tiles of 16
		weights := int64(3*(128*128+2*64*128+128*128+3*128*192) + 304*128)
		if r.WeightBytes < (weights-4*128)*34/32 || r.WeightBytes > weights*34/32 {
			t.Errorf("%d bytes a step, want %d, or less 4 rows of the output", r.WeightBytes, weights*34/32)
		}
		if len(r.ReadRate) != 2 || !(r.ReadShare() > 0) {
			t.Errorf("rates %v, share %g", r.ReadRate, r.ReadShare())
		}
		want := (r.TPS[0]/r.ReadRate[0] + r.TPS[1]/r.ReadRate[1]) / 2 / 2 * float64(r.WeightBytes) // texts of 2 share a step
		if got := r.ReadShare(); math.Abs(got-want) > 1e-9*want {
			t.Errorf("share %g, want %g", got, want)
		}
	}
}
