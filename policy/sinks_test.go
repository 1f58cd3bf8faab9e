package policy

import (
	"math"
	"slices"
	"testing"
)

// TestSinksTakeTheirPart: weights beside a sink are those of a softmax that has one score more, which no token gets.
func TestSinksTakeTheirPart(t *testing.T) {
	l := &Layer{Heads: 2, KVHeads: 1, KeyDim: 4, Scale: 0.5, Sinks: []float32{1, -40}}
	row := []float32{2, 4, -6}
	var sum float64
	for _, x := range append([]float32{2}, row...) { // the sink is not scaled
		sum += math.Exp(float64(x) / 2)
	}
	l.weigh(row, l.scale(), 0)
	for i, x := range []float64{2, 4, -6} {
		if want := math.Exp(x/2) / sum; math.Abs(float64(row[i])-want) > 1e-6 {
			t.Errorf("weight %d is %g, want %g", i, row[i], want)
		}
	}
	far, plain := []float32{2, 4, -6}, []float32{2, 4, -6}
	l.weigh(far, 0.5, 1)
	if softmaxRow(plain, 0.5); !slices.Equal(far, plain) {
		t.Errorf("beside a sink that takes nothing: %v, want %v", far, plain)
	}
}

// TestSinksCount: a head whose sink takes all has no say in what its group reads, and sparq's mean stands for no attention that a sink has.
func TestSinksCount(t *testing.T) {
	l := &Layer{Heads: 2, KVHeads: 1, KeyDim: 4, Scale: 1, Sinks: []float32{50, -50}}
	c := &chooser{group: groupSoftmax}
	c.scores = []float32{9, 0, 0, 0, 1, 2}
	if merged := c.merge(l, 0, 3); merged[0] > merged[1] || merged[2] < merged[1] {
		t.Errorf("the head without attention decides: %v", merged)
	}
	s := randomScene(4, 280, 4, 2, 16)
	s.fill()
	share := func(sinks []float32) []float32 {
		shown := s.layer(0, 1)
		shown.Sinks = sinks
		var read Selection
		mustSetWith(t, "sparq:budget=32", s, nil).Selector.Select(shown, &read)
		return read.Share
	}
	without, with := share(nil), share([]float32{60, 60, 60, -60})
	for h := range 3 {
		if with[h] < 0.999 || without[h] > 0.99 {
			t.Errorf("head %d: what is read holds %g beside a sink that takes all, %g without", h, with[h], without[h])
		}
	}
	for h, x := range share([]float32{-60, -60, -60, -60}) {
		if math.Abs(float64(x-without[h])) > 1e-5 {
			t.Errorf("head %d beside a sink that takes nothing: %g, want %g", h, x, without[h])
		}
	}
}
