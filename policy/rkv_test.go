package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// refRKV is R1KV of the authors' code (rkv/compression/r1_kv.py, rkv/utils.py) on a scene, line by line, in float64: what stays.
func refRKV(s *scene, target, window, kernel int, lambda, threshold float64) (kept [][]int32) {
	s.fill()
	group, newest := s.heads/s.kvHeads, len(s.q)-1
	softmax := func(x []float64) {
		top, sum := slices.Max(x), 0.0
		for i := range x {
			x[i] = math.Exp(x[i] - top)
			sum += x[i]
		}
		for i := range x {
			x[i] /= sum
		}
	}
	dot := func(a, b []float32) (sum float64) {
		for i := range a {
			sum += float64(a[i]) * float64(b[i])
		}
		return sum
	}
	for g := range s.kvHeads {
		pos := s.pos[g]
		n := len(pos) - window
		weights := make([]float64, n)
		for r := newest - window + 1; r <= newest; r++ {
			row := make([]float64, n)
			for i := range row {
				row[i] = math.Inf(-1)
				for h := g * group; h < (g+1)*group; h++ {
					row[i] = max(row[i], dot(s.query(h, r), s.key(g, int(pos[i])))/math.Sqrt(float64(s.dim)))
				}
			}
			softmax(row)
			for i, w := range row {
				weights[i] += w / float64(window)
			}
		}
		all := len(pos)
		similar := make([][]float64, all)
		for i := range similar {
			similar[i] = make([]float64, all)
			a, last := s.key(g, int(pos[i])), 0
			for j := range similar[i] {
				b := s.key(g, int(pos[j]))
				if i != j {
					similar[i][j] = dot(a, b) / math.Sqrt(dot(a, a)) / math.Sqrt(dot(b, b))
				}
				if similar[i][j] > threshold {
					last = j
				}
			}
			similar[i][last] = 0
		}
		repeats := make([]float64, all)
		for j := range repeats {
			for i := range similar {
				repeats[j] += similar[i][j] / float64(all)
			}
		}
		softmax(repeats)
		score := make([]float64, all)
		for i := range score {
			if score[i] = float64(10 + i); i < n {
				score[i] = lambda*slices.Max(weights[max(0, i-kernel/2):min(n, i+kernel/2+1)]) - (1-lambda)*repeats[i]
			}
		}
		kept = append(kept, topOf(score, target))
	}
	return kept
}

func TestRKVAgainstReference(t *testing.T) {
	for _, n := range []int{40, 233} {
		s := randomScene(uint64(n), n, 6, 2, 16)
		for i := 3; i < n; i += 7 { // keys that repeat others, of both heads
			copy(s.k[i], s.k[i/2])
		}
		s.fill()
		for _, keep := range []int{12, 20, 36} {
			for _, window := range []int{1, 8} {
				for _, kernel := range []int{1, 7} {
					for _, lambda := range []float64{0.07, 0.9} {
						for _, threshold := range []float64{0.5, 0.99} {
							spec := fmt.Sprintf("rkv:budget=%d,window_size=%d,kernel_size=%d,mix_lambda=%g,threshold=%g", keep, window, kernel, lambda, threshold)
							p := mustSet(t, spec, s).Keeper
							var kept Selection
							p.KeepPrompt(s.shown(p), &kept)
							equalPositions(t, kept.Heads, refRKV(s, keep, window, kernel, lambda, threshold), fmt.Sprintf("%s, %d tokens", spec, n))
						}
					}
				}
			}
		}
	}
}
