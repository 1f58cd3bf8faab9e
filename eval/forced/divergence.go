package forced

import (
	"math"
	"slices"
)

// maxBaseBytes bounds the log-probabilities of full that are kept for comparison: 1,300 positions of a vocabulary of
// 49,000, 240 of one of 262,000. Positions beyond it are scored but not compared.
const maxBaseBytes = 256 << 20

// logProbs is the log-softmax of logits in dst, computed in float64.
func logProbs(dst []float64, logits []float32) {
	peak := float64(slices.Max(logits))
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - peak)
	}
	norm := peak + math.Log(sum)
	for i, v := range logits {
		dst[i] = float64(v) - norm
	}
}

// base are the log-probabilities of full, position by position.
type base struct {
	rows [][]float32
	room int // positions that may be kept
}

func newBase(vocab int) *base { return &base{room: max(1, maxBaseBytes/(4*max(1, vocab)))} }

// add keeps a position while there is room.
func (b *base) add(lp []float64) {
	if len(b.rows) >= b.room {
		return
	}
	row := make([]float32, len(lp))
	for i, v := range lp {
		row[i] = float32(v)
	}
	b.rows = append(b.rows, row)
}

// comparison sums how far a policy's predictions are from full's.
type comparison struct {
	base   *base
	n      int
	kl     float64
	same   int
	prefix int // positions before the first that differs
}

// add compares one position; positions come in order.
func (c *comparison) add(i int, lp []float64) {
	if i >= len(c.base.rows) {
		return
	}
	full := c.base.rows[i]
	top, fullTop := 0, 0
	for k, f := range full {
		c.kl += math.Exp(float64(f)) * (float64(f) - lp[k])
		if lp[k] > lp[top] {
			top = k
		}
		if f > full[fullTop] {
			fullTop = k
		}
	}
	if top == fullTop {
		c.same++
		if c.prefix == c.n {
			c.prefix++
		}
	}
	c.n++
}

// values are the means, by the names used in results.
func (c *comparison) values() map[string]float64 {
	if c.n == 0 {
		return nil
	}
	return map[string]float64{"kl": max(0, c.kl/float64(c.n)), "same_top": float64(c.same) / float64(c.n), "common_prefix": float64(c.prefix)}
}

// withFull puts full first, so that the others can be compared with it; extra says that its outcome was not asked for.
func withFull(policies []string) (all []string, extra bool) {
	if slices.Contains(policies, "full") {
		all = append(all, "full")
		for _, p := range policies {
			if p != "full" {
				all = append(all, p)
			}
		}
		return all, false
	}
	return append([]string{"full"}, policies...), true
}
