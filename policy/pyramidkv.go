package policy

import "math"

// pyramidKV is SnapKV with budgets that fall linearly from the first layer to the last: lower layers spread their
// attention, upper layers gather it (Cai et al. 2024, arXiv 2406.02069). The mean over the layers is the budget; beta sets
// how far the last layer falls. Where the pyramid does not fit (its top wider than the prompt or its tip narrower than
// the window), every layer gets the mean.
type pyramidKV struct {
	snapKV
	beta int
}

func init() {
	register(Info{
		Name:    "pyramidkv",
		Summary: "SnapKV with budgets that fall from the first layer to the last",
		Paper:   "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling, arXiv 2406.02069",
		Phase:   PhasePrompt,
		Params: append(append(budgetParams("50%"), snapParams...),
			Param{Name: "beta", Default: "20", Doc: "steepness: the last layer keeps the mean divided by beta where that fits"}),
	}, func(a *args) Policy { return &pyramidKV{newSnapKV(a), a.int("beta", 1, maxTokens)} })
}

func (p *pyramidKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Target is the layer's step of the pyramid.
func (p *pyramidKV) Target(l *Layer) int {
	mean := p.budget.Float(l.N, l.KVBytes)
	return pyramid(mean, l.N, p.window, p.beta, l.Index, l.Layers)
}

// pyramid is the budget of one layer of n tokens when the mean over the layers is given; rounding as Python's round.
func pyramid(mean float64, n, window, beta, layer, layers int) int {
	body := float64(window) + mean - float64(window) // as the reference rounds it
	low := body / float64(beta)
	high := body*2 - low
	if top := float64(n - window); high >= top {
		high, low = top, body*2-top
	}
	if !(float64(n) >= high && high >= low && low >= float64(window)) {
		return min(max(int(math.RoundToEven(mean)), 1), n)
	}
	step := 0.0
	if layers > 1 {
		step = (high - low) / float64(layers-1)
	}
	return min(max(int(math.RoundToEven(high-float64(layer)*step)), 1), n)
}
