package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
)

// slowToken is a candidate of the slow reference, with its probability.
type slowToken struct {
	id       int
	logit, p float64
}

// slowSoftmax sorts the candidates and gives them probabilities.
func slowSoftmax(c []slowToken) []slowToken {
	sort.SliceStable(c, func(a, b int) bool { return c[a].logit > c[b].logit || c[a].logit == c[b].logit && c[a].id < c[b].id })
	sum := 0.0
	for _, x := range c {
		sum += math.Exp(x.logit - c[0].logit)
	}
	for i := range c {
		c[i].p = math.Exp(c[i].logit-c[0].logit) / sum
	}
	return c
}

// slowDRY is DRY by its definition: for every earlier place, how many tokens before it are those at the text's end.
func slowDRY(logits []float64, text []int, d DRY, breakers []int) {
	if d.Last > 0 {
		text = text[max(0, len(text)-d.Last):]
	}
	end := len(text)
	since := 0 // tokens behind the last breaker
	for since < end && !slices.Contains(breakers, text[end-1-since]) {
		since++
	}
	longest := map[int]int{}
	for at := 1; at < end; at++ { // text[at] stands behind a copy of the last n tokens
		n := 0
		for n < since && n < at && text[at-1-n] == text[end-1-n] {
			n++
		}
		if n >= d.AllowedLength && end > d.AllowedLength && since >= d.AllowedLength {
			longest[text[at]] = max(longest[text[at]], n)
		}
	}
	for id, n := range longest {
		if !slices.Contains(breakers, id) {
			logits[id] -= d.Multiplier * math.Pow(d.Base, float64(n-d.AllowedLength))
		}
	}
}

// slowFilter is the filters of the chain, each over all that is left; chance is XTC's draw.
func slowFilter(c []slowToken, o SamplerOptions, chance func() float64) []slowToken {
	keep := func(ok func(i int, x slowToken) bool) {
		var kept []slowToken
		for i, x := range c {
			if ok(i, x) {
				kept = append(kept, x)
			}
		}
		c = slowSoftmax(kept)
	}
	if o.TopNSigma > 0 && len(c) > 1 {
		mean, variance := 0.0, 0.0
		for _, x := range c {
			mean += x.logit / float64(len(c))
		}
		for _, x := range c {
			variance += (x.logit - mean) * (x.logit - mean) / float64(len(c))
		}
		top := c[0].logit
		keep(func(_ int, x slowToken) bool { return x.logit >= top-o.TopNSigma*math.Sqrt(variance) })
	}
	if o.TopK > 0 {
		keep(func(i int, _ slowToken) bool { return i < o.TopK })
	}
	if o.TypicalP > 0 && o.TypicalP < 1 {
		entropy := 0.0
		for _, x := range c {
			entropy -= x.p * math.Log(x.p)
		}
		off := func(x slowToken) float64 { return float64(float32(math.Abs(-math.Log(x.p) - entropy))) }
		order := slices.Clone(c)
		sort.SliceStable(order, func(a, b int) bool {
			return off(order[a]) < off(order[b]) || off(order[a]) == off(order[b]) && order[a].id < order[b].id
		})
		var ids []int
		for sum := 0.0; sum <= o.TypicalP && len(ids) < len(order); {
			sum += order[len(ids)].p
			ids = append(ids, order[len(ids)].id)
		}
		keep(func(_ int, x slowToken) bool { return slices.Contains(ids, x.id) })
	}
	if o.TopP > 0 && o.TopP < 1 {
		sum := 0.0
		keep(func(_ int, x slowToken) bool { sum += x.p; return sum-x.p < o.TopP })
	}
	if o.MinP > 0 {
		least := float64(float32(c[0].logit) + float32(math.Log(o.MinP)))
		keep(func(_ int, x slowToken) bool { return x.logit >= least })
	}
	if o.XTCProbability > 0 && o.XTCThreshold <= 0.5 && len(c) >= 2 && chance() <= o.XTCProbability {
		above := 0
		for _, x := range c {
			if x.p >= o.XTCThreshold {
				above++
			}
		}
		keep(func(i int, _ slowToken) bool { return i >= above-1 })
	}
	return c
}

// slowDraw is a draw from probabilities, whose sum is 1.
func slowDraw(c []slowToken, u float64) slowToken {
	for _, x := range c {
		if u -= x.p; u < 0 {
			return x
		}
	}
	return c[len(c)-1]
}

// slowMirostat is a step of Mirostat as its paper's algorithms 1 and 2 write it; mu moves.
func slowMirostat(c []slowToken, o SamplerOptions, vocab int, u float64, mu *float64) slowToken {
	for i := range c {
		c[i].logit = float64(float32(c[i].logit / o.Temperature))
	}
	slowSoftmax(c)
	n := 0
	if o.Mirostat == 1 {
		num, den := 0.0, 0.0
		for i := 0; i < min(99, len(c)-1); i++ {
			t, b := math.Log(float64(i+2)/float64(i+1)), math.Log(c[i].p/c[i+1].p)
			num, den = num+t*b, den+t*t
		}
		s := num / den
		e := s - 1
		n = min(len(c), max(1, int(math.Pow(e*math.Pow(2, *mu)/(1-math.Pow(float64(vocab), -e)), 1/s))))
	} else {
		for n < len(c) && (n == 0 || -math.Log2(c[n].p) <= *mu) {
			n++
		}
	}
	x := slowDraw(slowSoftmax(c[:n]), u)
	*mu -= o.MirostatEta * (-math.Log2(x.p) - o.MirostatTau)
	return x
}

// randomChain is options of which each sampler is on now and then.
func randomChain(r *rand.Rand) SamplerOptions {
	o := SamplerOptions{Temperature: []float64{0, 0.7, 1, 1.5}[r.IntN(4)], Seed: r.Uint64(), TopP: 1}
	some := func(v float64) float64 {
		if r.IntN(3) > 0 {
			return 0
		}
		return v
	}
	o.TopK, o.MinP, o.TypicalP, o.TopNSigma = int(some(float64(1+r.IntN(30)))), some(r.Float64()/4), some(r.Float64()), some(3*r.Float64())
	o.XTCProbability, o.XTCThreshold = some(r.Float64()), r.Float64()*0.6
	if p := some(r.Float64()); p > 0 {
		o.TopP = p
	}
	o.DRY = DRY{Multiplier: some(2 * r.Float64()), Base: 1 + r.Float64(), AllowedLength: r.IntN(4), Last: []int{-1, 0, 5, 30}[r.IntN(4)]}
	if r.IntN(4) == 0 {
		o.Mirostat, o.MirostatTau, o.MirostatEta = 1+r.IntN(2), 1+5*r.Float64(), r.Float64()/2
	}
	return o
}

// slowChain is the whole chain beside a Sampler, with draws of its own.
type slowChain struct {
	o          SamplerOptions
	draws, xtc *rand.Rand
	mu         float64
}

func newSlowChain(o SamplerOptions) *slowChain {
	return &slowChain{o, rand.New(rand.NewPCG(o.Seed, 0x7465727261636500)), rand.New(rand.NewPCG(o.Seed, 0x7465727261636501)), 2 * o.MirostatTau}
}

// next chooses among the tokens that are allowed.
func (s *slowChain) next(logits []float32, text []int, breakers []int, allowed func(id int) bool) slowToken {
	slow := make([]float64, len(logits))
	for id, v := range logits {
		slow[id] = float64(v)
	}
	if s.o.DRY.Multiplier > 0 && s.o.DRY.Last != 0 && s.o.Mirostat == 0 {
		slowDRY(slow, text, s.o.DRY, breakers)
	}
	var c []slowToken
	for id, v := range slow {
		if allowed(id) {
			c = append(c, slowToken{id: id, logit: float64(float32(v))})
		}
	}
	slowSoftmax(c)
	switch {
	case s.o.Mirostat > 0 && s.o.Temperature == 0:
		return c[0]
	case s.o.Mirostat > 0:
		return slowMirostat(c, s.o, len(logits), s.draws.Float64(), &s.mu)
	}
	if c = slowFilter(c, s.o, s.xtc.Float64); s.o.Temperature == 0 {
		return c[0]
	}
	for i := range c {
		c[i].logit /= s.o.Temperature
	}
	return slowDraw(slowSoftmax(c), s.draws.Float64())
}

// TestChainAgainstSlowReference draws texts by chains of samplers, some tokens forbidden, token for token as a slow reference does.
func TestChainAgainstSlowReference(t *testing.T) {
	const vocab = 60
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 600 {
		o := randomChain(r)
		s, slow, breakers := NewSampler(o), newSlowChain(o), []int{1, 50}
		s.Break(&Breakers{tails: map[int][][]int{1: {nil}, 50: {nil}}})
		mask := r.Uint64() | 1<<5
		text := []int{0, 2, 0, 2, 3}
		for step := range 25 {
			s.Allow([][]uint64{nil, {mask}}[step%2])
			logits := make([]float32, vocab)
			for id := range logits {
				logits[id] = float32(2.5 * r.NormFloat64())
			}
			want := slow.next(slices.Clone(logits), text, breakers, func(id int) bool { return step%2 == 0 || mask>>id&1 == 1 })
			if got := s.Next(logits, text); got != want.id {
				t.Fatalf("%d, token %d: %d, want %d (p %.3g) by %+v", i, step, got, want.id, want.p, o)
			}
			text = append(text, []int{0, 2, 3, 1}[want.id%4]) // so that it repeats
		}
	}
}

// TestDRYKnown: the example of llama.cpp's documentation, a b c c b c y a b c, and what breakers cut off.
func TestDRYKnown(t *testing.T) {
	text := []int{0, 1, 2, 2, 1, 2, 3, 0, 1, 2}
	for name, c := range map[string]struct {
		d        DRY
		breakers map[int][][]int
		want     []float32
	}{
		"longest copies":     {DRY{Multiplier: 1, Base: 2, AllowedLength: 1, Last: -1}, nil, []float32{0, -1, -4, -2, 0}},
		"of two tokens":      {DRY{Multiplier: 1, Base: 2, AllowedLength: 2, Last: -1}, nil, []float32{0, 0, -2, -1, 0}},
		"of the last eight":  {DRY{Multiplier: 1, Base: 2, AllowedLength: 2, Last: 8}, nil, []float32{0, 0, 0, -1, 0}},
		"a breaker":          {DRY{Multiplier: 1, Base: 2, AllowedLength: 1, Last: -1}, map[int][][]int{0: {nil}}, []float32{0, -1, -2, -2, 0}},
		"a breaker of two":   {DRY{Multiplier: 1, Base: 2, AllowedLength: 1, Last: -1}, map[int][][]int{0: {{1}}}, []float32{0, -1, -1, -1, 0}},
		"a breaker itself":   {DRY{Multiplier: 1, Base: 2, AllowedLength: 1, Last: -1}, map[int][][]int{3: {nil}}, []float32{0, -1, -4, 0, 0}},
		"off by its range":   {DRY{Multiplier: 1, Base: 2, AllowedLength: 1}, nil, []float32{0, 0, 0, 0, 0}},
		"too short to count": {DRY{Multiplier: 1, Base: 2, AllowedLength: 10, Last: -1}, nil, []float32{0, 0, 0, 0, 0}},
	} {
		s := NewSampler(SamplerOptions{DRY: c.d})
		if c.breakers != nil {
			s.Break(&Breakers{tails: c.breakers})
		}
		logits := make([]float32, 5)
		if s.Next(logits, text); !slices.Equal(logits, c.want) {
			t.Errorf("%s: %v, want %v", name, logits, c.want)
		}
	}
}

// TestBreakers: tokens that hold a breaker, and those that end in its beginning, whose rest follows.
func TestBreakers(t *testing.T) {
	pieces := [][]byte{[]byte("\n"), []byte("a\n\n"), []byte("x<"), []byte("</"), []byte("/s>"), []byte("s>"), []byte("</s>"), []byte("b")}
	encode := func(text string) ([]int, error) {
		id := slices.IndexFunc(pieces, func(p []byte) bool { return string(p) == text })
		if id < 0 {
			return nil, fmt.Errorf("no token %q", text)
		}
		return []int{id}, nil
	}
	b, err := NewBreakers([]string{"\n", "</s>"}, pieces, encode)
	if want := (map[int][][]int{0: {nil}, 1: {nil}, 2: {{4}}, 3: {{5}}, 6: {nil}}); err != nil || fmt.Sprint(b.tails) != fmt.Sprint(want) {
		t.Errorf("%v %v, want %v", b, err, want)
	}
	if n := b.since([]int{7, 3, 5, 7, 7}); n != 2 {
		t.Errorf("%d tokens since </s>, want 2", n)
	}
	if n := b.since([]int{7, 3, 7, 7}); n != 4 {
		t.Errorf("%d tokens since none, want 4", n)
	}
}

// TestChainRanges: what is out of range is named, and what is off is greedy.
func TestChainRanges(t *testing.T) {
	for name, o := range map[string]SamplerOptions{
		"typical-p": {TypicalP: 1.1}, "top-n-sigma": {TopNSigma: math.NaN()}, "xtc-probability": {XTCProbability: -1}, "xtc-threshold": {XTCThreshold: 2}, "mirostat 3": {Mirostat: 3},
		"mirostat-ent": {MirostatTau: -1}, "mirostat-lr": {MirostatEta: math.Inf(1)}, "dry-multiplier": {DRY: DRY{Multiplier: -1}}, "dry-base": {DRY: DRY{Multiplier: 1}},
		"dry-allowed-length": {DRY: DRY{AllowedLength: -1}}, "dry-penalty-last-n": {DRY: DRY{Last: -2}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, o := range []SamplerOptions{{TypicalP: 1, TopNSigma: 1, XTCProbability: 1, XTCThreshold: 0.6, DRY: DRY{Base: 2}, Mirostat: 2}, {Mirostat: 1, TypicalP: 0.1, DRY: DRY{Multiplier: 1, Base: 2, Last: -1}}} {
		if !NewSampler(o).Greedy() {
			t.Errorf("%+v is not greedy", o)
		}
	}
	for _, o := range []SamplerOptions{{TypicalP: 0.9}, {XTCProbability: 0.1}, {DRY: DRY{Multiplier: 1, Base: 2, Last: -1}}} {
		if NewSampler(o).Greedy() {
			t.Errorf("%+v is greedy", o)
		}
	}
}

// TestTook: a token that came without the sampler counts as generated, unless it is forbidden.
func TestTook(t *testing.T) {
	s := NewSampler(SamplerOptions{FrequencyPenalty: 1})
	s.Allow([]uint64{0b111})
	if !s.Took(1) || s.Took(3) || s.Took(64) {
		t.Error("what the mask forbids is taken, or what it allows is not")
	}
	s.Allow(nil)
	logits := []float32{0, 1.5, 1, 1.2}
	if got := s.Next(logits, nil); got != 3 || logits[1] != 0.5 {
		t.Errorf("%d by %v, want 3: token 1 was generated, 3 was not", got, logits)
	}
}
