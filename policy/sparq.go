package policy

import (
	"math"

	"terrace/internal/kernels"
)

// sparQ reads a few dimensions of every key, estimates the attention from them, and reads the best tokens whole (Ribar et
// al. 2023, arXiv 2312.04985; algorithms.md 2.2 and 5.6). Per KV head: I = the rank dimensions with the largest |q| (summed
// over the group); ŝ = softmax(q_I·K_I / √(d·‖q_I‖₁/‖q‖₁)) per query head; the tokens are the best of Σŝ, the newest
// `local` of them forced; and since they hold a share a = Σŝ of the attention, the output is a·attention + (1-a)·mean value.
//
// A step reads rank/KeyDim of the keys, then the chosen tokens: bytes over dense = rank/(2·KeyDim) + budget.
type sparQ struct {
	base
	budget Budget
	rank   Budget // of KeyDim
	local  Budget // of the budget
	mean   bool
	stored bool // a copy of the keys is on the tier below host memory
	dense  int

	magnitude, scores []float32
	sunk              []float32   // [group] parts that sinks take
	sums              [][]float32 // [KVHeads][tokens] estimated attention of the group
	dims              []int32
	pick              picker
}

func init() {
	register(Info{
		Name:    "sparq",
		Summary: "estimates attention from the query's largest dimensions, reads the best tokens, adds the mean value for the rest",
		Paper:   "SparQ Attention: Bandwidth-Efficient LLM Inference, arXiv 2312.04985",
		Phase:   PhaseRead,
		Systems: []System{{Name: "flexgen_sparq", Params: "sketch=storage", Doc: "FlexGen with SparQ, on tiers host and ssd: a second copy of the keys is streamed, the chosen tokens are fetched"}},
		Params: append(budgetParams("6.25%"),
			Param{Name: "rank", Aliases: []string{"r"}, Default: "12.5%", Doc: "dimensions of the key that are read: a share of them or a number"},
			Param{Name: "local", Aliases: []string{"l"}, Default: "25%", Doc: "newest tokens that are always read: a share of the budget or a number"},
			Param{Name: "mean_value", Default: "true", Doc: "let the mean of all values stand for the tokens that aren't read"},
			Param{Name: "dense_layers", Default: "0", Doc: "first layers that read everything"}, sketchParam),
	}, func(a *args) Policy {
		return &sparQ{
			base: a.base(), budget: a.budget(), rank: a.share("rank"), local: a.share("local"),
			mean: a.bool("mean_value"), dense: a.int("dense_layers", 0, maxTokens), stored: a.stored(),
		}
	})
}

func (p *sparQ) Needs() Needs {
	return Needs{Sketch: Sketch{Kind: SketchDims, Stored: p.stored}, ValueMean: p.mean, TokenGranularity: p.stored, SinglesByHead: p.stored}
}

// SelectsByHead implements HeadSelector.
func (p *sparQ) SelectsByHead() {}

// Select follows the steps above for each KV head.
func (p *sparQ) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	target := p.budget.Of(l, l.N)
	if l.Index < p.dense || fits(l, target) {
		read.All = true
		return
	}
	local := p.local.Tokens(target, l.KVBytes)
	group := l.Group()
	for g := range read.Heads {
		n := l.Tokens(g)
		q := l.queries(g)
		p.choose(q, l.KeyDim, group)
		if g == len(p.sums) {
			p.sums = append(p.sums, nil)
		}
		sum := sized(p.sums[g], n)
		p.scores, p.sums[g] = sized(p.scores, group*n), sum
		l.Scores.Dims(g, p.dims, q, group, p.scores)
		clear(sum)
		for h := range group {
			row := p.scores[h*n : (h+1)*n]
			scale, own := temperature(q[h*l.KeyDim:(h+1)*l.KeyDim], p.dims), g*group+h
			if l.Sinks != nil {
				kernels.Scale(row, scale)
				p.sunk, scale = append(p.sunk[:h], sunk(row, l.Sinks[own])), 1
				kernels.Softmax(row)
				kernels.Scale(row, 1-p.sunk[h])
			} else {
				softmaxRow(row, scale)
			}
			kernels.Add(sum, row)
		}
		old := max(n-local, 0)
		picks := p.pick.best(read.Heads[g], sum[:old], target-local, 0)
		read.Heads[g] = span(picks, old, n)
		for h := 0; p.mean && h < group; h++ {
			var share float32
			if l.Sinks != nil { // a sink is read with whatever is: it is in the attention that the mean is mixed with
				share = p.sunk[h]
			}
			for _, i := range read.Heads[g] {
				share += p.scores[h*n+int(i)]
			}
			read.Share = append(read.Share, min(share, 1))
		}
	}
}

// Ranks implements [HeadScoring]: the estimated attention of a group.
func (p *sparQ) Ranks(kvHead int) []float32 {
	if kvHead >= len(p.sums) {
		return nil
	}
	return p.sums[kvHead]
}

// choose fills p.dims with the dimensions of the largest summed magnitude.
func (p *sparQ) choose(q []float32, dim, group int) {
	p.magnitude = sized(p.magnitude, dim)
	clear(p.magnitude)
	for h := range group {
		for d, v := range q[h*dim : (h+1)*dim] {
			p.magnitude[d] += float32(math.Abs(float64(v)))
		}
	}
	p.dims = p.pick.best(p.dims[:0], p.magnitude, p.rank.Tokens(dim, 1), 0)
}

// temperature is the factor that makes up for the dimensions left out.
func temperature(q []float32, dims []int32) float32 {
	var part, whole float64
	for _, v := range q {
		whole += math.Abs(float64(v))
	}
	for _, d := range dims {
		part += math.Abs(float64(q[d]))
	}
	if part == 0 {
		return 0
	}
	return float32(1 / math.Sqrt(float64(len(q))*part/whole))
}
