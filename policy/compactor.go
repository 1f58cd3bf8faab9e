package policy

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"terrace/internal/kernels"
)

// compactor keeps tokens that stand out by their keys, and that others attend to whatever is asked later (Chari and Van Durme 2025, arXiv
// 2507.08143; kvpress's CompactorPress, whose form this is). Without the first sink_size_start and last sink_size_end tokens, which always
// stay, two scores:
//
//   - leverage: of the keys before RoPE less their mean, times a Gaussian matrix of sketch_dimension columns, X: row i's xᵢᵀ(XᵀX + λ1)⁻¹xᵢ, λ
//     0.01 (ten times that where it has no Cholesky factor);
//   - attention: in chunks of chunk_size tokens, that neither see beyond them nor look ahead, softmax(q·k) without a scale, summed over
//     the queries, mean over the group ([ChunkAttention]); times ‖v‖, average pooling over 3 tokens.
//
// Each less its mean over the layer's tokens and KV heads, divided by the standard deviation; blending·leverage + attention, by default the
// part that is removed.
type compactor struct {
	scored
	first, last, dims int
	blending          float64 // NaN = the part removed
	part              int
	seed              uint64
	chunks            ChunkAttention

	buf, rows, out, inverse []float32
	scores                  [2][][]float32 // leverage, attention
}

// Values of part.
const (
	compactBoth = iota
	compactLeverage
	compactAttention
)

// ChunkAttention is the [PromptObservation] of what tokens get from the queries of their own chunk: [KVHeads][tokens], in cache order, of
// softmax weights summed over the chunk's queries, the mean over the group's heads. The text's rows but for its first First positions
// and the last Last are cut into chunks of Chunk; a query weighs every key of its chunk, later ones too, by e^(q·k). As in kvpress a short
// last chunk is filled up with rows of zeros: their keys weigh 1 each, their queries give every token 1/Chunk. Tokens that were cached
// before the prompt have 1, the mean of a whole chunk; those of First and Last have 0.
type ChunkAttention struct{ Chunk, First, Last int }

// Key implements [Observation].
func (ChunkAttention) Key() string    { return "chunk_attention" }
func (ChunkAttention) String() string { return "attention inside chunks" }

// OfPrompt implements [PromptObservation].
func (ChunkAttention) OfPrompt() {}

func init() {
	register(Info{
		Name:          "compactor",
		Summary:       "keeps keys that stand out (leverage) and what its own chunk attends to, whatever is asked",
		Paper:         "Compactor: Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores, arXiv 2507.08143",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Systems: []System{
			{Name: "leverage_score", Params: "part=leverage,sink_size_start=0,sink_size_end=0", Doc: "kvpress's LeverageScorePress"},
			{Name: "non_causal_attn", Params: "part=attention,sink_size_start=0,sink_size_end=0", Doc: "kvpress's NonCausalAttnPress"},
		},
		Params: append(budgetParams("50%"),
			Param{Name: "sink_size_start", Aliases: []string{"n_sink", "sinks"}, Default: "8", Doc: "first tokens that always stay"},
			Param{Name: "sink_size_end", Aliases: []string{"recent"}, Default: "4", Doc: "newest tokens that always stay"},
			Param{Name: "chunk_size", Default: "256", Doc: "tokens that attend to each other"},
			Param{Name: "sketch_dimension", Default: "48", Doc: "columns of the random matrix; 0 = none, exact leverage"},
			Param{Name: "blending", Default: "auto", Doc: "weight of leverage beside attention; auto: the part of the prompt that is removed"},
			Param{Name: "part", Default: "both", Doc: "both, leverage or attention alone"},
			Param{Name: "seed", Default: "0", Doc: "of the random matrix"}),
	}, func(a *args) Policy {
		p := &compactor{scored: scored{base: a.base(), budget: a.budget()}, first: a.int("sink_size_start", 0, maxTokens), last: a.int("sink_size_end", 0, maxTokens),
			dims: a.int("sketch_dimension", 0, 1<<12), blending: math.NaN(), part: a.choice("part", "both", "leverage", "attention"), seed: uint64(a.int("seed", 0, 1<<62))}
		if a.raw("blending") != "auto" {
			p.blending = a.float("blending", 0, 1e6)
		}
		p.chunks = ChunkAttention{Chunk: a.int("chunk_size", 1, maxTokens), First: p.first, Last: p.last}
		return p
	})
}

func (p *compactor) Needs() Needs {
	n := Needs{Keys: true, OwnChannels: p.part != compactAttention, Values: p.part != compactLeverage}
	if p.part != compactLeverage {
		n.Observations = []Observation{p.chunks}
	}
	return n
}

func (p *compactor) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the sum; tokens that always stay have the highest of the layer's.
func (p *compactor) Score(l *Layer, target int, dst [][]float32) {
	for i := range p.scores {
		p.scores[i] = sized(p.scores[i], len(dst))
	}
	for g, row := range dst {
		from := min(p.first, len(row))
		to := max(len(row)-p.last, from)
		for i := range p.scores {
			p.scores[i][g] = append(p.scores[i][g][:0], row[from:to]...)
			clear(p.scores[i][g])
		}
		if p.part != compactAttention {
			p.leverage(l, g, from, p.scores[0][g])
		}
		if p.part != compactLeverage {
			p.attention(l, g, from, p.scores[1][g])
		}
	}
	weights := [2]float32{1, 1}
	if p.part == compactBoth {
		weights[0] = p.blend(l, target)
	}
	top := float32(math.Inf(-1))
	standardise(p.scores[0])
	standardise(p.scores[1])
	for g, row := range dst {
		from := min(p.first, len(row))
		clear(row)
		for i, w := range weights {
			kernels.Axpy(row[from:from+len(p.scores[i][g])], w, p.scores[i][g])
		}
		for _, s := range row[from : from+len(p.scores[0][g])] {
			top = max(top, s)
		}
	}
	for g, row := range dst {
		from := min(p.first, len(row))
		for i := range row {
			if i < from || i >= from+len(p.scores[0][g]) {
				row[i] = top
			}
		}
	}
}

// blend is the weight of leverage.
func (p *compactor) blend(l *Layer, target int) float32 {
	switch {
	case !math.IsNaN(p.blending):
		return float32(p.blending)
	case p.budget.Removes():
		return float32(p.budget.ratio)
	}
	return 1 - float32(target)/float32(l.N)
}

// leverage fills dst with the leverage of a KV head's tokens from an index on.
func (p *compactor) leverage(l *Layer, kvHead, from int, dst []float32) {
	n, d := len(dst), l.KeyDim
	if n == 0 {
		return
	}
	sketch, k := p.sketch(l, kvHead), d
	if sketch != nil {
		k = p.dims
	}
	p.rows = sized(p.rows, n*k)
	mean := make([]float64, k)
	p.buf = sized(p.buf, chunkRows*d)
	for at := 0; at < n; at += chunkRows {
		m := min(chunkRows, n-at)
		l.KV.Keys(kvHead, from+at, from+at+m, p.buf[:m*d])
		for i := range m {
			key, row := p.buf[i*d:(i+1)*d], p.rows[(at+i)*k:(at+i+1)*k]
			l.Rope.Unrotate(key, int(l.Pos[kvHead][from+at+i]))
			if sketch == nil {
				copy(row, key)
			}
			for j := 0; sketch != nil && j < k; j++ {
				row[j] = kernels.Dot(key, sketch[j*d:(j+1)*d])
			}
			for j, x := range row {
				mean[j] += float64(x) / float64(n)
			}
		}
	}
	for i := range n {
		for j, m := range mean {
			p.rows[i*k+j] -= float32(m)
		}
	}
	stats := NewQueryStats(1, k)
	stats.Add(p.rows, n)
	if !p.whiten(stats.outer, k) {
		return // of keys that are no numbers
	}
	p.out = sized(p.out, k)
	for i := range n {
		row := p.rows[i*k : (i+1)*k]
		for j := range p.out {
			p.out[j] = kernels.Dot(p.inverse[j*k:j*k+j+1], row[:j+1])
		}
		dst[i] = kernels.Dot(p.out, p.out)
	}
}

// whiten fills inverse [k, k] with L⁻¹ of the Gram matrix outer (its lower half) plus λ1 = LLᵀ; false where no λ makes it positive.
func (p *compactor) whiten(outer []float64, k int) bool {
	gram := mat.NewSymDense(k, nil)
	for i := range k {
		for j := range i + 1 {
			gram.SetSym(i, j, outer[i*k+j])
		}
	}
	var factor mat.Cholesky
	for tries, jitter := 0, 1e-2; tries < 5; tries, jitter = tries+1, 10*jitter {
		for i := range k {
			gram.SetSym(i, i, outer[i*k+i]+jitter)
		}
		if !factor.Factorize(gram) {
			continue
		}
		var lower, inverse mat.TriDense
		factor.LTo(&lower)
		if err := inverse.InverseTri(&lower); err != nil && !isCondition(err) {
			continue
		}
		p.inverse = sized(p.inverse, k*k)
		for i := range k {
			for j := range i + 1 {
				p.inverse[i*k+j] = float32(inverse.At(i, j))
			}
		}
		return true
	}
	return false
}

// isCondition reports whether a matrix was inverted, and is badly conditioned.
func isCondition(err error) bool { _, ok := err.(mat.Condition); return ok }

// sketch is the random matrix of a layer and KV head, a row a column of it [dims, KeyDim], with variance 1/dims; nil = none.
func (p *compactor) sketch(l *Layer, kvHead int) []float32 {
	if p.dims == 0 {
		return nil
	}
	return gaussian(p.dims*l.KeyDim, float64(p.dims), p.seed^splitmix(uint64(l.Index)<<32|uint64(kvHead)))
}

// gaussian are n numbers of variance 1/parts, drawn in pairs (Box and Muller) from hashes of a seed and their place.
func gaussian(n int, parts float64, seed uint64) []float32 {
	out := make([]float32, n+1)
	begin := splitmix(seed)
	uniform := func(i int) float64 { return (float64(splitmix(begin+uint64(i))>>11) + 0.5) / (1 << 53) }
	for i := 0; i < n; i += 2 {
		r := math.Sqrt(-2 * math.Log(uniform(i)) / parts)
		sin, cos := math.Sincos(2 * math.Pi * uniform(i+1))
		out[i], out[i+1] = float32(r*cos), float32(r*sin)
	}
	return out[:n]
}

// attention fills dst with the pooled weights of a KV head's tokens from an index on.
func (p *compactor) attention(l *Layer, kvHead, from int, dst []float32) {
	sums, _ := Seen[[][]float32](l.Observed, p.chunks)
	row := slices.Clone(sums[kvHead][from : from+len(dst)])
	eachValue(l, kvHead, &p.buf, func(i int, v []float32) {
		if i >= from && i < from+len(row) {
			row[i-from] *= float32(norm(v))
		}
	})
	pool(dst, row, 3, 1)
}

// standardise takes the mean off the scores of all heads together and divides by their standard deviation, 1e-6 at least.
func standardise(scores [][]float32) {
	n, sum, squares := 0, 0.0, 0.0
	for _, row := range scores {
		n += len(row)
		for _, s := range row {
			sum += float64(s)
		}
	}
	mean := sum / float64(max(n, 1))
	for _, row := range scores {
		for _, s := range row {
			squares += (float64(s) - mean) * (float64(s) - mean)
		}
	}
	deviation := max(math.Sqrt(squares/float64(max(n-1, 1))), 1e-6)
	for _, row := range scores {
		for i, s := range row {
			row[i] = float32((float64(s) - mean) / deviation)
		}
	}
}
