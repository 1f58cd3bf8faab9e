package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/kvpage"
)

const longAt = 64

// longRoped opens two engines on a model whose frequencies change beyond longAt tokens: as it is, and with the second set for all lengths.
func longRoped(t *testing.T, o Options) (e, long *Engine) {
	t.Helper()
	for _, at := range []int{longAt, 0} {
		m := openFile(t, fakes.Small(t))
		m.Ropes = slices.Clone(m.Ropes)
		r := &m.Ropes[0]
		slow := slices.Clone(r.InvFreq)
		for j := range slow {
			slow[j] /= float32(2 + j)
		}
		if r.Amplitude = 1.1; at > 0 {
			r.LongFreq, r.LongAt = slow, at
		} else {
			r.InvFreq = slow
		}
		each := o
		for j := range o.Tiers {
			each.Tiers = slices.Clone(o.Tiers)
			if o.Tiers[j].Kind == tier.SSD {
				each.Tiers[j].Place = t.TempDir()
			}
		}
		if opened := openOn(t, m, each); at > 0 {
			e = opened
		} else {
			long = opened
		}
	}
	return e, long
}

// TestLongRope: a text that passes the length where a model's frequencies change is from there on what it is with the second set from
// its beginning, bit for bit: under a policy as it was read, without one as if what it then has were its prompt.
func TestLongRope(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(50, 1), fakes.IDs(30, 2)
	ssd := []tier.Tier{{Kind: tier.Host, CapacityBytes: 200 << 10}, {Kind: tier.SSD, CapacityBytes: 16 << 20}}
	for name, o := range map[string]Options{
		"plain": {}, "exact": {Exact: true}, "int8": {KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true}, "tiers": {Tiers: ssd}, "chunks": {ChunkTokens: 16},
		"quest": {Policy: "quest:budget=32"}, "h2o": {Policy: "h2o:budget=40"}, "snapkv": {Policy: "snapkv:budget=30,window=8"}, "expected_attention": {Policy: "expected_attention:budget=30"},
		"streaming_llm": {Policy: "streaming_llm:budget=30"}, "finch": {Policy: "finch:budget=30,question=8"}, "sliminfer": {Policy: "sliminfer:layers=1,keep=32,block=16"}, "hillinfer on tiers": {Policy: "hillinfer:alpha=0.3", Tiers: ssd}, "kvzip": {Policy: "kvzip:budget=50%"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Threads = 2
			e, long := longRoped(t, o)
			got := forced(t, e, prompt, next)
			asRead := forced(t, long, prompt, next)
			begun := longAt - len(prompt) // tokens that are decoded up to the border
			if e.Policy().Lossless() {
				asRead = slices.Concat(asRead[:begun], forced(t, long, slices.Concat(prompt, next[:begun]), next[begun:]))
			}
			if d := fakes.Worst(got[begun+1:], asRead[begun+1:]); d != 0 {
				t.Errorf("beyond the border logits differ by %g", d)
			}
			if d := fakes.Worst(got[:begun+1], asRead[:begun+1]); d == 0 {
				t.Error("the two sets of frequencies give the same: nothing was tested")
			}
			all := slices.Concat(prompt, next)
			if d := fakes.Worst(forced(t, e, all, next[:1]), forced(t, long, all, next[:1])); d != 0 {
				t.Errorf("a prompt beyond the border: logits differ by %g", d)
			}
		})
	}
}

// TestLongRopeWays: the same text, however it comes to pass the border: a second prompt, beside others in a pass, guessed ahead, on a fork, after
// a tier lost it, and back to where it was.
func TestLongRopeWays(t *testing.T) {
	t.Parallel()
	e, long := longRoped(t, Options{Threads: 2, Exact: true})
	prompt, next, other := fakes.IDs(50, 1), fakes.IDs(30, 2), fakes.IDs(20, 3)
	begun := longAt - len(prompt)
	short, beyond := forced(t, e, prompt, next[:begun]), forced(t, long, slices.Concat(prompt, next[:begun]), next[begun:])[1:]
	equal := func(what string, got, want [][]float32) {
		t.Helper()
		if d := fakes.Worst(got, want); d != 0 || len(got) != len(want) {
			t.Errorf("%s: logits differ by %g", what, d)
		}
	}
	decode := func(s *Session, ids ...int) (out [][]float32) {
		t.Helper()
		for _, id := range ids {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
			out = append(out, slices.Clone(s.Logits()))
		}
		return out
	}
	t.Run("second prompt", func(t *testing.T) {
		s := opened(t, e, "full", prompt)
		if err := s.Prefill(t.Context(), next[:begun+1], PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		equal("at its end", [][]float32{s.Logits()}, beyond[:1])
		equal("behind it", decode(s, next[begun+1:]...), beyond[1:])
	})
	t.Run("in a batch", func(t *testing.T) {
		s, o := opened(t, e, "full", prompt), opened(t, e, "full", other)
		alone := forced(t, e, other, next)
		for i, id := range next {
			if s.Turns(1) != (i == begun) || o.Turns(1) {
				t.Errorf("step %d: turns %v and %v", i, s.Turns(1), o.Turns(1))
			}
			if i == begun && s.Rides() {
				t.Error("the text rides in a pass of others where it is to be read again")
			}
			if err := e.DecodeBatch([]*Session{o, s}, []int{id, id}); err != nil {
				t.Fatal(err)
			}
			want := beyond[max(i-begun, 0):]
			if i < begun {
				want = short[i+1:]
			}
			equal(fmt.Sprint("step ", i), [][]float32{s.Logits(), o.Logits()}, [][]float32{want[0], alone[i+1]})
		}
	})
	t.Run("in parts", func(t *testing.T) {
		for _, spec := range []string{"full", "h2o:budget=40"} {
			s := opened(t, e, spec, prompt)
			decode(s, next[:begun]...)
			r, steps, err := s.ReadAgain()
			if err != nil || (len(steps) == 0) != (spec == "full") {
				t.Fatalf("%s: %v, %d steps", spec, err, len(steps))
			}
			for r.Left() > 0 {
				if err := r.Read(t.Context(), 10); err != nil {
					t.Fatal(err)
				}
			}
			if s.Turns(1) {
				t.Errorf("%s: the text turns again while it is read again", spec)
			}
			want := opened(t, e, spec, prompt)
			decode(want, next[:begun]...)
			equal(spec, decode(s, slices.Concat(steps, next[begun:])...)[len(steps):], decode(want, next[begun:]...))
		}
	})
	t.Run("fork and back", func(t *testing.T) {
		s := opened(t, e, "full", prompt)
		decode(s, next[:begun]...)
		f, err := s.Fork(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		equal("fork", decode(f, next[begun:]...), beyond)
		if err := f.Rewind(len(prompt)); err != nil {
			t.Fatal(err)
		}
		equal("back to where it was short", decode(f, next...), slices.Concat(short[1:], beyond))
		equal("the text that was forked", decode(s, next[begun:]...), beyond)
	})
	t.Run("lost", func(t *testing.T) {
		s := opened(t, e, "full", prompt)
		decode(s, next[:begun+4]...)
		s.past.Lost = true
		equal("read again", decode(s, next[begun+4:]...), beyond[4:])
	})
	t.Run("guesses", func(t *testing.T) {
		for seed := range uint64(8) {
			r := Request{IDs: prompt, MaxTokens: 30, IgnoreEOS: true}
			want, err := e.Generate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			r.Speculate = &oracle{ids: slices.Concat(prompt, want.IDs), spoil: 0.2, rng: rand.New(rand.NewPCG(1, seed))}
			got, err := e.Generate(t.Context(), r)
			if err != nil || !slices.Equal(got.IDs, want.IDs) || got.Speculation.Accepted == 0 {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
	})
	t.Run("compressed", func(t *testing.T) {
		s := opened(t, e, "snapkv:budget=30,window=8", prompt)
		f, err := s.Fork(s.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		decode(f, next[:begun]...)
		if err := f.Decode(next[begun]); !errors.Is(err, ErrOption) {
			t.Errorf("a compressed context beyond the border: %v", err)
		}
	})
}

// TestLongRopeRotators: what policies turn queries and keys by is the text's set.
func TestLongRopeRotators(t *testing.T) {
	e, long := longRoped(t, Options{Threads: 2})
	for _, text := range []bool{false, true} {
		want := e.m.NewRotator(0, false)
		if text {
			want = long.m.NewRotator(0, false)
		}
		a, b := make([]float32, e.m.Layer[0].KeyDim), make([]float32, e.m.Layer[0].KeyDim)
		a[1], b[1] = 1, 1
		e.m.NewRotator(0, text).Rotate(a, 9)
		want.Rotate(b, 9)
		if !slices.Equal(a, b) {
			t.Errorf("long %v: %v, want %v", text, a, b)
		}
	}
}
