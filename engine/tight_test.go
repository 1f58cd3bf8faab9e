package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/kvmanager"
	"terrace/policy"
)

// tightText is a text in progress beside others.
type tightText struct {
	policy string
	prompt []int
	next   []int // read one a step
	want   [][]float32
	s      *Session
	r      *PromptReading // nil = the prompt is read
	done   int            // of next
}

// TestNoRoomIsRetried: several texts under policies of all kinds share a budget that does not hold them together. A call that had no
// room is made again once somebody else has gone, on the same session, and every logit is the one that the text has alone.
func TestNoRoomIsRetried(t *testing.T) {
	t.Parallel()
	policies := []string{"full", "snapkv:budget=60%", "kvzip:budget=50%", "h2o:budget=40%", "streaming_llm:budget=40", "tova:budget=40", "sliminfer", "quest:budget=32", "decoding:snapkv:budget=50%"}
	for seed := range uint64(8) {
		if seed >= 3 && !golden.Thorough() {
			break
		}
		rnd := rand.New(rand.NewPCG(seed, 7))
		o := Options{Threads: 1, ChunkTokens: 16 << rnd.IntN(2), Context: 400, Repeat: &RepeatText{First: fakes.IDs(5, 3), Next: fakes.IDs(3, 4), Suffix: fakes.IDs(2, 5)}}
		alone := small(t, o)
		var texts []*tightText
		for range 8 {
			x := &tightText{policy: policies[rnd.IntN(len(policies))], prompt: fakes.IDs(20+rnd.IntN(100), rnd.Uint64()), next: fakes.IDs(1+rnd.IntN(30), rnd.Uint64())}
			x.want = underPolicy(t, alone, x)
			texts = append(texts, x)
		}
		o.KVBudgetBytes = int64((270 + rnd.IntN(60)) * alone.KVBytesPerToken()) // a text and what reads it again
		e, short := small(t, o), 0
		for left := texts; len(left) > 0; {
			x := left[rnd.IntN(len(left))]
			err := x.advance(t, e, rnd)
			switch {
			case errors.Is(err, kvmanager.ErrBudget):
				short++
				var others []*tightText
				for _, y := range texts {
					if y != x && y.s != nil {
						others = append(others, y)
					}
				}
				if len(others) == 0 {
					t.Fatalf("seed %d: %s of %d tokens has no room alone: %v", seed, x.policy, len(x.prompt), err)
				}
				others[rnd.IntN(len(others))].close()
			case err != nil:
				t.Fatalf("seed %d: %s: %v", seed, x.policy, err)
			}
			left = slices.DeleteFunc(slices.Clone(texts), func(x *tightText) bool { return x.done == len(x.next) && x.s == nil })
		}
		if kv := e.KV(); kv.InUseBytes != 0 || kv.Sequences != 0 {
			t.Errorf("seed %d: %d bytes of %d texts are left", seed, kv.InUseBytes, kv.Sequences)
		}
		if short == 0 {
			t.Errorf("seed %d: there was always room: the test sees nothing", seed)
		}
	}
}

// close gives a text's room to others; it begins again later.
func (x *tightText) close() {
	x.s.Close()
	x.s, x.r, x.done = nil, nil, 0
}

// advance takes a text a little further: a part of its prompt, or a step.
func (x *tightText) advance(t *testing.T, e *Engine, rnd *rand.Rand) (err error) {
	if x.s == nil {
		if x.s, err = e.NewSession(specOf(t, x.policy)); err == nil {
			x.r, err = x.s.BeginPrompt(x.prompt, PrefillHooks{})
		}
		if err != nil && x.s != nil {
			x.s.Close()
			x.s = nil
		}
		return err
	}
	if x.r != nil {
		err := x.r.Read(t.Context(), 1+rnd.IntN(60))
		if err != nil && x.r.Left() == 0 {
			t.Fatalf("%s: nothing is left to read after %v", x.policy, err)
		}
		if err != nil || x.r.Left() > 0 {
			return err
		}
		x.r = nil
		x.check(t, 0)
		return nil
	}
	if err := e.DecodeBatch([]*Session{x.s}, x.next[x.done:x.done+1]); err != nil {
		return err
	}
	x.done++
	x.check(t, x.done)
	if x.done == len(x.next) {
		x.s.Close()
		x.s = nil
	}
	return nil
}

func (x *tightText) check(t *testing.T, step int) {
	t.Helper()
	if !slices.Equal(x.s.Logits(), x.want[step]) {
		t.Fatalf("%s of %d tokens: other logits after step %d", x.policy, len(x.prompt), step)
	}
}

// underPolicy are the logits after the prompt and each step.
func underPolicy(t *testing.T, e *Engine, x *tightText) (out [][]float32) {
	s, err := e.NewSession(specOf(t, x.policy))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), x.prompt, PrefillHooks{}); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", x.policy, err))
	}
	out = append(out, slices.Clone(s.Logits()))
	for _, id := range x.next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return out
}

func specOf(t *testing.T, name string) *policy.Spec {
	t.Helper()
	spec, err := policy.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
