package prefixcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
	"terrace/model"
	_ "terrace/model/xla"
	"terrace/weights"
)

// stored opens an ssd store on a file system.
func stored(t testing.TB, fs vfs.FS, capacity int64) *contexts.Store {
	t.Helper()
	return storedUnder(t, fs, capacity, contexts.Options{Rule: contexts.Rule{Wait: true}})
}

func storedUnder(t testing.TB, fs vfs.FS, capacity int64, o contexts.Options) *contexts.Store {
	t.Helper()
	o.FS = fs
	s, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "ssd", Place: "d", CapacityBytes: capacity}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// resumed reads a prompt in a new process, as it were: a new engine, a new store on the same files; then ids one a step.
func resumed(t testing.TB, fs vfs.FS, open func(testing.TB, engine.Options) *engine.Engine, o engine.Options, prompt, next []int, salt string) (engine.Reused, [][]float32) {
	t.Helper()
	e, store := open(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	cache, err := Use(e, store, "small")
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	reused, err := cache.Find(t.Context(), prompt, e.Policy(), salt).Resume(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(t.Context(), prompt[reused.Tokens:], engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return reused, stepped(t, s, next)
}

// TestResume: logits behind a stored prefix are those of a prompt that was computed, to the bit, however KV is kept.
func TestResume(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 3), fakes.IDs(5, 4)
	for _, c := range []struct {
		name string
		open func(testing.TB, engine.Options) *engine.Engine
		o    engine.Options
		want int // of 300
	}{
		{"f16", small, engine.Options{ChunkTokens: 96}, 256},
		{"exact", small, engine.Options{Exact: true}, 256},
		{"bf16, pages of 48", small, engine.Options{KType: kvpage.BF16, VType: kvpage.F32, KVTypeSet: true, PageTokens: 48}, 288},
		{"rotated", small, engine.Options{Rotate: engine.RotateKeys}, 256},
		{"int8", small, engine.Options{KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 128}, 256},
		{"int4, small window", small, engine.Options{KType: kvpage.I4, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 64, KVWindow: 20, KVWindowSet: true}, 256},
		{"int3", small, engine.Options{KType: kvpage.I3, VType: kvpage.I2, KVTypeSet: true, ChunkTokens: 128, KVWindow: 20, KVWindowSet: true}, 256},
		{"int3, two layers in int8", small, engine.Options{KType: kvpage.I3, VType: kvpage.I2, KVTypeSet: true, ChunkTokens: 128, KVWindow: 20, KVWindowSet: true, KVOwn: []kvpage.Own{{First: 1, Last: 2, Elem: kvpage.I8}}}, 256},
		{"sliding windows", windowed, engine.Options{}, 256},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem(1 << 30)
			c.o.Threads = 1
			want := forced(t, c.open(t, c.o), prompt, next)
			for turn, cached := range []int{0, c.want} {
				reused, got := resumed(t, fs, c.open, c.o, prompt, next, "")
				if reused.Tokens != cached || cached > 0 && reused.Tier != "ssd" {
					t.Errorf("run %d: %v, want %d", turn, reused, cached)
				}
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Fatalf("run %d, step %d: logits differ by %g", turn, i, fakes.Worst(got[i:i+1], want[i:i+1]))
					}
				}
			}
			other := slices.Concat(prompt[:200], fakes.IDs(40, 9))
			reused, got := resumed(t, fs, c.open, c.o, other, nil, "")
			if b := c.want / 2; reused.Tokens == 0 || reused.Tokens > 200 || reused.Tokens < b-64 {
				t.Errorf("another end: %v of 200", reused)
			}
			if want := forced(t, c.open(t, c.o), other, nil); !slices.Equal(got[0], want[0]) {
				t.Error("another end: other logits")
			}
			if reused, _ := resumed(t, fs, c.open, c.o, prompt, nil, "salt"); reused.Tokens != 0 {
				t.Errorf("under a salt: %v", reused)
			}
		})
	}
}

// TestHostileRecords: records whose key and checksums are right, and whose content is no prompt's, are not used: the text's logits are those
// of a prompt that was computed, to the bit, and blocks before them are found.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 3), fakes.IDs(2, 4)
	o := engine.Options{Threads: 1}
	want := forced(t, small(t, o), prompt, next)
	none := contexts.AppendDirectory(nil, make([]contexts.Head, 64))
	for name, damage := range map[string]func(s [][]byte) [][]byte{
		"as it was":          func(s [][]byte) [][]byte { return s },
		"no section":         func([][]byte) [][]byte { return nil },
		"a layer less":       func(s [][]byte) [][]byte { return s[:len(s)-1] },
		"a layer more":       func(s [][]byte) [][]byte { return append(s, s[1]) },
		"a layer cut":        func(s [][]byte) [][]byte { s[1] = s[1][:len(s[1])-1]; return s },
		"a layer longer":     func(s [][]byte) [][]byte { s[1] = append(slices.Clone(s[1]), 0); return s },
		"layers without KV":  func(s [][]byte) [][]byte { s[1], s[2] = nil, nil; return s },
		"no directory":       func(s [][]byte) [][]byte { s[0] = nil; return s },
		"an empty directory": func(s [][]byte) [][]byte { s[0] = none[:min(len(none), len(s[0]))]; return s },
		"4 billion tokens":   func(s [][]byte) [][]byte { s[0] = slices.Clone(s[0]); copy(s[0], "\xff\xff\xff\xff"); return s },
		"4 billion runs":     func(s [][]byte) [][]byte { s[0] = slices.Clone(s[0]); copy(s[0][8:], "\xff\xff\xff\xff"); return s },
		"the block before": func(s [][]byte) [][]byte {
			s[0] = slices.Clone(s[0])
			binary.LittleEndian.PutUint32(s[0][12:], 0)
			return s
		},
		"bytes behind it":     func(s [][]byte) [][]byte { s[0] = append(slices.Clone(s[0]), 1, 2, 3); return s },
		"directory of no end": func(s [][]byte) [][]byte { s[0] = bytes.Repeat([]byte{1}, 1<<16); return s },
	} {
		fs := vfs.NewMem(1 << 30)
		resumed(t, fs, small, o, prompt, nil, "")
		e, store := small(t, o), storedUnder(t, fs, 64<<20, contexts.Options{Rule: contexts.Rule{Wait: true}, Write: contexts.WritePlaced})
		cache, err := Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		found := cache.Find(t.Context(), prompt, nil, "")
		keys := found.Keys()[1:2]
		found.Close()
		records, err := store.On(0).Read(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		var sections [][]byte
		for i := range records[0].Sections() {
			sections = append(sections, records[0].Section(i))
		}
		sections = damage(sections)
		var sizes []int
		for _, s := range sections {
			sizes = append(sizes, len(s))
		}
		bad, err := contexts.Build(records[0].Meta, sizes, func(i int, dst []byte) ([]byte, error) { return append(dst, sections[i]...), nil })
		if err == nil {
			err = errors.Join(store.On(0).Drop(t.Context(), keys), store.On(0).Put(t.Context(), []*contexts.Record{bad}), store.Close())
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tokens := 64
		if name == "as it was" {
			tokens = 256
		}
		reused, got := resumed(t, fs, small, o, prompt, next, "")
		if reused.Tokens != tokens {
			t.Errorf("%s: %v, want %d", name, reused, tokens)
		}
		for i := range want {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("%s: step %d: logits differ by %g", name, i, fakes.Worst(got[i:i+1], want[i:i+1]))
			}
		}
	}
}

// TestFingerprint: nothing is found by an engine whose KV has other bytes.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	fs, prompt := vfs.NewMem(1<<30), fakes.IDs(150, 3)
	if reused, _ := resumed(t, fs, small, engine.Options{Threads: 1}, prompt, nil, ""); reused.Tokens != 0 {
		t.Fatal(reused)
	}
	for name, o := range map[string]engine.Options{"exact": {Exact: true}, "rotated": {Rotate: engine.RotateKeys}, "pages": {PageTokens: 32}, "int8": {KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 128},
		"backend": {Backend: "gomlx:go"}, "bf16": {KType: kvpage.BF16, VType: kvpage.BF16, KVTypeSet: true}} {
		o.Threads = 1
		if reused, _ := resumed(t, fs, small, o, prompt, nil, ""); reused.Tokens != 0 {
			t.Errorf("%s: %v", name, reused)
		}
	}
	o := engine.Options{Threads: 1, KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 128}
	for _, own := range [][]kvpage.Own{{{First: 1, Last: 1, Elem: kvpage.F16}}, {{First: 1, Last: 1, Elem: kvpage.BF16}}, {{First: 2, Last: 2, Elem: kvpage.F16}}} { // the first like "int8" but for one layer
		o.KVOwn = own
		if reused, _ := resumed(t, fs, small, o, prompt, nil, ""); reused.Tokens != 0 {
			t.Errorf("%v: %v", own, reused)
		}
	}
	if reused, _ := resumed(t, fs, small, o, prompt, nil, ""); reused.Tokens != 128 {
		t.Errorf("a layer in f16 again: %v, want 128", reused)
	}
	if reused, _ := resumed(t, fs, small, engine.Options{Threads: 2}, prompt, nil, ""); reused.Tokens != 128 {
		t.Errorf("threads: %v, want 128: they change no bit", reused)
	}
}

// TestLongRope: of a model that turns all positions by the length of the text, what was stored of a text of one length is not found by one
// of the other; behind what is found a text goes on beyond that length as it does computed.
func TestLongRope(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB, o engine.Options) *engine.Engine {
		e := small(t, o)
		m := e.Model()
		m.Ropes = slices.Clone(m.Ropes)
		r := &m.Ropes[0]
		r.LongAt, r.LongFreq = 160, slices.Clone(r.InvFreq)
		for i := range r.LongFreq {
			r.LongFreq[i] /= float32(2 + i)
		}
		return e
	}
	fs, text := vfs.NewMem(1<<30), fakes.IDs(190, 3)
	for i, c := range []struct{ prompt, steps, reused int }{{150, 0, 0}, {180, 3, 0}, {180, 3, 128}, {190, 0, 128}, {150, 15, 128}} {
		next := fakes.IDs(c.steps, 8)
		reused, got := resumed(t, fs, open, engine.Options{Threads: 1}, text[:c.prompt], next, "")
		if reused.Tokens != c.reused {
			t.Errorf("%d: %v of %d tokens, want %d", i, reused, c.prompt, c.reused)
		}
		if d := fakes.Worst(got, forced(t, open(t, engine.Options{Threads: 1}), text[:c.prompt], next)); d != 0 {
			t.Errorf("%d: logits differ by %g", i, d)
		}
	}
}

// TestCompressedContext: a context that a policy compressed comes back with all its positions: many questions share it, and each
// has the logits that it has behind a context compressed just now.
func TestCompressedContext(t *testing.T) {
	t.Parallel()
	text, question := fakes.IDs(330, 5), fakes.IDs(20, 6)
	for _, spec := range []string{"snapkv:ratio=0.5", "keydiff:ratio=0.3", "adakv:ratio=0.6", "knorm:ratio=0.75"} {
		t.Run(strings.SplitN(spec, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			for _, o := range []engine.Options{{Policy: spec, Threads: 1}, {Policy: spec, Threads: 1, KType: kvpage.I8, VType: kvpage.I4, KVTypeSet: true, KVWindow: 32, KVWindowSet: true}} {
				fs, var1 := vfs.NewMem(1<<30), [][]float32(nil)
				for turn := range 3 {
					e, store := small(t, o), stored(t, fs, 64<<20)
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
					if err := s.Prefill(t.Context(), question, engine.PrefillHooks{}); err != nil {
						t.Fatal(err)
					}
					got := [][]float32{slices.Clone(s.Logits())}
					if turn == 0 {
						var1 = got
					} else if !slices.Equal(got[0], var1[0]) {
						t.Errorf("turn %d: logits differ by %g", turn, fakes.Worst(got, var1))
					}
					if u := s.KVUse(); u.Fraction > 0.75 {
						t.Errorf("turn %d: %v of the tokens are kept", turn, u.Fraction)
					}
					s.Close()
					if err := store.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestNumerics: the bits of KV are those that records of this version were made with, on every kernel path that is known here.
// Where they change on purpose, count numerics up, so that nobody finds the old ones, and note the new sums.
func TestNumerics(t *testing.T) {
	known := map[string]string{}
	for line := range strings.Lines(numericsSums) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == fmt.Sprint(numerics) {
			known[f[1]] = f[2]
		}
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("sums are known for amd64 only")
	}
	here := kernels.Path()
	defer func() { _ = kernels.Select(here) }() // tests that run in parallel wait for this one
	for _, path := range []string{"amx", "avx512", "avx2", "purego"} {
		t.Run(path, func(t *testing.T) {
			if err := kernels.Select(path); err != nil {
				t.Skip(err)
			}
			switch got, want := numericsSum(t), known[path]; want {
			case got:
			case "":
				t.Skipf("no sum for kernels %s: it is %d %s %s", path, numerics, path, got)
			default:
				t.Errorf("kernels %s: KV and logits have sum %s, want %s: count numerics up (engine/prefixcache/prefixcache.go) and note the new sums in numericsSums", path, got, want)
			}
		})
	}
}

func numericsSum(t *testing.T) string {
	e := small(t, engine.Options{Threads: 1})
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), fakes.IDs(128, 8), engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for layer := range e.Model().Layers {
		for g := range e.Model().Layer[0].KVHeads {
			data, _, err := s.Sequence().AppendMain(nil, layer, g, 0, 128)
			if err != nil {
				t.Fatal(err)
			}
			h.Write(data)
		}
	}
	for _, x := range s.Logits() {
		h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// numericsSums are the first bytes of SHA-256 over KV and logits of a small model: numerics, kernels, sum.
const numericsSums = `
2 avx2 f1dfd6dea03eb724
2 avx512 5bc81b90654ef210
2 purego bc562e1a20673bab
`

func small(t testing.TB, o engine.Options) *engine.Engine { return opened(t, fakes.Small(t), o) }

func windowed(t testing.TB, o engine.Options) *engine.Engine { return opened(t, fakes.Windowed(t), o) }

func opened(t testing.TB, path string, o engine.Options) *engine.Engine {
	t.Helper()
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

// forced reads a prompt, then ids one a step, and returns the logits after the prompt and after each.
func forced(t testing.TB, e *engine.Engine, prompt, next []int) [][]float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	return stepped(t, s, next)
}

// stepped are the session's logits, and those after each of ids.
func stepped(t testing.TB, s *engine.Session, ids []int) [][]float32 {
	t.Helper()
	out := [][]float32{slices.Clone(s.Logits())}
	for _, id := range ids {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return out
}

func TestMain(m *testing.M) { os.Exit(fakes.Main(m)) }
