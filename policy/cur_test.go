package policy

import (
	"errors"
	"fmt"
	"testing"
)

// refCUR follows the paper's description: sizes from sums of squares, shares of a window, the combination, sinks first.
func refCUR(s *scene, g, budget, sinks, window int, form string) []int32 {
	n := len(s.pos[g])
	sizes := func(row func(int) []float32) []float64 {
		out := make([]float64, n)
		for i := range out {
			for _, x := range row(i) {
				out[i] += float64(x) * float64(x)
			}
		}
		shares := make([]float64, n)
		for i := range shares {
			sum := 1.0
			if window > 0 {
				sum = 0
				for j := range out {
					if j/window == i/window {
						sum += out[j]
					}
				}
			}
			shares[i] = out[i] / sum
		}
		return shares
	}
	k := sizes(func(i int) []float32 { return s.key(g, int(s.pos[g][i])) })
	v := sizes(func(i int) []float32 { return s.value(g, int(s.pos[g][i])) })
	score := make([]float64, n)
	for i := range score {
		score[i] = map[string]float64{"key": k[i], "value": v[i], "kv_avg": k[i] + v[i], "kv_product": k[i] * v[i]}[form]
		if i < sinks {
			score[i] = 1e30
		}
	}
	return topOf(score, budget)
}

func TestCURAgainstReference(t *testing.T) {
	for _, n := range []int{97, 160} { // a last window of one token, and none
		s := randomScene(uint64(n), n, 4, 2, 16)
		s.fill()
		for _, form := range []string{"key", "value", "kv_avg", "kv_product"} {
			for _, window := range []int{0, 3, 16, 500} {
				for _, sinks := range []int{0, 4, 9} {
					for _, budget := range []int{10, 50} {
						spec := fmt.Sprintf("cur:budget=%d,num_sinks=%d,leverage_type=%s,local_window_size=%d,use_local_approximation=%v", budget, sinks, form, max(window, 1), window > 0)
						p := mustSet(t, spec, s).Keeper
						var keep Selection
						p.KeepPrompt(s.shown(p), &keep)
						for g, got := range keep.Heads {
							equalIndices(t, got, refCUR(s, g, budget, sinks, window, form), fmt.Sprintf("%s, %d tokens, head %d", spec, n, g))
						}
					}
				}
			}
		}
	}
}

func TestCURRefuses(t *testing.T) {
	for _, spec := range []string{"cur:leverage_type=both", "cur:local_window_size=0", "cur:num_sinks=-1"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
}
