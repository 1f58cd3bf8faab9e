package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// SamplerOptions choose the next token from logits. The zero value is greedy. Filters run in llama.cpp's order: bias, penalties, DRY,
// top-n-sigma, top-k, typical-p, top-p, min-p, XTC, temperature, draw. With Mirostat there are the bias, the temperature and its own
// draw alone. What a constraint forbids is left out before all of them.
type SamplerOptions struct {
	Temperature    float64 // 0 = greedy
	TopK           int     // keep the k most likely; 0 or -1 = all
	TopP           float64 // keep the smallest set with this probability, at least the likeliest; 1 = all; see TopPSet
	TopPSet        bool    // TopP was chosen, so 0 keeps the likeliest alone; otherwise 0 = all
	MinP           float64 // drop what is less likely than this share of the likeliest; 0 = nothing
	RepeatPenalty  float64 // llama.cpp's: divides positive and multiplies negative logits of the last tokens, the prompt's too; 0 or 1 = none
	PenaltyLast    int     // how many tokens RepeatPenalty looks back at; -1 = all; see PenaltyLastSet
	PenaltyLastSet bool    // PenaltyLast was chosen, so 0 looks at none; otherwise 0 = 64
	// RepetitionPenalty is that of Hugging Face (Keskar et al. 2019, arXiv:1909.05858): the same of all tokens, the prompt's too; 0 or 1 = none.
	RepetitionPenalty float64
	FrequencyPenalty  float64 // OpenAI's: subtracted for each time that a token was generated
	PresencePenalty   float64 // OpenAI's: subtracted once for a token that was generated
	TypicalP          float64 // locally typical sampling (arXiv:2202.00666): what is about as surprising as expected, up to this probability; 0 or 1 = all
	TopNSigma         float64 // drop logits this many standard deviations under the largest (arXiv:2411.07641); 0 or less = none
	XTCProbability    float64 // how often XTC drops all but the least likely of the tokens that reach XTCThreshold; 0 = never
	XTCThreshold      float64 // a probability; more than 0.5 = never, since two tokens cannot reach it
	DRY               DRY
	Mirostat          int     // 1 or 2: keep the surprise of each token near MirostatTau (arXiv:2007.14966); 0 = off
	MirostatTau       float64 // in bits
	MirostatEta       float64 // how fast it learns
	Seed              uint64  // same seed, same draws
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
	check(o.TopK >= -1, "top-k %d: want 0 or -1 (off), or more", o.TopK)
	check(o.TopP >= 0 && o.TopP <= 1, "top-p %g: want 0 to 1", o.TopP)
	check(o.MinP >= 0 && o.MinP <= 1, "min-p %g: want 0 to 1", o.MinP)
	check(finite(o.RepeatPenalty) && o.RepeatPenalty >= 0, "repeat-penalty %g: want 0 or more", o.RepeatPenalty)
	check(finite(o.RepetitionPenalty) && o.RepetitionPenalty >= 0, "repetition-penalty %g: want 0 or more", o.RepetitionPenalty)
	check(finite(o.FrequencyPenalty), "frequency-penalty %g", o.FrequencyPenalty)
	check(finite(o.PresencePenalty), "presence-penalty %g", o.PresencePenalty)
	check(o.PenaltyLast >= -1, "repeat-last-n %d: want -1 (all) or more", o.PenaltyLast)
	check(o.TypicalP >= 0 && o.TypicalP <= 1, "typical-p %g: want 0 to 1 (1: off)", o.TypicalP)
	check(finite(o.TopNSigma), "top-n-sigma %g: want a number (0 or less: off)", o.TopNSigma)
	check(o.XTCProbability >= 0 && o.XTCProbability <= 1, "xtc-probability %g: want 0 to 1 (0: off)", o.XTCProbability)
	check(o.XTCThreshold >= 0 && o.XTCThreshold <= 1, "xtc-threshold %g: want 0 to 1 (more than 0.5: off)", o.XTCThreshold)
	check(o.Mirostat >= 0 && o.Mirostat <= 2, "mirostat %d: want 0 (off), 1 or 2", o.Mirostat)
	check(finite(o.MirostatTau) && o.MirostatTau >= 0, "mirostat-ent %g: want 0 or more", o.MirostatTau)
	check(finite(o.MirostatEta) && o.MirostatEta >= 0, "mirostat-lr %g: want 0 or more", o.MirostatEta)
	o.DRY.validate(check, finite)
	return errors.Join(errs...)
}

// Sampler draws tokens; it is deterministic in its seed, its options and the logits.
type Sampler struct {
	o       SamplerOptions
	rng     *rand.Rand
	order   []candidate
	ranking ranking // of the last token, in order's memory

	breakers *Breakers  // of DRY; nil = none
	repeats  dryScratch // of DRY
	xtc      *rand.Rand // XTC's own draws
	typical  []candidate
	mu       float64 // Mirostat's bound on surprise, in bits

	history
	exclusions
}

// history is what the sampler has seen of the text.
type history struct {
	count  map[int]int  // of the last tokens, for RepeatPenalty
	made   map[int]int  // how often each token was chosen
	seen   map[int]bool // ids of the text so far, for RepetitionPenalty
	looked int          // tokens of the text that are in seen
}

// exclusions are the tokens that may not be chosen, or less readily.
type exclusions struct {
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
	return &Sampler{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7465727261636500)), xtc: rand.New(rand.NewPCG(o.Seed, 0x7465727261636501)),
		history: history{count: map[int]int{}, made: map[int]int{}, seen: map[int]bool{}}, mu: 2 * o.MirostatTau}
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
	return !s.limited() && s.o.Temperature == 0 && !s.o.penalises() && !s.o.outsTheBest() && len(s.bias) == 0
}

// outsTheBest reports whether a filter may drop the likeliest token.
func (o *SamplerOptions) outsTheBest() bool {
	return o.Mirostat == 0 && (o.isTypical() || o.excludesTop())
}

// penalises reports whether the text so far changes logits.
func (o *SamplerOptions) penalises() bool {
	return o.Mirostat == 0 && (o.repeats() || o.repetition() || o.FrequencyPenalty != 0 || o.PresencePenalty != 0 || o.DRY.on())
}

func (o *SamplerOptions) repeats() bool {
	return o.RepeatPenalty != 0 && o.RepeatPenalty != 1 && (o.PenaltyLast != 0 || !o.PenaltyLastSet)
}

func (o *SamplerOptions) repetition() bool {
	return o.RepetitionPenalty != 0 && o.RepetitionPenalty != 1
}

// Next chooses from logits [V]; history is the text so far (prompt and generated ids). Penalties change logits in place. What Next has
// chosen is what was generated.
func (s *Sampler) Next(logits []float32, history []int) int {
	id := s.choose(logits, history)
	if id >= 0 && (s.o.FrequencyPenalty != 0 || s.o.PresencePenalty != 0) {
		s.made[id]++
	}
	return id
}

// Took notes a token that was generated without the sampler; false: Allow forbids it, and nothing is noted.
func (s *Sampler) Took(id int) bool {
	if s.mask != nil && (id>>6 >= len(s.mask) || s.mask[id>>6]>>(id&63)&1 == 0) {
		return false
	}
	s.made[id]++
	return true
}

func (s *Sampler) choose(logits []float32, history []int) int {
	for id, add := range s.bias {
		if id >= 0 && id < len(logits) {
			logits[id] += add
		}
	}
	if s.o.penalises() {
		s.penalise(logits, history)
		s.dry(logits, history)
	}
	if s.o.Temperature == 0 && !s.o.outsTheBest() {
		return s.argMax(logits)
	}
	r := s.candidates(logits)
	if len(r.c) == 0 && s.limited() {
		return -1
	}
	if s.o.Mirostat != 0 {
		return s.mirostat(r, len(logits))
	}
	s.filter(r, logits)
	if s.o.Temperature == 0 && len(r.c) > 0 {
		return r.at(0).id
	}
	return s.draw(r)
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
	if o.repeats() {
		last := history
		if n := o.PenaltyLast; n > 0 && len(last) > n {
			last = last[len(last)-n:]
		}
		clear(s.count)
		for _, id := range last {
			if s.count[id]++; s.count[id] == 1 {
				dampen(logits, id, o.RepeatPenalty)
			}
		}
	}
	if o.repetition() {
		if len(history) < s.looked { // the text was shifted
			clear(s.seen)
			s.looked = 0
		}
		for ; s.looked < len(history); s.looked++ {
			s.seen[history[s.looked]] = true
		}
		for id := range s.seen {
			dampen(logits, id, o.RepetitionPenalty)
		}
	}
	if o.FrequencyPenalty == 0 && o.PresencePenalty == 0 {
		return
	}
	for id, n := range s.made {
		if id < len(logits) {
			logits[id] = float32(float64(logits[id]) - float64(n)*o.FrequencyPenalty - o.PresencePenalty)
		}
	}
}

// dampen makes a token less likely where penalty is more than 1.
func dampen(logits []float32, id int, penalty float64) {
	if id < 0 || id >= len(logits) {
		return
	}
	if v := float64(logits[id]); v > 0 {
		logits[id] = float32(v / penalty)
	} else {
		logits[id] = float32(v * penalty)
	}
}

// candidates are the ids that may be chosen.
func (s *Sampler) candidates(logits []float32) *ranking {
	c := s.order[:0]
	for i, v := range logits {
		if !math.IsNaN(float64(v)) && !s.bars(i) {
			c = append(c, candidate{i, v})
		}
	}
	s.order, s.ranking = c, ranking{c: c}
	return &s.ranking
}

// filter leaves the candidates that top-n-sigma, top-k, typical-p, top-p, min-p and XTC leave.
func (s *Sampler) filter(r *ranking, logits []float32) {
	o := &s.o
	if o.TopNSigma > 0 && len(r.c) > 1 {
		r.c = r.sigma(o.TopNSigma)
	}
	if k := o.TopK; k > 0 && k < len(r.c) {
		*r = ranking{c: topCandidates(r.c, k)}
	}
	if o.isTypical() && len(r.c) > 0 {
		s.typicalOf(r, logits)
	}
	if o.TopP < 1 && (o.TopP > 0 || o.TopPSet) {
		r.cut(r.nucleus(o.TopP))
	}
	if o.MinP > 0 && len(r.c) > 0 {
		r.cut(r.above(r.at(0).logit + float32(math.Log(o.MinP))))
	}
	if o.excludesTop() {
		s.excludeTop(r)
	}
}

// draw picks one candidate with probability softmax(logit / temperature).
func (s *Sampler) draw(r *ranking) int {
	if len(r.c) == 0 {
		return 0
	}
	top := r.at(0).logit
	weight := func(x candidate) float64 { return math.Exp(float64(x.logit-top) / s.o.Temperature) }
	var total float64
	for _, x := range r.c {
		total += weight(x)
	}
	at := s.rng.Float64() * total
	for i := range r.c {
		x := r.at(i)
		if at -= weight(x); at < 0 {
			return x.id
		}
	}
	return r.at(len(r.c) - 1).id
}
