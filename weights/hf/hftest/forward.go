package hftest

import (
	"fmt"
	"math"
	"slices"
)

// Logits returns the logits [len(ids)][vocab] of a sequence. prompt says how many of the tokens came in the first pass: the
// methods whose frequencies depend on the length of the sequence rotate token p for a sequence of max(prompt, p+1) tokens,
// as an engine with a cache does; 0 means all of them (nothing cached).
func (m *Model) Logits(ids []int, prompt int) [][]float64 {
	if prompt == 0 {
		prompt = len(ids)
	}
	h := make([][]float64, len(ids))
	for p, id := range ids {
		h[p] = m.embed(id, p)
	}
	for l := range m.layers {
		m.layer(l, h, prompt)
	}
	out := make([][]float64, len(ids))
	for p := range h {
		out[p] = m.head(h[p])
	}
	return out
}

// Greedy continues a prompt by n tokens, recomputing the whole sequence at each step; cached selects which lengths rotate
// (see Logits).
func (m *Model) Greedy(ids []int, n int, cached bool) []int {
	ids = slices.Clone(ids)
	prompt := 0
	if cached {
		prompt = len(ids)
	}
	for range n {
		last := m.Logits(ids, prompt)[len(ids)-1]
		best := 0
		for i, x := range last {
			if x > last[best] {
				best = i
			}
		}
		ids = append(ids, best)
	}
	return ids[len(ids)-n:]
}

func (m *Model) embed(id, pos int) []float64 {
	t := m.tensors["token_embd.weight"]
	width := t.Shape[1]
	x := slices.Clone(t.Data[id*width : (id+1)*width])
	scale := m.number("embedding_scale", 1)
	if m.arch == "gemma" || m.arch == "gemma2" || m.arch == "gemma3" {
		scale = math.Sqrt(float64(m.hidden))
	}
	for i := range x {
		x[i] *= scale
	}
	if m.tensors["project_in.weight"] != nil {
		x = m.whole("project_in", x)
	}
	if pe := m.tensors["position_embd.weight"]; pe != nil {
		row := pos + int(m.plain("terrace.position_offset", 0))
		for i := range x {
			x[i] += pe.Data[row*m.hidden+i]
		}
	}
	return x
}

func (m *Model) head(x []float64) []float64 {
	if !m.meta.Has("terrace.no_final_norm") {
		x = m.norm("output_norm", x)
	}
	if m.tensors["project_out.weight"] != nil {
		x = m.whole("project_out", x)
	}
	name := "output"
	if m.tensors["output.weight"] == nil {
		name = "token_embd"
	}
	logits := m.whole(name, x)
	if s := m.number("logit_scale", 0); s != 0 {
		for i := range logits {
			logits[i] /= s
		}
	}
	if c := m.number("final_logit_softcapping", 0); c != 0 {
		for i := range logits {
			logits[i] = c * math.Tanh(logits[i]/c)
		}
	}
	return logits
}

// layer replaces the hidden rows by those after layer l.
func (m *Model) layer(l int, h [][]float64, prompt int) {
	n := fmt.Sprintf("blk.%d.", l)
	after := m.meta.Has("terrace.norm_after")
	residual := m.number("residual_scale", 1)
	x := make([][]float64, len(h))
	for p := range h {
		x[p] = h[p]
		if !after {
			x[p] = m.norm(n+"attn_norm", h[p])
		}
	}
	attn := m.attention(l, n, x, prompt)
	for p := range h {
		h[p] = sum(h[p], m.norm(n+"post_attention_norm", attn[p]), residual)
		in := h[p]
		if after {
			h[p] = m.norm(n+"attn_norm", h[p])
			in = h[p]
		} else {
			in = m.norm(n+"ffn_norm", in)
		}
		h[p] = sum(h[p], m.norm(n+"post_ffw_norm", m.ffn(n, in)), residual)
		if after {
			h[p] = m.norm(n+"ffn_norm", h[p])
		}
	}
}

func sum(a, b []float64, scale float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] + scale*b[i]
	}
	return out
}

// qkv projects one row; heads follow each other.
func (m *Model) qkv(n string, x []float64) (q, k, v []float64) {
	d, kv := m.heads*m.keyDim, m.kvHeads*m.keyDim
	if m.tensors[n+"attn_qkv.weight"] != nil {
		return m.linear(n+"attn_qkv", x, 0, d), m.linear(n+"attn_qkv", x, d, kv), m.linear(n+"attn_qkv", x, d+kv, kv)
	}
	return m.whole(n+"attn_q", x), m.whole(n+"attn_k", x), m.whole(n+"attn_v", x)
}

// window returns the sliding window of a layer, 0 = none, and whether the layer is one of those that slide.
func (m *Model) window(l int) (tokens int, slides bool) {
	tokens = int(m.number("attention.sliding_window", 0))
	slides = tokens > 0
	if list, err := m.meta.Ints(m.arch + ".attention.sliding_window_pattern"); err == nil {
		slides = slides && list[l] != 0
	} else if period := int(m.number("attention.sliding_window_pattern", map[string]float64{"gemma2": 2, "gemma3": 6}[m.arch])); period > 0 {
		slides = slides && (l+1)%period != 0
	}
	if !slides {
		tokens = 0
	}
	return tokens, slides
}

func (m *Model) attention(l int, n string, x [][]float64, prompt int) [][]float64 {
	window, slides := m.window(l)
	base, scaled := m.number("rope.freq_base", 0), true
	if slides && m.meta.Has(m.arch+".rope.freq_base_swa") {
		base, scaled = m.number("rope.freq_base_swa", 0), false
	}
	if list, err := m.meta.Ints("terrace.rope.layers"); err == nil && list[l] == 0 {
		base = 0
	}
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	for p := range x {
		q[p], k[p], v[p] = m.qkv(n, x[p])
		freq, amplitude := m.frequencies(max(prompt, p+1), base, scaled)
		for i := 0; i < len(q[p]); i += m.keyDim {
			m.turn(n+"attn_q_norm", q[p][i:i+m.keyDim], p, base, freq, amplitude)
		}
		for i := 0; i < len(k[p]); i += m.keyDim {
			m.turn(n+"attn_k_norm", k[p][i:i+m.keyDim], p, base, freq, amplitude)
		}
	}
	scale := m.number("attention.scale", 1/math.Sqrt(float64(m.keyDim)))
	if m.meta.Has("terrace.attention.layer_scale") {
		scale /= float64(l + 1)
	}
	out := make([][]float64, len(x))
	for p := range x {
		mixed := make([]float64, m.heads*m.keyDim)
		for head := range m.heads {
			m.attendHead(mixed[head*m.keyDim:][:m.keyDim], head, p, window, scale, q, k, v)
		}
		out[p] = m.whole(n+"attn_output", mixed)
	}
	return out
}

// turn normalises and rotates one head of q or k in place.
func (m *Model) turn(norm string, head []float64, pos int, base float64, freq []float64, amplitude float64) {
	copy(head, m.norm(norm, head))
	if base > 0 {
		m.rotate(head, pos, freq, amplitude)
	}
}

func (m *Model) attendHead(out []float64, head, p, window int, scale float64, q, k, v [][]float64) {
	d, kv := m.keyDim, head/(m.heads/m.kvHeads)
	softcap := 0.0
	if m.arch == "gemma2" { // the key is in Gemma 3's configurations too, where nothing applies it
		softcap = m.number("attn_logit_softcapping", 0)
	}
	scores := make([]float64, p+1)
	top := math.Inf(-1)
	for j := range scores {
		if window > 0 && p-j >= window {
			scores[j] = math.Inf(-1)
			continue
		}
		for i := range d {
			scores[j] += q[p][head*d+i] * k[j][kv*d+i]
		}
		scores[j] *= scale
		if softcap != 0 {
			scores[j] = softcap * math.Tanh(scores[j]/softcap)
		}
		top = math.Max(top, scores[j])
	}
	total := 0.0
	for j := range scores {
		scores[j] = math.Exp(scores[j] - top)
		total += scores[j]
	}
	for j, s := range scores {
		for i := range d {
			out[i] += s / total * v[j][kv*d+i]
		}
	}
}

func (m *Model) ffn(n string, x []float64) []float64 {
	if router := m.tensors[n+"ffn_gate_inp.weight"]; router != nil {
		return m.mixture(n, x)
	}
	up := m.tensors[n+"ffn_up.weight"].Shape[0]
	var inner []float64
	switch {
	case m.tensors[n+"ffn_gate.weight"] != nil:
		inner = m.gated(m.whole(n+"ffn_gate", x), m.whole(n+"ffn_up", x))
	case m.arch == "phi3":
		inner = m.gated(m.linear(n+"ffn_up", x, 0, up/2), m.linear(n+"ffn_up", x, up/2, up/2))
	default:
		inner = m.whole(n+"ffn_up", x)
		for i := range inner {
			inner[i] = m.activate(inner[i])
		}
	}
	return m.whole(n+"ffn_down", inner)
}

func (m *Model) gated(gate, up []float64) []float64 {
	for i := range up {
		up[i] *= m.activate(gate[i])
	}
	return up
}

// mixture is the weighted sum of the experts that the router likes best.
func (m *Model) mixture(n string, x []float64) []float64 {
	probs := m.whole(n+"ffn_gate_inp", x)
	top, total := slices.Max(probs), 0.0
	order := make([]int, len(probs))
	for i := range probs {
		probs[i] = math.Exp(probs[i] - top)
		total += probs[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if probs[a] > probs[b] {
			return -1
		}
		return 1
	})
	used := order[:int(m.number("expert_used_count", 1))]
	if m.number("expert_weights_norm", 1) != 0 {
		total = 0
		for _, e := range used {
			total += probs[e]
		}
	}
	width := m.tensors[n+"ffn_gate_exps.weight"].Shape[1]
	out := make([]float64, m.hidden)
	for _, e := range used {
		inner := m.gated(m.linear(n+"ffn_gate_exps", x, e*width, width), m.linear(n+"ffn_up_exps", x, e*width, width))
		out = sum(out, m.linear(n+"ffn_down_exps", inner, e*m.hidden, m.hidden), probs[e]/total)
	}
	return out
}
