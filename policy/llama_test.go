package policy

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
)

// forward runs the golden llama (4 layers, 4 heads, 2 KV heads of 32, hidden 128) over a prompt with plain loops in
// float64 and returns each layer's queries, keys and values.
func forward(t *testing.T, dir string, ids []int) []*scene {
	t.Helper()
	w := readTensors(t, filepath.Join(dir, "model.safetensors"))
	const hidden, heads, kvHeads, dim = 128, 4, 2, 32
	x := make([][]float64, len(ids))
	embed := w["model.embed_tokens.weight"]
	for i, id := range ids {
		x[i] = make([]float64, hidden)
		for j := range x[i] {
			x[i][j] = float64(embed.float(id*hidden + j))
		}
	}
	var scenes []*scene
	for layer := range 4 {
		name := func(s string) tensor { return w[fmt.Sprintf("model.layers.%d.%s.weight", layer, s)] }
		s := &scene{heads: heads, kvHeads: kvHeads, dim: dim, index: layer, layers: 4, prompt: len(ids), rope: halfRope{10000}}
		for i := range x {
			h := rmsNorm(x[i], name("input_layernorm"))
			s.pre = append(s.pre, single(times(name("self_attn.q_proj"), h)))
			s.v = append(s.v, single(times(name("self_attn.v_proj"), h)))
			s.q = append(s.q, rotated(s.pre[i], dim, i))
			s.k = append(s.k, rotated(single(times(name("self_attn.k_proj"), h)), dim, i))
		}
		s.fill()
		for i := range x {
			out := make([]float64, heads*dim)
			for h := range heads {
				for j, a := range s.weights(h, i)[:i+1] {
					for d, v := range s.value(h/2, j) {
						out[h*dim+d] += a * float64(v)
					}
				}
			}
			add(x[i], times(name("self_attn.o_proj"), out))
		}
		for i := range x {
			h := rmsNorm(x[i], name("post_attention_layernorm"))
			gate, up := times(name("mlp.gate_proj"), h), times(name("mlp.up_proj"), h)
			for j := range gate {
				gate[j] *= up[j] / (1 + math.Exp(-gate[j]))
			}
			add(x[i], times(name("mlp.down_proj"), gate))
		}
		scenes = append(scenes, s)
	}
	return scenes
}

func rmsNorm(x []float64, w tensor) []float64 {
	var sum float64
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+1e-5) * float64(w.float(i))
	}
	return out
}

func times(w tensor, x []float64) []float64 {
	out := make([]float64, w.shape[0])
	for r := range out {
		for c, v := range x {
			out[r] += float64(w.float(r*len(x)+c)) * v
		}
	}
	return out
}

func rotated(x []float32, dim, position int) []float32 {
	out := append([]float32(nil), x...)
	for at := 0; at < len(out); at += dim {
		halfRope{10000}.Rotate(out[at:at+dim], position)
	}
	return out
}

func single(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

func add(x, y []float64) {
	for i := range x {
		x[i] += y[i]
	}
}
