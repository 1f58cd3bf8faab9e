package policy

import (
	"math"

	"terrace/internal/kernels"
)

// rkv keeps tokens that the newest queries attend to and that no others repeat (Cai et al. 2025, arXiv 2505.24133), made for the long
// thoughts of reasoning models: under decoding it is applied again every few steps. As its authors' code (R1KV) has it, per KV head:
//
//   - importance I: q·k of the last window_size queries, the largest over the heads of the group, softmax over the tokens before the
//     window, mean over the queries, the largest of kernel_size neighbours;
//   - redundancy R: the mean cosine of a token's key with all others, where each token leaves its newest neighbour with a cosine above
//     threshold alone (the first token where there is none); softmax over all tokens;
//   - score: mix_lambda·I − (1 − mix_lambda)·R; the window stays.
//
// The cosines of n tokens take n²/2 products a KV head.
type rkv struct {
	snapKV
	lambda, threshold float32
	buf, unit, row    []float32
	important         []float32
	nearest           []float32 // of each row, the cosine that is left alone
	column            []int32   // its column
}

func init() {
	register(Info{
		Name:    "rkv",
		Aliases: []string{"r1kv"},
		Summary: "keeps what the last queries attend to and no other key repeats; made for decoding",
		Paper:   "R-KV: Redundancy-aware KV Cache Compression for Reasoning Models, arXiv 2505.24133",
		Phase:   PhasePrompt,
		Params: append(budgetParams("50%"),
			Param{Name: "window_size", Aliases: []string{"window"}, Default: "8", Doc: "newest tokens whose queries vote; they always stay"},
			Param{Name: "kernel_size", Aliases: []string{"kernel"}, Default: "7", Doc: "tokens whose largest weight counts"},
			Param{Name: "mix_lambda", Default: "0.07", Doc: "weight of importance against redundancy"},
			Param{Name: "threshold", Default: "0.5", Doc: "cosine above which two keys repeat each other"}),
	}, func(a *args) Policy {
		return &rkv{snapKV: newSnapKV(a), lambda: float32(a.float("mix_lambda", 0, 1)), threshold: float32(a.float("threshold", -1, 1))}
	})
}

func (p *rkv) Needs() Needs { return Needs{Keys: true, Queries: p.window} }

func (p *rkv) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is importance less redundancy; tokens of the window get the highest score of the layer plus 1.
func (p *rkv) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		clear(row)
		n := max(len(row)-p.window, 0)
		p.unit = sized(p.unit, len(row)*l.KeyDim)
		eachKey(l, g, &p.buf, func(i int, key []float32) { copy(p.unit[i*l.KeyDim:], key) })
		p.importance(l, g, n)
		for i := range len(row) {
			key := p.unit[i*l.KeyDim : (i+1)*l.KeyDim]
			kernels.Scale(key, 1/(float32(norm(key))+1e-8))
		}
		p.redundancy(l.KeyDim, row)
		half := p.kernel / 2
		for i := range row[:n] {
			most := float32(0)
			for _, w := range p.important[max(i-half, 0):min(i+half+1, n)] {
				most = max(most, w)
			}
			row[i] = p.lambda*most - (1-p.lambda)*row[i]
		}
	}
	p.protect(dst)
}

// importance fills important with the weights of the first n tokens, whose keys are in unit as they are.
func (p *rkv) importance(l *Layer, kvHead, n int) {
	p.important, p.row = sized(p.important, n), sized(p.row, n)
	clear(p.important)
	rows := min(l.Rows, p.window)
	for r := l.Rows - rows; r < l.Rows; r++ {
		for i := range p.row {
			best := float32(math.Inf(-1))
			for h := kvHead * l.Group(); h < (kvHead+1)*l.Group(); h++ {
				best = max(best, kernels.Dot(l.Queries[(r*l.Heads+h)*l.KeyDim:][:l.KeyDim], p.unit[i*l.KeyDim:(i+1)*l.KeyDim]))
			}
			p.row[i] = best * l.scale()
		}
		softmaxRow(p.row, 1)
		kernels.Axpy(p.important, 1/float32(rows), p.row)
	}
}

// redundancy fills row with the redundancy of all tokens, whose keys are in unit at length 1.
func (p *rkv) redundancy(dim int, row []float32) {
	p.nearest, p.column = sized(p.nearest, len(row)), sized(p.column, len(row))
	clear(p.column)
	p.nearest[0] = 0
	for i := 1; i < len(row); i++ {
		key := p.unit[i*dim : (i+1)*dim]
		for j := range i {
			c := kernels.Dot(key, p.unit[j*dim:(j+1)*dim])
			row[i] += c
			row[j] += c
			if j == 0 || c > p.threshold {
				p.nearest[i], p.column[i] = c, int32(j)
			}
			if c > p.threshold {
				p.nearest[j], p.column[j] = c, int32(i)
			}
		}
	}
	for i, c := range p.nearest {
		row[p.column[i]] -= c
	}
	kernels.Scale(row, 1/float32(len(row)))
	softmaxRow(row, 1)
}
