package prefixcache

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
)

// recurrent are golden models with recurrent layers: gated DeltaNet, short convolution, and Mamba-2 without any KV.
var recurrent = []string{"qwen3_5", "lfm2", "mamba2"}

func family(name string) func(testing.TB, engine.Options) *engine.Engine {
	return func(t testing.TB, o engine.Options) *engine.Engine {
		t.Helper()
		return opened(t, golden.Shared(t, "data", "golden", "families", name, "model.gguf"), o)
	}
}

// TestIndexedResume: what a trained indexer reads a prompt as is stored with the index keys, apart from what full attention computes.
func TestIndexedResume(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"deepseek_v32", "qwen4_exp"} {
		open := func(t testing.TB, o engine.Options) *engine.Engine {
			t.Helper()
			return opened(t, golden.Shared(t, "data", "golden", "families", name), o)
		}
		prompt, next, fs := fakes.IDs(250, 3), fakes.IDs(5, 4), vfs.NewMem(1<<30)
		for _, turn := range []struct {
			policy string
			tokens int
		}{{"", 0}, {"", 192}, {"full", 0}, {"full", 192}} {
			o := engine.Options{ChunkTokens: 64, Threads: 1, Policy: turn.policy}
			want := forced(t, open(t, o), prompt, next)
			reused, got := resumed(t, fs, open, o, prompt, next, "")
			if reused.Tokens != turn.tokens {
				t.Errorf("%s, policy %q: %v, want %d", name, turn.policy, reused, turn.tokens)
			}
			if d := fakes.Worst(got, want); d != 0 {
				t.Fatalf("%s, policy %q: logits differ by %g", name, turn.policy, d)
			}
		}
	}
}

// TestRecurrentResume: behind a stored prefix the state of recurrent layers is what it was, to the bit, and blocks end where a chunk did,
// in whatever parts the prompt is read.
func TestRecurrentResume(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 3), fakes.IDs(5, 4)
	for _, name := range recurrent {
		for kv, o := range map[string]engine.Options{
			"f16":            {ChunkTokens: 64},
			"exact":          {ChunkTokens: 96, Exact: true},
			"pages of 48":    {ChunkTokens: 32, PageTokens: 48},
			"int8, a window": {ChunkTokens: 64, KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, KVWindow: 20, KVWindowSet: true},
		} {
			t.Run(name+" "+kv, func(t *testing.T) {
				t.Parallel()
				open, fs := family(name), vfs.NewMem(1<<30)
				o.Threads = 1
				want := forced(t, open(t, o), prompt, next)
				cached := map[string]int{"f16": 256, "exact": 288, "pages of 48": 288, "int8, a window": 256}[kv]
				for turn, n := range []int{0, cached} {
					reused, got := resumed(t, fs, open, o, prompt, next, "")
					if reused.Tokens != n {
						t.Errorf("run %d: %v, want %d", turn, reused, n)
					}
					if d := fakes.Worst(got, want); d != 0 {
						t.Fatalf("run %d: logits differ by %g", turn, d)
					}
				}
				other := slices.Concat(prompt[:200], fakes.IDs(40, 9))
				reused, got := resumed(t, fs, open, o, other, nil, "")
				if reused.Tokens == 0 || reused.Tokens > 200 {
					t.Errorf("another end: %v of 200", reused)
				}
				if d := fakes.Worst(got, forced(t, open(t, o), other, nil)); d != 0 {
					t.Errorf("another end: logits differ by %g", d)
				}
			})
		}
	}
}

// TestRecurrentParts: a prompt that is read in small parts, as beside the steps of others, is stored and found as one that is read alone.
func TestRecurrentParts(t *testing.T) {
	t.Parallel()
	prompt, fs, o := fakes.IDs(300, 3), vfs.NewMem(1<<30), engine.Options{Threads: 1, ChunkTokens: 64}
	want := forced(t, family("qwen3_5")(t, o), prompt, nil)
	for turn, cached := range []int{0, 256} {
		e, store := family("qwen3_5")(t, o), stored(t, fs, 64<<20)
		cache, err := Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		reused, err := cache.Find(t.Context(), prompt, nil, "").Resume(t.Context(), s)
		if err != nil || reused.Tokens != cached {
			t.Fatalf("run %d: %v, %v", turn, reused, err)
		}
		r, err := s.BeginPrompt(prompt[reused.Tokens:], engine.PrefillHooks{})
		for err == nil && r.Left() > 0 {
			err = r.Read(t.Context(), 23)
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := fakes.Worst([][]float32{s.Logits()}, want); d != 0 {
			t.Errorf("run %d: logits differ by %g", turn, d)
		}
		s.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecurrentRewind: a text is taken back behind and before the end of what was found, and goes on as one that was computed.
func TestRecurrentRewind(t *testing.T) {
	t.Parallel()
	prompt, next, fs, o := fakes.IDs(200, 3), fakes.IDs(12, 4), vfs.NewMem(1<<30), engine.Options{Threads: 1, ChunkTokens: 64}
	open := family("qwen3_5")
	resumed(t, fs, open, o, prompt, nil, "")
	e, store := open(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	cache, err := Use(e, store, "small")
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if reused, err := cache.Find(t.Context(), prompt, nil, "").Resume(t.Context(), s); err != nil || reused.Tokens != 192 {
		t.Fatal(reused, err)
	}
	if err := s.Prefill(t.Context(), prompt[192:], engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	stepped(t, s, next)
	for _, n := range []int{205, 197, 192, 150, 64} {
		if err := s.Rewind(n); err != nil {
			t.Fatal(err)
		}
		ids, more := slices.Concat(prompt, next), fakes.IDs(9, 5)
		if err := s.Prefill(t.Context(), more, engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(s.Logits())
		fresh, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := fresh.Prefill(t.Context(), ids[:min(n, 200)], engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if n > 200 {
			stepped(t, fresh, ids[200:n])
		}
		if err := fresh.Prefill(t.Context(), more, engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if d := fakes.Worst([][]float32{got}, [][]float32{fresh.Logits()}); d != 0 {
			t.Errorf("back to %d: logits differ by %g", n, d)
		}
		fresh.Close()
	}
}

// TestRecurrentContext: a context that a policy compressed comes back with the state of its recurrent layers; it is not taken back to before
// its end, and to behind it as any text is.
func TestRecurrentContext(t *testing.T) {
	t.Parallel()
	text, question := fakes.IDs(330, 5), fakes.IDs(20, 6)
	for _, name := range []string{"qwen3_5", "lfm2"} {
		for _, spec := range []string{"snapkv:ratio=0.5", "keydiff:ratio=0.3", "knorm:ratio=0.75"} {
			t.Run(fmt.Sprint(name, " ", strings.SplitN(spec, ":", 2)[0]), func(t *testing.T) {
				t.Parallel()
				fs, o := vfs.NewMem(1<<30), engine.Options{Policy: spec, Threads: 1, ChunkTokens: 64}
				var want []float32
				for turn := range 3 {
					e, store := family(name)(t, o), stored(t, fs, 64<<20)
					cache, err := Use(e, store, "small")
					if err != nil {
						t.Fatal(err)
					}
					s, reused, err := ReadContext(t.Context(), e, text, e.Policy(), cache.Find(t.Context(), text, e.Policy(), ""), engine.PrefillHooks{})
					if err != nil {
						t.Fatal(err)
					}
					if (reused.Tokens == len(text)) != (turn > 0) {
						t.Errorf("turn %d: %v", turn, reused)
					}
					for again := range 2 {
						if err := s.Prefill(t.Context(), question, engine.PrefillHooks{}); err != nil {
							t.Fatal(err)
						}
						if want == nil {
							want = slices.Clone(s.Logits())
						}
						if d := fakes.Worst([][]float32{s.Logits()}, [][]float32{want}); d != 0 {
							t.Errorf("turn %d, %d: logits differ by %g", turn, again, d)
						}
						for range 5 { // more states than are saved
							if err := s.Prefill(t.Context(), question, engine.PrefillHooks{}); err != nil {
								t.Fatal(err)
							}
						}
						if err := s.Rewind(len(text) - 1); !errors.Is(err, engine.ErrOption) {
							t.Errorf("back to before the context's end: %v", err)
						}
						if err := s.Rewind(len(text)); err != nil {
							t.Fatal(err)
						}
					}
					s.Close()
					if err := store.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// TestRecurrentRecords: a record without the state, or with some other length of it, is not used.
func TestRecurrentRecords(t *testing.T) {
	t.Parallel()
	prompt, fs, o := fakes.IDs(150, 3), vfs.NewMem(1<<30), engine.Options{Threads: 1, ChunkTokens: 64}
	open := family("qwen3_5")
	resumed(t, fs, open, o, prompt, nil, "")
	e, store := open(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	cache, err := Use(e, store, "small")
	if err != nil {
		t.Fatal(err)
	}
	found := cache.Find(t.Context(), prompt, nil, "")
	keys := found.Keys()[:1]
	found.Close()
	records, err := store.On(0).Read(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	r, last := records[0], records[0].Sections()-1
	if len(r.Section(last)) != int(e.Cache().StateBytes()) {
		t.Errorf("%d bytes of state, want %d", len(r.Section(last)), e.Cache().StateBytes())
	}
	for _, bytes := range []int{-1, 0, 4, len(r.Section(last)) - 4, len(r.Section(last))} {
		var sizes []int
		for i := range last {
			sizes = append(sizes, len(r.Section(i)))
		}
		if bytes >= 0 {
			sizes = append(sizes, bytes)
		}
		made, err := contexts.Build(r.Meta, sizes, func(i int, dst []byte) ([]byte, error) { return append(dst, r.Section(i)[:sizes[i]]...), nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err = cache.parse(made); (err == nil) != (bytes == len(r.Section(last))) || err != nil && !errors.Is(err, contexts.ErrDamaged) {
			t.Errorf("%d bytes of state: %v", bytes, err)
		}
	}
	if _, err := cache.Pack(mustSession(t, e, prompt), prompt, nil, ""); !errors.Is(err, engine.ErrOption) {
		t.Errorf("blocks packed behind the prompt: %v", err)
	}
}

func mustSession(t testing.TB, e *engine.Engine, ids []int) *engine.Session {
	t.Helper()
	s, err := e.NewSession(nil)
	if err == nil {
		err = s.Prefill(t.Context(), ids, engine.PrefillHooks{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
