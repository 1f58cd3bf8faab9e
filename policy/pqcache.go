package policy

import (
	"fmt"
	"slices"

	"terrace/internal/kernels"
)

// pqcache scans product codes of the keys: each key is cut into a few sub-vectors, and of each the number of the nearest of
// 2^bits centroids is kept, which k-means found among the prompt's keys (Zhang et al. 2024, arXiv 2407.12820). A step makes
// one table of q·centroid a head, looks every token up, and reads the best tokens whole. A query head's scores are softmax
// weights over the candidates; a KV head ranks by their sum. Sinks and the newest tokens are always read and no candidates.
//
// A step scans a byte a token and sub-vector: with the defaults 2 of the 64 that 8-bit keys of 64 numbers take, and of the 32
// of 4-bit keys. A prompt with no more keys than centroids has no codes, and all of that text is read.
type pqcache struct {
	base
	budget Budget
	sinks  int
	recent Budget // of the budget without the sinks, or tokens
	parts  int
	bits   int
	iters  int
	dense  int
	stored bool

	scores, sum, row []float32
	pick             picker
}

func init() {
	register(Info{
		Name:    "pqcache",
		Summary: "scans product-quantised keys, a byte or two a token, reads the best tokens",
		Paper:   "PQCache: Product Quantization-based KVCache for Long Context LLM Inference, arXiv 2407.12820",
		Phase:   PhaseRead,
		Params: append(budgetParams("20%"),
			Param{Name: "n_sink", Aliases: []string{"sinks", "init_offset"}, Default: "32", Doc: "first tokens that are always read and have no part in the centroids"},
			Param{Name: "recent", Default: "50%", Doc: "newest tokens that are always read: a share of the budget without the sinks, or a number"},
			Param{Name: "subvectors", Aliases: []string{"pq_group_factor"}, Default: "2", Doc: "parts of a key, a divisor of its length"},
			Param{Name: "bits", Aliases: []string{"pq_bits"}, Default: "6", Doc: "of a code, 1 to 8: 2^bits centroids a part"},
			Param{Name: "iters", Aliases: []string{"kmeans_iter"}, Default: "10", Doc: "rounds of k-means"},
			Param{Name: "dense_layers", Aliases: []string{"skip_layers"}, Default: "0", Doc: "first layers that read everything"}, sketchParam),
	}, func(a *args) Policy {
		return &pqcache{base: a.base(), budget: a.budget(), sinks: a.int("n_sink", 0, maxTokens), recent: a.share("recent"),
			parts: a.int("subvectors", 1, 4096), bits: a.int("bits", 1, 8), iters: a.int("iters", 0, 1000), dense: a.int("dense_layers", 0, maxTokens),
			stored: a.stored()}
	})
}

// Bind refuses parts that do not divide a key.
func (p *pqcache) Bind(m Model) error {
	for i := range m.Layers {
		if dim := m.Layers[i].KV.KeyDim; m.Acts(i) && dim%p.parts != 0 {
			return fmt.Errorf("policy: pqcache: subvectors=%d: want a divisor of the model's %d numbers a key: %w", p.parts, dim, ErrModel)
		}
	}
	return nil
}

func (p *pqcache) Needs() Needs {
	return Needs{TokenGranularity: true, Sketch: Sketch{Kind: SketchProduct, Parts: p.parts, Bits: p.bits, Iters: p.iters, Sinks: p.sinks, Stored: p.stored}}
}

// SelectsByHead implements HeadSelector.
func (p *pqcache) SelectsByHead() {}

// Select ranks the candidates by their summed weights.
func (p *pqcache) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	budget := p.budget.Of(l, l.N)
	if l.Index < p.dense || budget >= l.N || !l.Scores.Trained(0) {
		read.All = true
		return
	}
	recent := p.newest(budget)
	sinks := min(p.sinks, budget-recent)
	for g := range read.Heads {
		n, group := l.Tokens(g), l.Group()
		p.scores, p.sum = sized(p.scores, group*n), sized(p.sum, n)
		l.Scores.Approx(g, l.queries(g), group, p.scores)
		from, _ := slices.BinarySearch(l.Pos[g], int32(p.sinks))
		to, _ := slices.BinarySearch(l.Pos[g], int32(l.N-recent))
		first, _ := slices.BinarySearch(l.Pos[g], int32(sinks))
		picks := span(read.Heads[g], 0, min(first, to))
		if from < to {
			sum := p.sum[:to-from]
			clear(sum)
			for h := range group {
				p.row = weights(p.row, p.scores[h*n+from:h*n+to], l.scale())
				kernels.Add(sum, p.row[:to-from])
			}
			picks = p.pick.best(picks, sum, budget-recent-sinks, int32(from))
		}
		read.Heads[g] = span(picks, to, n)
	}
}

// Most implements [Reader].
func (p *pqcache) Most(l *Layer) (tokens, run int) {
	if l.Index < p.dense || l.Prompt-p.sinks <= 1<<p.bits {
		return l.N, 1
	}
	return min(p.budget.Of(l, l.N), l.N), 1
}

// weights are the softmax of scale·scores, in buf: equal scores have equal weights, bit for bit, wherever they stand (whole
// vectors are one arithmetic; what stands behind the scores is -Inf).
func weights(buf, scores []float32, scale float32) []float32 {
	buf = append(buf[:0], scores...)
	for len(buf)%16 != 0 {
		buf = append(buf, -infinity)
	}
	softmaxRow(buf, scale)
	return buf
}

// newest is how many of the newest tokens are read of a budget.
func (p *pqcache) newest(budget int) int {
	if p.recent.share.Fraction > 0 {
		return min(max(1, p.recent.Tokens(max(budget-p.sinks, 1), 1)), budget)
	}
	return min(max(1, p.recent.share.Count), budget)
}
