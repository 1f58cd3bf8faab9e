package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"terrace/internal/cacheshape"
)

// The references below are written from the papers' descriptions (algorithms.md), with full attention and sorting, and
// share no code with the policies.

// topOf returns the indices of the k highest, lowest index first among equals, ascending.
func topOf(x []float64, k int) []int32 {
	idx := make([]int32, len(x))
	for i := range idx {
		idx[i] = int32(i)
	}
	sort.SliceStable(idx, func(a, b int) bool { return x[idx[a]] > x[idx[b]] })
	idx = slices.Clone(idx[:min(k, len(idx))])
	slices.Sort(idx)
	return idx
}

func refOracle(s *scene, g, budget int) []int32 {
	group := s.heads / s.kvHeads
	sum := make([]float64, len(s.pos[g]))
	for h := g * group; h < (g+1)*group; h++ {
		for i, w := range s.weights(h, len(s.q)-1) {
			sum[i] += w
		}
	}
	sum[len(sum)-1] = 100 // the newest is always read
	return topOf(sum, budget)
}

func refQuest(s *scene, g, budget, page int) []int32 {
	group, n := s.heads/s.kvHeads, len(s.pos[g])
	var bounds []float64
	for from := 0; from < n; from += page {
		var bound float64
		for h := g * group; h < (g+1)*group; h++ {
			q := s.query(h, len(s.q)-1)
			for d := range s.dim {
				lo, hi := math.Inf(1), math.Inf(-1)
				for _, p := range s.pos[g][from:min(from+page, n)] {
					k := float64(s.key(g, int(p))[d])
					lo, hi = min(lo, k), max(hi, k)
				}
				bound += max(float64(q[d])*lo, float64(q[d])*hi)
			}
		}
		bounds = append(bounds, bound)
	}
	bounds[len(bounds)-1] = 1e9
	var out []int32
	for _, b := range topOf(bounds, max(budget/page, 3)) {
		for i := int(b) * page; i < min((int(b)+1)*page, n); i++ {
			out = append(out, int32(i))
		}
	}
	return out
}

func refSparQ(s *scene, g, budget, rank, local int) (picks []int32, shares []float64) {
	group, n := s.heads/s.kvHeads, len(s.pos[g])
	magnitude := make([]float64, s.dim)
	for h := g * group; h < (g+1)*group; h++ {
		for d, v := range s.query(h, len(s.q)-1) {
			magnitude[d] += math.Abs(float64(v))
		}
	}
	dims := topOf(magnitude, rank)
	estimates := make([][]float64, group)
	total := make([]float64, n)
	for h := range group {
		q := s.query(g*group+h, len(s.q)-1)
		var part, whole, sum float64
		for _, v := range q {
			whole += math.Abs(float64(v))
		}
		for _, d := range dims {
			part += math.Abs(float64(q[d]))
		}
		estimates[h] = make([]float64, n)
		for i, p := range s.pos[g] {
			var x float64
			for _, d := range dims {
				x += float64(q[d]) * float64(s.key(g, int(p))[d])
			}
			estimates[h][i] = math.Exp(x / math.Sqrt(float64(s.dim)*part/whole))
			sum += estimates[h][i]
		}
		for i := range estimates[h] {
			estimates[h][i] /= sum
			total[i] += estimates[h][i]
		}
	}
	for i := n - local; i < n; i++ {
		total[i] += float64(group)
	}
	picks = topOf(total, budget)
	for h := range group {
		var a float64
		for _, i := range picks {
			a += estimates[h][i]
		}
		shares = append(shares, a)
	}
	return picks, shares
}

func refInfiniGen(s *scene, d *Decomposition, budget, rank, sample int, alpha float64) [][]int32 {
	group := s.heads / s.kvHeads
	scores := make([][]float64, s.heads)
	wanted := s.heads // the newest token
	for h := range s.heads {
		g := h / group
		basis := d.Head(s.index, g)
		row := func(c int) []float32 { return basis[c*s.dim : (c+1)*s.dim] }
		energy := make([]float64, s.dim)
		for c := range energy {
			for other := g * group; other < (g+1)*group; other++ {
				for t := s.prompt - sample; t < s.prompt; t++ {
					energy[c] += math.Abs(dot64(row(c), s.query(other, t)))
				}
			}
		}
		columns := topOf(energy, rank)
		best := math.Inf(-1)
		for _, p := range s.pos[g] {
			var x float64
			for _, c := range columns {
				x += dot64(row(int(c)), s.query(h, len(s.q)-1)) * dot64(row(int(c)), s.key(g, int(p)))
			}
			scores[h] = append(scores[h], x/math.Sqrt(float64(s.dim)))
			if int(p) < len(s.q)-1 {
				best = max(best, scores[h][len(scores[h])-1])
			}
		}
		for i := range scores[h] {
			scores[h][i] -= best
			if scores[h][i] > -alpha && int(s.pos[g][i]) < len(s.q)-1 {
				wanted++
			}
		}
	}
	count := min(max(wanted/s.heads, 1), budget)
	var out [][]int32
	for g := range s.kvHeads {
		newest := len(scores[g*group]) - 1
		above := make([]float64, newest) // how far a token lies above the last that a head of the group wants
		for i := range above {
			above[i] = math.Inf(-1)
		}
		wantedByAny := map[int32]bool{}
		for _, row := range scores[g*group : (g+1)*group] {
			own := topOf(row[:newest], min(count-1, newest))
			last := math.Inf(1)
			for _, i := range own {
				wantedByAny[i] = true
				last = min(last, row[i])
			}
			for i := range above {
				above[i] = max(above[i], row[i]-last)
			}
		}
		picks := topOf(above, min(len(wantedByAny), budget-1))
		out = append(out, append(picks, int32(newest)))
	}
	return out
}

func refLeoAM(s *scene, g, budget, fine, coarse int, expand, flat float64) []int32 {
	group, n := s.heads/s.kvHeads, len(s.pos[g])
	bound := func(size int) []float64 {
		var out []float64
		for from := 0; from < n; from += size {
			best := math.Inf(-1)
			for h := g * group; h < (g+1)*group; h++ {
				var sum float64
				for d, q := range s.query(h, len(s.q)-1) {
					x := math.Inf(-1)
					for _, p := range s.pos[g][from:min(from+size, n)] {
						x = max(x, float64(q)*float64(s.key(g, int(p))[d]))
					}
					sum += x
				}
				best = max(best, sum)
			}
			out = append(out, best)
		}
		return out
	}
	upper := bound(coarse)
	ranked := slices.Clone(upper)
	ranked[len(ranked)-1] = 1e9
	opened := topOf(ranked, max(int(expand*float64(budget)/float64(coarse)), 1))
	var all, held float64
	for c, b := range upper {
		w := math.Exp(b / math.Sqrt(float64(s.dim)))
		all += w
		if slices.Contains(opened, int32(c)) {
			held += w
		}
	}
	size, chunks := fine, bound(fine)
	if held/all < float64(len(opened))/float64(len(upper))+flat {
		size, chunks = coarse, ranked
	} else {
		for i := range chunks {
			if !slices.Contains(opened, int32(i*fine/coarse)) {
				chunks[i] = -1e9
			}
		}
	}
	chunks[len(chunks)-1] = 1e9
	var out []int32
	for _, c := range topOf(chunks, max(budget/size, 1)) {
		for i := int(c) * size; i < min((int(c)+1)*size, n); i++ {
			out = append(out, int32(i))
		}
	}
	return out
}

// refH2O replays a whole text: sums of attention per position, the lightest that isn't recent leaves.
type refH2O struct {
	sum  []map[int32]float64 // per KV head
	gone int
}

func (r *refH2O) observe(s *scene, rows int, budget, recent int) [][]int32 {
	group := s.heads / s.kvHeads
	var out [][]int32
	for g := range s.kvHeads {
		if len(r.sum) <= g {
			r.sum = append(r.sum, map[int32]float64{})
		}
		for h := g * group; h < (g+1)*group; h++ {
			for t := len(s.q) - rows; t < len(s.q); t++ {
				for i, w := range s.weights(h, t) {
					r.sum[g][s.pos[g][i]] += w
				}
			}
		}
		left := slices.Clone(s.pos[g])
		for len(left) > budget {
			lightest := 0
			for i := 1; i < len(left)-recent; i++ {
				if r.sum[g][left[i]] < r.sum[g][left[lightest]] {
					lightest = i
				}
			}
			left = slices.Delete(left, lightest, lightest+1)
			r.gone++
		}
		out = append(out, left)
	}
	return out
}

func TestH2OAgainstReference(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomScene(seed, 40+int(seed)*13, 4, 2, 16)
		set := mustSet(t, "h2o:budget=24,recent=10", s)
		ref := &refH2O{}
		want := ref.observe(s, s.prompt, 24, 10)
		var p Selection
		set.Keeper.KeepPrompt(s.shown(set.Keeper), &p)
		s.keep(&p)
		equalPositions(t, s.pos, want, "prompt")
		for step := range 30 {
			s.step(r)
			want = ref.observe(s, 1, 24, 10)
			set.Dropper.DropStep(s.shown(set.Dropper), &p)
			s.evict(&p)
			equalPositions(t, s.pos, want, fmt.Sprintf("seed %d step %d", seed, step))
		}
		if ref.gone == 0 {
			t.Fatal("nothing was ever dropped")
		}
	}
}

func TestSelectorsAgainstReferences(t *testing.T) {
	shapes := []struct{ n, heads, kvHeads, dim int }{{97, 4, 2, 16}, {256, 3, 3, 32}, {333, 8, 2, 24}}
	for i, sh := range shapes {
		for seed := range uint64(5) {
			s := randomScene(seed+100*uint64(i), sh.n, sh.heads, sh.kvHeads, sh.dim)
			s.index = 3
			d := NewDecomposition(Model{Layers: cacheshape.Equal(4, sh.kvHeads, cacheshape.KV{Heads: sh.kvHeads, KeyDim: sh.dim})})
			if err := d.SetLayer(3, slices.Concat(s.q...), sh.n, sh.heads); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%v seed %d ", sh, seed)
			read := selected(t, s, "oracle:budget=20", nil).Heads
			quest := selected(t, s, "quest:budget=64,page=8", nil).Heads
			leoam := selected(t, s, "leoam:budget=48,chunk=8,coarse=32,flat=0.05", nil).Heads
			sparq := selected(t, s, "sparq:budget=30,rank=7,local=9", nil)
			infini := selected(t, s, "infinigen:budget=40,alpha=2,partial=0.3,sample=50,query=exact", d).Heads
			wantInfini := refInfiniGen(s, d, 40, int(math.Round(0.3*float64(sh.dim))), 50, 2)
			for g := range sh.kvHeads {
				equalIndices(t, read[g], refOracle(s, g, 20), name+"oracle")
				equalIndices(t, quest[g], refQuest(s, g, 64, 8), name+"quest")
				equalIndices(t, leoam[g], refLeoAM(s, g, 48, 8, 32, 2, 0.05), name+"leoam")
				picks, shares := refSparQ(s, g, 30, 7, 9)
				equalIndices(t, sparq.Heads[g], picks, name+"sparq")
				group := sh.heads / sh.kvHeads
				for h, a := range shares {
					if math.Abs(float64(sparq.Share[g*group+h])-a) > 1e-5 {
						t.Errorf("%ssparq: head %d holds %g, want %g", name, g*group+h, sparq.Share[g*group+h], a)
					}
				}
				equalIndices(t, infini[g], wantInfini[g], name+"infinigen")
			}
		}
	}
}

// TestDecomposition checks the basis: orthonormal, by falling energy, and a product through all columns is the product.
func TestDecomposition(t *testing.T) {
	s := randomScene(3, 200, 4, 2, 16)
	d := NewDecomposition(Model{Layers: cacheshape.Equal(1, 2, cacheshape.KV{Heads: 2, KeyDim: 16})})
	if err := d.SetLayer(0, slices.Concat(s.q...), 200, 4); err != nil {
		t.Fatal(err)
	}
	for g := range 2 {
		basis := d.Head(0, g)
		last := math.Inf(1)
		for c := range 16 {
			row := basis[c*16 : (c+1)*16]
			for other := range 16 {
				want := 0.0
				if other == c {
					want = 1
				}
				if x := dot64(row, basis[other*16:(other+1)*16]); math.Abs(x-want) > 1e-5 {
					t.Fatalf("rows %d and %d: product %g, want %g", c, other, x, want)
				}
			}
			var energy float64
			for h := g * 2; h < g*2+2; h++ {
				for i := range s.q {
					x := dot64(row, s.query(h, i))
					energy += x * x
				}
			}
			if energy > last*(1+1e-6) {
				t.Fatalf("column %d has more energy than the one before it: %g > %g", c, energy, last)
			}
			last = energy
		}
		q, k := s.query(g*2, 7), s.key(g, 9)
		var through float64
		for c := range 16 {
			through += dot64(basis[c*16:(c+1)*16], q) * dot64(basis[c*16:(c+1)*16], k)
		}
		if want := dot64(q, k); math.Abs(through-want) > 1e-4*math.Abs(want)+1e-5 {
			t.Fatalf("product through the basis %g, want %g", through, want)
		}
	}
}

// selected runs a selector on the newest query of a scene, with a projected sketch where it asks for one.
func selected(t *testing.T, s *scene, spec string, d *Decomposition) *Selection {
	t.Helper()
	s.fill()
	set := mustSetWith(t, spec, s, d)
	l := s.layer(0, 1)
	if p := set.Projector; p != nil {
		l.Scores = project(s, p)
	}
	var read Selection
	set.Selector.Select(l, &read)
	return &read
}

// projected scores through the matrices of a Projector.
type projected struct {
	*scene
	rank   int
	matrix [][]float32
	joint  bool // one matrix for the keys of all heads side by side
	need   Sketch
}

func project(s *scene, p Projector) *projected {
	x := &projected{scene: s, rank: p.Needs().Sketch.Rank, joint: p.Needs().Sketch.Kind == SketchJoint, need: p.Needs().Sketch}
	l := s.layer(0, p.Needs().Queries)
	if x.joint {
		m := make([]float32, x.rank*s.kvHeads*s.dim)
		p.Project(l, 0, m)
		x.matrix = append(x.matrix, m)
		return x
	}
	for g := range s.kvHeads {
		m := make([]float32, x.rank*s.dim)
		p.Project(l, g, m)
		x.matrix = append(x.matrix, m)
	}
	return x
}

func (x *projected) Approx(g int, q []float32, rows int, dst []float32) {
	n := len(x.pos[g])
	for r := range rows {
		for i, p := range x.pos[g] {
			var sum float64
			for c := range x.rank {
				for h := 0; x.joint && h < x.kvHeads; h++ {
					sum += float64(q[r*x.rank+c]) * dot64(x.matrix[0][(c*x.kvHeads+h)*x.dim:][:x.dim], x.key(h, int(p)))
				}
				if x.joint {
					continue
				}
				sum += float64(q[r*x.rank+c]) * dot64(x.matrix[g][c*x.dim:(c+1)*x.dim], x.key(g, int(p)))
			}
			dst[r*n+i] = float32(sum)
		}
	}
}

func mustSet(t *testing.T, spec string, s *scene) *Set {
	t.Helper()
	return mustSetWith(t, spec, s, nil)
}

func mustSetWith(t *testing.T, text string, s *scene, d *Decomposition) *Set {
	t.Helper()
	spec, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	set, err := spec.New(Model{Hidden: s.heads * s.dim, Layers: cacheshape.Equal(s.layers, s.heads, cacheshape.KV{Heads: s.kvHeads, KeyDim: s.dim, ValueDim: s.dim}), Observed: ofModel(QueryBasis{}, d),
		Index: &Index{Heads: 2, Dim: s.dim, TopK: 64, Block: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func equalIndices(t *testing.T, got, want []int32, what string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equalPositions(t *testing.T, got, want [][]int32, what string) {
	t.Helper()
	for g := range want {
		equalIndices(t, got[g], want[g], what)
	}
}
