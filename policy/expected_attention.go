package policy

import (
	"math"

	"terrace/internal/kernels"
)

// expectedAttention keeps the tokens that queries still to come are expected to attend to (Devoto et al. 2025, kvpress):
// the prompt's queries before RoPE are taken as Gaussian, their mean μ and covariance Σ are rotated by the average RoPE of
// the next n_future_positions, and the score of a key is softmax(μ·k/√d + k·Σk/2d), averaged over the group, plus epsilon,
// times ‖v‖. The first n_sink tokens stay and are left out of the statistics.
//
// Cost a layer: tokens·Heads·KeyDim² multiply-adds with the covariance, tokens·Heads·KeyDim without.
type expectedAttention struct {
	scored
	future, sinks     int
	covariance, vnorm bool
	epsilon           float64
	queries           Observation // QueryStatistics

	stats       *QueryStats // of the layer that is scored
	buf         []float32
	turn, cross []float64 // average rotation: what each dimension gets from itself and from its partner
	partner     []int
	ropeOf      int // position that the rotation was averaged from, -1 = none
	layer       int // layer whose rotation it is
	mean        []float64
	cov         []float64
	lower       []float32
	tmp         []float64
	logits      []float64
}

func init() {
	register(Info{
		Name:          "expected_attention",
		Summary:       "keeps what future queries are expected to attend to, from the mean and covariance of past ones",
		Paper:         "Expected Attention: KV Cache Compression by Estimating Attention from Future Queries, arXiv 2510.00636",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params: append(budgetParams("50%"),
			Param{Name: "n_future_positions", Default: "512", Doc: "positions that the rotation is averaged over"},
			Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that always stay"},
			Param{Name: "use_covariance", Default: "true", Doc: "count the spread of the queries, not only their mean"},
			Param{Name: "use_vnorm", Default: "true", Doc: "multiply by the norm of the value"},
			Param{Name: "epsilon", Default: "0", Doc: "added before that"}),
	}, func(a *args) Policy {
		return &expectedAttention{
			scored: scored{base: a.base(), budget: a.budget()}, ropeOf: -1,
			future: a.int("n_future_positions", 1, 1<<20), sinks: a.int("n_sink", 0, maxTokens),
			covariance: a.bool("use_covariance"), vnorm: a.bool("use_vnorm"), epsilon: a.float("epsilon", 0, 1e9),
			queries: QueryStatistics{From: a.int("n_sink", 0, maxTokens)},
		}
	})
}

func (p *expectedAttention) Needs() Needs {
	return Needs{Keys: true, Values: p.vnorm, OwnChannels: true, Observations: []Observation{p.queries}}
}

func (p *expectedAttention) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the expected weight times the value's norm; sinks get the highest score plus 1.
func (p *expectedAttention) Score(l *Layer, _ int, dst [][]float32) {
	p.averageRope(l)
	p.stats, _ = Seen[*QueryStats](l.Observed, p.queries)
	group := l.Group()
	for g, row := range dst {
		clear(row)
		from := min(p.sinks, len(row))
		for h := g * group; h < (g+1)*group; h++ {
			p.statistics(l, h)
			p.expect(l, g, from)
			softmax(p.logits)
			for i, w := range p.logits {
				row[from+i] += float32(w / float64(group))
			}
		}
		if p.vnorm {
			eachValue(l, g, &p.buf, func(i int, v []float32) { row[i] = float32((float64(row[i]) + p.epsilon) * norm(v)) })
		}
	}
	top := float32(0)
	for _, row := range dst {
		for _, s := range row[min(p.sinks, len(row)):] {
			top = max(top, s)
		}
	}
	for _, row := range dst {
		for i := range row[:min(p.sinks, len(row))] {
			row[i] = top + 1
		}
	}
}

// averageRope computes the mean of the rotation matrices of the next positions. Each dimension is turned together with one
// other (its partner) or with none, so two vectors that hold one member of each pair show all of a rotation.
func (p *expectedAttention) averageRope(l *Layer) {
	if p.ropeOf == l.N && p.layer == l.Index {
		return
	}
	p.ropeOf, p.layer = l.N, l.Index
	d := l.KeyDim
	p.partner, p.buf = sized(p.partner, d), sized(p.buf, d)
	partners(l.Rope, p.partner, p.buf)
	p.turn, p.cross = sized(p.turn, d), sized(p.cross, d)
	clear(p.turn)
	clear(p.cross)
	scale := 1 / float64(p.future)
	for pos := l.N; pos < l.N+p.future; pos++ {
		for second := range 2 {
			for i := range p.buf {
				p.buf[i] = 0
				if (p.partner[i] < i) == (second == 1) {
					p.buf[i] = 1
				}
			}
			l.Rope.Rotate(p.buf, pos)
			for i, v := range p.buf {
				if (p.partner[i] < i) == (second == 1) {
					p.turn[i] += float64(v) * scale
				} else {
					p.cross[i] += float64(v) * scale
				}
			}
		}
	}
}

// statistics fills mean with Rμ/√d and cov with RΣRᵀ/2d of a head; row i of R has turn[i] at i and cross[i] at its partner.
func (p *expectedAttention) statistics(l *Layer, head int) {
	d := l.KeyDim
	p.tmp, p.mean, p.cov = sized(p.tmp, d*d), sized(p.mean, d), sized(p.cov, d*d)
	p.stats.mean(head, p.tmp[:d])
	for i := range d {
		p.mean[i] = (p.turn[i]*p.tmp[i] + p.cross[i]*p.tmp[p.partner[i]]) / math.Sqrt(float64(d))
	}
	if !p.covariance {
		return
	}
	p.stats.covariance(head, p.cov)
	for i := range d { // tmp = R·Σ
		row, other := p.cov[i*d:(i+1)*d], p.cov[p.partner[i]*d:(p.partner[i]+1)*d]
		for j := range d {
			p.tmp[i*d+j] = p.turn[i]*row[j] + p.cross[i]*other[j]
		}
	}
	for i := range d { // cov = tmp·Rᵀ
		row := p.tmp[i*d : (i+1)*d]
		for j := range d {
			p.cov[i*d+j] = (p.turn[j]*row[j] + p.cross[j]*row[p.partner[j]]) / float64(2*d)
		}
	}
}

// expect fills logits with mean·k + k·cov·k of each key from an index on. cov is symmetric: only its lower half is read.
func (p *expectedAttention) expect(l *Layer, kvHead, from int) {
	d := l.KeyDim
	p.logits = sized(p.logits, l.Tokens(kvHead)-from)
	p.lower = sized(p.lower, d*d)
	for r := range d { // kᵀΣk = Σ_r k_r·(2·Σ_{c<r} Σ_rc·k_c + Σ_rr·k_r)
		for c := range r {
			p.lower[r*d+c] = float32(2 * p.cov[r*d+c])
		}
		p.lower[r*d+r] = float32(p.cov[r*d+r])
	}
	eachKey(l, kvHead, &p.buf, func(i int, key []float32) {
		if i < from {
			return
		}
		var sum float64
		for r, k := range key {
			part := float32(p.mean[r])
			if p.covariance {
				part += kernels.Dot(p.lower[r*d:r*d+r+1], key[:r+1])
			}
			sum += float64(part * k)
		}
		p.logits[i-from] = sum
	})
}

// softmax turns logits into weights in place.
func softmax(x []float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	var sum float64
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}
