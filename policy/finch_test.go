package policy

import (
	"errors"
	"fmt"
	"testing"
)

// refFinch is kvpress's FinchPress on a scene, line by line: what stays.
func refFinch(s *scene, ratio float64, window, chunk int, normalise bool) (kept [][]int32) {
	n, group := len(s.q), s.heads/s.kvHeads
	all, top := make([][]float64, s.kvHeads), 0.0
	for g := range all {
		all[g] = make([]float64, n)
		for h := g * group; h < (g+1)*group; h++ {
			for t := n - window; t < n; t++ {
				count := 1.0
				if normalise {
					count = float64(t)
				}
				for i, w := range s.weights(h, t)[:n-window] {
					all[g][i] += w * count / float64(window) / float64(group)
				}
			}
		}
		for _, x := range all[g] {
			top = max(top, x)
		}
	}
	for _, scores := range all {
		for i := n - window; i < n; i++ {
			scores[i] = top + 1 + float64(i) // which of the question stay where not all fit is torch's accident; here the newest
		}
		if chunk == 0 {
			kept = append(kept, topOf(scores, int(float64(n)*(1-ratio))))
			continue
		}
		var picks []int32
		for from := 0; from < n; from += chunk {
			part := scores[from:min(from+chunk, n)]
			for _, i := range topOf(part, max(1, int(float64(len(part))*(1-ratio)))) {
				picks = append(picks, int32(from)+i)
			}
		}
		kept = append(kept, picks)
	}
	return kept
}

func TestFinchAgainstReference(t *testing.T) {
	for _, n := range []int{97, 283} {
		s := randomScene(uint64(n), n, 4, 2, 16)
		s.fill()
		for _, ratio := range []float64{0.2, 0.5, 0.8} {
			for _, window := range []int{1, 12} {
				for _, chunk := range []int{0, 64} {
					for _, normalise := range []bool{false, true} {
						spec := fmt.Sprintf("FinchPress:compression_ratio=%g,window_size=%d,chunk_length=%d,normalize_scores=%v", ratio, window, chunk, normalise)
						p := mustSet(t, spec, s).Keeper
						var keep Selection
						p.KeepPrompt(s.shown(p), &keep)
						equalPositions(t, keep.Heads, refFinch(s, ratio, window, chunk, normalise), fmt.Sprintf("%s, %d tokens", spec, n))
					}
				}
			}
		}
	}
}

func TestFinchRefuses(t *testing.T) {
	for spec, want := range map[string]error{"finch:chunk_length=64,budget=100": ErrParam, "finch:chunk_length=64,window_size=40": ErrParam, "finch:window_size=0": ErrParam,
		"finch+quest": ErrClash, "sliminfer+finch": ErrClash} {
		if _, err := Parse(spec); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", spec, err, want)
		}
	}
	if _, err := Parse("finch:rerotate_keys=false+quest"); err != nil {
		t.Error(err)
	}
}
