package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/weights/convert"
)

// resident is the memory that the system holds for this process, without what the Go runtime keeps of dead heap and of
// scratch that is pooled between calls, which outlives one collection.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	pages, err := strconv.ParseInt(string(bytes.Fields(b)[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestSnapKVIsResidentlySmall reads 2,000 tokens and decodes some, under full and under snapkv:ratio=0.75, and measures what
// the process holds for the session: at most 0.30 of full's. The model's KV (16 layers of 8 heads of 64, float32: 125 MiB) is
// to the 6 MiB that a session holds beside it as in a small real model (SmolLM2: 175 MiB in float16).
func TestSnapKVIsResidentlySmall(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector keeps memory of its own for every page")
	}
	if testing.Short() {
		t.Skip("-short: reads 2,000 tokens twice")
	}
	path := filepath.Join(t.TempDir(), "wide.gguf")
	if err := convert.Synthesize(t.Context(), path, convert.Spec{Arch: "llama", Layers: 12, Hidden: 128, Heads: 8, KVHeads: 8, HeadDim: 64,
		FFN: 128, Vocab: 300, Context: 8192, Seed: 5}, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	holds := func(policy string) (bytes, kv int64) {
		e := openModel(t, path, Options{Policy: policy, KVTypeSet: true, KType: kvpage.F32, VType: kvpage.F32})
		for _, n := range []int{600, 2000} { // the first makes the code resident that runs
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			before := resident(t)
			if err := s.Prefill(t.Context(), fakes.IDs(n, 3), PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			for id := range 5 {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
			}
			bytes, kv = resident(t)-before, s.KVUse().Bytes
			s.Close()
			e.kv.Release()
		}
		return bytes, kv
	}
	full, fullKV := holds("full")
	part, partKV := holds("snapkv:ratio=0.75")
	t.Logf("full: %d KiB resident for %d KiB of KV; snapkv: %d KiB for %d KiB; ratio %.3f", full>>10, fullKV>>10, part>>10, partKV>>10, float64(part)/float64(full))
	if full < fullKV*9/10 {
		t.Fatalf("%d bytes resident of %d bytes of KV", full, fullKV)
	}
	if float64(part) > 0.30*float64(full) {
		t.Errorf("%d bytes resident of full's %d, want at most 0.30 of them", part, full)
	}
}
