package engine

import (
	"math"
	"slices"
	"sort"
)

// toppQuestReads: of quest's pages, for each query head, as few tokens as hold a share of its attention over them; the KV head reads what any keeps, and the newest.
// Weights are of true keys, or of 4-bit ones: 16 steps between each key's smallest number and its largest.
func toppQuestReads(budget, page int, p float64, exact bool) func(*readReference, int, int, []float64) ([]int, []float64) {
	pages := questReads(budget, page, 0)
	rounded := func(key []float64) []float64 {
		low := slices.Min(key)
		step := max(slices.Max(key)-low, 1e-9) / 15
		out := make([]float64, len(key))
		for d, x := range key {
			out[d] = math.RoundToEven((x-low)/step)*step + low
		}
		return out
	}
	return func(r *readReference, layer, g int, q []float64) ([]int, []float64) {
		picks, _ := pages(r, layer, g, q)
		in := map[int]bool{r.n - 1: true}
		for h := g * r.m.Layer[0].Group(); h < (g+1)*r.m.Layer[0].Group(); h++ {
			var scores []float64
			for _, at := range picks {
				key := r.key(layer, g, at)
				if !exact {
					key = rounded(key)
				}
				scores = append(scores, inner(r.head(q, h), key)/math.Sqrt(float64(r.m.Layer[0].KeyDim)))
			}
			w := softmaxOf(scores)
			order := rowsOf(len(w))
			sort.SliceStable(order, func(a, b int) bool { return w[order[a]] > w[order[b]] })
			sum := 0.0
			for _, i := range order {
				in[picks[i]] = true
				if sum += w[i]; sum >= p {
					break
				}
			}
			r.gap = min(r.gap, sum-p)
		}
		return slices.DeleteFunc(picks, func(at int) bool { return !in[at] }), nil
	}
}
