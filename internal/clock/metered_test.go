package clock

import "testing"

// TestMeteredCounts: work is counted by its kind until it is asked for; the clock is the machine's.
func TestMeteredCounts(t *testing.T) {
	c := NewMetered()
	for range 3 {
		Spend(c, Ask, 5)
	}
	Spend(c, Take, 7)
	if n := c.Spent(); n != [Works]int64{Ask: 15, Take: 7} {
		t.Errorf("%v", n)
	}
	if n := c.Spent(); n != [Works]int64{} || c.Modelled() || c.Now() <= 0 {
		t.Errorf("%v left, modelled %v", n, c.Modelled())
	}
	Spend(Real(), Ask, 5)
}
