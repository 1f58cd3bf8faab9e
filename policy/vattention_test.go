package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestVAttentionKeepsItsPromise: over many seeds the softmax's denominator, picks and sample together, is off by more than epsilon in no more
// than delta of all cases, give or take what a pilot and a normal distribution are wrong by; and the sample is smaller than all tokens.
func TestVAttentionKeepsItsPromise(t *testing.T) {
	s := randomScene(5, 600, 4, 2, 16)
	for i := range s.k { // narrow enough that a part of the tokens is worth drawing
		for d := range s.k[i] {
			s.k[i][d] /= 2
		}
	}
	for _, bound := range []struct{ epsilon, delta, most float64 }{{0.05, 0.05, 0.09}, {0.1, 0.2, 0.26}, {0.2, 0.1, 0.15}} {
		cases, wrong, largest := 0, 0, 0.0
		for seed := range 80 {
			read := selected(t, s, fmt.Sprintf("vattention:select=oracle,budget=30,base=5%%,epsilon=%g,delta=%g,seed=%d", bound.epsilon, bound.delta, seed), nil)
			for h := range s.heads {
				g, n := h/2, len(s.q)
				var all, picked float64
				for i := range n {
					e := math.Exp(dot64(s.query(h, n-1), s.key(g, i)) / math.Sqrt(float64(s.dim)))
					if all += e; slices.Contains(read.Heads[g], int32(i)) {
						picked += e
					}
				}
				off := math.Abs(picked+math.Exp(float64(read.Estimates.LogSum[h]))-all) / all
				if cases++; off > bound.epsilon {
					wrong++
				}
				largest = max(largest, off)
			}
		}
		if share := float64(wrong) / float64(cases); share > bound.most {
			t.Errorf("epsilon=%g, delta=%g: %.3f of %d denominators are further off", bound.epsilon, bound.delta, share, cases)
		}
		if largest < bound.epsilon/3 {
			t.Errorf("epsilon=%g, delta=%g: the largest error is %.3g: more was drawn than the bound asks", bound.epsilon, bound.delta, largest)
		}
	}
}

// TestVAttentionRefuses what its estimate cannot be made with.
func TestVAttentionRefuses(t *testing.T) {
	for _, spec := range []string{"vattention:select=infinigen", "vattention:select=sparq", "vattention:select=snapkv", "vattention:select=rocketkv", "vattention:select=topp", "vattention:select=tailcodes",
		"vattention:select=vattention", "vattention:delta=0", "vattention:delta=101%", "vattention:epsilon=0", "vattention:base=2"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{"vattention", "vattention:infinigen,query=exact", "vattention:select=sparq,mean_value=false", "vattention:topp,estimate=exact", "vattention:select=double_sparsity,budget=5%,seed=3"} {
		if p, err := Parse(spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		} else if again, err := Parse(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("%s: %v, %v", spec, again, err)
		}
	}
}
