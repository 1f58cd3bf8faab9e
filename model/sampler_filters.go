package model

import "math"

func (o *SamplerOptions) isTypical() bool { return o.TypicalP > 0 && o.TypicalP < 1 }

func (o *SamplerOptions) excludesTop() bool { return o.XTCProbability > 0 && o.XTCThreshold <= 0.5 }

// sigma returns the candidates at most n standard deviations under the largest logit. Candidates of logit -Inf count for nothing.
func (r *ranking) sigma(n float64) []candidate {
	var sum, squares float64
	top, counted := math.Inf(-1), 0.0
	for _, x := range r.c {
		if v := float64(x.logit); !math.IsInf(v, -1) {
			top, sum, counted = max(top, v), sum+v, counted+1
		}
	}
	if counted == 0 {
		return r.c
	}
	mean := sum / counted
	for _, x := range r.c {
		if v := float64(x.logit); !math.IsInf(v, -1) {
			squares += (v - mean) * (v - mean)
		}
	}
	least, kept := top-n*math.Sqrt(squares/counted), r.c[:0]
	for _, x := range r.c {
		if float64(x.logit) >= least {
			kept = append(kept, x)
		}
	}
	return kept
}

// total is the sum of exp(logit - top) over the candidates; their probabilities are such weights over it.
func (r *ranking) total() (top float32, total float64) {
	top = r.at(0).logit
	for _, x := range r.c {
		total += math.Exp(float64(x.logit - top))
	}
	return top, total
}

// typicalOf leaves those whose surprise is nearest to the entropy, as many as hold more than TypicalP of the probability.
func (s *Sampler) typicalOf(r *ranking, logits []float32) {
	top, total := r.total()
	log := math.Log(total)
	var entropy float64
	for _, x := range r.c {
		if surprise := log - float64(x.logit-top); !math.IsInf(surprise, 1) {
			entropy += surprise * math.Exp(-surprise)
		}
	}
	s.typical = s.typical[:0]
	for _, x := range r.c {
		s.typical = append(s.typical, candidate{x.id, -float32(math.Abs(log - float64(x.logit-top) - entropy))})
	}
	near, n, sum := ranking{c: s.typical}, 0, 0.0
	for n < len(near.c) && sum <= s.o.TypicalP {
		sum += math.Exp(float64(logits[near.at(n).id]-top) - log)
		n++
	}
	kept := r.c[:n]
	for i := range kept {
		id := near.c[i].id
		kept[i] = candidate{id, logits[id]}
	}
	*r = ranking{c: kept}
}

// excludeTop drops, as often as XTCProbability says, all but the least likely of the candidates that reach XTCThreshold.
func (s *Sampler) excludeTop(r *ranking) {
	if len(r.c) < 2 || s.xtc.Float64() > s.o.XTCProbability {
		return
	}
	top, total := r.total()
	last := 0
	for i := 1; i < len(r.c) && math.Exp(float64(r.at(i).logit-top))/total >= s.o.XTCThreshold; i++ {
		last = i
	}
	r.c, r.sorted = r.c[last:], r.sorted-last
}
