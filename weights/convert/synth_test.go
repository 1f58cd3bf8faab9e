package convert

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

func small(arch string) Spec {
	s := Spec{Arch: arch, Layers: 2, Hidden: 256, HeadDim: 32, Vocab: 300, Context: 128, Seed: 7}
	switch arch {
	case "gemma4":
		s.Layers, s.Experts, s.ExpertFFN, s.PerLayer, s.SharedKV = 7, 4, 64, 32, 2
	case "gpt-oss":
		s.Experts, s.ExpertFFN = 4, 64
	case "qwen35", "lfm2":
		s.Layers = 4
	case "granitehybrid", "nemotron_h":
		s.Layers, s.Experts, s.ExpertFFN = 7, 4, 64
	case "deepseek2":
		s.Experts, s.ExpertFFN = 4, 64
	}
	s.SetDefaults()
	return s
}

// TestSynthesize writes each architecture: weights of the promised scale, a vocabulary that encodes any text.
func TestSynthesize(t *testing.T) {
	for _, arch := range SpecArchs {
		t.Run(arch, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := Synthesize(t.Context(), path, small(arch), Options{Type: quant.Q4_K}); err != nil {
				t.Fatal(err)
			}
			m := open(t, path)
			if err := m.Verify(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			var mean, square float64
			name := "blk.1.attn_q.weight"
			if arch == "deepseek2" {
				name = "blk.1.attn_q_a.weight"
			}
			for i := 2; !m.Has(name) && i < 10; i++ { // layers that do not attend
				name = fmt.Sprintf("blk.%d.attn_q.weight", i)
			}
			q := values(t, m, name)
			for _, x := range q {
				mean += float64(x) / float64(len(q))
				square += float64(x) * float64(x) / float64(len(q))
			}
			if sigma := math.Sqrt(square); math.Abs(sigma*16-1) > 0.05 || math.Abs(mean) > 0.05*sigma {
				t.Errorf("attn_q has mean %g and sigma %g, want 0 and 1/16", mean, sigma)
			}
			v, err := vocab.FromModel(m.Meta(), "")
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.New(v)
			if err != nil {
				t.Fatal(err)
			}
			const text = "any text: \x00 ü 漢 the"
			ids, err := tok.Encode(text, true, false)
			if err != nil || ids[0] != 256 || tok.Decode(ids[1:], false) != text {
				t.Errorf("ids %v decode to %q, %v", ids, tok.Decode(ids, false), err)
			}
		})
	}
}

// TestSynthesizeAsPublished: shapes, given values and keys are those that other readers of such files ask for.
func TestSynthesizeAsPublished(t *testing.T) {
	read := func(arch string) *weights.Model {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := Synthesize(t.Context(), path, small(arch), Options{Type: quant.Q8_0}); err != nil {
			t.Fatal(err)
		}
		return open(t, path)
	}
	m := read("granitehybrid")
	for name, want := range map[string][]int{"blk.0.ssm_a": {8, 1}, "blk.0.ssm_d": {8, 1}, "blk.0.ssm_norm.weight": {1, 512}} {
		if x, err := m.Tensor(name); err != nil || !slices.Equal(x.Shape, want) {
			t.Errorf("%s: %v, %v, want %v", name, x.Shape, err, want)
		}
	}
	if got, _ := read("qwen35").Meta().Int32s("qwen35.rope.dimension_sections"); !slices.Equal(got, []int32{2, 1, 1, 0}) {
		t.Errorf("sections %v of 4 pairs", got)
	}
	if n, err := read("deepseek2").Meta().Int("deepseek2.expert_shared_count"); n != 1 {
		t.Errorf("deepseek2 says %d networks beside the experts, %v", n, err)
	}
	for i, v := range values(t, read("gemma4"), "rope_freqs.weight") { // 32 pairs of heads of 64
		if want := map[bool]float32{true: 1, false: 1e30}[i < 8]; v != want || i > 31 {
			t.Errorf("factor %d is %g, want %g", i, v, want)
		}
	}
}

// TestSynthesizeIsDeterministic: the same bytes whatever the number of goroutines; another seed, other bytes.
func TestSynthesizeIsDeterministic(t *testing.T) {
	write := func(threads int, seed uint64) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
		path := filepath.Join(t.TempDir(), "m.gguf")
		s := small("llama")
		s.Vocab, s.Seed = 5000, seed
		if err := Synthesize(t.Context(), path, s, Options{Type: quant.Q8_0}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := write(1, 7)
	if !bytes.Equal(one, write(3, 7)) {
		t.Error("one and three goroutines write different bytes")
	}
	if bytes.Equal(one, write(3, 8)) {
		t.Error("another seed writes the same bytes")
	}
}

func TestSpec(t *testing.T) {
	s := Spec{Arch: "llama", Layers: 32, Hidden: 4096}
	s.SetDefaults()
	if s.Heads != 32 || s.KVHeads != 8 || s.HeadDim != 128 || s.FFN != 14336 || s.Validate() != nil {
		t.Errorf("defaults of an 8B: %+v", s)
	}
	for mention, change := range map[string]func(s *Spec){
		"architecture": func(s *Spec) { s.Arch = "banana" },
		"layers":       func(s *Spec) { s.Layers = 0 },
		"hidden":       func(s *Spec) { s.Hidden = -1 },
		"kv-heads":     func(s *Spec) { s.KVHeads = 3 },
		"odd":          func(s *Spec) { s.HeadDim = 31 },
		"vocab":        func(s *Spec) { s.Vocab = 10 },
		"ffn":          func(s *Spec) { s.FFN = 1 << 30 },
		"context":      func(s *Spec) { s.Context = -5 },
		"--experts":    func(s *Spec) { s.Experts, s.ExpertsUsed, s.ExpertFFN = 4, 2, 64 },
		"shared-kv":    func(s *Spec) { s.Arch, s.SharedKV = "gemma4", 2 },
		"experts-used": func(s *Spec) { s.Arch, s.Experts, s.ExpertsUsed, s.ExpertFFN = "gemma4", 4, 5, 64 },
		"per-layer":    func(s *Spec) { s.Arch, s.PerLayer = "gemma4", -1 },
	} {
		s := small("llama")
		change(&s)
		if err := Synthesize(t.Context(), filepath.Join(t.TempDir(), "m"), s, Options{Type: quant.F32}); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: %v", mention, err)
		}
	}
	if err := Synthesize(t.Context(), filepath.Join(t.TempDir(), "m"), small("llama"), Options{Type: quant.MXFP4}); !errors.Is(err, ErrType) {
		t.Errorf("MXFP4: %v", err)
	}
}

// TestSynthesizeSaysFallback: rows that are no whole blocks are written in another type, and said.
func TestSynthesizeSaysFallback(t *testing.T) {
	s := Spec{Arch: "llama", Layers: 1, Hidden: 96, HeadDim: 32, Vocab: 300, Tied: true}
	s.SetDefaults()
	var notices []string
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := Synthesize(t.Context(), path, s, Options{Type: quant.Q4_K, Notice: func(n string) { notices = append(notices, n) }}); err != nil {
		t.Fatal(err)
	}
	m := open(t, path)
	if x, err := m.Tensor("token_embd.weight"); err != nil || x.Type != quant.Q5_0 || m.Has("output.weight") || len(notices) != 1 {
		t.Errorf("embedding %v, notices %q", err, notices)
	}
}
