package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/policy"
)

// TestPolicyOfSession: sessions under different policies decode together in one engine, and each computes what an engine
// opened for its policy alone computes, to the bit: in host memory and on tiers.
func TestPolicyOfSession(t *testing.T) {
	t.Parallel()
	next := fakes.IDs(15, 2)
	specs := []string{"full", "snapkv:budget=50%", "quest:budget=64", "h2o:budget=60", "hillinfer:alpha=0.2,guess_from=1"}
	var prompts [][]int
	var want [][][]float32
	for i, spec := range specs {
		prompts = append(prompts, fakes.IDs(260+13*i, uint64(30+i)))
		want = append(want, forced(t, small(t, Options{Threads: 2, ChunkTokens: 32, Policy: spec}), prompts[i], next))
		if i > 0 && fakes.Worst(want[i], forced(t, small(t, Options{Threads: 2, ChunkTokens: 32}), prompts[i], next)) == 0 {
			t.Errorf("%s is full attention here: nothing is tested", spec)
		}
	}
	for _, c := range []struct {
		engine string
		tiers  bool
		specs  []int // those that the tiers permit
	}{
		{"full", false, []int{0, 1, 2, 3, 4}}, {"quest:budget=64", false, []int{4, 3, 2, 1, 0}}, {"hillinfer:alpha=0.2,guess_from=1", false, []int{0, 1, 2, 3, 4}},
		{"full", true, []int{0, 1, 2, 3}}, {"hillinfer:alpha=0.2,guess_from=1", true, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(fmt.Sprintf("%s tiers %v", c.engine[:4], c.tiers), func(t *testing.T) {
			o := Options{Threads: 2, ChunkTokens: 32, Policy: c.engine}
			if c.tiers {
				o.Store, o.KVBudgetBytes = below(t, o), 300*4096
			}
			e := small(t, o)
			var sessions []*Session
			for _, i := range c.specs {
				s := opened(t, e, specs[i], prompts[i])
				if !slices.Equal(s.Logits(), want[i][0]) {
					t.Errorf("%s: the prompt's logits differ by %g", specs[i], fakes.Worst([][]float32{s.Logits()}, want[i]))
				}
				sessions = append(sessions, s)
			}
			ids := make([]int, len(sessions))
			for step, id := range next {
				for i := range ids {
					ids[i] = id
				}
				if err := e.DecodeBatch(sessions, ids); err != nil {
					t.Fatal(err)
				}
				for j, i := range c.specs {
					if !slices.Equal(sessions[j].Logits(), want[i][step+1]) {
						t.Fatalf("%s, step %d: logits differ by %g", specs[i], step, fakes.Worst([][]float32{sessions[j].Logits()}, want[i][step+1:]))
					}
				}
			}
			if c.tiers && o.Store.Stats().Reads == 0 {
				t.Error("nothing was read from the lower tier")
			}
			if c.tiers && e.KV().PeakBytes > o.KVBudgetBytes {
				t.Errorf("%d bytes in host memory, the budget is %d", e.KV().PeakBytes, o.KVBudgetBytes)
			}
			if err := e.kv.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTiersRefusePolicies: a tier whose keys lie in tiles serves no policy that reads single tokens: one line says which
// policy, which tier and what to do; the engine goes on.
func TestTiersRefusePolicies(t *testing.T) {
	o := Options{Threads: 1}
	o.Store, o.KVBudgetBytes = below(t, o), 66*4096
	e := small(t, o)
	for _, spec := range []string{"hillinfer:alpha=0.2", "topk:budget=64"} {
		_, err := e.NewSession(parsed(t, spec))
		if !errors.Is(err, ErrOption) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want one line that is ErrOption", spec, err)
			continue
		}
		name, _, _ := strings.Cut(spec, ":")
		for _, word := range []string{name, "tier below", "full", "open the engine for it"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %q", spec, err, word)
			}
		}
	}
	opened(t, e, "quest:budget=64", fakes.IDs(100, 1))
}

// TestForkOfCompressedContext: a context is compressed once and three questions are asked of it. Each fork, under the same
// policy or under none, reads its question whole: it holds the context's tokens that were kept and all of the question, and its
// logits are those of a session under the policy that reads the question token by token, which no policy of the prompt compresses.
func TestForkOfCompressedContext(t *testing.T) {
	t.Parallel()
	context := fakes.IDs(200, 40)
	for _, spec := range []string{"snapkv:budget=50%", "knorm:budget=50%", "keydiff:budget=50%"} {
		for _, tiers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s tiers %v", spec, tiers), func(t *testing.T) {
				t.Parallel()
				o := Options{Exact: true, Threads: 1, ChunkTokens: 48}
				if tiers {
					o.Store, o.KVBudgetBytes = below(t, o), 2*66*4096
				}
				e := small(t, o)
				s := opened(t, e, spec, context)
				kept := heldBy(s)
				for i, at := range kept {
					if len(at) > 110 {
						t.Fatalf("layer and head %d hold %d of %d tokens: not compressed", i, len(at), len(context))
					}
				}
				for q := range uint64(3) {
					question, next := fakes.IDs(9+int(q), 50+q), fakes.IDs(4, 60+q)
					alone := opened(t, e, spec, context)
					if !slices.EqualFunc(kept, heldBy(alone), slices.Equal) {
						t.Fatal("the same context was compressed otherwise")
					}
					var want [][]float32
					for i, id := range slices.Concat(question, next) {
						if err := alone.Decode(id); err != nil {
							t.Fatal(err)
						}
						if i >= len(question)-1 {
							want = append(want, slices.Clone(alone.Logits()))
						}
					}
					for _, under := range []*policy.Spec{s.Policy(), nil} {
						f, err := s.Fork(under)
						if err != nil {
							t.Fatal(err)
						}
						if err := f.Prefill(t.Context(), question, PrefillHooks{}); err != nil {
							t.Fatal(err)
						}
						for i, at := range heldBy(f) {
							all := slices.Clone(kept[i])
							for p := range question {
								all = append(all, int32(len(context)+p))
							}
							if !slices.Equal(at, all) {
								t.Fatalf("fork under %v holds %v in layer and head %d, want %v", under, at, i, all)
							}
						}
						got := [][]float32{slices.Clone(f.Logits())}
						for _, id := range next {
							if err := f.Decode(id); err != nil {
								t.Fatal(err)
							}
							got = append(got, slices.Clone(f.Logits()))
						}
						if d := fakes.Worst(want, got); d != 0 {
							t.Errorf("question %d, fork under %v: logits differ by %g", q, under, d)
						}
						rewindsToContext(t, f, len(context), question, want[0])
						f.Close()
					}
					alone.Close()
					if !slices.EqualFunc(kept, heldBy(s), slices.Equal) {
						t.Fatal("a fork changed the context that it was made of")
					}
				}
			})
		}
	}
}

// rewindsToContext: a fork goes back to its compressed context and reads the question again, and no further.
func rewindsToContext(t *testing.T, f *Session, context int, question []int, want []float32) {
	t.Helper()
	tokens := f.Tokens()
	for _, n := range []int{0, 1, context - 1} {
		if err := f.Rewind(n); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), fmt.Sprintf("rewind to %d", n)) || f.Tokens() != tokens {
			t.Errorf("rewind to %d, into the compressed context: %v, %d tokens", n, err, f.Tokens())
		}
	}
	if err := f.Rewind(context); err != nil {
		t.Fatal(err)
	}
	if err := f.Prefill(t.Context(), question, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Logits(), want) {
		t.Errorf("after going back to the context logits differ by %g", fakes.Worst([][]float32{f.Logits()}, [][]float32{want}))
	}
}

// TestForksRefused: a session whose policy goes on while decoding, or prunes rows, is not forked; the error names the policy.
func TestForksRefused(t *testing.T) {
	e := small(t, Options{Threads: 1})
	for _, spec := range []string{"h2o:budget=60", "quest:budget=64", "sliminfer:layers=1/2,keep=160/96,block=32", "hillinfer:alpha=0.3", "streaming_llm:budget=100"} {
		s := opened(t, e, spec, fakes.IDs(200, 1))
		name, _, _ := strings.Cut(spec, ":")
		for _, under := range []*policy.Spec{s.Policy(), nil, parsed(t, "snapkv:budget=50%")} {
			if f, err := s.Fork(under); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "policy "+name) {
				t.Errorf("fork of %s under %v: %v, want ErrOption that names it", spec, under, err)
				if err == nil {
					f.Close()
				}
			}
		}
		if err := s.Decode(3); err != nil {
			t.Errorf("%s after refused forks: %v", spec, err)
		}
	}
	s := opened(t, e, "snapkv:budget=50%", fakes.IDs(200, 1))
	if _, err := s.Fork(parsed(t, "knorm:budget=50%")); !errors.Is(err, ErrOption) || !strings.Contains(err.Error(), "snapkv") {
		t.Errorf("fork of a compressed context under another policy: %v", err)
	}
}
