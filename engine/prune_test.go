package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
	"terrace/policy"
)

// TestPruningDoesNotDependOnChunks: pass size, page size and threads change no bit, and budgets that cover the prompt are
// full, bit for bit, in prefill and decode.
func TestPruningDoesNotDependOnChunks(t *testing.T) {
	prompt, next := fakes.IDs(170, 21), fakes.IDs(9, 22)
	full := forced(t, small(t, Options{Threads: 1}), prompt, next)
	for _, spec := range []string{"sliminfer:layers=1/2,keep=96/64,block=32", "lazyllm:layers=1/2", "sliminfer:layers=1/2,keep=96/48,block=16+h2o:budget=40",
		"sliminfer:layers=1,keep=96+quest:budget=32", "lazyllm:layers=2+tova:budget=30"} {
		want := forced(t, small(t, Options{Threads: 1, Policy: spec}), prompt, next)
		if fakes.Worst(full, want) == 0 {
			t.Errorf("%s changes nothing", spec)
		}
		for _, o := range []Options{{ChunkTokens: 16}, {ChunkTokens: 37, PageTokens: 32}, {ChunkTokens: 4096, Threads: 2}} {
			o.Policy = spec
			if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("%s, passes of %d: logits differ by %g", spec, o.ChunkTokens, d)
			}
		}
	}
	for _, spec := range []string{"sliminfer:layers=1/2,keep=64k/170", "lazyllm:keep=100%", "sliminfer:keep=100%"} {
		if d := fakes.Worst(full, forced(t, small(t, Options{Threads: 2, ChunkTokens: 60, Policy: spec}), prompt, next)); d != 0 {
			t.Errorf("%s: logits differ from full by %g", spec, d)
		}
	}
}

// TestPruningWithWindows: where layers have a sliding window, rows leave at global layers only and windows are counted in
// positions: a token is seen by the next 511 positions, however many of them are left.
func TestPruningWithWindows(t *testing.T) {
	e := windowed(t, Options{Policy: "sliminfer:layers=6,keep=256", Exact: true})
	s := prefilled(t, e, fakes.IDs(900, 23))
	for layer := range e.m.Layers {
		want := 900
		if layer > 5 {
			want = 192 + 4 // block 0, two others, and the last block of 4 tokens
		}
		if got := s.text.Seq().Tokens(layer, 0); got != want {
			t.Errorf("layer %d holds %d tokens, want %d", layer, got, want)
		}
	}
	wrong := windowed(t, Options{Policy: "sliminfer:layers=5,keep=256"})
	if _, err := sessionOf(wrong); !errors.Is(err, policy.ErrModel) {
		t.Errorf("a pruning layer with a window: %v", err)
	}
}

// TestPruningWork: the operations counted are those of algorithms.md 3.5, with N_l rows alive in a layer: 2·N_l·W_l for the
// weights and 2·H·d·N_l² for causal attention. What the engine knows to be dead it leaves out, to the operation: the
// attention of rows that leave, and everything past the last layer's keys and values but the last row.
func TestPruningWork(t *testing.T) {
	const n, kept = 320, 128
	e := small(t, Options{Policy: fmt.Sprintf("sliminfer:layers=2,keep=%d", kept)})
	s := prefilled(t, e, fakes.IDs(n, 24))
	m := e.m
	alive := s.text.Seq().PositionList(2, 0)
	if len(alive) != kept {
		t.Fatalf("%d rows alive, want %d", len(alive), kept)
	}
	qkv, rest := 0, 0 // weights of a layer
	layer := &m.Params.Layers[0]
	for _, w := range []*model.Linear{layer.Q, layer.K, layer.V} {
		qkv += w.Rows * w.Cols
	}
	for _, w := range []*model.Linear{layer.O, layer.Gate, layer.Up, layer.Down} {
		rest += w.Rows * w.Cols
	}
	causal := func(rows int) int { return rows * (rows + 1) / 2 }
	late := 0 // keys that the survivors see in the pruning layer
	for _, p := range alive {
		late += int(p) + 1
	}
	pair := 2 * m.Layer[0].Heads * (m.Layer[0].KeyDim + m.Layer[0].ValDim)
	want := FLOPs{
		Matrices:  int64(2 * (n*(qkv+rest) + n*qkv + kept*(qkv+rest) + kept*qkv + rest)), // layer 0; layer 1, survivors' queries twice; layer 2
		Attention: int64(pair * (causal(n) + late + kept)),
		Head:      int64(2 * m.Vocab * m.Hidden),
	}
	if got := s.FLOPs(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	full := prefilled(t, small(t, Options{}), fakes.IDs(n, 24)).FLOPs()
	want = FLOPs{Matrices: int64(2 * (2*n*(qkv+rest) + n*qkv + rest)), Attention: int64(pair * (2*causal(n) + n)), Head: int64(2 * m.Vocab * m.Hidden)}
	if full != want {
		t.Errorf("full: %+v, want %+v", full, want)
	}
}

// TestPruningStops: a cancelled prompt leaves an empty session that reads another; logits of every token are refused.
func TestPruningStops(t *testing.T) {
	e := small(t, Options{Policy: "sliminfer:layers=1,keep=64,block=16", ChunkTokens: 32})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := fakes.IDs(120, 25)
	ctx, cancel := context.WithCancel(t.Context())
	err = s.Prefill(ctx, ids, PrefillHooks{Progress: func(int, int) { cancel() }})
	if !errors.Is(err, context.Canceled) || s.Tokens() != 0 || s.text.Seq().Tokens(0, 0) != 0 {
		t.Fatalf("cancelled: %v with %d tokens", err, s.Tokens())
	}
	if err := s.Prefill(t.Context(), ids, PrefillHooks{Each: func(int, []float32) error { return nil }}); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("logits of pruned rows: %v", err)
	}
	if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(s.Logits())
	if err := s.Prefill(t.Context(), fakes.IDs(40, 26), PrefillHooks{}); err != nil { // a second prompt is read whole
		t.Fatal(err)
	}
	if got := s.text.Seq().Tokens(2, 0); got != 64-16+8+40 { // 120 tokens: the last block has 8
		t.Errorf("after a second prompt layer 2 holds %d tokens", got)
	}
	if err := s.Rewind(120); err != nil || !slices.Equal(want, s.Logits()) {
		t.Errorf("rewound: %v, logits equal %v", err, slices.Equal(want, s.Logits()))
	}
}
