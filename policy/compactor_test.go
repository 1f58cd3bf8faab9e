package policy

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// inChunks is ChunkAttention of a scene, read in one prompt.
func (s *scene) inChunks(o ChunkAttention) [][]float32 {
	out, group := make([][]float32, s.kvHeads), s.heads/s.kvHeads
	for g := range out {
		sums := make([]float64, len(s.q))
		for from := o.First; from < len(s.q)-o.Last; from += o.Chunk {
			to := min(from+o.Chunk, len(s.q)-o.Last)
			for h := g * group; h < (g+1)*group; h++ {
				for t := from; t < from+o.Chunk; t++ {
					weights, sum := make([]float64, o.Chunk), 0.0
					for i := range weights {
						weights[i] = 1 // keys and queries that fill the chunk up are 0
						if t < to && from+i < to {
							weights[i] = math.Exp(dot64(s.query(h, t), s.key(g, from+i)))
						}
						sum += weights[i]
					}
					for i := from; i < to; i++ {
						sums[i] += weights[i-from] / sum / float64(group)
					}
				}
			}
		}
		for _, p := range s.cached(g) {
			out[g] = append(out[g], float32(sums[p]))
		}
	}
	return out
}

func (y *toy) inChunks(ChunkAttention) [][]float32 { panic("no toy has it") }

// solve is (matrix + λ1)⁻¹·b by Gauss and Jordan.
func solve(matrix [][]float64, lambda float64, b []float64) []float64 {
	n := len(b)
	a := make([][]float64, n)
	for i := range a {
		a[i] = append(append([]float64(nil), matrix[i]...), b[i])
		a[i][i] += lambda
	}
	for i := range a {
		for r := range a {
			if r != i {
				f := a[r][i] / a[i][i]
				for c := i; c <= n; c++ {
					a[r][c] -= f * a[i][c]
				}
			}
		}
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = a[i][n] / a[i][i]
	}
	return out
}

// refCompactor follows kvpress's source with the random matrices of the policy, in float64: what stays in each KV head.
func refCompactor(t *testing.T, s *scene, p *compactor, budget int, blending float64, withLeverage, withAttention bool) [][]int32 {
	t.Helper()
	n := len(s.q)
	from := min(p.first, n)
	to := max(n-p.last, from)
	l := s.shown(p)
	standard := func(scores [][]float64) {
		var sum, squares, count float64
		for _, row := range scores {
			for _, x := range row {
				sum, count = sum+x, count+1
			}
		}
		for _, row := range scores {
			for _, x := range row {
				squares += (x - sum/count) * (x - sum/count)
			}
		}
		for _, row := range scores {
			for i, x := range row {
				row[i] = (x - sum/count) / math.Max(math.Sqrt(squares/(count-1)), 1e-6)
			}
		}
	}
	leverage, attention := make([][]float64, s.kvHeads), make([][]float64, s.kvHeads)
	for g := range s.kvHeads {
		var x [][]float64
		sketch := p.sketch(l, g)
		for i := from; i < to; i++ {
			key := append([]float32(nil), s.key(g, i)...)
			s.rope.Rotate(key, -i)
			row := make([]float64, s.dim)
			for j := range row {
				row[j] = float64(key[j])
			}
			if sketch != nil {
				row = make([]float64, p.dims)
				for j := range row {
					row[j] = dot64(key, sketch[j*s.dim:(j+1)*s.dim])
				}
			}
			x = append(x, row)
		}
		k := len(x[0])
		for j := range k {
			mean := 0.0
			for i := range x {
				mean += x[i][j] / float64(len(x))
			}
			for i := range x {
				x[i][j] -= mean
			}
		}
		gram := make([][]float64, k)
		for a := range gram {
			gram[a] = make([]float64, k)
			for b := range k {
				for i := range x {
					gram[a][b] += x[i][a] * x[i][b]
				}
			}
		}
		for i := range x {
			y, score := solve(gram, 0.01, x[i]), 0.0
			for j := range y {
				score += y[j] * x[i][j]
			}
			leverage[g] = append(leverage[g], score)
		}
		sums := s.inChunks(p.chunks)[g]
		weighed := make([]float64, to-from+2)
		for i := from; i < to; i++ {
			weighed[i-from+1] = float64(sums[i]) * math.Sqrt(dot64(s.value(g, i), s.value(g, i)))
		}
		for i := 1; i < len(weighed)-1; i++ {
			attention[g] = append(attention[g], (weighed[i-1]+weighed[i]+weighed[i+1])/3)
		}
	}
	standard(leverage)
	standard(attention)
	top := math.Inf(-1)
	for g := range leverage {
		for i := range leverage[g] {
			switch {
			case !withAttention:
				attention[g][i] = leverage[g][i]
			case withLeverage:
				attention[g][i] += blending * leverage[g][i]
			}
			top = math.Max(top, attention[g][i])
		}
	}
	out := make([][]int32, s.kvHeads)
	for g := range out {
		score := make([]float64, n)
		for i := range score {
			if score[i] = top; i >= from && i < to {
				score[i] = attention[g][i-from]
			}
		}
		out[g] = topOf(score, budget)
	}
	return out
}

func TestCompactorAgainstReference(t *testing.T) {
	for _, n := range []int{97, 160} {
		s := randomScene(uint64(n), n, 4, 2, 16)
		s.fill()
		s.index = 1
		for _, c := range []struct {
			params              string
			blending            float64
			leverage, attention bool
		}{
			{"", 1 - 0.5, true, true}, {",blending=0.1", 0.1, true, true}, {",blending=3,sketch_dimension=0", 3, true, true},
			{",sketch_dimension=8,sinks=3,recent=0,seed=7", 0.5, true, true}, {",part=leverage", 0, true, false}, {",part=attention,chunk_size=33", 0, false, true},
			{",chunk_size=20,sketch_dimension=10", 0.5, true, true}, {",chunk_size=17,recent=20", 0.5, true, true},
		} {
			for _, budget := range []int{25, n / 2} {
				spec := fmt.Sprintf("compactor:budget=%d%s", budget, c.params)
				set := mustSet(t, spec, s)
				blending := c.blending
				if blending == 0.5 {
					blending = 1 - float64(budget)/float64(n)
				}
				var keep Selection
				set.Keeper.KeepPrompt(s.shown(set.Keeper), &keep)
				equalPositions(t, keep.Heads, refCompactor(t, s, set.Keeper.(*compactor), budget, blending, c.leverage, c.attention), fmt.Sprintf("%s, %d tokens", spec, n))
			}
		}
	}
}

// TestCompactorBlends: the part removed is the weight of leverage, as it is given where it is a ratio.
func TestCompactorBlends(t *testing.T) {
	s := randomScene(4, 99, 4, 2, 16)
	for spec, want := range map[string]float32{"compactor:ratio=0.35": 0.35, "compactor:budget=33": 1 - 33./99, "compactor:ratio=0.35,blending=2": 2, "adakv:compactor,budget=11": 1 - 11./99} {
		set := mustSet(t, spec, s)
		p, ok := set.Keeper.(*compactor)
		if !ok {
			p = set.Keeper.(*adaKV).inner.(*compactor)
		}
		if got := p.blend(s.layer(0, 0), set.Keeper.(Scored).Target(s.layer(0, 0))); math.Abs(float64(got-want)) > 1e-6 {
			t.Errorf("%s: %g, want %g", spec, got, want)
		}
	}
}

// TestSketchIsGaussian: mean, variance and fourth moment of the random matrix; other layers, heads and seeds have others.
func TestSketchIsGaussian(t *testing.T) {
	p := &compactor{dims: 64}
	l := &Layer{Index: 3, KeyDim: 256}
	x := p.sketch(l, 1)
	var moments [5]float64
	for _, v := range x {
		for k := range moments {
			moments[k] += math.Pow(float64(v)*8, float64(k)) / float64(len(x))
		}
	}
	for k, want := range []float64{1, 0, 1, 0, 3} {
		if math.Abs(moments[k]-want) > 0.1 {
			t.Errorf("moment %d is %.3f, want %g", k, moments[k], want)
		}
	}
	again, others := p.sketch(l, 1), [][]float32{p.sketch(l, 0), p.sketch(&Layer{Index: 4, KeyDim: 256}, 1), (&compactor{dims: 64, seed: 1}).sketch(l, 1)}
	if again[0] != x[0] || len(x) != 64*256 {
		t.Error("drawn again it differs")
	}
	for i, y := range others {
		if math.Abs(dot64(x, y)) > 0.03*dot64(x, x) {
			t.Errorf("matrix %d is like the first", i)
		}
	}
}

// TestCompactorOddKeys: equal keys, and ones that are no numbers, leave no panic and the other score.
func TestCompactorOddKeys(t *testing.T) {
	for _, x := range []float32{0, 1, float32(math.NaN()), float32(math.Inf(1))} {
		s := randomScene(4, 60, 4, 2, 16)
		for i := range s.k {
			for j := range s.k[i] {
				s.k[i][j] = x
			}
		}
		set := mustSet(t, "compactor:budget=20", s)
		var keep Selection
		set.Keeper.KeepPrompt(s.shown(set.Keeper), &keep)
		if len(keep.Heads[0]) != 20 {
			t.Errorf("keys of %g: %d tokens stay, want 20", x, len(keep.Heads[0]))
		}
	}
}

func TestCompactorRefuses(t *testing.T) {
	for _, spec := range []string{"compactor:chunk_size=0", "compactor:part=keys", "compactor:blending=-1", "leverage_score:sketch_dimension=-2"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
}
