package tokencache

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestVictims: the slots with the lowest priorities that were not used in the step, lowest first.
func TestVictims(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		s := &shard{of: &pool{slots: &slots{step: 7}}}
		var want []float32
		for range rng.IntN(90) {
			granule, lastUse, priority := int32(rng.IntN(9)-1), uint32(5+rng.IntN(3)), float32(rng.IntN(30))
			s.owner, s.lastUse, s.priority = append(s.owner, granule), append(s.lastUse, lastUse), append(s.priority, priority)
			if granule >= 0 && lastUse < 7 {
				want = append(want, priority)
			}
		}
		n := 1 + rng.IntN(40)
		s.listVictims(n)
		slices.Sort(want)
		want = want[:min(n, len(want))]
		var got []float32
		seen := map[int32]bool{}
		for _, i := range s.victims {
			if seen[i] || s.owner[i] < 0 || s.lastUse[i] == 7 {
				t.Fatalf("slot %d, of %d in step %d", i, s.owner[i], s.lastUse[i])
			}
			seen[i] = true
			got = append(got, s.priority[i])
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d of %v: %v", n, want, got)
		}
	}
}

// TestScale: the priority is 0 at the worst score that was picked, -1 at the mean; scores that say nothing are left out.
func TestScale(t *testing.T) {
	scores := make([]float32, 64) // the mean of every 16th is 1
	scores[0], scores[16], scores[32], scores[48], scores[5], scores[6] = 1, 3, 0, 0, 4, -90
	w := scaleOf(scores, []int32{5, 16, 70})
	if w.cut != 3 || w.of(16) != 0 || w.of(0) != -1 || w.of(5) != 0.5 || w.of(6) != -2 || w.of(70) != 0 {
		t.Errorf("cut %v, priorities %v %v %v %v %v", w.cut, w.of(16), w.of(0), w.of(5), w.of(6), w.of(70))
	}
	for name, bad := range map[string][]float32{"none": nil, "equal": make([]float32, 64), "not numbers": {float32(math.NaN()), 1, 2}, "infinite": {float32(math.Inf(-1)), 1, 2}} {
		if w := scaleOf(bad, []int32{0, 1}); w.scores != nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
	if w := scaleOf(scores, []int32{99}); w.scores != nil {
		t.Errorf("no score of what was picked: %+v", w)
	}
}
