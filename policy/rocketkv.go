package policy

import (
	"math"

	"terrace/internal/kernels"
)

// rocketKV drops in two steps (Behnam et al. 2025, arXiv 2502.14051; algorithms.md 5.14). With the budget t of a prompt of n tokens, c = n/t:
//
//  1. After the prompt n/c^split tokens stay in each KV head for good, split = min(0.2 + 0.06·log2 c, 0.8) where it is not given: the
//     newest window_size, and those that their queries attend to, as snapkv chooses them, but by the largest of kernel_size neighbours
//     instead of their mean.
//  2. A step reads t/2 of what is left, c' = c^(1-split), by hybrid attention: of each chunk of ⌈√c'⌉ neighbours the element-wise
//     smallest and largest key are kept, and of those only the ⌊KeyDim·chunk/c'⌋ channels with the largest |q| over the group are read, the
//     largest key where the group's queries sum to more than 0, else the smallest. A token's estimate is its chunk's, over
//     √(KeyDim·‖q_I‖₁/‖q‖₁); a KV head ranks by the sum over the group of softmax weights.
//
// A step scans 2·channels bytes a chunk: t/2 tokens' keys and values worth, so that t tokens' bytes are read in all.
type rocketKV struct {
	base
	stage  rocketStage
	budget Budget // t
	split  float64
	auto   bool
	chunk  int

	scores, row, sum, magnitude []float32
	dims                        []int32
	low                         []bool
	pick                        picker
}

// rocketStage is the first step, snapkv's choice with another smoothing.
type rocketStage struct {
	snapKV
	target int
}

func init() {
	register(Info{
		Name:    "rocketkv",
		Summary: "drops most of the prompt, then reads the best of the rest by few channels of chunks' bounds",
		Paper:   "RocketKV: Accelerating Long-Context LLM Inference via Two-Stage KV Cache Compression, arXiv 2502.14051",
		Phase:   PhaseRead,
		Params: append(budgetParams("6.25%"),
			Param{Name: "split", Default: "auto", Doc: "share of the compression, as an exponent, that dropping has: 0 drops nothing, 1 all but the budget; auto: by the compression"},
			Param{Name: "window_size", Aliases: []string{"window"}, Default: "32", Doc: "newest tokens whose queries vote; they always stay"},
			Param{Name: "kernel_size", Aliases: []string{"kernel"}, Default: "63", Doc: "tokens whose largest weight counts"},
			Param{Name: "chunk", Default: "auto", Doc: "tokens that bounds are made of; auto: by the compression, 3 where the budget is no share"}),
	}, newRocketKV)
}

func newRocketKV(a *args) Policy {
	p := &rocketKV{base: a.base(), budget: a.budget(), auto: a.raw("split") == "auto"}
	p.stage.snapKV = snapWith(a, p.budget)
	if !p.auto {
		p.split = a.float("split", 0, 1)
	}
	switch {
	case a.raw("chunk") != "auto":
		p.chunk = a.int("chunk", 1, 4096)
	case p.budget.proportional():
		_, left := p.compression(1 << 20 / max(p.budget.Float(1<<20, 1), 1))
		if p.chunk = int(math.Ceil(math.Sqrt(left) - 1e-9)); float64(p.chunk) > left {
			p.chunk = 1
		}
	default:
		p.chunk = 3
	}
	return p
}

// compression divides c, what the prompt is to become smaller by, into dropped and left, whose product it is.
func (p *rocketKV) compression(c float64) (dropped, left float64) {
	split := p.split
	if p.auto {
		split = min(0.2+0.06*math.Log2(c), 0.8)
	}
	return math.Pow(c, split), math.Pow(c, 1-split)
}

// ofPrompt is the compression of the layer's prompt.
func (p *rocketKV) ofPrompt(l *Layer) (dropped, left float64) {
	n := max(l.Prompt, 1)
	return p.compression(float64(n) / float64(p.budget.Of(l, n)))
}

func (p *rocketKV) Needs() Needs {
	return Needs{PromptSums: p.stage.window, TokenGranularity: true, Sketch: Sketch{Kind: SketchBounds, Blocks: []int{p.chunk}}}
}

// KeepPrompt is the first step.
func (p *rocketKV) KeepPrompt(l *Layer, keep *Selection) {
	dropped, _ := p.compression(float64(l.N) / float64(p.budget.Of(l, l.N)))
	p.stage.target = max(int(float64(l.N)/dropped+1e-9), min(p.stage.window, l.N))
	p.stage.keepBest(&p.stage, l, keep)
}

// Target implements [Scored].
func (s *rocketStage) Target(*Layer) int { return s.target }

// Score is snapkv's with the largest weight of the neighbours.
func (s *rocketStage) Score(l *Layer, _ int, dst [][]float32) {
	group := l.Group()
	for g, row := range dst {
		clear(row)
		n := max(len(row)-s.window, 0)
		s.head = sized(s.head, n)
		clear(s.head)
		for h := g * group; h < (g+1)*group; h++ {
			kernels.Add(s.head, l.ColumnSums[h][:n])
		}
		peaks(row[:n], s.head, s.kernel/2)
	}
	s.protect(dst)
}

// peaks writes to dst the largest of src[i-half..i+half].
func peaks(dst, src []float32, half int) {
	var queue []int // of indices whose numbers fall, those of the window
	next := 0
	for i := range dst {
		for ; next < min(i+half+1, len(src)); next++ {
			for len(queue) > 0 && src[queue[len(queue)-1]] <= src[next] {
				queue = queue[:len(queue)-1]
			}
			queue = append(queue, next)
		}
		for queue[0] < i-half {
			queue = queue[1:]
		}
		dst[i] = src[queue[0]]
	}
}

// SelectsByHead implements HeadSelector.
func (p *rocketKV) SelectsByHead() {}

// half is how many tokens a step reads.
func (p *rocketKV) half(l *Layer) int { return max(p.budget.Of(l, l.N)/2, 1) }

// Most implements [Reader].
func (p *rocketKV) Most(l *Layer) (tokens, run int) {
	if p.budget.Of(l, l.N) >= l.N {
		return l.N, 1
	}
	return p.half(l), 1
}

// Select is the second step.
func (p *rocketKV) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	target := p.half(l)
	if p.budget.Of(l, l.N) >= l.N || fits(l, target) {
		read.All = true
		return
	}
	_, left := p.ofPrompt(l)
	for g := range read.Heads {
		n := l.Tokens(g)
		p.estimate(l, g, n, min(max(int(float64(l.KeyDim*p.chunk)/left+1e-9), 1), l.KeyDim))
		picks := p.pick.best(read.Heads[g], p.sum[:n-1], target-1, 0)
		read.Heads[g] = append(picks, int32(n-1))
	}
}

// estimate fills sum with the estimated attention of a KV head's n tokens, from some channels of their chunks' bounds.
func (p *rocketKV) estimate(l *Layer, g, n, channels int) {
	d, group, q := l.KeyDim, l.Group(), l.queries(g)
	p.choose(q, d, group, channels)
	chunks := blocksOf(n, p.chunk)
	p.scores, p.sum, p.row = sized(p.scores, group*chunks), sized(p.sum, n), sized(p.row, n)
	l.Scores.SideDims(g, p.chunk, p.dims, p.low, q, group, p.scores)
	clear(p.sum)
	for h := range group {
		row := p.scores[h*chunks : (h+1)*chunks]
		for i := range p.row {
			p.row[i] = row[i/p.chunk]
		}
		l.weigh(p.row, temperature(q[h*d:(h+1)*d], p.dims), g*group+h)
		kernels.Add(p.sum, p.row)
	}
}

// choose fills dims with the channels of the largest summed magnitude, and low with whether the smallest keys count there.
func (p *rocketKV) choose(q []float32, dim, group, channels int) {
	p.magnitude = sized(p.magnitude, dim)
	clear(p.magnitude)
	for h := range group {
		for d, v := range q[h*dim : (h+1)*dim] {
			p.magnitude[d] += float32(math.Abs(float64(v)))
		}
	}
	p.dims, p.low = p.pick.best(p.dims[:0], p.magnitude, channels, 0), p.low[:0]
	for _, d := range p.dims {
		var sum float32
		for h := range group {
			sum += q[h*dim+int(d)]
		}
		p.low = append(p.low, sum <= 0)
	}
}
