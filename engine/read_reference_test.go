package engine

import (
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"terrace/engine/fakes"
)

// The methods that read or hold a part of the cache, once more: plain float64 loops over the whole cache, written from
// algorithms.md (5.2 to 5.6) and from the policies' published descriptions, on the forward pass of prune_reference_test.go.

// readReference decodes with full attention over what pick leaves of each KV head.
type readReference struct {
	plain
	t     *testing.T
	n     int         // positions so far
	input [][]float64 // of each layer at this step
	gap   float64     // the smallest relative distance of a kept score from a dropped one: rounding must not decide
	// pick returns the positions that a KV head reads, ascending, and the share of attention they hold, a query head,
	// where a mean value stands for the rest.
	pick func(r *readReference, layer, g int, q []float64) (read []int, share []float64)
	// bias is what is added to the scores of tokens that pick has drawn; nil = nothing.
	bias map[int]float64
	// headBias is likewise, by query head and token.
	headBias map[[2]int]float64
	// seen is told the weights of each query head after its attention; nil = nobody cares.
	seen func(layer, h int, read []int, w []float64)
}

// step reads one token and returns its logits.
func (r *readReference) step(id int) []float64 {
	m, t, pos := r.m, r.t, r.n
	x := slices.Clone(values(t, m.Params.Embed)[id])
	r.n++
	r.input = r.input[:0]
	for layer := range m.Layers {
		l := &m.Params.Layers[layer]
		r.input = append(r.input, slices.Clone(x))
		q := r.keys(t, layer, pos, x)
		out := make([]float64, m.Layer[0].Heads*m.Layer[0].ValDim)
		for g := range m.Layer[0].KVHeads {
			read, share := r.pick(r, layer, g, q)
			for h := g * m.Layer[0].Group(); h < (g+1)*m.Layer[0].Group(); h++ {
				r.attend(layer, h, q, read, out[h*m.Layer[0].ValDim:(h+1)*m.Layer[0].ValDim])
				if share != nil {
					r.addMean(layer, g, share[h-g*m.Layer[0].Group()], out[h*m.Layer[0].ValDim:(h+1)*m.Layer[0].ValDim])
				}
			}
		}
		for d, y := range times(values(t, l.O), out) {
			x[d] += y
		}
		r.feedForward(t, x, l.FFNNorm, values(t, l.Gate), values(t, l.Up), values(t, l.Down))
	}
	return times(values(t, m.Params.Output), r.norm(t, x, m.Params.FinalNorm))
}

func (r *readReference) attend(layer, h int, q []float64, read []int, out []float64) {
	scores := r.products(layer, h, q, read)
	for i, p := range read {
		scores[i] += r.bias[p] + r.headBias[[2]int{h, p}]
	}
	w := softmaxOf(scores)
	for i, p := range read {
		for d := range out {
			out[d] += w[i] * r.value(layer, h/r.m.Layer[0].Group(), p)[d]
		}
	}
	if r.seen != nil {
		r.seen(layer, h, read, w)
	}
}

func (r *readReference) addMean(layer, g int, share float64, out []float64) {
	for d := range out {
		var mean float64
		for p := range r.n {
			mean += r.value(layer, g, p)[d] / float64(r.n)
		}
		out[d] = share*out[d] + (1-share)*mean
	}
}

func (r *readReference) key(layer, g, pos int) []float64 {
	return r.kv[layer][pos][0][g*r.m.Layer[0].KeyDim : (g+1)*r.m.Layer[0].KeyDim]
}

func (r *readReference) value(layer, g, pos int) []float64 {
	return r.kv[layer][pos][1][g*r.m.Layer[0].ValDim : (g+1)*r.m.Layer[0].ValDim]
}

func (r *readReference) head(q []float64, h int) []float64 {
	return q[h*r.m.Layer[0].KeyDim : (h+1)*r.m.Layer[0].KeyDim]
}

// products are q·k/√d of one head with some positions.
func (r *readReference) products(layer, h int, q []float64, at []int) (out []float64) {
	for _, p := range at {
		out = append(out, inner(r.head(q, h), r.key(layer, h/r.m.Layer[0].Group(), p))/math.Sqrt(float64(r.m.Layer[0].KeyDim)))
	}
	return out
}

func inner(a, b []float64) (s float64) {
	b = b[:len(a)]
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

func softmaxOf(x []float64) []float64 {
	out, sum := make([]float64, len(x)), 0.0
	for i, v := range x {
		out[i] = math.Exp(v - slices.Max(x))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// best returns the k highest of x, ascending, and notes how clear the cut was, relative to what is cut.
func (r *readReference) best(x []float64, k int) []int { return r.bestOf(x, k, 1e-30) }

// bestOf is best of differences of numbers as large as scale.
func (r *readReference) bestOf(x []float64, k int, scale float64) []int {
	idx := rowsOf(len(x))
	sort.SliceStable(idx, func(a, b int) bool { return x[idx[a]] > x[idx[b]] })
	if k > 0 && k < len(x) {
		in, out := x[idx[k-1]], x[idx[k]]
		r.gap = min(r.gap, (in-out)/max(math.Abs(in), math.Abs(out), scale))
	}
	out := slices.Clone(idx[:min(k, len(x))])
	slices.Sort(out)
	return out
}

// blocks are the positions of blocks of a size.
func (r *readReference) blocks(chosen []int, size int) (out []int) {
	for _, b := range chosen {
		for p := b * size; p < min((b+1)*size, r.n); p++ {
			out = append(out, p)
		}
	}
	return out
}

// bounds are Σ over dimensions of the largest q·k of a block, for each block, by query head of the group.
func (r *readReference) bounds(layer, g, size int, q []float64) (out [][]float64) {
	for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
		var row []float64
		for from := 0; from < r.n; from += size {
			var sum float64
			for d, x := range r.head(q, h) {
				top := math.Inf(-1)
				for p := from; p < min(from+size, r.n); p++ {
					top = max(top, x*r.key(layer, g, p)[d])
				}
				sum += top
			}
			row = append(row, sum)
		}
		out = append(out, row)
	}
	return out
}

// questReads: pages by the sum over the group of their bounds, the newest in any case.
func questReads(budget, page, dense int) func(*readReference, int, int, []float64) ([]int, []float64) {
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		if layer < dense {
			return rowsOf(r.n), nil
		}
		bounds := r.bounds(layer, g, page, q)
		for _, row := range bounds[1:] {
			for i, x := range row {
				bounds[0][i] += x
			}
		}
		last := len(bounds[0]) - 1
		return r.blocks(append(r.best(bounds[0][:last], budget/page-1), last), page), nil
	}
}

// leoamReads: coarse chunks by the largest bound of the group; twice as many as the budget needs are opened, and their fine
// chunks bounded, unless the layer is flat.
func leoamReads(budget, fine, coarse int, flat float64) func(*readReference, int, int, []float64) ([]int, []float64) {
	largest := func(rows [][]float64) []float64 {
		for _, row := range rows[1:] {
			for i, x := range row {
				rows[0][i] = max(rows[0][i], x)
			}
		}
		return rows[0]
	}
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		upper := largest(r.bounds(layer, g, coarse, q))
		last := len(upper) - 1
		opened := append(r.best(upper[:last], 2*budget/coarse-1), last)
		scaled := slices.Clone(upper)
		for i := range scaled {
			scaled[i] /= math.Sqrt(float64(r.m.Layer[0].KeyDim))
		}
		var held float64
		for i, w := range softmaxOf(scaled) {
			if slices.Contains(opened, i) {
				held += w
			}
		}
		even := float64(len(opened))/float64(len(upper)) + flat
		r.gap = min(r.gap, math.Abs(held-even))
		if held < even {
			return r.blocks(append(r.best(upper[:last], max(budget/coarse, 1)-1), last), coarse), nil
		}
		lower := largest(r.bounds(layer, g, fine, q))
		end := len(lower) - 1
		for i := range lower {
			if !slices.Contains(opened, i*fine/coarse) {
				lower[i] = -1e9 - float64(i)
			}
		}
		return r.blocks(append(r.best(lower[:end], budget/fine-1), end), fine), nil
	}
}

// sparqReads: steps 1 and 4 to 7 of algorithms.md 2.2, the mean value for the rest.
func sparqReads(budget, rank, local int) func(*readReference, int, int, []float64) ([]int, []float64) {
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		magnitude := make([]float64, r.m.Layer[0].KeyDim)
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			for d, x := range r.head(q, h) {
				magnitude[d] += math.Abs(x)
			}
		}
		dims := r.best(magnitude, rank)
		total := make([]float64, r.n)
		var estimates [][]float64
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			var part, whole float64
			for d, x := range r.head(q, h) {
				whole += math.Abs(x)
				if slices.Contains(dims, d) {
					part += math.Abs(x)
				}
			}
			var scores []float64
			for p := range r.n {
				var s float64
				for _, d := range dims {
					s += r.head(q, h)[d] * r.key(layer, g, p)[d]
				}
				scores = append(scores, s/math.Sqrt(float64(r.m.Layer[0].KeyDim)*part/whole))
			}
			estimates = append(estimates, softmaxOf(scores))
			for i, w := range estimates[len(estimates)-1] {
				total[i] += w
			}
		}
		read := append(r.best(total[:r.n-local], budget-local), rowsOf(r.n)[r.n-local:]...)
		var share []float64
		for _, row := range estimates {
			var a float64
			for _, p := range read {
				a += row[p]
			}
			share = append(share, a)
		}
		return read, share
	}
}

// topkReads: keys and queries rounded to integers of at most top by their largest number, best by the group's softmax.
func topkReads(budget int, top float64) func(*readReference, int, int, []float64) ([]int, []float64) {
	rounded := func(x []float64, top float64) (out []float64) {
		var largest float64
		for _, v := range x {
			largest = max(largest, math.Abs(v))
		}
		for _, v := range x {
			out = append(out, math.RoundToEven(v*top/largest)*largest/top)
		}
		return out
	}
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		total := make([]float64, r.n)
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			var scores []float64
			for p := range r.n {
				scores = append(scores, inner(rounded(r.head(q, h), 127), rounded(r.key(layer, g, p), top))/math.Sqrt(float64(r.m.Layer[0].KeyDim)))
			}
			for i, w := range softmaxOf(scores) {
				total[i] += w
			}
		}
		return append(r.best(total[:r.n-1], budget-1), r.n-1), nil
	}
}

// h2oReference holds, per layer and KV head, the heaviest and the newest.
type h2oReference struct {
	budget, recent int
	held           [][][]int // [layer][g]
	sum            [][]map[int]float64
	wait           int // query heads of the KV head that have yet to be seen
}

// prompt takes the weights of all prompt queries of a layer and cuts.
func (o *h2oReference) prompt(r *readReference) func(int, []int, [][]float64, [][]float64, [][]float64) []int {
	return func(layer int, pos []int, q, k [][]float64, _ [][]float64) []int {
		m := r.m
		o.held, o.sum = append(o.held, make([][]int, m.Layer[0].KVHeads)), append(o.sum, make([]map[int]float64, m.Layer[0].KVHeads))
		for g := range m.Layer[0].KVHeads {
			sum := map[int]float64{}
			for h := g * m.Layer[0].Group(); h < (g+1)*m.Layer[0].Group(); h++ {
				for i := range q {
					for p, w := range r.weights(q[i], k[:i+1], h, nil) {
						sum[p] += w
					}
				}
			}
			o.held[layer][g], o.sum[layer][g] = slices.Clone(pos), sum
			o.cut(r, layer, g)
		}
		return rowsOf(len(pos))
	}
}

// cut drops the lightest that is not recent until the budget holds.
func (o *h2oReference) cut(r *readReference, layer, g int) {
	held, sum := o.held[layer][g], o.sum[layer][g]
	for len(held) > o.budget {
		old := held[:len(held)-o.recent]
		first, second := math.Inf(1), math.Inf(1)
		at := 0
		for i, p := range old {
			switch {
			case sum[p] < first:
				first, second, at = sum[p], first, i
			case sum[p] < second:
				second = sum[p]
			}
		}
		if len(held) == o.budget+1 { // before that the order in which they go does not matter
			r.gap = min(r.gap, (second-first)/second)
		}
		held = slices.Delete(slices.Clone(held), at, at+1)
	}
	o.held[layer][g] = held
}

func (o *h2oReference) reads(r *readReference, layer, g int, _ []float64) ([]int, []float64) {
	o.held[layer][g] = append(o.held[layer][g], r.n-1)
	o.wait = r.m.Layer[0].Group()
	return slices.Clone(o.held[layer][g]), nil
}

func (o *h2oReference) see(r *readReference) func(layer, h int, read []int, w []float64) {
	return func(layer, h int, read []int, w []float64) {
		g := h / r.m.Layer[0].Group()
		for i, p := range read {
			o.sum[layer][g][p] += w[i]
		}
		if o.wait--; o.wait == 0 {
			o.cut(r, layer, g)
		}
	}
}

// offloadReference keeps the weights that every token has got, per layer and KV head; nothing goes.
type offloadReference struct {
	budget, recent int
	sum            [][]map[int]float64
}

// prompt takes the weights of all prompt queries of a layer.
func (o *offloadReference) prompt(r *readReference) func(int, []int, [][]float64, [][]float64, [][]float64) []int {
	whole := h2oReference{budget: math.MaxInt}
	take := whole.prompt(r)
	return func(layer int, pos []int, q, k, v [][]float64) []int {
		rows := take(layer, pos, q, k, v)
		o.sum = whole.sum
		return rows
	}
}

// reads weighs all tokens, the newest too, adds that to their sums, and reads the heaviest and the newest.
func (o *offloadReference) reads(r *readReference, layer, g int, q []float64) ([]int, []float64) {
	sum, total := o.sum[layer][g], []float64{}
	for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
		for p, w := range softmaxOf(r.products(layer, h, q, rowsOf(r.n))) {
			sum[p] += w
		}
	}
	for p := range r.n - o.recent {
		total = append(total, sum[p])
	}
	return append(r.best(total, o.budget-o.recent), rowsOf(r.n)[r.n-o.recent:]...), nil
}

// TestReadingMatchesPlainLoops: the logits of forced steps under each method are those of the loops above.
func TestReadingMatchesPlainLoops(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	calibration, next := fakes.IDs(60, 77), fakes.IDs(4, 78)
	sampled := queriesOf(t, m, calibration)
	for seed := range uint64(2) {
		ids := fakes.IDs(101+12*int(seed), 80+seed)
		var asked [][][]float64
		read := plain{m: m, prune: keepQueries(&asked)} // the prompt under full attention, which most methods begin with
		read.run(t, ids)
		h2o, offload := &h2oReference{budget: 40, recent: 15}, &offloadReference{budget: 30, recent: 9}
		for spec, pick := range map[string]func(*readReference, int, int, []float64) ([]int, []float64){
			"h2o:budget=40,recent=15":                                                    h2o.reads,
			"h2o_offload:budget=30,recent=9":                                             offload.reads,
			"quest:budget=48,page=8,dense_layers=1":                                      questReads(48, 8, 1),
			"topp:select=quest,budget=48,page=8,dense_layers=0,p=0.75,estimate=exact":    toppQuestReads(48, 8, 0.75, true),
			"topp:select=quest,budget=48,page=8,dense_layers=0,p=0.75":                   toppQuestReads(48, 8, 0.75, false),
			"topp:select=quest,budget=96,page=16,dense_layers=0,p=0.75":                  toppQuestReads(96, 16, 0.75, false),
			"topp:select=quest,budget=96,page=16,dense_layers=0,p=0.75,estimate=exact":   toppQuestReads(96, 16, 0.75, true),
			"leoam:budget=48,chunk=8,coarse=24,flat=0":                                   leoamReads(48, 8, 24, 0),
			"leoam:budget=48,chunk=8,coarse=24,flat=0.5":                                 leoamReads(48, 8, 24, 0.5),
			"sparq:budget=30,rank=8,local=7":                                             sparqReads(30, 8, 7),
			"topk:budget=25":                                                             topkReads(25, 127),
			"topk:budget=25,score=int4":                                                  topkReads(25, 7),
			"infinigen:budget=30,alpha=0.4,partial=0.25,sample=20,dense_layers=1":        infinigenReads(sampled, asked, 30, 8, 20, 0.4),
			"infinigen:budget=30,alpha=0.4,partial=0.25,dense_layers=1":                  infinigenReads(sampled, asked, 30, 8, 1000000, 0.4), // all of the prompt
			"infinigen:budget=30,alpha=9,partial=1,sample=20,dense_layers=1,query=guess": infinigenReads(sampled, asked, 30, 32, 20, 9),
		} {
			t.Run(spec, func(t *testing.T) {
				want := &readReference{plain: plain{m: m}, t: t, n: len(ids), gap: 1, pick: pick}
				switch {
				case strings.HasPrefix(spec, "h2o_offload"):
					want.prune = offload.prompt(want)
					want.run(t, ids)
				case strings.HasPrefix(spec, "h2o"):
					want.prune, want.seen = h2o.prompt(want), h2o.see(want)
					want.run(t, ids)
				default:
					want.plain = read.cached()
				}
				limit := 1e-6
				if strings.HasPrefix(spec, "infinigen") {
					limit = 1e-4 // singular vectors of near values are as far apart as float32 queries have them
				}
				part := matchesReference(t, want, Options{Policy: spec, Calibration: calibration}, limit, ids, next) // what the method changes
				if part < 0.01 {
					t.Errorf("the logits differ from full attention's by %.2g only: nothing was tested", part)
				}
			})
		}
	}
}
