package kvmanager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/kvpage"
	"terrace/offload"
)

// errAccepted marks a failure after Plan.
var errAccepted = errors.New("accepted")

// prompts reads a prompt in chunks and then takes a few steps, as the engine does: plan, then layer by layer append, acquire,
// prefetch, release.
func prompts(t fataler, o Options, s *Sequence, want *reference, chunk, tokens, decoded int) error {
	for next := 0; next < tokens; next += chunk {
		if err := onePass(t, o, s, want, next, min(chunk, tokens-next), tokens); err != nil {
			return err
		}
	}
	return steps(t, o, s, want, tokens, decoded)
}

// steps takes n decode steps.
func steps(t fataler, o Options, s *Sequence, want *reference, next, n int) error {
	for i := range n {
		if err := onePass(t, o, s, want, next+i, 1, 0); err != nil {
			return err
		}
	}
	return nil
}

// onePass adds rows to every layer, on the way to a total, and reads them.
func onePass(t fataler, o Options, s *Sequence, want *reference, next, rows, total int) error {
	if err := s.m.Plan([]Growth{{Seq: s, Rows: rows, Tokens: total}}); err != nil {
		return err
	}
	low := func(layer int) int32 {
		w := o.Layers[layer].KV.Window
		if w == 0 {
			return 0
		}
		return int32(max(next-w+1, 0))
	}
	for layer := range o.Layers {
		if err := addLayer(t, o, s, want, layer, next, rows); err != nil {
			return fmt.Errorf("%w: %w", errAccepted, err)
		}
		if err := s.Acquire(layer, low(layer)); err != nil {
			return fmt.Errorf("%w: %w", errAccepted, err)
		}
		after := (layer + 1) % len(o.Layers)
		s.Prefetch(after, low(after))
		if low(layer) == 0 {
			holdsLayer(t, o, s, want, layer)
		}
		if err := s.Release(layer); err != nil {
			return fmt.Errorf("%w: %w", errAccepted, err)
		}
	}
	return nil
}

// addLayer appends tokens to one layer, numbered as their positions.
func addLayer(t fataler, o Options, s *Sequence, want *reference, layer, next, n int) error {
	t.Helper()
	ids, pos := make([]int, n), make([]int32, n)
	for i := range ids {
		ids[i], pos[i] = next+i, int32(next+i)
	}
	k, v := rows(o, layer, ids)
	if err := s.Append(layer, k, v, pos); err != nil {
		return err
	}
	for h := range o.Layers[0].KV.Heads {
		at := layer*o.Layers[0].KV.Heads + h
		want.ids[at] = append(want.ids[at], ids...)
		want.pos[at] = append(want.pos[at], ids...)
	}
	return nil
}

// TestPlanAccepts: a pass that Plan accepts runs through to its end, in the smallest budget too; every other is refused by Plan,
// before anything is done.
func TestPlanAccepts(t *testing.T) {
	synctest.Test(t, planAccepts)
}

func planAccepts(t *testing.T) {
	for _, c := range []struct{ layers, chunk, tokens, least int }{
		{1, 7, 33, 9}, {1, 32, 100, 14}, {3, 7, 33, 11}, {3, 32, 100, 16}, {3, 100, 100, 26},
	} {
		least := 0
		for blocks := c.least + 3; blocks > c.least-3; blocks-- {
			o := shape(kvpage.F32, 0)
			equal(&o, c.layers, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
			o, d := onTiers(t, o, blocks)
			m := open(t, o)
			s := m.NewSequence()
			err := prompts(t, o, s, newReference(o), c.chunk, c.tokens, 20)
			s.Free()
			switch {
			case err == nil:
				least = blocks
			case !errors.Is(err, ErrBudget) || errors.Is(err, errAccepted):
				t.Errorf("%+v in %d blocks: %v", c, blocks, err)
			case least < blocks && writes(d) > 0 && c.chunk >= c.tokens:
				t.Errorf("%+v in %d blocks: refused after something was written: %v", c, blocks, err)
			}
		}
		if least != c.least {
			t.Errorf("%+v: runs in %d blocks", c, least)
		}
	}
}

// announced is the number of bytes that a refusal says would do.
func announced(t *testing.T, err error) (bytes int64) {
	t.Helper()
	if !errors.Is(err, ErrBudget) || errors.Is(err, errAccepted) {
		t.Fatalf("want a refusal of the plan, got %v", err)
	}
	var e *BudgetError
	if !errors.As(err, &e) || e.BudgetBytes >= e.NeedBytes || !strings.Contains(err.Error(), fmt.Sprintf("host=%dMiB would do, or KV in fewer bits", (e.NeedBytes-1)>>20+1)) {
		t.Fatalf("a refusal without its numbers: %v", err)
	}
	return e.NeedBytes
}

// TestAnnouncedMinimumSuffices: a prompt that is refused names a size, and in that size and every larger one it runs to its end,
// and so do the steps after it, however slow reads and writes are and in which order they end.
func TestAnnouncedMinimumSuffices(t *testing.T) {
	for _, c := range []struct {
		layers, chunk, tokens int
		elem                  kvpage.Elem
		forks                 int
		sliding               []int
		beside                int64
	}{{1, 7, 33, kvpage.F32, 0, nil, 0}, {2, 32, 200, kvpage.F32, 0, nil, 20_000}, {4, 16, 150, kvpage.F16, 0, nil, 0}, {3, 64, 128, kvpage.F32, 1, nil, 0},
		{3, 20, 90, kvpage.F32, 2, nil, 5000}, {5, 100, 100, kvpage.F16, 0, nil, 1}, {4, 24, 200, kvpage.F32, 0, []int{40, 40, 40, 0}, 0}, {3, 24, 150, kvpage.F32, 1, []int{7, 0, 33}, 3000}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := shape(c.elem, 0)
				if c.elem == kvpage.F16 {
					equal(&o, len(o.Layers), o.Layers[0].KV.Heads, 4, 4)
				}
				equal(&o, c.layers, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
				slide(&o, c.sliding)
				try := func(bytes int64, seed uint64) error {
					o, d := onTiers(t, o, 1)
					o.BudgetBytes = bytes
					rng := rand.New(rand.NewPCG(seed, uint64(bytes)))
					d.Delay = func(bool, []offload.Record) time.Duration {
						return time.Duration(rng.IntN(3)) * time.Duration(rng.IntN(1000)) * time.Microsecond
					}
					m, err := New(o)
					if err != nil {
						t.Fatal(err)
					}
					s, want := m.NewSequence(), newReference(o)
					err = m.Plan([]Growth{{Seq: s, Rows: min(c.chunk, c.tokens), Tokens: c.tokens, Beside: c.beside}})
					if err == nil {
						if err = m.Charge(c.beside); err != nil {
							err = fmt.Errorf("%w: %w", errAccepted, err)
						} else {
							defer m.Refund(c.beside)
							err = prompts(t, o, s, want, c.chunk, c.tokens, 3)
						}
					}
					for f := 0; f < c.forks && err == nil; f++ {
						var fork *Sequence
						if fork, err = s.Fork(); err == nil {
							err = steps(t, o, fork, want.clone(), c.tokens+3, 3)
						}
						fork.Free()
						if errors.Is(err, ErrBudget) && !errors.Is(err, errAccepted) {
							err = nil // two texts need more than one, and are told so
						}
					}
					s.Free()
					if cerr := errors.Join(m.Check(), m.Close()); cerr != nil {
						t.Fatal(cerr)
					}
					if p := m.Stats().PeakBytes; p > bytes {
						t.Fatalf("%d bytes in use, the budget is %d", p, bytes)
					}
					return err
				}
				least := announced(t, try(4096, 1))
				for i := range uint64(30) {
					bytes := least + least*int64(i)/40
					if err := try(bytes, i); err != nil {
						t.Errorf("%d bytes suffice, in %d (seed %d): %v", least, bytes, i, err)
					}
				}
			})
		})
	}
}

// TestRoomOnItsWay: blocks that were fetched ahead, and not wanted after all, are room for others even while they are read:
// neither the plan nor the pass depends on whether the reads have ended.
func TestRoomOnItsWay(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			o := shape(kvpage.F32, 0)
			o, d := onTiers(t, o, 20)
			m := open(t, o)
			a, b := m.NewSequence(), m.NewSequence()
			defer a.Free()
			defer b.Free()
			wantA, wantB := newReference(o), newReference(o)
			for _, x := range []struct {
				s    *Sequence
				want *reference
			}{{a, wantA}, {b, wantB}} {
				if err := prompts(t, o, x.s, x.want, 20, 120, 0); err != nil { // 8 blocks a layer
					t.Fatal(err)
				}
			}
			d.Change(func() {
				d.Delay = func(bool, []offload.Record) time.Duration { return delay }
			})
			if err := m.Plan([]Growth{{Seq: a}}); err != nil {
				t.Fatal(err)
			}
			for layer := range o.Layers {
				a.Prefetch(layer, 0)
			}
			synctest.Wait()
			if delay > 0 && len(m.backing.reads) == 0 {
				t.Fatal("nothing is being read")
			}
			for layer := range o.Layers { // as where a pass is given up
				if err := a.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.Charge(8 * m.layers[0].blockBytes()); err != nil { // beside 2 blocks with room of each text
				t.Errorf("transfers of %v: memory beside the pages: %v", delay, err)
			} else {
				m.Refund(8 * m.layers[0].blockBytes())
			}
			for layer := range o.Layers {
				a.Prefetch(layer, 0)
			}
			if err := onePass(t, o, b, wantB, 120, 5, 0); err != nil {
				t.Errorf("transfers of %v: the other text: %v", delay, err)
			}
		})
	}
}
