package engine

import (
	"path/filepath"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kernels/quant"
	"terrace/offload"
	"terrace/weights/convert"
)

// TestSwapsOfSharedKeys: where the last layers read an earlier one's keys and values, blocks come and go in those that keep some, and the
// others see the same: in memory and on tiers, whether the policy waits or not, bit for bit.
func TestSwapsOfSharedKeys(t *testing.T) {
	t.Parallel()
	s := convert.Spec{Arch: "gemma4", Layers: 12, PerLayer: 32, SharedKV: 5, Hidden: 64, HeadDim: 32, Vocab: 300, Context: 512, Seed: 3}
	s.SetDefaults()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := convert.Synthesize(t.Context(), path, s, convert.Options{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	m := openFile(t, path)
	prompt, next := fakes.IDs(300, 1), fakes.IDs(20, 2)
	for _, layers := range []string{"keep=128", "layers=5,keep=96"} {
		spec := "sliminfer:" + layers + ",block=32,gamma=1"
		o := Options{Threads: 1, Policy: spec, ChunkTokens: 64}
		memory := openOn(t, m, o)
		want := forced(t, memory, prompt, next)
		text := prefilled(t, memory, prompt)
		for _, id := range next {
			if err := text.Decode(id); err != nil {
				t.Fatal(err)
			}
		}
		if use := text.KVUse().Swaps; use.Swaps < 5 || use.Revived == 0 {
			t.Errorf("%s: %+v: no blocks come and go", layers, use)
		}
		for layer := range m.Layers {
			owner := memory.cache.Owner(layer)
			if a, b := text.text.Seq().Tokens(layer, 0), text.text.Seq().Tokens(owner, 0); a != b {
				t.Errorf("%s: layer %d reads %d tokens, its owner %d has %d", layers, layer, a, owner, b)
			}
		}
		text.Close()
		for _, how := range []string{"", ",async=false"} {
			store, err := offload.NewMemory("below", memory.shape(), 0)
			if err != nil {
				t.Fatal(err)
			}
			o.Policy, o.Store, o.KVBudgetBytes = spec+how, store, 8<<20
			if d := fakes.Worst(want, forced(t, openOn(t, m, o), prompt, next)); d != 0 {
				t.Errorf("%s on tiers: logits differ by %g", o.Policy, d)
			}
		}
	}
}
