package engine

import (
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"terrace/engine/fakes"
)

// Double Sparsity and RocketKV once more, on the loops of read_reference_test.go, written from algorithms.md 5.14 and the authors' code.

// labelReads: the rank channels with the largest Σ|q·k| of the prompt's tokens, each query with its own key; keys' labels rounded to integers of
// at most top (0 = to half precision) and queries' of at most 127, over √rank.
func labelReads(prompt [][][]float64, budget, rank int, top float64, dense int) func(*readReference, int, int, []float64) ([]int, []float64) {
	rounded := func(x []float64, top float64) (out []float64) {
		largest := max(slices.Max(x), -slices.Min(x))
		for _, v := range x {
			out = append(out, math.RoundToEven(v*top/largest)*largest/top)
		}
		return out
	}
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		if layer < dense {
			return rowsOf(r.n), nil
		}
		l := &r.m.Layer[0]
		share := make([]float64, l.KeyDim)
		for p, row := range prompt[layer] {
			for h := g * l.Group(); h < (g+1)*l.Group(); h++ {
				for c, k := range r.key(layer, g, p) {
					share[c] += math.Abs(r.head(row, h)[c] * k)
				}
			}
		}
		labels := r.best(share, rank)
		of := func(x []float64) (out []float64) {
			for _, c := range labels {
				out = append(out, x[c])
			}
			return out
		}
		total := make([]float64, r.n)
		for h := g * l.Group(); h < (g+1)*l.Group(); h++ {
			var scores []float64
			for p := range r.n {
				asked, key := of(r.head(q, h)), of(r.key(layer, g, p))
				if top > 0 {
					asked, key = rounded(asked, 127), rounded(key, top)
				} else {
					for i, x := range key {
						step := math.Ldexp(1, max(math.Ilogb(x), -14)-10)
						key[i] = math.RoundToEven(x/step) * step
					}
				}
				scores = append(scores, inner(asked, key)/math.Sqrt(float64(rank)))
			}
			for i, w := range softmaxOf(scores) {
				total[i] += w
			}
		}
		return append(r.best(total[:r.n-1], budget-1), r.n-1), nil
	}
}

// rocketReference is RocketKV of a budget by the number of tokens.
type rocketReference struct {
	prompt         [][][]float64 // queries
	budget         func(n int) int
	split          float64 // negative: by the compression
	window, kernel int
	chunk          int
}

// compression is what is dropped and what is left to the second step.
func (o *rocketReference) compression() (dropped, left float64) {
	n := len(o.prompt[0])
	c := float64(n) / float64(o.budget(n))
	split := o.split
	if split < 0 {
		split = math.Min(0.2+math.Log2(c)*0.06, 0.8)
	}
	return math.Pow(c, split), c / math.Pow(c, split)
}

// stays are the positions that a KV head has after the prompt.
func (o *rocketReference) stays(r *readReference, layer, g int) []int {
	dropped, _ := o.compression()
	n := len(o.prompt[0])
	kept := int(float64(n) / dropped)
	if kept >= n {
		return rowsOf(n)
	}
	old := n - o.window
	sum := make([]float64, old)
	for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
		for row := old; row < n; row++ {
			for i, w := range softmaxOf(r.products(layer, h, o.prompt[layer][row], rowsOf(row+1)))[:old] {
				sum[i] += w
			}
		}
	}
	largest := make([]float64, old)
	for i := range largest {
		largest[i] = slices.Max(sum[max(i-o.kernel/2, 0):min(i+o.kernel/2+1, old)])
	}
	return append(r.bestOfLevels(largest, kept-o.window), rowsOf(n)[old:]...)
}

// bestOfLevels is best where many numbers are equal by right: the first of them go before, and only different ones are close.
func (r *readReference) bestOfLevels(x []float64, k int) []int {
	idx := rowsOf(len(x))
	sort.SliceStable(idx, func(a, b int) bool { return x[idx[a]] > x[idx[b]] })
	if k < len(x) && x[idx[k-1]] != x[idx[k]] {
		r.gap = min(r.gap, (x[idx[k-1]]-x[idx[k]])/x[idx[k-1]])
	}
	out := slices.Clone(idx[:min(k, len(x))])
	slices.Sort(out)
	return out
}

// halfOutward is a number in half precision that is no larger, or no smaller.
func halfOutward(x float64, up bool) float64 {
	if x == 0 {
		return 0
	}
	step := math.Ldexp(1, max(math.Ilogb(x), -14)-10)
	if up {
		return math.Ceil(x/step) * step
	}
	return math.Floor(x/step) * step
}

func (o *rocketReference) reads(r *readReference, layer, g int, q []float64) ([]int, []float64) {
	l := &r.m.Layer[0]
	cached := o.stays(r, layer, g)
	for p := len(o.prompt[0]); p < r.n; p++ {
		cached = append(cached, p)
	}
	_, left := o.compression()
	magnitude, sum := make([]float64, l.KeyDim), make([]float64, l.KeyDim)
	for h := g * l.Group(); h < (g+1)*l.Group(); h++ {
		for d, x := range r.head(q, h) {
			magnitude[d] += math.Abs(x)
			sum[d] += x
		}
	}
	dims := rowsOf(l.KeyDim)
	if n := int(float64(l.KeyDim) * float64(o.chunk) / left); n < l.KeyDim {
		dims = r.best(magnitude, n)
	}
	estimate := make([]float64, len(cached))
	for h := g * l.Group(); h < (g+1)*l.Group(); h++ {
		var part, whole float64
		for d, x := range r.head(q, h) {
			whole += math.Abs(x)
			if slices.Contains(dims, d) {
				part += math.Abs(x)
			}
		}
		scores := make([]float64, len(cached))
		for i := range cached {
			first := i / o.chunk * o.chunk
			for _, d := range dims {
				var keys []float64
				for _, p := range cached[first:min(first+o.chunk, len(cached))] {
					keys = append(keys, r.key(layer, g, p)[d])
				}
				side := halfOutward(slices.Min(keys), false)
				if sum[d] > 0 {
					side = halfOutward(slices.Max(keys), true)
				}
				scores[i] += r.head(q, h)[d] * side / math.Sqrt(float64(l.KeyDim)*part/whole)
			}
		}
		for i, w := range softmaxOf(scores) {
			estimate[i] += w
		}
	}
	last := len(cached) - 1
	var read []int
	for _, i := range append(r.bestOfLevels(estimate[:last], o.budget(r.n)/2-1), last) {
		read = append(read, cached[i])
	}
	return read, nil
}

// sampledReads: vattention around picks. The sample is the beginning of a permutation of the other tokens by SplitMix64; its weights are added to
// the scores as logarithms.
func sampledReads(picks func(*readReference, int, int, []float64) ([]int, []float64), base, epsilon, quantile float64, seed uint64, drawn *[]int) func(*readReference, int, int, []float64) ([]int, []float64) {
	mix := func(x uint64) uint64 {
		x += 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		picked, _ := picks(r, layer, g, q)
		var others []int
		for p := range r.n {
			if !slices.Contains(picked, p) {
				others = append(others, p)
			}
		}
		n := len(others)
		state := mix(uint64(layer)<<40|uint64(g)<<32|uint64(r.n)) ^ seed
		for i := range n {
			state = mix(state)
			j := i + int(state%uint64(n-i))
			others[i], others[j] = others[j], others[i]
		}
		pilot := max(int(base*float64(n)), 2)
		most := pilot
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			var sum, of, ofSquares float64
			for _, z := range r.products(layer, h, q, picked) {
				sum += math.Exp(z)
			}
			for _, z := range r.products(layer, h, q, others[:pilot]) {
				of += math.Exp(z) / float64(pilot)
			}
			for _, z := range r.products(layer, h, q, others[:pilot]) {
				ofSquares += (math.Exp(z) - of) * (math.Exp(z) - of) / float64(pilot-1)
			}
			b := math.Pow(quantile*math.Sqrt(ofSquares)*float64(n)/(epsilon*(sum+float64(n)*of)), 2)
			if b < float64(n+1) {
				r.gap = min(r.gap, math.Abs(b-math.Round(b))/b)
			}
			most = max(most, min(int(min(b, 1e9)), n))
		}
		*drawn = append(*drawn, most)
		r.bias = map[int]float64{}
		for _, p := range others[:most] {
			r.bias[p] = math.Log(float64(n) / float64(most))
		}
		return append(slices.Clone(picked), others[:most]...), nil
	}
}

// hashedReads: MagicPIG of a prompt. The tokens between the first and the newest of the prompt are drawn by each query head whose hash of K signs
// they share in two tables; the projections are Gaussian numbers by SplitMix64.
type hashedReads struct {
	prompt, bits, tables, sinks, recent int
	seed                                uint64
	dense                               int // a layer that reads everything
	drawn, missed                       int
}

func (o *hashedReads) columns(layer, g, dim int) (out [][]float64) {
	mix := func(x uint64) uint64 {
		x += 0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	begin := mix(o.seed ^ mix(uint64(layer)<<32|uint64(g)))
	uniform := func(i int) float64 { return (float64(mix(begin+uint64(i))>>11) + 0.5) / (1 << 53) }
	for c := range o.bits * o.tables {
		row := make([]float64, dim)
		for d := range row {
			at := c*dim + d
			turn := 2 * math.Pi * uniform(at|1)
			row[d] = math.Sqrt(-2*math.Log(uniform(at&^1))) * []float64{math.Cos(turn), math.Sin(turn)}[at%2]
		}
		out = append(out, row)
	}
	return out
}

func (o *hashedReads) pick(r *readReference, layer, g int, q []float64) ([]int, []float64) {
	if layer == o.dense {
		clear(r.headBias)
		return rowsOf(r.n), nil
	}
	dim, first, last := r.m.Layer[0].KeyDim, o.sinks, o.prompt-o.recent
	mean := make([]float64, dim)
	for p := first; p < last; p++ {
		for d, k := range r.key(layer, g, p) {
			mean[d] += k / float64(last-first)
		}
	}
	columns := o.columns(layer, g, dim)
	length := func(x []float64) float64 { return math.Sqrt(inner(x, x)) }
	signs := func(x []float64) (out []bool) {
		for _, c := range columns {
			r.gap = min(r.gap, math.Abs(inner(x, c))/length(x)/length(c))
			out = append(out, inner(x, c) > 0)
		}
		return out
	}
	read := rowsOf(first)
	for p := first; p < last; p++ {
		var less []float64
		for d, k := range r.key(layer, g, p) {
			less = append(less, k-mean[d])
		}
		own, any := signs(less), false
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			asked, equal := signs(r.head(q, h)), 0
			for c := 0; c < len(columns); c += o.bits {
				if slices.Equal(own[c:c+o.bits], asked[c:c+o.bits]) {
					equal++
				}
			}
			r.headBias[[2]int{h, p}] = math.Inf(-1)
			if equal < 2 {
				o.missed++
				continue
			}
			o.drawn++
			any = true
			one := math.Pow(1-math.Acos(inner(r.head(q, h), less)/length(r.head(q, h))/length(less))/math.Pi, float64(o.bits))
			none := math.Pow(1-one, float64(o.tables))
			once := float64(o.tables) * one * math.Pow(1-one, float64(o.tables-1))
			r.headBias[[2]int{h, p}] = -math.Log(1 - none - once + 1e-4)
		}
		if any {
			read = append(read, p)
		}
	}
	return append(read, rowsOf(r.n)[last:]...), nil
}

// TestHashesMatchPlainLoops: the logits of forced steps under magicpig are those of the loops above.
func TestHashesMatchPlainLoops(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	ids, next := fakes.IDs(113, 81), fakes.IDs(3, 78)
	read := plain{m: m}
	read.run(t, ids)
	for spec, o := range map[string]hashedReads{
		"magicpig:bits=4,tables=10,recent=16,full_layers=1":                {bits: 4, tables: 10, sinks: 4, recent: 16, dense: 1},
		"magicpig:bits=5,tables=30,n_sink=0,recent=8,full_layers=9,seed=3": {bits: 5, tables: 30, recent: 8, dense: 9, seed: 3},
	} {
		t.Run(spec, func(t *testing.T) {
			o.prompt = len(ids)
			want := &readReference{plain: read.cached(), t: t, n: len(ids), gap: 1, pick: o.pick, headBias: map[[2]int]float64{}}
			if part := matchesReference(t, want, Options{Policy: spec}, 1e-7, ids, next); part < 0.005 || o.drawn < 100 || o.missed < 100 {
				t.Errorf("the logits differ from full attention's by %.2g; %d tokens were drawn, %d not: little was tested", part, o.drawn, o.missed)
			}
		})
	}
}

// TestSamplesMatchPlainLoops: the logits of forced steps under vattention are those of the loops above, with samples of the pilot's size, larger
// ones, and all tokens.
func TestSamplesMatchPlainLoops(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	ids, next := fakes.IDs(113, 81), fakes.IDs(4, 78)
	read := plain{m: m}
	read.run(t, ids)
	const tenth, twentieth = 1.6448536269514722, 1.959963984540054 // standard deviations that 10 and 5 % of a normal distribution are off by
	seen := map[string]bool{}
	for spec, pick := range map[string]func(*[]int) func(*readReference, int, int, []float64) ([]int, []float64){
		"vattention:select=topk,budget=25": func(d *[]int) func(*readReference, int, int, []float64) ([]int, []float64) {
			return sampledReads(topkReads(25, 127), 0.02, 0.1, tenth, 0, d)
		},
		"vattention:select=topk,budget=12,base=10%,epsilon=25%,delta=5%,seed=7": func(d *[]int) func(*readReference, int, int, []float64) ([]int, []float64) {
			return sampledReads(topkReads(12, 127), 0.1, 0.25, twentieth, 7, d)
		},
		"vattention:select=quest,budget=32,page=8,dense_layers=0,base=20%,epsilon=100": func(d *[]int) func(*readReference, int, int, []float64) ([]int, []float64) {
			return sampledReads(questReads(32, 8, 0), 0.2, 100, tenth, 0, d)
		},
		"vattention:select=topk,budget=12,base=10%,epsilon=0.01%": func(d *[]int) func(*readReference, int, int, []float64) ([]int, []float64) {
			return sampledReads(topkReads(12, 127), 0.1, 0.0001, tenth, 0, d)
		},
	} {
		t.Run(spec, func(t *testing.T) {
			var drawn []int
			want := &readReference{plain: read.cached(), t: t, n: len(ids), gap: 1, pick: pick(&drawn)}
			part := matchesReference(t, want, Options{Policy: spec}, 1e-6, ids, next)
			if all := strings.Contains(spec, "0.01%"); all != (part < 1e-4) || !all && part < 0.005 {
				t.Errorf("the logits differ from full attention's by %.2g", part)
			}
			for _, b := range drawn {
				switch {
				case strings.Contains(spec, "page=8"):
					seen["pilot"] = seen["pilot"] || b == (len(ids)+1-32)/5
				case b > 100:
					seen["all"] = true
				case b > 12:
					seen["more"] = true
				}
			}
		})
	}
	if len(seen) != 3 {
		t.Errorf("samples were %v only", seen)
	}
}

// TestReadersMatchPlainLoops: the logits of forced steps under double_sparsity and rocketkv are those of the loops above.
func TestReadersMatchPlainLoops(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	next := fakes.IDs(4, 78)
	for seed := range uint64(2) {
		ids := fakes.IDs(101+12*int(seed), 80+seed)
		var asked [][][]float64
		read := plain{m: m, prune: keepQueries(&asked)}
		read.run(t, ids)
		rocket := func(split float64, chunk int, budget func(n int) int) func(*readReference, int, int, []float64) ([]int, []float64) {
			return (&rocketReference{prompt: asked, budget: budget, split: split, window: 8, kernel: 5, chunk: chunk}).reads
		}
		twenty := func(int) int { return 20 }
		for spec, pick := range map[string]func(*readReference, int, int, []float64) ([]int, []float64){
			"double_sparsity:budget=25,rank=8,dense_layers=1":                          labelReads(asked, 25, 8, 7, 1),
			"double_sparsity:budget=25,rank=5,dense_layers=0":                          labelReads(asked, 25, 5, 7, 0),
			"double_sparsity:budget=25,rank=8,labels=half,dense_layers=0":              labelReads(asked, 25, 8, 0, 0),
			"rocketkv:budget=20,chunk=2,window_size=8,kernel_size=5":                   rocket(-1, 2, twenty),
			"rocketkv:budget=20,window_size=8,kernel_size=5,split=0.7":                 rocket(0.7, 3, twenty),
			"rocketkv:budget=20,window_size=8,kernel_size=5,split=0":                   rocket(0, 3, twenty),
			"rocketkv:budget=18%,window_size=8,kernel_size=5" /* chunks of ⌈√3.05⌉ */ : rocket(-1, 2, func(n int) int { return n * 18 / 100 }),
		} {
			t.Run(spec, func(t *testing.T) {
				want := &readReference{plain: read.cached(), t: t, n: len(ids), gap: 1, pick: pick}
				if part := matchesReference(t, want, Options{Policy: spec}, 1e-6, ids, next); part < 0.01 {
					t.Errorf("the logits differ from full attention's by %.2g only: nothing was tested", part)
				}
			})
		}
	}
}

// matchesReference compares forced steps under o's policy with a reference, up to where scores at a cut are closer than limit of their size;
// part is what the policy changes.
func matchesReference(t *testing.T, want *readReference, o Options, limit float64, ids, next []int) (part float64) {
	t.Helper()
	o.Exact, o.ChunkTokens = true, 64
	s := prefilled(t, small(t, o), ids)
	all := prefilled(t, small(t, Options{Exact: true}), ids)
	for i, id := range next {
		logits := want.step(id)
		if want.gap < limit {
			if i < 2 {
				t.Fatalf("step %d: scores at the cut differ by %.2g of their size: take another seed", i, want.gap)
			}
			break
		}
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		if err := all.Decode(id); err != nil {
			t.Fatal(err)
		}
		for j, x := range s.Logits() {
			if math.Abs(float64(x)-logits[j]) > 1e-4*math.Abs(logits[j])+1e-4 {
				t.Fatalf("step %d: logit %d is %g, want %g (closest cut %.2g)", i, j, x, logits[j], want.gap)
			}
			part = max(part, math.Abs(float64(x-all.Logits()[j])))
		}
	}
	return part
}
