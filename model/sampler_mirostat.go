package model

import "math"

// mirostatTokens is how many of the likeliest tokens Mirostat 1 estimates the distribution's exponent from.
const mirostatTokens = 100

// mirostat draws so that the surprise of tokens stays near MirostatTau: from the k likeliest (1), or from those whose surprise is
// at most mu bits (2); then mu learns. Source: arXiv:2007.14966, as llama.cpp computes it: probabilities are of the logits over the
// temperature, and those of the tokens left are scaled to 1 before the draw. vocab is the number of tokens there are.
func (s *Sampler) mirostat(r *ranking, vocab int) int {
	if len(r.c) == 0 {
		return 0
	}
	if s.o.Temperature == 0 {
		return r.at(0).id
	}
	for i := range r.c {
		r.c[i].logit = float32(float64(r.c[i].logit) / s.o.Temperature)
	}
	if s.o.Mirostat == 1 {
		r.cut(s.surpriseTop(r, vocab))
	} else {
		r.cut(s.surpriseAtMost(r))
	}
	top, total := r.total()
	at, chosen := s.rng.Float64()*total, len(r.c)-1
	for i := range r.c {
		if at -= math.Exp(float64(r.at(i).logit - top)); at < 0 {
			chosen = i
			break
		}
	}
	x := r.at(chosen)
	surprise := (math.Log(total) - float64(x.logit-top)) / math.Ln2
	s.mu -= s.o.MirostatEta * (surprise - s.o.MirostatTau)
	return x.id
}

// surpriseTop is the k of Mirostat 1: Zipf's exponent is fitted to the likeliest tokens, and with it as many tokens are taken as give
// the surprise mu.
func (s *Sampler) surpriseTop(r *ranking, vocab int) int {
	var products, squares float64
	for i := 0; i < mirostatTokens-1 && i < len(r.c)-1; i++ {
		t := math.Log(float64(i+2) / float64(i+1))
		products += t * float64(r.at(i).logit-r.at(i+1).logit)
		squares += t * t
	}
	exponent := products / squares
	epsilon := exponent - 1
	k := math.Pow(epsilon*math.Exp2(s.mu)/(1-math.Pow(float64(vocab), -epsilon)), 1/exponent)
	n := 1
	if k >= float64(len(r.c)) {
		n = len(r.c)
	} else if k > 1 { // NaN, of a single candidate, is 1
		n = int(k)
	}
	r.at(n - 1)
	return n
}

// surpriseAtMost is how many candidates have a surprise of mu bits at most, at least one.
func (s *Sampler) surpriseAtMost(r *ranking) int {
	top, total := r.total()
	log, n := math.Log(total), 1
	for n < len(r.c) && (log-float64(r.at(n).logit-top))/math.Ln2 <= s.mu {
		n++
	}
	return n
}
