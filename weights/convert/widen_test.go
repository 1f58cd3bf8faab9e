package convert

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/gguf"
)

func widened(t *testing.T, src *weights.Model, to Wider) (*weights.Model, []string) {
	t.Helper()
	var notices []string
	path := filepath.Join(t.TempDir(), "wide.gguf")
	if err := Widen(t.Context(), src, path, to, Options{Notice: func(text string) { notices = append(notices, text) }}); err != nil {
		t.Fatal(err)
	}
	m := open(t, path)
	if err := m.Verify(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return m, notices
}

func synthesized(t *testing.T, kind quant.Type, change func(s *Spec)) *weights.Model {
	t.Helper()
	s := Spec{Arch: "llama", Layers: 2, Hidden: 96, Heads: 6, KVHeads: 2, HeadDim: 32, FFN: 96, Vocab: 300, Context: 128, Seed: 3}
	change(&s)
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := Synthesize(t.Context(), path, s, Options{Type: kind}); err != nil {
		t.Fatal(err)
	}
	return open(t, path)
}

// TestSharesOfRepeatedHeads: n repetitions have shares that are powers of a half, at most one apart, and sum to 1.
func TestSharesOfRepeatedHeads(t *testing.T) {
	for n := 1; n <= 70; n++ {
		sum, least, most := 0.0, 100, 0
		for i := range n {
			e := share(i, n)
			sum, least, most = sum+math.Ldexp(1, -e), min(least, e), max(most, e)
		}
		if sum != 1 || most-least > 1 {
			t.Errorf("%d repetitions: shares sum to %g, of 2^-%d to 2^-%d", n, sum, least, most)
		}
	}
}

// TestWidenLaysHeadsOut: every number of q, k, v and of the output is where its head is repeated, divided in the output, or zero.
func TestWidenLaysHeadsOut(t *testing.T) {
	for _, kind := range []quant.Type{quant.Q4_1, quant.F16, quant.Q8_0} {
		src := synthesized(t, kind, func(*Spec) {})
		m, notices := widened(t, src, Wider{KVHeads: 7, HeadDim: 64})
		if kind != quant.F16 && len(notices) > 0 {
			t.Errorf("%s: %q", kind, notices)
		}
		const old, dim, hidden, heads = 32, 64, 96, 7 // 7 KV heads of one query head: 4 copies of the first, 3 of the second
		source, wide := func(name string) []float32 { return values(t, src, name) }, func(name string) []float32 { return values(t, m, name) }
		used := map[int]float64{}
		k, v, q, o := source("blk.1.attn_k.weight"), source("blk.1.attn_v.weight"), source("blk.1.attn_q.weight"), source("blk.1.attn_output.weight")
		wideK, wideV, wideQ, wideO := wide("blk.1.attn_k.weight"), wide("blk.1.attn_v.weight"), wide("blk.1.attn_q.weight"), wide("blk.1.attn_output.weight")
		headOf := func(x, list []float32) int { // the one of list's heads that x's rows are
			for h := range len(list) / old / hidden {
				if x[0] == list[h*old*hidden] && x[5*hidden+7] == list[(h*old+5)*hidden+7] {
					return h
				}
			}
			t.Fatalf("%s: a head is none of the source's", kind)
			return 0
		}
		for h := range heads {
			at := h * dim * hidden
			from, kv := headOf(wideQ[at:], q), headOf(wideK[at:], k)
			if kv != from/3 || headOf(wideV[at:], v) != kv {
				t.Fatalf("%s: query head %d looks at KV head %d", kind, from, kv)
			}
			divided := float64(o[from*old+3]) / float64(wideO[h*dim+3])
			used[from] += 1 / divided
			for i := range dim {
				for j := range hidden {
					var wantQ, wantK, wantV, wantO float32
					if i < old {
						wantQ, wantK, wantV = q[(from*old+i)*hidden+j], k[(kv*old+i)*hidden+j], v[(kv*old+i)*hidden+j]
						wantO = float32(float64(o[j*6*old+from*old+i]) / divided)
					}
					if x := at + i*hidden + j; wideQ[x] != wantQ || wideK[x] != wantK || wideV[x] != wantV || wideO[j*heads*dim+h*dim+i] != wantO {
						t.Fatalf("%s: head %d, number %d, column %d", kind, h, i, j)
					}
				}
			}
		}
		for h := range 6 {
			if used[h] != 1 {
				t.Errorf("%s: head %d adds %g times", kind, h, used[h])
			}
		}
	}
}

// TestWidenMetadata: figures that a program reads, layers that are cut and added, what is said of types.
func TestWidenMetadata(t *testing.T) {
	src := synthesized(t, quant.F16, func(s *Spec) { s.Layers = 3 }) // small halves would be rounded
	m, notices := widened(t, src, Wider{KVHeads: 4, HeadDim: 64, Layers: 5})
	if x, err := m.Tensor("blk.4.attn_output.weight"); err != nil || x.Type != quant.F32 || len(notices) != 1 {
		t.Errorf("output matrix: %v; said %q", err, notices)
	}
	for key, want := range map[string]float64{
		"block_count": 5, "attention.head_count": 8, "attention.head_count_kv": 4, "attention.key_length": 64, "attention.value_length": 64,
		"rope.dimension_count": 64, "rope.freq_base": 1e8, "attention.scale": float64(float32(1 / math.Sqrt(32))),
	} {
		got, err := m.Meta().Float("llama." + key)
		if n, bad := m.Meta().Int("llama." + key); bad == nil {
			got, err = float64(n), nil
		}
		if err != nil || got != want {
			t.Errorf("%s is %g (%v), want %g", key, got, err, want)
		}
	}
	for _, x := range values(t, m, "blk.4.ffn_down.weight") {
		if x != 0 {
			t.Fatal("an added layer adds something")
		}
	}
	if cut, _ := widened(t, src, Wider{Layers: 1}); cut.Has("blk.1.attn_q.weight") || !cut.Has("blk.0.attn_q.weight") || !cut.Has("output.weight") {
		t.Error("of one layer not one is left")
	}
}

// TestWidenRefuses what it cannot do, by name.
func TestWidenRefuses(t *testing.T) {
	with := func(change func(meta *gguf.Meta)) *weights.Model {
		m := synthesized(t, quant.F16, func(*Spec) {})
		change(m.Meta())
		return m
	}
	plain := with(func(*gguf.Meta) {})
	for want, c := range map[string]struct {
		src *weights.Model
		to  Wider
	}{
		"gemma4":         {synthesized(t, quant.F16, func(s *Spec) { s.Arch, s.Layers = "gemma4", 6 }), Wider{KVHeads: 8}},
		"at least the m": {plain, Wider{KVHeads: 1}},
		"an even width":  {plain, Wider{HeadDim: 33}},
		"least its 32":   {plain, Wider{HeadDim: 30}},
		"1 to 1024":      {plain, Wider{Layers: 2000}},
		"base of 1e+16":  {plain, Wider{HeadDim: 128}},
		"yarn":           {with(func(m *gguf.Meta) { m.Set("llama.rope.scaling.type", "yarn") }), Wider{HeadDim: 64}},
		"layer to layer": {with(func(m *gguf.Meta) { m.Set("llama.attention.head_count_kv", []int32{2, 1}) }), Wider{KVHeads: 4}},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := Widen(t.Context(), c.src, path, c.to, Options{}); !errors.Is(err, ErrWiden) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
