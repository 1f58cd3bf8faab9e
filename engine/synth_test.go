package engine

import (
	"math"
	"path/filepath"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

// TestSynthesizedFamilies: random models of families whose layers differ load and compute finite logits that depend on the text.
func TestSynthesizedFamilies(t *testing.T) {
	t.Parallel()
	for _, s := range []convert.Spec{
		{Arch: "gemma4", Layers: 7, PerLayer: 32, SharedKV: 2},
		{Arch: "gemma4", Layers: 6, SpecExperts: convert.SpecExperts{Experts: 4, ExpertsUsed: 2, ExpertFFN: 64}},
		{Arch: "gpt-oss", Layers: 2, SpecExperts: convert.SpecExperts{Experts: 4, ExpertsUsed: 2, ExpertFFN: 64}},
		{Arch: "qwen35", Layers: 4},
		{Arch: "lfm2", Layers: 3},
		{Arch: "mistral3", Layers: 2},
		{Arch: "olmo2", Layers: 4},
		{Arch: "granitehybrid", Layers: 6},
		{Arch: "granitehybrid", Layers: 6, SpecExperts: convert.SpecExperts{Experts: 4, ExpertsUsed: 2, ExpertFFN: 64}},
		{Arch: "nemotron_h", Layers: 7},
		{Arch: "nemotron_h", Layers: 7, SpecExperts: convert.SpecExperts{Experts: 4, ExpertsUsed: 2, ExpertFFN: 64}},
		{Arch: "deepseek2", Layers: 2},
		{Arch: "deepseek2", Layers: 2, SpecExperts: convert.SpecExperts{Experts: 4, ExpertsUsed: 2, ExpertFFN: 64}},
	} {
		t.Run(s.Arch, func(t *testing.T) {
			s.Hidden, s.HeadDim, s.Vocab, s.Context, s.Seed = 128, 32, 300, 256, 3
			s.SetDefaults()
			path, kind := filepath.Join(t.TempDir(), "m.gguf"), quant.Q8_0
			if s.Arch == "deepseek2" && s.Experts > 0 {
				kind = quant.F32 // rows in int8 go through eight products a layer, and choose other experts
			}
			if err := convert.Synthesize(t.Context(), path, s, convert.Options{Type: kind}); err != nil {
				t.Fatal(err)
			}
			e := openOn(t, openFile(t, path), Options{Threads: 2})
			a, b := forced(t, e, fakes.IDs(20, 1), []int{1, 2}), forced(t, e, fakes.IDs(20, 2), []int{1, 2})
			for _, x := range a[2] {
				if math.IsNaN(float64(x)) || math.Abs(float64(x)) > 100 {
					t.Fatalf("a logit is %g", x)
				}
			}
			if fakes.Worst(a, b) < 1e-3 {
				t.Error("two texts have the same logits")
			}
			exact := forced(t, openOn(t, openFile(t, path), Options{Threads: 2, Exact: true}), fakes.IDs(20, 1), []int{1, 2})
			top := float32(0)
			for _, x := range exact[2] {
				top = max(top, x, -x)
			}
			most := float32(0.03)
			if e.cache.Recurrent() >= 0 { // products of projections, and state, amplify what is off
				most = 0.1
			}
			if off := fakes.Worst(a, exact) / top; off > most {
				t.Errorf("fast arithmetic is off by %g of the largest logit", off)
			}
		})
	}
}
