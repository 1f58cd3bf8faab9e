package prefixcache

import (
	"slices"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/vfs"
)

// TestAnswers: the next turn of a conversation finds what was decoded in this one where answers are kept, and goes on from the same KV to
// the bit; a cache that keeps prompts alone neither keeps nor finds it, and what goes on from an answer is never taken for a prompt's.
func TestAnswers(t *testing.T) {
	t.Parallel()
	prompt, answer, more := fakes.IDs(150, 3), fakes.IDs(106, 4), fakes.IDs(140, 5) // the answer ends where a block does
	for _, c := range []struct {
		name string
		open func(testing.TB, engine.Options) *engine.Engine
		o    engine.Options
	}{{"f16", small, engine.Options{}}, {"sliding windows", windowed, engine.Options{}}, {"recurrent", family("qwen3_5"), engine.Options{ChunkTokens: 64}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.o.Threads = 1
			fs := vfs.NewMem(1 << 30)
			first, _ := conversation(t, fs, c.open, c.o, true, prompt, answer)
			if first != 0 {
				t.Fatalf("%d tokens of an empty store", first)
			}
			e := c.open(t, c.o)
			s := mustSession(t, e, prompt)
			stepped(t, s, answer)
			if err := s.Prefill(t.Context(), more, engine.PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(s.Logits())
			text := slices.Concat(prompt, answer, more)
			if n, got := conversation(t, fs, c.open, c.o, true, text, nil); n != 256 || !slices.Equal(got, want) {
				t.Errorf("the next turn finds %d tokens, want 256; the same logits: %v", n, slices.Equal(got, want))
			}
			if n, _ := conversation(t, fs, c.open, c.o, true, slices.Concat(text, more[:30]), nil); n != 384 {
				t.Errorf("the turn after it finds %d tokens, want 384", n)
			}
			plain := forced(t, c.open(t, c.o), text, nil)[0]
			for turn, found := range []int{128, 384} {
				if n, got := conversation(t, fs, c.open, c.o, false, text, nil); n != found || !slices.Equal(got, plain) {
					t.Errorf("prompts alone, turn %d: %d tokens found, want %d; logits of a prompt: %v", turn, n, found, slices.Equal(got, plain))
				}
			}
		})
	}
}

// conversation reads a prompt with a store on fs, then decodes an answer; it returns what was found, and the last logits.
func conversation(t *testing.T, fs vfs.FS, open func(testing.TB, engine.Options) *engine.Engine, o engine.Options, answers bool, prompt, answer []int) (int, []float32) {
	t.Helper()
	e, store := open(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	cache, err := Use(e, store, "small")
	if err != nil {
		t.Fatal(err)
	}
	if answers {
		cache.KeepAnswers()
	}
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := cache.Find(t.Context(), prompt, e.Policy(), "")
	reused, err := p.Resume(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(t.Context(), prompt[reused.Tokens:], engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range answer {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		p.Keep(s)
	}
	return reused.Tokens, slices.Clone(s.Logits())
}
