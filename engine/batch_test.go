package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"gorgonia.org/tensor"

	"terrace/engine/fakes"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
)

// parsed is a policy by its specification.
func parsed(t testing.TB, spec string) *policy.Spec {
	t.Helper()
	p, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// opened is a session under a policy that has read a prompt; it is closed with the test.
func opened(t testing.TB, e *Engine, spec string, prompt []int) *Session {
	t.Helper()
	s, err := e.NewSession(parsed(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// heldBy are the positions of each layer and KV head.
func heldBy(s *Session) (out [][]int32) {
	for layer := range s.e.m.Layers {
		for g := range s.e.m.Layer[0].KVHeads {
			out = append(out, slices.Clone(s.text.Seq().PositionList(layer, g)))
		}
	}
	return out
}

// selective is a store whose reads of homes that are not let through fail while it is down.
type selective struct {
	offload.Store
	mu   sync.Mutex
	good map[uint64]bool // homes whose reads go through
	down error           // nil = all go through
	hits int             // reads that failed
}

func (f *selective) set(down error, good ...*Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.good, f.hits = down, map[uint64]bool{}, 0
	for _, s := range good {
		f.good[s.text.Seq().Home()] = true
	}
}

func (f *selective) failed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

func (f *selective) Read(ctx context.Context, recs []offload.Record) error {
	f.mu.Lock()
	for _, r := range recs {
		if f.down != nil && !f.good[r.Key.Seq] {
			f.hits++
			f.mu.Unlock()
			return fmt.Errorf("offload: %v: %w", r.Key, f.down)
		}
	}
	f.mu.Unlock()
	return f.Store.Read(ctx, recs)
}

// checkBatchError wants an error of one session of a batch.
func checkBatchError(t *testing.T, err error, sessions, at int, is error) {
	t.Helper()
	var batch *BatchError
	if !errors.As(err, &batch) || len(batch.Errors) != sessions {
		t.Fatalf("%v, want a *BatchError of %d sessions", err, sessions)
	}
	for i, one := range batch.Errors {
		if i == at && !errors.Is(one, is) || i != at && one != nil {
			t.Errorf("session %d: %v", i, one)
		}
	}
	if !errors.Is(err, is) {
		t.Errorf("%v does not wrap %v", err, is)
	}
}

// TestContextOfOneIsFull: of three sessions of a batch one has no room left: it stays as it was and can go on after Rewind, and
// the others compute what they compute without it.
func TestContextOfOneIsFull(t *testing.T) {
	for _, spec := range []string{"full", "quest:budget=48", "h2o:budget=60"} {
		o := Options{Threads: 2, Context: 120, Policy: spec}
		prompts, next := [][]int{fakes.IDs(90, 1), fakes.IDs(118, 2), fakes.IDs(75, 3)}, fakes.IDs(8, 4)
		var want [3][][]float32
		for i, n := range []int{8, 2, 8} {
			want[i] = forced(t, small(t, o), prompts[i], next[:n])
		}
		e := small(t, o)
		var sessions []*Session
		for _, p := range prompts {
			sessions = append(sessions, opened(t, e, spec, p))
		}
		for step, id := range next {
			before := heldBy(sessions[1])
			err := e.DecodeBatch(sessions, []int{id, id, id})
			if step < 2 {
				if err != nil {
					t.Fatal(err)
				}
			} else {
				checkBatchError(t, err, 3, 1, ErrContext)
				if sessions[1].Tokens() != 120 || !slices.Equal(sessions[1].Logits(), want[1][2]) || !slices.EqualFunc(before, heldBy(sessions[1]), slices.Equal) {
					t.Errorf("%s, step %d: the session without room changed", spec, step)
				}
			}
			for _, i := range []int{0, 2} {
				if !slices.Equal(sessions[i].Logits(), want[i][step+1]) {
					t.Errorf("%s, step %d: logits of session %d differ by %g", spec, step, i, fakes.Worst([][]float32{sessions[i].Logits()}, want[i][step+1:]))
				}
			}
			if err := e.kv.Check(); err != nil {
				t.Error(err)
			}
		}
		if spec == "full" { // others read the text again, as one prompt
			if err := errors.Join(sessions[1].Rewind(118), sessions[1].Decode(next[0])); err != nil || !slices.Equal(sessions[1].Logits(), want[1][1]) {
				t.Errorf("%s: after Rewind: %v, or other logits", spec, err)
			}
		}
		sessions[1].Close()
		if err := e.kv.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestStoreFailsForOne: of three sessions of a batch one cannot read its KV from the lower tier. The others compute what they
// compute without it; it stays as it was before the step, and goes on once its KV can be read, or is closed.
func TestStoreFailsForOne(t *testing.T) {
	t.Parallel()
	prompts, next := [][]int{fakes.IDs(100, 1), fakes.IDs(600, 2), fakes.IDs(90, 3)}, fakes.IDs(9, 4) // most of what is below is the second's
	for spec, blocks := range map[string]int64{"full": 90, "quest:budget=256": 140} {
		o := Options{Threads: 2, ChunkTokens: 32, Policy: spec}
		var want [3][][]float32
		for i, p := range prompts {
			want[i] = forced(t, small(t, o), p, next)
		}
		for _, down := range []error{offload.ErrMissing, offload.ErrCorrupt, errors.New("a bad cable")} {
			t.Run(fmt.Sprintf("%s %v", spec, down), func(t *testing.T) {
				t.Parallel()
				o := o
				store := &selective{Store: below(t, o)}
				o.Store, o.KVBudgetBytes = store, blocks*4096
				e := small(t, o)
				var sessions []*Session
				for _, p := range prompts {
					sessions = append(sessions, opened(t, e, spec, p))
				}
				at := [3]int{}
				same := func(step int) {
					t.Helper()
					for i, s := range sessions {
						if s.Tokens() != len(prompts[i])+at[i] || !slices.Equal(s.Logits(), want[i][at[i]]) {
							t.Errorf("step %d: session %d has %d tokens, %d read; logits differ by %g", step, i, s.Tokens(), len(prompts[i])+at[i], fakes.Worst([][]float32{s.Logits()}, want[i][at[i]:]))
						}
					}
					if err := e.kv.Check(); err != nil {
						t.Error(err)
					}
				}
				for step, id := range next[:8] {
					ids := []int{id, next[at[1]], id}
					switch step {
					case 2:
						store.set(down, sessions[0], sessions[2])
					case 5:
						if store.failed() == 0 {
							t.Fatal("no read failed")
						}
						store.set(nil)
					}
					err := e.DecodeBatch(sessions, ids)
					at[0], at[2] = at[0]+1, at[2]+1
					if step >= 2 && step < 5 {
						checkBatchError(t, err, 3, 1, ErrTier)
					} else {
						if err != nil {
							t.Fatalf("step %d: %v", step, err)
						}
						at[1]++
					}
					same(step)
				}
				store.set(down, sessions[0], sessions[2])
				checkBatchError(t, e.DecodeBatch(sessions, []int{next[8], next[at[1]], next[8]}), 3, 1, ErrTier)
				sessions[1].Close()
				sessions = []*Session{sessions[0], sessions[2]}
				if err := e.DecodeBatch(sessions, []int{1, 2}); err != nil {
					t.Errorf("after the failed session was closed: %v", err)
				}
				if err := e.kv.Check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// failing fails the second session of a pass in a layer, once its keys and values are projected.
type failing struct {
	model.Backend
	e     *Engine
	layer int // -1 = none
	rows  int // of the layers behind it, the most
}

var errMiddle = errors.New("the one in the middle fails")

// Project implements model.Backend.
func (b *failing) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	switch {
	case layer == b.layer:
		b.e.pass.kv.Fail(1, errMiddle)
	case b.layer >= 0 && layer > b.layer:
		b.rows = max(b.rows, hidden.Shape()[0])
	}
	return b.Backend.Project(p, layer, hidden)
}

// TestFailedRowsGoToTheBorder: on each backend, and of models whose layers differ, in each layer that attends, a session that fails between two
// others leaves the pass at the layer's border; what the others compute does not change, and it goes on afterwards as if it had not been tried.
func TestFailedRowsGoToTheBorder(t *testing.T) {
	eachDiffering(t, func(t *testing.T, open func(t testing.TB, o Options) *Engine) { failInTheMiddle(t, open, 0) })
	for _, name := range parityBackends {
		limit := float32(parityLimit)
		if name == "native" {
			limit = 0
		}
		t.Run(name, func(t *testing.T) {
			failInTheMiddle(t, func(t testing.TB, o Options) *Engine { o.Backend = name; return small(t, o) }, limit)
		})
	}
}

func failInTheMiddle(t *testing.T, open func(t testing.TB, o Options) *Engine, limit float32) {
	prompts, next := [][]int{fakes.IDs(20, 1), fakes.IDs(31, 2), fakes.IDs(17, 3)}, fakes.IDs(12, 4)
	o := Options{Threads: 2}
	var want [3][][]float32
	for i, p := range prompts {
		want[i] = forced(t, open(t, o), p, next)
	}
	e := open(t, o)
	b := &failing{Backend: e.backend, e: e, layer: -1}
	e.backend = b
	var sessions []*Session
	for _, p := range prompts {
		sessions = append(sessions, opened(t, e, "full", p))
	}
	at := [3]int{}
	for step := 0; step <= e.m.Layers; step++ {
		b.layer, b.rows = step, 0
		err := e.DecodeBatch(sessions, []int{next[at[0]], next[at[1]], next[at[2]]})
		if step < e.m.Layers && e.cache.Reads(step) {
			checkBatchError(t, err, 3, 1, errMiddle)
		} else if at[1]++; err != nil {
			t.Fatal(err)
		}
		if at[0], at[2] = at[0]+1, at[2]+1; b.rows > 2 && err != nil {
			t.Errorf("failed in layer %d: %d rows go on behind it, want 2", step, b.rows)
		}
		for i, s := range sessions {
			if worst := fakes.Worst([][]float32{s.Logits()}, want[i][at[i]:]); s.Tokens() != len(prompts[i])+at[i] || worst > limit {
				t.Errorf("failing in layer %d: session %d has %d tokens, %d read; logits differ by %g", step, i, s.Tokens(), len(prompts[i])+at[i], worst)
			}
		}
		if err := e.kv.Check(); err != nil {
			t.Error(err)
		}
	}
}
