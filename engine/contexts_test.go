package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
)

// stored opens an ssd store on a file system.
func stored(t testing.TB, fs vfs.FS, capacity int64) *contexts.Store {
	t.Helper()
	s, err := contexts.Open(t.Context(), []contexts.Spec{{Kind: "ssd", Place: "d", CapacityBytes: capacity}}, contexts.Options{FS: fs, Rule: contexts.Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// resumed reads a prompt in a new process, as it were: a new engine, a new store on the same files; then ids one a step.
func resumed(t testing.TB, fs vfs.FS, open func(testing.TB, Options) *Engine, o Options, prompt, next []int, salt string) (Reused, [][]float32) {
	t.Helper()
	e, store := open(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	if err := e.UseContexts(store, "small"); err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	reused, err := s.Resume(t.Context(), e.Contexts().Find(t.Context(), prompt, e.Policy(), salt))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(t.Context(), prompt[reused.Tokens:], PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	out := [][]float32{slices.Clone(s.Logits())}
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return reused, out
}

// TestResume: logits behind a stored prefix are those of a prompt that was computed, to the bit, however KV is kept.
func TestResume(t *testing.T) {
	t.Parallel()
	prompt, next := someIDs(300, 3), someIDs(5, 4)
	for _, c := range []struct {
		name string
		open func(testing.TB, Options) *Engine
		o    Options
		want int // of 300
	}{
		{"f16", small, Options{ChunkTokens: 96}, 256},
		{"exact", small, Options{Exact: true}, 256},
		{"bf16, pages of 48", small, Options{KType: kvpage.BF16, VType: kvpage.F32, KVTypeSet: true, PageTokens: 48}, 288},
		{"rotated", small, Options{Rotate: true}, 256},
		{"int8", small, Options{KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 128}, 256},
		{"int4, small window", small, Options{KType: kvpage.I4, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 64, KVWindow: 20, KVWindowSet: true}, 256},
		{"sliding windows", windowed, Options{}, 256},
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
						t.Fatalf("run %d, step %d: logits differ by %g", turn, i, worst(got[i:i+1], want[i:i+1]))
					}
				}
			}
			other := slices.Concat(prompt[:200], someIDs(40, 9))
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

// TestFingerprint: nothing is found by an engine whose KV has other bytes.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	fs, prompt := vfs.NewMem(1<<30), someIDs(150, 3)
	if reused, _ := resumed(t, fs, small, Options{Threads: 1}, prompt, nil, ""); reused.Tokens != 0 {
		t.Fatal(reused)
	}
	for name, o := range map[string]Options{"exact": {Exact: true}, "rotated": {Rotate: true}, "pages": {PageTokens: 32}, "int8": {KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, ChunkTokens: 128},
		"backend": {Backend: "gomlx:go"}, "bf16": {KType: kvpage.BF16, VType: kvpage.BF16, KVTypeSet: true}} {
		o.Threads = 1
		if reused, _ := resumed(t, fs, small, o, prompt, nil, ""); reused.Tokens != 0 {
			t.Errorf("%s: %v", name, reused)
		}
	}
	if reused, _ := resumed(t, fs, small, Options{Threads: 2}, prompt, nil, ""); reused.Tokens != 128 {
		t.Errorf("threads: %v, want 128: they change no bit", reused)
	}
}

// TestCompressedContext: a context that a policy compressed comes back with all its positions: many questions share it, and each
// has the logits that it has behind a context compressed just now.
func TestCompressedContext(t *testing.T) {
	t.Parallel()
	text, question := someIDs(330, 5), someIDs(20, 6)
	for _, spec := range []string{"snapkv:ratio=0.5", "keydiff:ratio=0.3", "adakv:ratio=0.6", "knorm:ratio=0.75"} {
		t.Run(strings.SplitN(spec, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			for _, o := range []Options{{Policy: spec, Threads: 1}, {Policy: spec, Threads: 1, KType: kvpage.I8, VType: kvpage.I4, KVTypeSet: true, KVWindow: 32, KVWindowSet: true}} {
				fs, var1 := vfs.NewMem(1<<30), [][]float32(nil)
				for turn := range 3 {
					e, store := small(t, o), stored(t, fs, 64<<20)
					if err := e.UseContexts(store, "small"); err != nil {
						t.Fatal(err)
					}
					s, reused, err := e.ReadContext(t.Context(), text, e.Policy(), e.Contexts().Find(t.Context(), text, e.Policy(), ""), PrefillHooks{})
					if err != nil {
						t.Fatal(err)
					}
					if (reused.Tokens == len(text)) != (turn > 0) {
						t.Errorf("turn %d: %v", turn, reused)
					}
					if err := s.Prefill(t.Context(), question, PrefillHooks{}); err != nil {
						t.Fatal(err)
					}
					got := [][]float32{slices.Clone(s.Logits())}
					if turn == 0 {
						var1 = got
					} else if !slices.Equal(got[0], var1[0]) {
						t.Errorf("turn %d: logits differ by %g", turn, worst(got, var1))
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
				t.Errorf("kernels %s: KV and logits have sum %s, want %s: count numerics up (engine/contexts.go) and note the new sums in numericsSums", path, got, want)
			}
		})
	}
}

func numericsSum(t *testing.T) string {
	e := small(t, Options{Threads: 1})
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), someIDs(128, 8), PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for layer := range e.m.Layers {
		for g := range e.m.KVHeads {
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
1 avx2 f1dfd6dea03eb724
1 purego bc562e1a20673bab
`
