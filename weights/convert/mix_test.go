package convert

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/gguf"
)

// matrices are the names and row lengths of a dense model's matrices.
func matrices(layers int, tied bool) map[string]int {
	out := map[string]int{"token_embd.weight": 4096}
	if !tied {
		out["output.weight"] = 4096
	}
	for i := range layers {
		for _, part := range []string{"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up"} {
			out[fmt.Sprintf("blk.%d.%s.weight", i, part)] = 4096
		}
		out[fmt.Sprintf("blk.%d.ffn_down.weight", i)] = 14336
	}
	return out
}

func testShape(arch string, layers, experts int, tied bool, names map[string]int) *shapeOf {
	meta := &gguf.Meta{}
	meta.Set("general.architecture", arch)
	meta.Set(arch+".block_count", uint32(layers))
	meta.Set(arch+".expert_count", uint32(experts))
	meta.Set(arch+".attention.head_count", uint32(32))
	meta.Set(arch+".attention.head_count_kv", uint32(8))
	var tensors []*gguf.Tensor
	for name, cols := range names {
		tensors = append(tensors, &gguf.Tensor{Name: name, Shape: []int{1, cols}})
	}
	s := shapeFor(meta, tensors)
	return &s
}

// The counts of the M mixes are those that llama.cpp logs for published files of 8B and 7B models with 32 layers and an output
// matrix of their own (193 and 33, as in mozilla-ai/llamafile issue 516 for Llama 3.1 8B Q4_K_M). No such log was found for the S
// mixes: theirs follow from llama.cpp's rules, by hand (4 value and 4 down projections in Q5_K; the output in Q6_K).
func TestMixesOfPublishedFiles(t *testing.T) {
	want := map[string]map[quant.Type]int{
		"Q3_K_S": {quant.Q3_K: 225, quant.Q6_K: 1},
		"Q3_K_M": {quant.Q3_K: 129, quant.Q4_K: 92, quant.Q5_K: 4, quant.Q6_K: 1},
		"Q3_K_L": {quant.Q3_K: 129, quant.Q5_K: 96, quant.Q6_K: 1},
		"IQ4_XS": {quant.IQ4_XS: 189, quant.Q5_K: 36, quant.Q6_K: 1},
		"IQ4_NL": {quant.IQ4_NL: 189, quant.Q5_K: 36, quant.Q6_K: 1},
		"Q4_K_M": {quant.Q4_K: 193, quant.Q6_K: 33},
		"Q4_K_S": {quant.Q4_K: 217, quant.Q5_K: 8, quant.Q6_K: 1},
		"Q5_K_M": {quant.Q5_K: 193, quant.Q6_K: 33},
		"Q5_K_S": {quant.Q5_K: 225, quant.Q6_K: 1},
	}
	names := matrices(32, false)
	s := testShape("llama", 32, 0, false, names)
	for _, m := range Mixes() {
		got := map[quant.Type]int{}
		for name, cols := range names {
			got[m.typeOf(s, name, cols)]++
		}
		if !maps.Equal(got, want[m.Name]) {
			t.Errorf("%s: %v, want %v", m.Name, got, want[m.Name])
		}
	}
}

// Worked out by hand from llama.cpp's rules.
func TestMixRules(t *testing.T) {
	mix := func(name string) Mix {
		_, m, err := ParseKind(name)
		if err != nil || m.Name == "" {
			t.Fatal(name, err)
		}
		return m
	}
	tied := testShape("llama", 16, 0, true, matrices(16, true))
	experts := testShape("llama", 32, 8, false, matrices(32, false))
	huge := testShape("llama", 80, 0, false, matrices(80, false))
	for _, c := range []struct {
		mix  string
		s    *shapeOf
		name string
		cols int
		want quant.Type
	}{
		{"q4_k_m", tied, "token_embd.weight", 2048, quant.Q6_K},
		{"q4_k_m", tied, "token_embd.weight", 576, quant.Q8_0}, // 576 is no multiple of 256
		{"q4_k_m", huge, "token_embd.weight", 4096, quant.Q4_K},
		{"q4_k_m", tied, "blk.1.ffn_down.weight", 4096, quant.Q6_K}, // the first eighth: 2 of 16
		{"q4_k_m", tied, "blk.2.ffn_down.weight", 4096, quant.Q4_K},
		{"q4_k_m", tied, "blk.4.ffn_down.weight", 4096, quant.Q6_K}, // (4-2)%3 = 2
		{"q4_k_m", tied, "blk.14.attn_v.weight", 4096, quant.Q6_K},  // the last eighth
		{"q4_k_m", tied, "blk.12.attn_v.weight", 4096, quant.Q4_K},
		{"q4_k_m", tied, "blk.0.attn_output.weight", 4096, quant.Q4_K},
		{"q4_k_m", huge, "blk.11.attn_v.weight", 4096, quant.Q5_K}, // 70B: (11-10)%3 = 1 would be Q4_K
		{"q4_k_m", experts, "blk.5.attn_v.weight", 4096, quant.Q8_0},
		{"q4_k_m", experts, "blk.5.attn_k.weight", 4096, quant.Q8_0},
		{"q4_k_m", experts, "blk.5.attn_output.weight", 4096, quant.Q5_K},
		{"q5_k_m", experts, "blk.5.attn_output.weight", 4096, quant.Q5_K},
		{"q4_k_m", experts, "blk.6.ffn_down_exps.weight", 4096, quant.Q6_K},
		{"q3_k_m", tied, "blk.0.ffn_down.weight", 4096, quant.Q5_K}, // the first sixteenth: 1 of 16
		{"q3_k_m", tied, "blk.1.ffn_down.weight", 4096, quant.Q4_K},
		{"q3_k_m", tied, "blk.1.attn_v.weight", 4096, quant.Q5_K},
		{"q3_k_m", tied, "blk.2.attn_v.weight", 4096, quant.Q4_K},
		{"q3_k_m", huge, "blk.2.attn_v.weight", 4096, quant.Q5_K}, // 70B
		{"q3_k_s", huge, "blk.2.attn_v.weight", 4096, quant.Q5_K},
		{"q3_k_m", tied, "blk.2.attn_output.weight", 4096, quant.Q4_K},
		{"q3_k_m", experts, "blk.2.attn_output.weight", 4096, quant.Q5_K},
		{"q3_k_l", experts, "blk.2.attn_output.weight", 4096, quant.Q3_K},
		{"q3_k_m", tied, "blk.2.ffn_up.weight", 4096, quant.Q3_K},
		{"iq4_xs", tied, "blk.2.attn_v.weight", 4096, quant.Q5_K}, // four heads a KV head
		{"iq4_xs", tied, "blk.1.ffn_down.weight", 4096, quant.Q5_K},
		{"iq4_xs", tied, "blk.2.ffn_down.weight", 4096, quant.IQ4_XS},
		{"iq4_xs", experts, "blk.5.attn_output.weight", 4096, quant.Q5_K},
		{"q4_k_s", tied, "blk.1.ffn_down.weight", 4096, quant.Q5_K},
		{"q4_k_s", tied, "blk.3.attn_v.weight", 4096, quant.Q5_K},
		{"q4_k_s", tied, "blk.4.attn_v.weight", 4096, quant.Q4_K},
	} {
		if got := mix(c.mix).typeOf(c.s, c.name, c.cols); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.mix, c.name, got, c.want)
		}
	}
	weighted := *tied
	weighted.weighted = true
	if got := mix("IQ4_XS").typeOf(&weighted, "blk.0.ffn_down.weight", 4096); got != quant.IQ4_XS {
		t.Errorf("IQ4_XS under an importance matrix of the first down projection: %s", got)
	}
	if _, _, err := ParseKind("q2_k_s"); !errors.Is(err, ErrType) || !strings.Contains(err.Error(), "not written") {
		t.Errorf("q2_k_s: %v", err)
	}
}

// A mix is written with its number, and tensors that cannot have their type fall back by the rule of that type.
func TestQuantizeMix(t *testing.T) {
	src := open(t, tinyFile)
	out := filepath.Join(t.TempDir(), "m.gguf")
	kind, mix, err := ParseKind("Q4_K_M")
	if err != nil {
		t.Fatal(err)
	}
	if err := Quantize(t.Context(), src, out, Options{Type: kind, Mix: mix}); err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, err := m.Meta().Int("general.file_type"); err != nil || n != 15 {
		t.Errorf("file_type %d, %v", n, err)
	}
	shape := shapeFor(src.Meta(), src.Tensors())
	for _, x := range m.Tensors() {
		want := typeFor(mix.typeOf(&shape, x.Name, x.Shape[len(x.Shape)-1]), x.Name, x.Shape)
		if x.Type != want {
			t.Errorf("%s is %s, want %s", x.Name, x.Type, want)
		}
		if e := relative(values(t, src, x.Name), values(t, m, x.Name)); e > 0.12 {
			t.Errorf("%s: error %g", x.Name, e)
		}
	}
}
