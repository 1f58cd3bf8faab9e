package kvmanager

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGiveWay: the slots worth least that were not used in the step, least first.
func TestGiveWay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		p, ln := &Pool{step: 7}, &lane{}
		var want []float32
		for range rng.IntN(90) {
			unit, stamp, worth := int32(rng.IntN(9)-1), uint32(5+rng.IntN(3)), float32(rng.IntN(30))
			ln.owner, ln.stamp, ln.worth = append(ln.owner, unit), append(ln.stamp, stamp), append(ln.worth, worth)
			if unit >= 0 && stamp < 7 {
				want = append(want, worth)
			}
		}
		n := 1 + rng.IntN(40)
		p.giveWay(ln, n)
		slices.Sort(want)
		want = want[:min(n, len(want))]
		var got []float32
		seen := map[int32]bool{}
		for _, i := range ln.leaving {
			if seen[i] || ln.owner[i] < 0 || ln.stamp[i] == 7 {
				t.Fatalf("slot %d, of %d in step %d", i, ln.owner[i], ln.stamp[i])
			}
			seen[i] = true
			got = append(got, ln.worth[i])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d of %v: %v", n, want, got)
		}
	}
}

// TestWeigh: worth is 0 at the worst score that was picked, -1 at the mean; scores that say nothing are left out.
func TestWeigh(t *testing.T) {
	scores := make([]float32, 64) // the mean of every 16th is 1
	scores[0], scores[16], scores[32], scores[48], scores[5], scores[6] = 1, 3, 0, 0, 4, -90
	w := weigh(scores, []int32{5, 16, 70})
	if w.cut != 3 || w.of(16) != 0 || w.of(0) != -1 || w.of(5) != 0.5 || w.of(6) != -2 || w.of(70) != 0 {
		t.Errorf("cut %v, worth %v %v %v %v %v", w.cut, w.of(16), w.of(0), w.of(5), w.of(6), w.of(70))
	}
	for name, bad := range map[string][]float32{"none": nil, "equal": make([]float32, 64), "not numbers": {float32(math.NaN()), 1, 2}, "infinite": {float32(math.Inf(-1)), 1, 2}} {
		if w := weigh(bad, []int32{0, 1}); w.scores != nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := weigh(scores, []int32{99}); w.scores != nil {
		t.Errorf("no score of what was picked: %+v", w)
	}
}
