package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// refSizes is kvpress's vwl1norm of a scene: [heads][n], the mean over a group.
func refSizes(s *scene) [][]float64 {
	norms := make([][]float32, s.heads)
	for h := range norms {
		norms[h] = make([]float32, len(s.q))
	}
	s.outputNorms(norms)
	group := s.heads / s.kvHeads
	out := make([][]float64, s.kvHeads)
	for h, row := range norms {
		g := h / group
		if out[g] == nil {
			out[g] = make([]float64, len(row))
		}
		for i, x := range row {
			out[g][i] += float64(x) / float64(group)
		}
	}
	return out
}

// refCriticalKV is kvpress's CriticalKVPress on wrapped scores [heads][n], line by line: what stays.
func refCriticalKV(scores, sizes [][]float64, ratio, first, epsilon float64) (kept [][]int32) {
	n := len(scores[0])
	for g, row := range scores {
		row = slices.Clone(row)
		top := topOf(row, int((1-ratio)*float64(n)*first))
		for i := range row {
			row[i] = (row[i] + epsilon) * sizes[g][i]
		}
		for _, i := range top {
			row[i] = math.MaxFloat64
		}
		kept = append(kept, topOf(row, int(float64(n)*(1-ratio))))
	}
	return kept
}

// refCriticalAdaKV is CriticalAdaKVPress likewise.
func refCriticalAdaKV(scores, sizes [][]float64, ratio, first, epsilon, alpha float64) (kept [][]int32) {
	n, heads := len(scores[0]), len(scores)
	each := int(float64(n) * (1 - ratio))
	safe := int(float64(each) * alpha)
	var flat []float64
	for g, row := range scores {
		scores[g] = slices.Clone(row)
		for _, i := range topOf(row, safe) {
			scores[g][i] = 1e30
		}
		flat = append(flat, scores[g]...)
	}
	budgets := make([]int, heads)
	for _, i := range topOf(flat, each*heads) {
		budgets[int(i)/n]++
	}
	for g, row := range scores {
		for _, i := range topOf(row, int(float64(budgets[g])*first)) {
			row[i] = 1e30
		}
		for i := range row {
			row[i] = (row[i] + epsilon) * sizes[g][i]
		}
		kept = append(kept, topOf(row, budgets[g]))
	}
	return kept
}

// TestCriticalKVAgainstReference: scorers of every kind, both forms, stages of every size.
func TestCriticalKVAgainstReference(t *testing.T) {
	changed, all := 0, 0
	for _, n := range []int{97, 283} {
		s := randomScene(uint64(n), n, 4, 2, 16)
		s.fill()
		sizes := refSizes(s)
		for _, inner := range []string{"snapkv,window_size=8", "expected_attention", "keydiff", "knorm", "random", "lagkv,lag_size=16"} {
			for _, ratio := range []float64{0.25, 0.5, 0.9} {
				for _, first := range []float64{0, 0.3, 0.5, 1} {
					for _, adaptive := range []bool{false, true} {
						spec := fmt.Sprintf("criticalkv:%s,ratio=%g,first_stage_ratio=%g,adaptive=%v", inner, ratio, first, adaptive)
						p := mustSet(t, spec, s).Keeper.(*criticalKV)
						l := s.shown(p)
						scores := heads(nil, l)
						p.inner.Score(l, p.inner.Target(l), scores)
						wide := make([][]float64, len(scores))
						for g, row := range scores {
							for _, x := range row {
								wide[g] = append(wide[g], float64(x))
							}
						}
						want := refCriticalKV(wide, sizes, ratio, first, 1e-4)
						if adaptive {
							want = refCriticalAdaKV(wide, sizes, ratio, first, 1e-4, 0.2)
						}
						var got, plain Selection
						p.KeepPrompt(l, &got)
						equalPositions(t, got.Heads, want, fmt.Sprintf("%s, %d tokens", spec, n))
						p.inner.KeepPrompt(l, &plain)
						if all++; !slices.Equal(got.Heads[0], plain.Heads[0]) {
							changed++
						}
					}
				}
			}
		}
	}
	if changed < all/2 {
		t.Errorf("only %d of %d cases keep other tokens than the wrapped policy", changed, all)
	}
}

// TestCriticalKVRefuses: what two stages would undo, and a parameter without meaning.
func TestCriticalKVRefuses(t *testing.T) {
	for _, spec := range []string{"criticalkv:adakv", "criticalkv:chunkkv/knorm", "criticalkv:h2o", "criticalkv:alpha_safeguard=0.3", "criticalkv:first_stage_ratio=1.5"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
	for _, spec := range []string{"CriticalKVPress:ExpectedAttentionPress,compression_ratio=0.3", "adakv:criticalkv/snapkv", "per_layer:criticalkv,adaptive=true"} {
		if _, err := Parse(spec); err != nil {
			t.Error(err)
		}
	}
}
