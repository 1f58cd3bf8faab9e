package engine

import (
	"path/filepath"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights/convert"
)

// widened is a model's wider form.
func widened(t *testing.T, m *model.Model, to convert.Wider) *model.Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wide.gguf")
	if err := convert.Widen(t.Context(), m.File, path, to, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	return openFile(t, path)
}

// offBy is how far the exact logits of two models are apart on a text, over the largest one.
func offBy(t *testing.T, a, b *model.Model, prompt, next []int) float32 {
	t.Helper()
	want := forced(t, openOn(t, a, Options{Threads: 2, Exact: true}), prompt, next)
	got := forced(t, openOn(t, b, Options{Threads: 2, Exact: true}), prompt, next)
	top := float32(0)
	for _, x := range want[0] {
		top = max(top, x, -x)
	}
	return fakes.Worst(want, got) / top
}

// TestWidened: models with more and wider heads have the logits of the model that they are made from, in each architecture, beyond a sliding
// window, with layers that are added, and with layers that are cut those of the cut model.
func TestWidened(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		spec convert.Spec
		kind quant.Type
		to   convert.Wider
	}{
		{convert.Spec{Arch: "llama"}, quant.Q4_1, convert.Wider{KVHeads: 7, HeadDim: 64}},
		{convert.Spec{Arch: "llama"}, quant.Q8_0, convert.Wider{KVHeads: 5, HeadDim: 48, Layers: 4}},
		{convert.Spec{Arch: "llama"}, quant.Q8_0, convert.Wider{KVHeads: 3}},
		{convert.Spec{Arch: "qwen2"}, quant.Q8_0, convert.Wider{KVHeads: 8, HeadDim: 64}},
		{convert.Spec{Arch: "qwen3"}, quant.Q5_0, convert.Wider{KVHeads: 2, HeadDim: 80}},
		{convert.Spec{Arch: "gemma3", Layers: 6}, quant.F16, convert.Wider{KVHeads: 6, HeadDim: 64, Layers: 7}},
	} {
		s := c.spec
		s.Layers, s.Hidden, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.Vocab, s.Context, s.Seed = max(s.Layers, 2), 96, 6, 2, 32, 96, 300, 1024, 4
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := convert.Synthesize(t.Context(), path, s, convert.Options{Type: c.kind}); err != nil {
			t.Fatal(err)
		}
		text := 40
		if s.Arch == "gemma3" {
			text = 600
		}
		m := openFile(t, path)
		most := float32(1e-5)
		if m.File.Has("blk.0.attn_q_norm.weight") {
			most = 3e-5 // norms of q and k see an epsilon that grows as the width does
		}
		if off := offBy(t, m, widened(t, m, c.to), fakes.IDs(text, 1), []int{5, 6}); off > most {
			t.Errorf("%s %s to %+v: logits are off by %.2g of the largest, want %g", s.Arch, c.kind, c.to, off, most)
		}
		c.to.Layers = 1
		if off := offBy(t, widened(t, m, convert.Wider{Layers: 1}), widened(t, m, c.to), fakes.IDs(20, 1), []int{5}); off > most {
			t.Errorf("%s %s to %+v: logits are off by %.2g of those of one layer", s.Arch, c.kind, c.to, off)
		}
	}
}

// TestWidenedFolder: rows of a Hugging Face folder, whose rotary pairs lie apart, are brought into the file's order too.
func TestWidenedFolder(t *testing.T) {
	t.Parallel()
	m := openFile(t, golden.Shared(t, "data", "golden", "tiny_hf", "llama_gqa"))
	w := widened(t, m, convert.Wider{KVHeads: 2*m.Layer[0].KVHeads + 1, HeadDim: 2 * m.Layer[0].KeyDim})
	text := fakes.IDs(30, 2)
	for i := range text {
		text[i] %= m.Vocab
	}
	if off := offBy(t, m, w, text, []int{5, 6}); off > 1e-5 {
		t.Errorf("logits are off by %.2g of the largest, want 1e-5", off)
	}
}

// TestWidenedRealModels: SmolLM2 in the KV shape of Llama-2-7B, and Gemma 3, on real text.
func TestWidenedRealModels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder string
		to     convert.Wider
		bytes  int // of a token in a layer
	}{
		"smollm2:135m": {"smollm2_logits", convert.Wider{KVHeads: 32, HeadDim: 128}, 16 << 10},
		"gemma3:270m":  {"gemma3_logits", convert.Wider{KVHeads: 16, HeadDim: 320}, 20 << 10},
	} {
		if name != "smollm2:135m" && !golden.Thorough() {
			continue
		}
		m := openFile(t, golden.Model(t, name))
		rows := golden.Lines[prompt](t, golden.Shared(t, "data", "golden", c.folder, "prompts.jsonl"))
		text := rows[0].IDs[:min(100, len(rows[0].IDs))]
		w := widened(t, m, c.to)
		if off := offBy(t, m, w, text, rows[0].Greedy[:2]); off > 1e-5 {
			t.Errorf("%s: logits are off by %.2g of the largest, want 1e-5", name, off)
		}
		if a := w.Layer[0]; 2*a.KVHeads*(a.KeyDim+a.ValDim) != c.bytes {
			t.Errorf("%s: a token has %d bytes of KV in a layer, want %d", name, 2*a.KVHeads*(a.KeyDim+a.ValDim), c.bytes)
		}
	}
}
