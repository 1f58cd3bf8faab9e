package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// RouterScore is what a router makes of its logits.
type RouterScore uint8

const (
	SoftmaxRouter RouterScore = iota
	SigmoidRouter
	// SparseMixer takes two experts one after the other, each weighed by a softmax over the logits that lie within 2·Jitter of the
	// best, relative to the larger of the two in size; the second without the first (Phi-3.5-MoE).
	SparseMixer
)

// Router is how a mixture of experts chooses the experts of a token (Config.TopK of Config.Experts) and weighs them; the zero value
// is a softmax over all logits. A softmax over the chosen logits alone is Config.NormTopK.
type Router struct {
	Score   RouterScore
	Bias    bool    // LayerParams.RouterBias is added to scores to choose by, not to weights
	Scale   float32 // multiplies the weights; 0 = 1
	Least   float32 // the sum of chosen weights counts as so much at least, where they are normalised
	Softcap float32 // cap·tanh(logit/cap); 0 = none
	Jitter  float32 // of SparseMixer
	OnInput bool    // weights multiply what goes into an expert, not what comes out

	Groups, GroupsUsed int // only experts of the best groups are chosen from; 0 = no groups
	GroupBest          int // the score of a group is the sum of so many of its best
}

func (c *Config) validateRouter() error {
	r, errs := &c.Router, []error(nil)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, append(args, ErrConfig)...)) }
	for name, v := range map[string]float32{"expert_weights_scale": r.Scale, "router softcap": r.Softcap, "router jitter": r.Jitter, "least sum of expert weights": r.Least} {
		if !(v >= 0 && v < 1e6) {
			bad("model: %s is %g, want 0 to 1e6: %w", name, v)
		}
	}
	if r.Score == SparseMixer && (c.TopK != 2 || c.Experts < 2) {
		bad("model: expert_used_count is %d of %d experts, a sparse mixer takes two: %w", c.TopK, c.Experts)
	}
	if r.Groups == 0 {
		return errors.Join(errs...)
	}
	size := 0
	if r.Groups > 0 {
		size = c.Experts / r.Groups
	}
	if size < 1 || size*r.Groups != c.Experts || r.GroupsUsed < 1 || r.GroupsUsed > r.Groups || r.GroupsUsed*size < c.TopK || r.GroupBest < 1 || r.GroupBest > size {
		bad("model: expert_group_count is %d and expert_group_used_count %d for %d of %d experts: %w", r.Groups, r.GroupsUsed, c.TopK, c.Experts)
	}
	return errors.Join(errs...)
}

// route fills rows and share from the router's logits [n, experts].
func (s *moeScratch) route(c *Config, logits, bias []float32, n int) {
	experts := c.Experts
	if len(s.rows) != experts {
		s.rows, s.order = make([][]int, experts), make([]int, experts)
		s.scores, s.weights = make([]float64, experts), make([]float64, experts)
	}
	for e := range s.rows {
		s.rows[e] = s.rows[e][:0]
	}
	s.share = slices.Grow(s.share[:0], n*experts)[:n*experts]
	clear(s.share)
	for r := range n {
		row, share := logits[r*experts:(r+1)*experts], s.share[r*experts:(r+1)*experts]
		var chosen []int
		if c.Router.Score == SparseMixer {
			chosen = s.sparseMix(row, share, float64(c.Router.Jitter))
		} else {
			chosen = s.choose(c, row, bias, share)
		}
		for _, e := range chosen {
			s.rows[e] = append(s.rows[e], r)
		}
	}
}

// choose fills the shares of one row and returns its experts.
func (s *moeScratch) choose(c *Config, row, bias, share []float32) []int {
	r := &c.Router
	if r.Softcap > 0 {
		for i, x := range row {
			row[i] = r.Softcap * float32(math.Tanh(float64(x/r.Softcap)))
		}
	}
	if r.Score == SigmoidRouter {
		for i, x := range row {
			s.weights[i] = 1 / (1 + math.Exp(-float64(x)))
		}
	} else {
		softmax(s.weights, row)
	}
	// Scores are chosen by in the precision that models are trained and scored with: equal ones keep their order.
	for i := range s.scores {
		switch {
		case bias != nil:
			s.scores[i] = float64(float32(s.weights[i]) + bias[i])
		case r.Groups > 1: // whose scores are sums
			s.scores[i] = s.weights[i]
		default:
			s.scores[i] = float64(row[i])
		}
	}
	s.keepGroups(r)
	for i := range s.order {
		s.order[i] = i
	}
	slices.SortFunc(s.order, func(a, b int) int {
		switch {
		case s.scores[a] > s.scores[b]:
			return -1
		case s.scores[a] < s.scores[b]:
			return 1
		}
		return a - b
	})
	s.giveWay(c.TopK)
	chosen, sum := s.order[:c.TopK], 0.0
	for _, e := range chosen {
		sum += s.weights[e]
	}
	for _, e := range chosen {
		w := s.weights[e]
		if c.NormTopK {
			w /= max(sum, float64(r.Least), math.SmallestNonzeroFloat32)
		}
		share[e] = float32(w * float64(orOne(r.Scale)))
	}
	return chosen
}

// keepGroups takes the experts of all groups but the best out of the choice.
func (s *moeScratch) keepGroups(r *Router) {
	if r.Groups < 2 {
		return
	}
	size := len(s.scores) / r.Groups
	best, sorted := make([]float64, r.Groups), make([]float64, size)
	for g := range best {
		copy(sorted, s.scores[g*size:(g+1)*size])
		slices.SortFunc(sorted, func(a, b float64) int { return -compare(a, b) })
		for _, x := range sorted[:r.GroupBest] {
			best[g] += x
		}
	}
	order := make([]int, r.Groups)
	for g := range order {
		order[g] = g
	}
	slices.SortStableFunc(order, func(a, b int) int { return -compare(best[a], best[b]) })
	for _, g := range order[r.GroupsUsed:] {
		for e := g * size; e < (g+1)*size; e++ {
			s.scores[e] = math.Inf(-1)
		}
	}
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// softmax writes e^x / Σe^x of the finite numbers of row to dst; −Inf gives 0.
func softmax(dst []float64, row []float32) {
	peak, sum := slices.Max(row), 0.0
	for i, x := range row {
		dst[i] = math.Exp(float64(x - peak))
		sum += dst[i]
	}
	for i := range dst {
		dst[i] /= sum
	}
}

// sparseMix is choose of SparseMixer. row is changed.
func (s *moeScratch) sparseMix(row, share []float32, jitter float64) []int {
	for i := range 2 {
		best := 0
		for e, x := range row {
			if x > row[best] {
				best = e
			}
		}
		peak, sum := row[best], 0.0
		for _, x := range row {
			if size := max(float32(math.Abs(float64(x))), peak); !(float64((peak-x)/size) > 2*jitter) {
				sum += math.Exp(float64(x - peak))
			}
		}
		share[best], s.order[i] = float32(1/sum), best
		row[best] = float32(math.Inf(-1))
	}
	return s.order[:2]
}
