package stream

import (
	"errors"
	"slices"
	"testing"
)

// TestPreferred: as many experts as the layer's part has places for, those that were chosen most and latest, none that never was;
// whatever is in memory.
func TestPreferred(t *testing.T) {
	p, _ := testPlan(t, 2, 8, 2, 10) // of sixteen; four places a step are kept free
	s := open(t, p, Options{})
	c := NewChooser(s)
	which := func(layer int) (out []int) {
		for e, yes := range c.Preferred(layer) {
			if yes {
				out = append(out, e)
			}
		}
		return out
	}
	use := func(layer int, experts ...int) {
		t.Helper()
		rows := map[int]int{}
		for _, e := range experts {
			rows[e] = 1
		}
		if _, err := step(t, s, layer, rows, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	if got := which(0); got != nil {
		t.Errorf("before any choice: %v", got)
	}
	use(0, 6, 7)
	if got := which(0); !slices.Equal(got, []int{6, 7}) {
		t.Errorf("after a choice of 6 and 7: %v", got)
	}
	for range 3 {
		use(0, 1, 2)
	}
	use(0, 3, 4)
	use(0, 0, 5)
	want := []int{0, 1, 2, 5}
	s.Predict(0, []int{3, 4}) // which makes them come, and changes no worth
	if got := which(0); !slices.Equal(got, want) {
		t.Errorf("1 and 2 chosen most, 0 and 5 last: %v, want %v", got, want)
	}
	if got := which(1); got != nil {
		t.Errorf("the other layer: %v", got)
	}
	if got := c.Preferred(2); got != nil {
		t.Errorf("a layer behind the last: %v", got)
	}
	whole, _ := testPlan(t, 2, 8, 2, 16)
	all := open(t, whole, Options{})
	if _, err := step(t, all, 0, map[int]int{1: 1}, 1, false); err != nil {
		t.Fatal(err)
	}
	if got := NewChooser(all).Preferred(0); got != nil {
		t.Errorf("all experts fit: %v", got)
	}
	c.Changed(BiasUse{Choices: 4, Moved: 1})
	c.Changed(BiasUse{Choices: 4, Dropped: 2})
	if got, want := s.Accounts().Bias, (BiasUse{8, 1, 2}); got != want {
		t.Errorf("accounts %+v, want %+v", got, want)
	}
}

// TestParseBias: what is read is printed so that it reads the same; what means nothing is refused.
func TestParseBias(t *testing.T) {
	for text, want := range map[string]Bias{"margin=20%": {Margin: 0.2}, "margin=0.5": {Margin: 0.5}, "experts=3": {Experts: 3}, "experts=1,margin=5%": {Margin: 0.05, Experts: 1}} {
		got, err := ParseBias(text)
		again, err2 := ParseBias(got.String())
		if err != nil || err2 != nil || got != want || again != want || !got.On() {
			t.Errorf("%q: %+v %v, printed %q, read again %+v %v", text, got, err, got, again, err2)
		}
	}
	if (Bias{}).On() || (Bias{}).String() != "" {
		t.Error("the zero value is on")
	}
	for _, bad := range []string{"", "20%", "margin", "margin=0", "margin=100%", "margin=2", "margin=-1", "margin=nan", "experts=0", "experts=-1", "experts=x", "experts=1.5", "experts=1,experts=2", "top=3", "margin=20%,"} {
		if got, err := ParseBias(bad); !errors.Is(err, ErrBias) || got != (Bias{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}
