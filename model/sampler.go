package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// SamplerOptions choose the next token from logits. The zero value is greedy. Filters run in llama.cpp's order: penalties,
// top-k, top-p, min-p, temperature, draw.
type SamplerOptions struct {
	Temperature      float64 // 0 = greedy
	TopK             int     // keep the k most likely; 0 = all
	TopP             float64 // keep the smallest set with this probability, at least the likeliest; 1 = all; see TopPSet
	TopPSet          bool    // TopP was chosen, so 0 keeps the likeliest alone; otherwise 0 = all
	MinP             float64 // drop what is less likely than this share of the likeliest; 0 = nothing
	RepeatPenalty    float64 // divides positive and multiplies negative logits of recent tokens; 0 or 1 = none
	FrequencyPenalty float64 // subtracted once an occurrence
	PresencePenalty  float64 // subtracted once for a token that occurred
	PenaltyLast      int     // tokens looked back at by the penalties; -1 = all; see PenaltyLastSet
	PenaltyLastSet   bool    // PenaltyLast was chosen, so 0 looks at none; otherwise 0 = 64
	Seed             uint64  // same seed, same draws
}

// Validate names every option out of range.
func (o SamplerOptions) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	finite := func(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
	check(finite(o.Temperature) && o.Temperature >= 0, "temperature %g: want 0 or more", o.Temperature)
	check(o.TopK >= 0, "top-k %d: want 0 (off) or more", o.TopK)
	check(o.TopP >= 0 && o.TopP <= 1, "top-p %g: want 0 to 1", o.TopP)
	check(o.MinP >= 0 && o.MinP <= 1, "min-p %g: want 0 to 1", o.MinP)
	check(finite(o.RepeatPenalty) && o.RepeatPenalty >= 0, "repeat-penalty %g: want 0 or more", o.RepeatPenalty)
	check(finite(o.FrequencyPenalty), "frequency-penalty %g", o.FrequencyPenalty)
	check(finite(o.PresencePenalty), "presence-penalty %g", o.PresencePenalty)
	check(o.PenaltyLast >= -1, "repeat-last-n %d: want -1 (all) or more", o.PenaltyLast)
	return errors.Join(errs...)
}

// Sampler draws tokens; it is deterministic in its seed, its options and the logits.
type Sampler struct {
	o      SamplerOptions
	rng    *rand.Rand
	order  []candidate
	count  map[int]int
	barred func(id int) bool // nil = none
	bias   map[int]float32
	mask   []uint64 // ids that may be chosen, a bit each; nil = all
}

type candidate struct {
	id    int
	logit float32
}

// NewSampler returns a sampler at the start of its random sequence.
func NewSampler(o SamplerOptions) *Sampler {
	if o.PenaltyLast == 0 && !o.PenaltyLastSet {
		o.PenaltyLast = 64
	}
	return &Sampler{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7465727261636500)), count: map[int]int{}}
}

// Bar keeps ids from being chosen until it is called again; nil = none. Where every id is barred Next returns -1.
func (s *Sampler) Bar(barred func(id int) bool) { s.barred = barred }

// Bias adds to the logits of these ids, before all else; nil = to none.
func (s *Sampler) Bias(bias map[int]float32) { s.bias = bias }

// Allow has Next choose among the ids whose bits are set, until it is called again; nil = all. Logits stay as they are. Where no
// id is left Next returns -1.
func (s *Sampler) Allow(mask []uint64) { s.mask = mask }

func (s *Sampler) bars(id int) bool {
	return s.barred != nil && s.barred(id) || s.mask != nil && (id>>6 >= len(s.mask) || s.mask[id>>6]>>(id&63)&1 == 0)
}

// limited says that not every id may be chosen.
func (s *Sampler) limited() bool { return s.barred != nil || s.mask != nil }

// Greedy reports whether the next token is the one with the largest logit of all, whatever the text so far.
func (s *Sampler) Greedy() bool {
	return !s.limited() && s.o.Temperature == 0 && !s.o.penalises() && len(s.bias) == 0
}

// penalises reports whether the text so far changes logits.
func (o *SamplerOptions) penalises() bool {
	if o.PenaltyLast == 0 && o.PenaltyLastSet {
		return false
	}
	return o.RepeatPenalty != 0 && o.RepeatPenalty != 1 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0
}

// Next chooses from logits [V]; history is the text so far (prompt and generated ids). Penalties change logits in place.
func (s *Sampler) Next(logits []float32, history []int) int {
	for id, add := range s.bias {
		if id >= 0 && id < len(logits) {
			logits[id] += add
		}
	}
	s.penalise(logits, history)
	if s.o.Temperature == 0 {
		return s.argMax(logits)
	}
	c := s.filter(logits)
	if len(c) == 0 && s.limited() {
		return -1
	}
	return s.draw(c)
}

// argMax is the most likely token that is not barred; the lowest id wins a tie.
func (s *Sampler) argMax(logits []float32) int {
	best := 0
	for best < len(logits) && s.bars(best) {
		best++
	}
	if best == len(logits) && s.limited() {
		return -1
	}
	for i, v := range logits {
		if v > logits[best] && !s.bars(i) {
			best = i
		}
	}
	return best
}

func (s *Sampler) penalise(logits []float32, history []int) {
	o := s.o
	if !o.penalises() {
		return
	}
	repeat := o.RepeatPenalty != 0 && o.RepeatPenalty != 1
	if n := o.PenaltyLast; n > 0 && len(history) > n {
		history = history[len(history)-n:]
	}
	clear(s.count)
	for _, id := range history {
		s.count[id]++
	}
	for id, n := range s.count {
		if id < 0 || id >= len(logits) {
			continue
		}
		v := float64(logits[id])
		if repeat {
			if v > 0 {
				v /= o.RepeatPenalty
			} else {
				v *= o.RepeatPenalty
			}
		}
		logits[id] = float32(v - float64(n)*o.FrequencyPenalty - o.PresencePenalty)
	}
}

// filter returns the candidates that top-k, top-p and min-p leave, most likely first.
func (s *Sampler) filter(logits []float32) []candidate {
	o := s.o
	c := s.order[:0]
	for i, v := range logits {
		if !math.IsNaN(float64(v)) && !s.bars(i) {
			c = append(c, candidate{i, v})
		}
	}
	s.order = c
	if k := o.TopK; k > 0 && k < len(c) {
		c = topCandidates(c, k)
	}
	slices.SortFunc(c, byLogit)
	if o.TopP < 1 && (o.TopP > 0 || o.TopPSet) {
		c = c[:nucleus(c, o.TopP)]
	}
	if o.MinP > 0 && len(c) > 0 {
		cut := c[0].logit + float32(math.Log(o.MinP))
		n := len(c)
		for n > 1 && c[n-1].logit < cut {
			n--
		}
		c = c[:n]
	}
	return c
}

// byLogit sorts the likeliest first and ties by id.
func byLogit(a, b candidate) int {
	switch {
	case a.logit > b.logit:
		return -1
	case a.logit < b.logit:
		return 1
	}
	return a.id - b.id
}

// topCandidates moves the k likeliest to the front with a heap of size k (the vocabulary is much larger than k).
func topCandidates(c []candidate, k int) []candidate {
	heap := c[:k]
	less := func(a, b candidate) bool { return byLogit(a, b) > 0 } // the least likely on top
	down := func(i int) {
		for {
			j := 2*i + 1
			if j >= k {
				return
			}
			if j+1 < k && less(heap[j+1], heap[j]) {
				j++
			}
			if !less(heap[j], heap[i]) {
				return
			}
			heap[i], heap[j] = heap[j], heap[i]
			i = j
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for i := k; i < len(c); i++ {
		if less(heap[0], c[i]) {
			heap[0], c[i] = c[i], heap[0]
			down(0)
		}
	}
	return heap
}

// nucleus is the size of the smallest prefix whose probability reaches p.
func nucleus(c []candidate, p float64) int {
	var total float64
	for _, x := range c {
		total += math.Exp(float64(x.logit - c[0].logit))
	}
	sum := 0.0
	for i, x := range c {
		if sum += math.Exp(float64(x.logit - c[0].logit)); sum >= p*total {
			return i + 1
		}
	}
	return len(c)
}

// draw picks one candidate with probability softmax(logit / temperature).
func (s *Sampler) draw(c []candidate) int {
	if len(c) == 0 {
		return 0
	}
	weight := func(x candidate) float64 { return math.Exp(float64(x.logit-c[0].logit) / s.o.Temperature) }
	var total float64
	for _, x := range c {
		total += weight(x)
	}
	at := s.rng.Float64() * total
	for _, x := range c {
		if at -= weight(x); at < 0 {
			return x.id
		}
	}
	return c[len(c)-1].id
}
