package policy

import (
	"math"
	"sort"
)

// lagKV compares each partition of lag_size tokens with the one after it (Liang et al. 2025, arXiv 2504.04704): keys and
// values are normalised per channel by the minimum and maximum of the next partition; a token's score is the softmax over
// its partition of the standard deviation over channels, averaged over K and V, then turned into its rank in the partition
// unless cross_scoring. Sinks, the last whole partition and the remainder stay; a prompt shorter than n_sink + 2·lag_size
// keeps its newest tokens.
type lagKV struct {
	scored
	sinks, lag int
	cross      bool
	rows, next []float32
	part       []float64
	order      []int
}

func init() {
	register(Info{
		Name:    "lagkv",
		Summary: "keeps the tokens whose keys and values stand out against the partition after them",
		Paper:   "LagKV: Lag-Relative Information of the KV Cache, arXiv 2504.04704",
		Phase:   PhasePrompt,
		Params: append(budgetParams("50%"),
			Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that always stay"},
			Param{Name: "lag_size", Default: "128", Doc: "tokens of a partition"},
			Param{Name: "cross_scoring", Default: "false", Doc: "compare scores across partitions, not ranks inside them"}),
	}, func(a *args) Policy {
		return &lagKV{
			scored: scored{base: a.base(), budget: a.budget()},
			sinks:  a.int("n_sink", 0, maxTokens), lag: a.int("lag_size", 1, 1<<20), cross: a.bool("cross_scoring"),
		}
	})
}

func (p *lagKV) Needs() Needs { return Needs{Keys: true, Values: true, OwnChannels: true} }

func (p *lagKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the rank (or the score) inside the partition, 1 for tokens that stay.
func (p *lagKV) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		n := len(row)
		for i := range row {
			row[i] = 1
		}
		if n < p.sinks+2*p.lag {
			for i := p.sinks; i < n; i++ {
				row[i] = float32(i-p.sinks) / float32(n-p.sinks)
			}
			continue
		}
		for from := p.sinks; from+2*p.lag <= n; from += p.lag {
			out := row[from : from+p.lag]
			clear(out)
			p.relative(out, from, l.KeyDim, func(a, b int, dst []float32) { l.KV.Keys(g, a, b, dst) })
			p.relative(out, from, l.ValueDim, func(a, b int, dst []float32) { l.KV.Values(g, a, b, dst) })
			if !p.cross {
				p.rank(out)
			}
		}
	}
}

// Cut keeps the best; where not even the tokens that stay in any case fit, the sinks and the newest.
func (p *lagKV) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	for g, row := range scores {
		n := len(row)
		partitions := max((n-p.sinks)/p.lag, 0)
		if stay := n - max(partitions-1, 0)*p.lag; partitions >= 2 && target < stay {
			sinks := min(p.sinks, target-1)
			keep.Heads[g] = span(span(keep.Heads[g], 0, sinks), n-(target-sinks), n)
			continue
		}
		keep.Heads[g] = p.pick.best(keep.Heads[g], row, target, 0)
	}
}

// relative adds half the softmax of the deviations of one side (keys or values) of a partition.
func (p *lagKV) relative(dst []float32, from, dim int, read func(from, to int, dst []float32)) {
	p.rows, p.next = sized(p.rows, p.lag*dim), sized(p.next, p.lag*dim)
	read(from, from+p.lag, p.rows)
	read(from+p.lag, from+2*p.lag, p.next)
	low, high := p.next[:dim], make([]float32, dim)
	copy(high, low)
	for r := 1; r < p.lag; r++ {
		for c, v := range p.next[r*dim : (r+1)*dim] {
			low[c], high[c] = min(low[c], v), max(high[c], v)
		}
	}
	p.part = sized(p.part, p.lag)
	for r := range p.lag {
		p.part[r] = deviation(p.rows[r*dim:(r+1)*dim], low, high)
	}
	softmax(p.part)
	for r, v := range p.part {
		dst[r] += float32(v / 2)
	}
}

// deviation is the sample standard deviation over the channels of (x-low)/(high-low).
func deviation(x, low, high []float32) float64 {
	var mean float64
	for c, v := range x {
		x[c] = (v - low[c]) / (high[c] - low[c])
		mean += float64(x[c])
	}
	mean /= float64(len(x))
	var sum float64
	for _, v := range x {
		sum += (float64(v) - mean) * (float64(v) - mean)
	}
	return math.Sqrt(sum / float64(max(len(x)-1, 1)))
}

// rank replaces scores by their rank from the lowest, divided by lag_size; equal scores rank by index.
func (p *lagKV) rank(scores []float32) {
	p.order = sized(p.order, len(scores))
	for i := range p.order {
		p.order[i] = i
	}
	sort.SliceStable(p.order, func(i, j int) bool { return order(scores[p.order[i]]) < order(scores[p.order[j]]) })
	for r, i := range p.order {
		scores[i] = float32(r) / float32(p.lag)
	}
}
