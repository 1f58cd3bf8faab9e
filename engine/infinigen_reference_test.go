package engine

import (
	"math"
	"slices"
	"sort"
	"testing"

	"terrace/model"
)

// directions are the right singular vectors of a matrix by falling singular value: Jacobi's rotations of its Gram matrix.
func directions(rows [][]float64) [][]float64 {
	n := len(rows[0])
	a, v := make([][]float64, n), make([][]float64, n)
	for i := range n {
		a[i], v[i] = make([]float64, n), make([]float64, n)
		v[i][i] = 1
		for j := range n {
			for _, row := range rows {
				a[i][j] += row[i] * row[j]
			}
		}
	}
	for range 12 {
		for p := range n {
			for q := p + 1; q < n; q++ {
				angle := 0.5 * math.Atan2(2*a[p][q], a[q][q]-a[p][p])
				s, c := math.Sincos(angle)
				for k := range n {
					a[k][p], a[k][q] = c*a[k][p]-s*a[k][q], s*a[k][p]+c*a[k][q]
				}
				for k := range n {
					a[p][k], a[q][k] = c*a[p][k]-s*a[q][k], s*a[p][k]+c*a[q][k]
					v[p][k], v[q][k] = c*v[p][k]-s*v[q][k], s*v[p][k]+c*v[q][k]
				}
			}
		}
	}
	idx := rowsOf(n)
	sort.Slice(idx, func(i, j int) bool { return a[idx[i]][idx[i]] > a[idx[j]][idx[j]] })
	var out [][]float64
	for _, i := range idx {
		out = append(out, v[i])
	}
	return out
}

// infinigenReads: columns by Σ|q| of the newest sample queries of the prompt, turned; the query guessed from the input of
// the layer before; tokens within alpha of a head's best counted over all heads; each head its own best, of a shared KV head
// the union, those highest above a head's last where the budget cuts it.
func infinigenReads(calibration, prompt [][][]float64, budget, rank, sample int, alpha float64) func(*readReference, int, int, []float64) ([]int, []float64) {
	var chosen [][][][]float64 // [layer][g][rank][dim]
	return func(r *readReference, layer, g int, _ []float64) ([]int, []float64) {
		if layer < 1 {
			return rowsOf(r.n), nil
		}
		m, t := r.m, r.t
		if chosen == nil {
			for l := range m.Layers {
				var heads [][][]float64
				for kv := range m.Layer[0].KVHeads {
					heads = append(heads, r.columns(calibration[l], prompt[l], kv, rank, sample))
				}
				chosen = append(chosen, heads)
			}
		}
		guess := times(values(t, m.Params.Layers[layer].Q), r.norm(t, r.input[layer-1], m.Params.Layers[layer].AttnNorm))
		r.turn(layer, guess, m.Layer[0].Heads, r.n-1)
		var scores [][]float64 // [head][older token]
		wanted := m.Layer[0].Heads
		for h := range m.Layer[0].Heads {
			var row []float64
			for p := range r.n - 1 {
				var s float64
				for _, c := range chosen[layer][h/m.Layer[0].Group()] {
					s += inner(c, r.head(guess, h)) * inner(c, r.key(layer, h/m.Layer[0].Group(), p))
				}
				row = append(row, s/math.Sqrt(float64(m.Layer[0].KeyDim)))
			}
			scores = append(scores, row)
			for _, s := range row {
				r.gap = min(r.gap, math.Abs(s-(slices.Max(row)-alpha)))
				if s > slices.Max(row)-alpha {
					wanted++
				}
			}
		}
		count := min(wanted/m.Layer[0].Heads, budget)
		above, any, scale := make([]float64, r.n-1), map[int]bool{}, 0.0
		for i := range above {
			above[i] = math.Inf(-1)
		}
		for _, row := range scores[g*m.Layer[0].Group() : (g+1)*m.Layer[0].Group()] {
			last := math.Inf(1)
			for _, i := range r.best(row, count-1) {
				any[i] = true
				last = min(last, row[i])
			}
			for i, x := range row {
				above[i] = max(above[i], x-last)
				scale = max(scale, math.Abs(x))
			}
		}
		return append(r.bestOf(above, min(len(any), budget-1), scale), r.n-1), nil
	}
}

// columns are the directions of a KV head whose components of the newest prompt queries are largest.
func (r *readReference) columns(calibration, prompt [][]float64, g, rank, sample int) (out [][]float64) {
	var asked [][]float64
	for _, q := range calibration {
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			asked = append(asked, r.head(q, h))
		}
	}
	basis := directions(asked)
	energy := make([]float64, len(basis))
	for c, row := range basis {
		for _, q := range prompt[max(len(prompt)-sample, 0):] {
			for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
				energy[c] += math.Abs(inner(row, r.head(q, h)))
			}
		}
	}
	for _, c := range r.best(energy, rank) {
		out = append(out, basis[c])
	}
	return out
}

// queriesOf runs a text through full attention and returns the rotated queries of each layer.
func queriesOf(t *testing.T, m *model.Model, ids []int) (out [][][]float64) {
	p := plain{m: m, prune: keepQueries(&out)}
	p.run(t, ids)
	return out
}

// keepQueries is a plain.prune that prunes nothing and keeps each layer's queries.
func keepQueries(out *[][][]float64) func(int, []int, [][]float64, [][]float64, [][]float64) []int {
	return func(_ int, pos []int, q, _ [][]float64, _ [][]float64) []int {
		*out = append(*out, q)
		return rowsOf(len(pos))
	}
}
