package tokencache

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/kvmanager"
	"terrace/offload"
)

// TestGatherByHead: where each KV head picks by itself a store that reads single tokens is asked for each token that some head lacks, once,
// and every head finds its own in its views. Staging holds few, so that they come in several parts.
func TestGatherByHead(t *testing.T) {
	l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 6, Tokens: 16, TokenMajor: true}
	const layers, heads, tokens = 2, 3, 20 * 16
	shape := offload.Shape{Layers: cacheshape.Equal(layers, heads, cacheshape.KV{Heads: heads, KeyDim: l.KeyDim, ValueDim: l.ValueDim}), GroupTokens: 16, Page: l}
	store, err := offload.OpenSSD(shape, offload.SSDOptions{Dir: "/kv", CapacityBytes: 8 << 20, FS: vfs.NewMem(32 << 20), NoDirect: true, TokenRows: true})
	if err != nil {
		t.Fatal(err)
	}
	o := kvmanager.Options{Layers: cacheshape.Equal(layers, heads, cacheshape.KV{Heads: heads, KeyDim: l.KeyDim, ValueDim: l.ValueDim}), Layout: l, BudgetBytes: 1 << 20, Backing: offload.NewQueue(store, offload.QueueOptions{})}
	defer func() { _ = o.Backing.Close() }()
	m, err := kvmanager.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := scenario{o: o, m: m, seq: m.NewSequence()}
	if err := s.append(tokens + 3); err != nil {
		t.Fatal(err)
	}
	stored := func() bool {
		blocks, err := s.seq.Blocks()
		if err != nil {
			t.Fatal(err)
		}
		for layer := range layers {
			for i := range tokens / 16 {
				if !blocks.Gatherable(layer, i) || blocks.Resident(layer, i) != nil {
					return false
				}
			}
		}
		return true
	}
	for until := time.Now().Add(20 * time.Second); !stored(); _ = clock.Real().Sleep(context.Background(), time.Millisecond) {
		if err := s.plan(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(until) {
			t.Fatal("the text is not stored")
		}
	}
	if s.c, err = New(s.seq, Options{ByHead: true, Layers: []int{0, 1}, StagingBytes: int64(12 * l.PageBytes())}); err != nil {
		t.Fatal(err)
	}
	if !s.c.gather.on {
		t.Fatal("single tokens are not read")
	}
	s.c.SetLimit(64)
	rng := rand.New(rand.NewPCG(5, 8))
	for step := range 12 {
		s.c.Step()
		if err := s.plan(); err != nil {
			t.Fatal(err)
		}
		for layer := range layers {
			picks, scores, lacking := make([][]int32, heads), make([][]float32, heads), map[int32]bool{}
			for g := range picks {
				for range 40 {
					picks[g] = append(picks[g], int32(rng.IntN(tokens)))
				}
				slices.Sort(picks[g])
				picks[g] = slices.Compact(picks[g])
				for i := range tokens {
					scores[g] = append(scores[g], -1)
					if slices.Contains(picks[g], int32(i)) {
						scores[g][i] = float32(1 + rng.IntN(9))
					}
				}
				for _, index := range picks[g] {
					if sh := &s.c.shardsOf(layer)[g]; int(index) >= len(sh.at) || !sh.has(index) {
						lacking[index] = true
					}
				}
			}
			before := s.c.Stats().Groups
			if err := s.c.Begin(layer, picks, scores); err != nil {
				t.Fatal(err)
			}
			w := &s.c.layers[layer]
			if len(w.single.tokens) != len(lacking) || !slices.IsSorted(w.single.tokens) || s.c.Stats().Groups != before {
				t.Fatalf("step %d layer %d: %d single tokens and %d groups asked for, want %d and none", step, layer, len(w.single.tokens), s.c.Stats().Groups-before, len(lacking))
			}
			if err := s.c.Finish(layer); err != nil {
				t.Fatal(err)
			}
			if err := s.compare(t, layer); err != nil {
				t.Fatal(err)
			}
			s.c.Done(layer)
		}
	}
	blocks, err := s.seq.Blocks()
	if err != nil {
		t.Fatal(err)
	}
	fixed, scratch := MostBytes(blocks, s.c.o, tokens, 41, 1)
	if got := s.c.Sizes().Fixed; got > fixed+scratch {
		t.Errorf("%d bytes beside slots, at most %d and %d were announced", got, fixed, scratch)
	}
	err = s.c.Free()
	s.seq.Free()
	if cerr := m.Check(); err != nil || cerr != nil || m.Stats().InUseBytes > 0 {
		t.Errorf("%v, %v, %d bytes in use", err, cerr, m.Stats().InUseBytes)
	}
}
