package policy

import "terrace/internal/kernels"

// snapKV keeps the prompt tokens that the last window_size queries attend to (Li et al. 2024, arXiv 2404.14469): their
// softmax weights, averaged over the window, smoothed over neighbours by average pooling, averaged over the heads of a
// group. The window itself always stays.
type snapKV struct {
	scored
	window, kernel int
	head           []float32
}

var snapParams = []Param{
	{Name: "window_size", Aliases: []string{"window"}, Default: "64", Doc: "newest tokens whose queries vote; they always stay"},
	{Name: "kernel_size", Aliases: []string{"kernel"}, Default: "5", Doc: "tokens that a weight is averaged over"},
}

func init() {
	register(Info{
		Name:    "snapkv",
		Ranked:  true,
		Summary: "keeps what the last queries of the prompt attend to",
		Paper:   "SnapKV: LLM Knows What You are Looking for Before Generation, arXiv 2404.14469",
		Phase:   PhasePrompt,
		Params:  append(budgetParams("50%"), snapParams...),
	}, func(a *args) Policy { p := newSnapKV(a); return &p })
}

func newSnapKV(a *args) snapKV { return snapWith(a, a.budget()) }

// snapWith is a snapKV of a budget that was read already.
func snapWith(a *args, budget Budget) snapKV {
	p := snapKV{
		scored: scored{base: a.base(), budget: budget},
		window: a.int("window_size", 1, maxTokens), kernel: a.int("kernel_size", 1, maxTokens),
	}
	if p.kernel%2 == 0 {
		a.fail("kernel_size", "an odd number", nil)
	}
	return p
}

func (p *snapKV) Needs() Needs { return Needs{PromptSums: p.window} }

func (p *snapKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the pooled mean weight; tokens of the window get the highest score of the layer plus 1.
func (p *snapKV) Score(l *Layer, _ int, dst [][]float32) {
	group := l.Group()
	for g, row := range dst {
		clear(row)
		n := max(len(row)-p.window, 0)
		for h := g * group; h < (g+1)*group; h++ {
			p.head = sized(p.head, n)
			copy(p.head, l.ColumnSums[h])
			kernels.Scale(p.head, 1/float32(l.SumRows))
			pool(row[:n], p.head, p.kernel, 1/float32(group))
		}
	}
	p.protect(dst)
}

// protect gives the window the highest score of the layer plus 1.
func (p *snapKV) protect(dst [][]float32) {
	top := float32(0)
	for _, row := range dst {
		for _, s := range row[:max(len(row)-p.window, 0)] {
			top = max(top, s)
		}
	}
	for _, row := range dst {
		for i := max(len(row)-p.window, 0); i < len(row); i++ {
			row[i] = top + 1
		}
	}
}

// Cut keeps the best; where not even the window fits, its newest tokens.
func (p *snapKV) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	if target >= p.window {
		p.scored.Cut(l, scores, target, keep)
		return
	}
	for g, row := range scores {
		keep.Heads[g] = span(keep.Heads[g], max(len(row)-target, 0), len(row))
	}
}

// rankKey: where not even the window fits its newest tokens stay, so it stands first, from its end; then the highest scores.
func (p *snapKV) rankKey(row []float32) (key func(i int32) uint64, ok bool) {
	window := max(len(row)-p.window, 0)
	return func(i int32) uint64 {
		if int(i) >= window {
			return uint64(len(row) - 1 - int(i))
		}
		return scoreKey(row[i], i)
	}, len(row) == 0 || row[len(row)-1] > -infinity && row[len(row)-1] < infinity // the window's score is the highest plus 1
}

// pool adds weight times the average of kernel neighbours of each element (missing ones count as 0, the divisor stays).
func pool(dst, src []float32, kernel int, weight float32) {
	half := kernel / 2
	scale := weight / float32(kernel)
	for i := range dst {
		var sum float32
		for _, v := range src[max(i-half, 0):min(i+half+1, len(src))] {
			sum += v
		}
		dst[i] += sum * scale
	}
}
