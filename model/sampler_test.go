package model

import (
	"math"
	"slices"
	"testing"
)

func TestGreedyTakesTheLikeliestAndTheLowestIdOnTies(t *testing.T) {
	s := NewSampler(SamplerOptions{})
	if got := s.Next([]float32{1, 3, 2, 3}, nil); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

// TestBar: barred ids are not chosen, the logits stay as they are, and -1 says that every id is barred.
func TestBar(t *testing.T) {
	logits := []float32{1, 3, 2, 3}
	for _, o := range []SamplerOptions{{}, {Temperature: 0.01}} {
		s := NewSampler(o)
		s.Bar(func(id int) bool { return id == 0 || id == 1 })
		if got := s.Next(logits, nil); got != 3 || s.Greedy() || logits[1] != 3 {
			t.Errorf("%+v: %d, greedy %v, logits %v", o, got, s.Greedy(), logits)
		}
		s.Bar(func(int) bool { return true })
		if got := s.Next(logits, nil); got != -1 {
			t.Errorf("%+v: all are barred: %d", o, got)
		}
		s.Bar(nil)
		if got := s.Next(logits, nil); got != 1 && got != 3 {
			t.Errorf("%+v: none is barred any more: %d", o, got)
		}
	}
}

// TestAllow: only ids of the mask are chosen, ids beyond it are not, and logits stay as they are.
func TestAllow(t *testing.T) {
	logits := make([]float32, 70)
	logits[69], logits[3], logits[65], logits[66] = 9, 8, 7, 6
	for _, o := range []SamplerOptions{{}, {Temperature: 0.01}, {Temperature: 0.01, TopK: 1}} {
		s := NewSampler(o)
		s.Allow([]uint64{0, 1<<1 | 1<<2})
		if got := s.Next(logits, nil); got != 65 || s.Greedy() {
			t.Errorf("%+v: %d, want 65", o, got)
		}
		s.Allow([]uint64{1 << 3})
		if got := s.Next(logits, nil); got != 3 || logits[69] != 9 {
			t.Errorf("%+v: %d, want 3", o, got)
		}
		s.Allow([]uint64{0, 0})
		if got := s.Next(logits, nil); got != -1 {
			t.Errorf("%+v: nothing is allowed: %d", o, got)
		}
		s.Allow(nil)
		if got := s.Next(logits, nil); got != 69 {
			t.Errorf("%+v: all is allowed: %d", o, got)
		}
	}
}

// TestFiltersAgainstPlainReference compares the candidates that are left with a reference that sorts everything.
func TestFiltersAgainstPlainReference(t *testing.T) {
	logits := []float32{0.1, 4, -2, 3.5, 3.4, 0, 2, 1.9, -5, 2.2}
	prob := make([]float64, len(logits))
	var sum float64
	for i, v := range logits {
		prob[i] = math.Exp(float64(v))
		sum += prob[i]
	}
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	slices.SortStableFunc(order, func(a, b int) int {
		if logits[a] > logits[b] {
			return -1
		}
		return 1
	})
	for _, c := range []struct {
		o    SamplerOptions
		want []int
	}{
		{SamplerOptions{Temperature: 1}, order},
		{SamplerOptions{Temperature: 1, TopK: 3}, order[:3]},
		{SamplerOptions{Temperature: 1, TopK: 100}, order},
		{SamplerOptions{Temperature: 1, MinP: 0.5}, []int{1, 3, 4}}, // e^-0.5 = 0.61, e^-0.6 = 0.55, e^-1.8 = 0.17
		{SamplerOptions{Temperature: 1, TopP: 1e-9}, order[:1]},
		{SamplerOptions{Temperature: 1, TopPSet: true}, order[:1]}, // 0 was chosen
		{SamplerOptions{Temperature: 1, TopP: 1, TopPSet: true}, order},
		{SamplerOptions{Temperature: 1, TopP: (prob[1]+prob[3])/sum - 1e-6}, order[:2]},
		{SamplerOptions{Temperature: 1, TopP: (prob[1] + prob[3] + 1e-3) / sum}, order[:3]},
	} {
		s := NewSampler(c.o)
		var got []int
		r := s.candidates(logits)
		s.filter(r, logits)
		for i := range r.c {
			x := r.at(i)
			got = append(got, x.id)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.o, got, c.want)
		}
	}
}

func TestDrawsFollowTheDistributionAndTheSeed(t *testing.T) {
	logits := []float32{1, 2, 0}
	var sum float64
	for _, v := range logits {
		sum += math.Exp(float64(v) / 0.7)
	}
	a, b := NewSampler(SamplerOptions{Temperature: 0.7, Seed: 5}), NewSampler(SamplerOptions{Temperature: 0.7, Seed: 5})
	const n = 20000
	count := make([]float64, 3)
	for range n {
		x := a.Next(logits, nil)
		if y := b.Next(logits, nil); x != y {
			t.Fatal("the same seed drew other tokens")
		}
		count[x]++
	}
	for i, v := range logits {
		p := math.Exp(float64(v)/0.7) / sum
		if sd := math.Sqrt(p * (1 - p) / n); math.Abs(count[i]/n-p) > 5*sd {
			t.Errorf("token %d drawn %.4f of the time, want %.4f ± %.4f", i, count[i]/n, p, 5*sd)
		}
	}
}

func TestPenalties(t *testing.T) {
	for name, c := range map[string]struct {
		o    SamplerOptions
		want []float32 // after 3 was generated twice behind the prompt 3 0 0 1
	}{
		"repeat":     {SamplerOptions{RepeatPenalty: 2, PenaltyLast: 3}, []float32{2, -4, 1, 2.5}}, // 0 is out of reach of the last three
		"repetition": {SamplerOptions{RepetitionPenalty: 2}, []float32{1, -4, 1, 2.5}},
		"frequency":  {SamplerOptions{FrequencyPenalty: 0.5}, []float32{2, -2, 1, 5 - 2*0.5}},
		"presence":   {SamplerOptions{PresencePenalty: 0.25}, []float32{2, -2, 1, 5 - 0.25}},
		"look back":  {SamplerOptions{PresencePenalty: 0.25, FrequencyPenalty: 0.5, PenaltyLastSet: true}, []float32{2, -2, 1, 5 - 2*0.5 - 0.25}},
		"all":        {SamplerOptions{RepeatPenalty: 2, RepetitionPenalty: 2, PresencePenalty: 0.25, FrequencyPenalty: 0.5, PenaltyLast: 3}, []float32{1, -8, 1, 1.25 - 2*0.5 - 0.25}},
	} {
		s, history := NewSampler(c.o), []int{3, 0, 0, 1}
		for range 2 {
			id := s.Next([]float32{0, 0, 0, 9}, history)
			history = append(history, id)
		}
		logits := []float32{2, -2, 1, 5}
		if s.Next(logits, history); !slices.Equal(logits, c.want) {
			t.Errorf("%s: %v, want %v", name, logits, c.want)
		}
	}
}

// TestPenaltyOfAll: what was generated long ago counts, the prompt does not; a text that was shifted is looked at again.
func TestPenaltyOfAll(t *testing.T) {
	s, history := NewSampler(SamplerOptions{FrequencyPenalty: 0.01}), []int{0, 0, 0}
	for i := range 200 {
		id := s.Next([]float32{1, 0}, history)
		if want := max(0, i-99) % 2; id != want && i < 100 {
			t.Fatalf("token %d: %d, want %d", i, id, want)
		}
		history = append(history, id)
	}
	if s.made[0] < 145 || s.made[1] < 45 {
		t.Errorf("generated %v", s.made)
	}
	hf := NewSampler(SamplerOptions{RepetitionPenalty: 2})
	hf.Next([]float32{1, 1, 1}, []int{0, 1, 1, 1})
	logits := []float32{4, 4, 4}
	if hf.Next(logits, []int{2, 1}); !slices.Equal(logits, []float32{4, 2, 2}) {
		t.Errorf("after a shift: %v", logits)
	}
}

func TestSamplerOptionsAreChecked(t *testing.T) {
	for _, o := range []SamplerOptions{{Temperature: -1}, {Temperature: math.NaN()}, {TopK: -2}, {RepetitionPenalty: -1}, {TopP: 1.5}, {MinP: -0.1},
		{RepeatPenalty: -1}, {FrequencyPenalty: math.Inf(1)}, {PresencePenalty: math.NaN()}, {PenaltyLast: -2}} {
		if o.Validate() == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	if err := (SamplerOptions{Temperature: 0.8, TopK: -1, TopP: 0.95, MinP: 0.05, PenaltyLast: -1}).Validate(); err != nil {
		t.Error(err)
	}
}

// A look-back of 0 that was chosen is none; one that was not is 64.
func TestPenaltyLookBack(t *testing.T) {
	for want, o := range map[float32]SamplerOptions{1: {RepeatPenalty: 2}, 2: {RepeatPenalty: 2, PenaltyLastSet: true}} {
		logits := []float32{2}
		s := NewSampler(o)
		if s.Next(logits, []int{0}); logits[0] != want || s.Greedy() != (want == 2) {
			t.Errorf("%+v: logit %v, want %v; greedy %v", o, logits[0], want, s.Greedy())
		}
	}
}
