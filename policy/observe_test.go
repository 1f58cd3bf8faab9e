package policy

import (
	"math"
	"math/rand/v2"
	"slices"
)

// scene is one layer of one sequence in plain arrays, from which tests build what the engine would show.
type scene struct {
	heads, kvHeads, dim int
	index, layers       int
	prompt              int
	pre, q, k, v        [][]float32 // [tokens][heads*dim or kvHeads*dim]; q and k after RoPE
	pos                 [][]int32   // [kvHeads][cached tokens]; nil: every token is cached
	rope                Rope
	out                 [][]float32 // output projection [rows][heads*dim]; nil: one is drawn
	levels              float64     // of integer keys: 127 or 7
	perChannel          bool
}

// halfRope rotates dimension i with i+dim/2 by position·theta^(-2i/dim).
type halfRope struct{ theta float64 }

func (r halfRope) Rotate(x []float32, position int) {
	half := len(x) / 2
	for i := range half {
		a := float64(position) * math.Pow(r.theta, -float64(2*i)/float64(len(x)))
		s, c := math.Sincos(a)
		u, v := float64(x[i]), float64(x[i+half])
		x[i], x[i+half] = float32(u*c-v*s), float32(v*c+u*s)
	}
}

func (r halfRope) Unrotate(x []float32, position int) { r.Rotate(x, -position) }

// randomScene draws Gaussian queries, keys and values; a few keys are made heavy so that attention has structure.
func randomScene(seed uint64, tokens, heads, kvHeads, dim int) *scene {
	r := rand.New(rand.NewPCG(seed, 7))
	s := &scene{heads: heads, kvHeads: kvHeads, dim: dim, layers: 4, prompt: tokens, rope: halfRope{10000}, levels: 127}
	for range tokens {
		s.push(r)
	}
	return s
}

// push appends one random token.
func (s *scene) push(r *rand.Rand) {
	draw := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * scale)
		}
		return x
	}
	at := len(s.q)
	pre := draw(s.heads*s.dim, 1)
	k := draw(s.kvHeads*s.dim, 1+r.Float64())
	q := append([]float32(nil), pre...)
	for h := range s.heads {
		s.rope.Rotate(q[h*s.dim:(h+1)*s.dim], at)
	}
	for h := range s.kvHeads {
		s.rope.Rotate(k[h*s.dim:(h+1)*s.dim], at)
	}
	s.pre, s.q, s.k, s.v = append(s.pre, pre), append(s.q, q), append(s.k, k), append(s.v, draw(s.kvHeads*s.dim, 1))
}

func (s *scene) key(g, token int) []float32   { return s.k[token][g*s.dim : (g+1)*s.dim] }
func (s *scene) value(g, token int) []float32 { return s.v[token][g*s.dim : (g+1)*s.dim] }
func (s *scene) query(h, token int) []float32 { return s.q[token][h*s.dim : (h+1)*s.dim] }
func (s *scene) cached(g int) []int32         { s.fill(); return s.pos[g] }
func (s *scene) fill() {
	if s.pos == nil {
		s.pos = make([][]int32, s.kvHeads)
	}
	for g := range s.pos {
		if s.pos[g] == nil {
			s.pos[g] = span(nil, 0, len(s.q))
		}
	}
}

// weights are the softmax weights of one query over the cached tokens of its KV head at positions not after it.
func (s *scene) weights(h, token int) []float64 {
	g := h / (s.heads / s.kvHeads)
	w := make([]float64, len(s.cached(g)))
	var sum float64
	for i, p := range s.cached(g) {
		if int(p) <= token {
			w[i] = math.Exp(dot64(s.query(h, token), s.key(g, int(p))) / math.Sqrt(float64(s.dim)))
			sum += w[i]
		}
	}
	for i := range w {
		w[i] /= sum
	}
	return w
}

func dot64(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// layer shows the scene as it is now; massRows and queryRows as Needs has them.
func (s *scene) layer(massRows, queryRows int) *Layer {
	s.fill()
	n := len(s.q)
	l := &Layer{
		Index: s.index, Layers: s.layers, Heads: s.heads, KVHeads: s.kvHeads, KeyDim: s.dim, ValueDim: s.dim,
		N: n, Prompt: s.prompt, KVBytes: 1024, Pos: s.pos, KV: s, Rope: s.rope, Scores: s,
	}
	rows := func(want int) int {
		if want == AllRows {
			return n
		}
		return min(want, n)
	}
	l.IndexQuery = append(append(slices.Clone(s.q[n-1][:s.dim]), s.q[n-1][:s.dim]...), 1, -0.5)
	l.SumRows = rows(massRows)
	for h := range s.heads {
		if l.SumRows == 0 {
			break
		}
		sum := make([]float64, len(s.pos[h/(s.heads/s.kvHeads)]))
		for t := n - l.SumRows; t < n; t++ {
			for i, w := range s.weights(h, t) {
				sum[i] += w
			}
		}
		mass := make([]float32, len(sum))
		for i, w := range sum {
			mass[i] = float32(w)
		}
		l.ColumnSums = append(l.ColumnSums, mass)
	}
	for h := range l.ColumnSums {
		var weights []float32
		for t := n - l.SumRows; t < n; t++ {
			for _, w := range s.weights(h, t) {
				weights = append(weights, float32(w))
			}
		}
		l.PromptRows = append(l.PromptRows, weights)
	}
	l.Rows = max(rows(queryRows), 1)
	for _, q := range s.q[n-l.Rows:] {
		l.Queries = append(l.Queries, q...)
	}
	return l
}

// stats are those of the scene's queries from a position on.
func (s *scene) stats(from int) *QueryStats {
	stats := NewQueryStats(s.heads, s.dim)
	for _, q := range s.pre[min(from, len(s.pre)):] {
		stats.Add(q, 1)
	}
	return stats
}

// outputNorms is ‖W_O·v‖₁ of every query head and cached token.
func (s *scene) outputNorms(dst [][]float32) {
	if s.out == nil {
		r := rand.New(rand.NewPCG(11, 5))
		for range 24 {
			row := make([]float32, s.heads*s.dim)
			for i := range row {
				row[i] = float32(r.NormFloat64())
			}
			s.out = append(s.out, row)
		}
	}
	for h, row := range dst {
		g := h / (s.heads / s.kvHeads)
		for i, p := range s.pos[g] {
			var sum float64
			for _, w := range s.out {
				sum += math.Abs(dot64(w[h*s.dim:(h+1)*s.dim], s.value(g, int(p))))
			}
			row[i] = float32(sum)
		}
	}
}

// shown is the layer as a policy's needs ask for it, at the end of the prompt or at a step.
func (s *scene) shown(p Policy) *Layer {
	n := p.Needs()
	mass := n.PromptSums
	if len(s.q) > s.prompt {
		mass = n.StepSums
	}
	l := s.layer(mass, n.Queries)
	l.Observed = observed(n, s)
	return l
}

// looking is a scene, or a toy, that answers observations.
type looking interface {
	KV
	stats(from int) *QueryStats
	outputNorms(dst [][]float32)
	inChunks(o ChunkAttention) [][]float32
}

// answers work observations out for tests, by their keys; the test of an observation adds its own.
var answers = map[string]func(s looking, o Observation) any{
	QueryStatistics{}.Key(): func(s looking, o Observation) any { return s.stats(o.(QueryStatistics).From) },
	OutputNorms{}.Key():     func(s looking, _ Observation) any { return s.outputNorms },
	ChunkAttention{}.Key():  func(s looking, o Observation) any { return s.inChunks(o.(ChunkAttention)) },
}

// observed answers what a policy has asked for.
func observed(n Needs, s looking) (out []Observed) {
	for _, o := range n.Observations {
		out = append(out, Observed{o, answers[o.Key()](s, o)})
	}
	return out
}

func (s *scene) Keys(g, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		copy(dst[(i-from)*s.dim:], s.key(g, int(s.pos[g][i])))
	}
}

func (s *scene) Values(g, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		copy(dst[(i-from)*s.dim:], s.value(g, int(s.pos[g][i])))
	}
}

// Dot, Dims, Bounds and Approx are the slow scorer: float32 results of float64 sums.
func (s *scene) Dot(g int, q []float32, rows int, dst []float32) {
	n := len(s.pos[g])
	for r := range rows {
		for i, p := range s.pos[g] {
			dst[r*n+i] = float32(dot64(q[r*s.dim:(r+1)*s.dim], s.key(g, int(p))))
		}
	}
}

func (s *scene) Dims(g int, dims []int32, q []float32, rows int, dst []float32) {
	n := len(s.pos[g])
	for r := range rows {
		for i, p := range s.pos[g] {
			var sum float64
			for _, d := range dims {
				sum += float64(q[r*s.dim+int(d)]) * float64(s.key(g, int(p))[d])
			}
			dst[r*n+i] = float32(sum)
		}
	}
}

func (s *scene) Bounds(g, block int, only []int32, q []float32, rows int, dst []float32) {
	n := len(s.pos[g])
	if only == nil {
		only = span(nil, 0, (n+block-1)/block)
	}
	for r := range rows {
		for i, b := range only {
			var sum float64
			for d := range s.dim {
				best := math.Inf(-1)
				for _, p := range s.pos[g][int(b)*block : min((int(b)+1)*block, n)] {
					best = max(best, float64(q[r*s.dim+d])*float64(s.key(g, int(p))[d]))
				}
				sum += best
			}
			dst[r*len(only)+i] = float32(sum)
		}
	}
}

func (s *scene) SideDims(g, block int, dims []int32, low []bool, q []float32, rows int, dst []float32) {
	n := len(s.pos[g])
	blocks := (n + block - 1) / block
	for r := range rows {
		for b := range blocks {
			var sum float64
			for i, d := range dims {
				side := float64(s.key(g, int(s.pos[g][b*block]))[d])
				for _, p := range s.pos[g][b*block : min((b+1)*block, n)] {
					if x := float64(s.key(g, int(p))[d]); low[i] && x < side || !low[i] && x > side {
						side = x
					}
				}
				sum += float64(q[r*s.dim+int(d)]) * side
			}
			dst[r*blocks+b] = float32(sum)
		}
	}
}

func (s *scene) Approx(g int, q []float32, rows int, dst []float32) { s.Dot(g, q, rows, dst) }

// Listed implements Scorer.
func (s *scene) Listed(g int, tokens []int32, q []float32, rows int, dst []float32) {
	n := len(s.cached(g))
	all := make([]float32, rows*n)
	s.Dot(g, q, rows, all)
	for r := range rows {
		for i, t := range tokens {
			dst[r*len(tokens)+i] = all[r*n+int(t)]
		}
	}
}

// Colliding implements Scorer: nothing does.
func (s *scene) Colliding(int, []float32, []Collisions) {}

// Clusters implements Scorer.
func (s *scene) Clusters(int) *Clusters { return new(Clusters) }

// Tail implements Scorer: sums of the values themselves.
func (s *scene) Tail(g int, weights []float32, rows int, dst []float32) {
	clear(dst)
	n := len(s.pos[g])
	v := make([]float32, n*s.dim)
	s.Values(g, 0, n, v)
	for r := range rows {
		for i := range n {
			for d := range s.dim {
				dst[r*s.dim+d] += weights[r*n+i] * v[i*s.dim+d]
			}
		}
	}
}

// Trained implements Scorer.
func (s *scene) Trained(int) bool { return true }

// evict removes indices from the cache of each KV head.
func (s *scene) evict(drop *Selection) {
	s.fill()
	for g, d := range drop.Heads {
		var left []int32
		for _, i := range rest(nil, d, len(s.pos[g])) {
			left = append(left, s.pos[g][i])
		}
		s.pos[g] = left
	}
}

// keep leaves only the kept indices.
func (s *scene) keep(keep *Selection) {
	s.fill()
	if keep.All {
		return
	}
	for g, k := range keep.Heads {
		var left []int32
		for _, i := range k {
			left = append(left, s.pos[g][i])
		}
		s.pos[g] = left
	}
}

// step appends a random token to the text and to every head's cache.
func (s *scene) step(r *rand.Rand) {
	s.fill()
	s.push(r)
	for g := range s.pos {
		s.pos[g] = append(s.pos[g], int32(len(s.q)-1))
	}
}

// keyScale is the scale of one channel of a KV head's integer keys: the largest magnitude over the prompt is `levels`.
func (s *scene) keyScale(g, channel int) float32 {
	var top float64
	for i := range s.prompt {
		for d, v := range s.key(g, i) {
			if d == channel || !s.perChannel {
				top = max(top, math.Abs(float64(v)))
			}
		}
	}
	return float32(top / s.levels)
}

func (s *scene) KeyScales(g int, dst []float32) {
	for i := range dst {
		dst[i] = s.keyScale(g, i)
	}
}

func (s *scene) Products(g int, q []int8, dst []int32) {
	scales := make([]float32, s.dim)
	s.KeyScales(g, scales)
	for i, p := range s.pos[g] {
		for d, v := range s.key(g, int(p)) {
			k := min(max(math.RoundToEven(float64(v/scales[d])), -s.levels), s.levels)
			dst[i] += int32(q[d]) * int32(k)
		}
	}
}
