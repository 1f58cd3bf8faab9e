package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// duoAttention splits KV heads into two kinds (Xiao et al. 2024, arXiv 2410.10819; kvpress's DuoAttentionPress): retrieval heads keep the
// whole prompt, streaming heads its first sink_size and its newest recent_size tokens. Which is which says a pattern that was trained
// for the model: one number a layer and KV head, from 0 (streaming) to 1, as full_attention_heads.tsv of the authors' repository has
// them. The lowest head_compression_ratio of all heads stream, or those below a threshold.
type duoAttention struct {
	base
	alphas       []float64
	ratio        float64
	threshold    float64 // NaN = by ratio
	sink, recent int
	streams      []bool // [Layers·KVHeads]
	first        []int  // where each layer begins in streams
}

// duoDecoder goes on while decoding: streaming heads keep sinks and newest at each step, as the paper has it.
type duoDecoder struct{ duoAttention }

func init() {
	register(Info{
		Name:    "duo_attention",
		Summary: "retrieval heads keep all, others sinks and newest tokens, by a pattern file",
		Paper:   "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads, arXiv 2410.10819",
		Phase:   PhasePrompt,
		Example: "pattern=0.5",
		Params: []Param{
			{Name: "pattern", Doc: "@FILE with a line a layer and a number a KV head (full_attention_heads.tsv), or the numbers, divided by /; one alone is every head's; must be given"},
			{Name: "head_compression_ratio", Aliases: []string{"sparsity"}, Default: "0.5", Doc: "part of all KV heads that stream: those with the lowest numbers"},
			{Name: "threshold", Doc: "instead: heads with a lower number stream"},
			{Name: "sink_size", Aliases: []string{"sinks"}, Default: "128", Doc: "first tokens that streaming heads keep"},
			{Name: "recent_size", Aliases: []string{"recent"}, Default: "256", Doc: "newest tokens that streaming heads keep"},
			{Name: "decode", Default: "false", Doc: "true: streaming heads go on dropping while decoding, as in the paper; false: as in kvpress, the prompt alone is cut"},
		},
	}, newDuoAttention)
}

func newDuoAttention(a *args) Policy {
	p := duoAttention{base: a.base(), threshold: math.NaN(), ratio: a.float("head_compression_ratio", 0, 1),
		sink: a.int("sink_size", 0, maxTokens), recent: a.int("recent_size", 1, maxTokens)}
	if a.has("threshold") {
		p.threshold = a.float("threshold", 0, 1)
		if a.has("head_compression_ratio") {
			a.errs = append(a.errs, fmt.Errorf("policy: duo_attention: threshold and head_compression_ratio were both given: want one: %w", ErrParam))
		}
	}
	if !a.has("pattern") {
		a.errs = append(a.errs, fmt.Errorf("policy: duo_attention: pattern is missing: want pattern=@FILE, full_attention_heads.tsv of the model from the authors' repository (mit-han-lab/duo-attention): %w", ErrParam))
	}
	for _, text := range a.list("pattern") {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			a.errs = append(a.errs, fmt.Errorf("policy: duo_attention: pattern holds %q, want a number a layer and KV head: %w", text, ErrParam))
			break
		}
		p.alphas = append(p.alphas, min(max(x, 0), 1))
	}
	if a.bool("decode") {
		return &duoDecoder{p}
	}
	return &p
}

// Bind divides the model's heads; a pattern of another model is refused.
func (p *duoAttention) Bind(m Model) error {
	n := m.Layers.KVHeads()
	p.first = m.Layers.HeadsBefore()
	alphas := p.alphas
	if len(alphas) == 1 {
		alphas = slices.Repeat(alphas, n)
	}
	if len(alphas) != n {
		return fmt.Errorf("policy: duo_attention: pattern has %d numbers, the KV heads of the model's %d layers want %d: %w", len(alphas), len(m.Layers), n, ErrModel)
	}
	p.streams = make([]bool, n)
	if !math.IsNaN(p.threshold) {
		for i, x := range alphas {
			p.streams[i] = x < p.threshold
		}
		return nil
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(alphas[a], alphas[b]) })
	for _, i := range order[:int(math.RoundToEven(float64(n)*p.ratio))] {
		p.streams[i] = true
	}
	return nil
}

func (p *duoAttention) Needs() Needs { return Needs{} }

// streaming reports whether a head of a layer streams.
func (p *duoAttention) streaming(l *Layer, kvHead int) bool {
	return p.streams[p.first[l.Index]+kvHead]
}

// KeepPrompt keeps sinks and newest tokens in streaming heads, all in others.
func (p *duoAttention) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	for g := range l.KVHeads {
		n := l.Tokens(g)
		if !p.streaming(l, g) || n <= p.sink+p.recent {
			keep.Heads[g] = span(keep.Heads[g], 0, n)
			continue
		}
		keep.Heads[g] = span(span(keep.Heads[g], 0, p.sink), n-p.recent, n)
	}
}

// DropStep drops the oldest tokens behind a streaming head's sinks.
func (p *duoDecoder) DropStep(l *Layer, drop *Selection) {
	drop.Reset(l.KVHeads)
	for g := range l.KVHeads {
		if p.streaming(l, g) {
			from, to := gap(l.Tokens(g), p.sink+p.recent, p.sink)
			drop.Heads[g] = span(drop.Heads[g], from, to)
		}
	}
}
