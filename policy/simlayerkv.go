package policy

import "fmt"

// simLayerKV cuts whole layers (Zhang et al. 2024, arXiv 2410.13846; kvpress's SimLayerKVPress): in a lazy layer, whose last queries hardly
// look at the middle of the text, the first n_initial and the newest n_recent − n_last tokens stay; the others keep everything. A layer is
// lazy where the weights that the last n_last queries give to the first n_initial tokens, and to the n_recent before those queries' own,
// sum to more than lazy_threshold, mean over queries and heads. How much stays is an outcome.
type simLayerKV struct {
	base
	threshold             float64
	last, recent, initial int
}

func init() {
	register(Info{
		Name:    "simlayerkv",
		Summary: "in layers that look at first and newest tokens alone keeps those, elsewhere all",
		Paper:   "SimLayerKV: A Simple Framework for Layer-Level KV Cache Reduction, arXiv 2410.13846",
		Phase:   PhasePrompt,
		Params: []Param{
			{Name: "lazy_threshold", Aliases: []string{"threshold"}, Default: "0.9", Doc: "weight on first and newest tokens above which a layer is cut, from 0; 1 cuts none (the paper: Llama 2 0.65, Llama 3 0.9, Mistral 0.8, Qwen 0.85)"},
			{Name: "n_last", Default: "1", Doc: "newest tokens whose queries are looked at"},
			{Name: "n_recent", Aliases: []string{"recent"}, Default: "1024", Doc: "newest tokens that count, and stay but for n_last of them; more than n_last"},
			{Name: "n_initial", Aliases: []string{"n_sink", "sinks"}, Default: "4", Doc: "first tokens that count and stay"},
		},
	}, func(a *args) Policy {
		p := &simLayerKV{base: a.base(), threshold: a.float("lazy_threshold", 0, 1), last: a.int("n_last", 1, maxTokens),
			recent: a.int("n_recent", 1, maxTokens), initial: a.int("n_initial", 0, maxTokens)}
		if p.recent <= p.last {
			a.errs = append(a.errs, fmt.Errorf("policy: simlayerkv: n_recent=%d: want more than n_last=%d, or nothing new would stay: %w", p.recent, p.last, ErrParam))
		}
		return p
	})
}

func (p *simLayerKV) Needs() Needs { return Needs{PromptSums: p.last} }

// KeepPrompt keeps all, or of a lazy layer what stands at its ends.
func (p *simLayerKV) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	if p.threshold == 1 || fits(l, p.initial+p.recent+p.last) || p.ends(l) <= p.threshold {
		keep.All = true
		return
	}
	for g := range l.KVHeads {
		n := l.Tokens(g)
		if n <= p.initial+p.recent-p.last {
			keep.Heads[g] = span(keep.Heads[g], 0, n)
			continue
		}
		keep.Heads[g] = span(span(keep.Heads[g], 0, p.initial), n-p.recent+p.last, n)
	}
}

// ends is the mean weight on the layer's first and newest tokens.
func (p *simLayerKV) ends(l *Layer) float64 {
	var sum float64
	for _, weights := range l.ColumnSums {
		n := max(len(weights)-p.last, 0)
		first := min(p.initial, n)
		for _, part := range [][]float32{weights[:first], weights[max(first, n-p.recent):n]} {
			for _, w := range part {
				sum += float64(w)
			}
		}
	}
	return sum / float64(l.Heads*l.SumRows)
}
