package simulate

import (
	"math"
	"testing"

	"terrace/internal/golden"
)

// TestBetaMinimumOfThePipeline: of the steps that policy, retrieval, kvmanager, offload and the drive take on one clock, at ratios of
// hot to cold tokens that are given, the shortest is at the ratio that the policy chooses, or at the next one; with the rates of
// profile smartssd and the paper's host no ratio matters. It chooses by f_s of the drive's own timing, with no other knowledge of the
// pipeline; the paper's formula, which adds scoring and delivery that run at the same time, chooses farther from it.
func TestBetaMinimumOfThePipeline(t *testing.T) {
	t.Parallel()
	for i, c := range balanceCases {
		if i%6 != 0 && !golden.Thorough() || testing.Short() && i > 3 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			layers := 2.0
			if c.name == "smartssd" { // whose ratios are known
				layers = 4
			}
			s, err := c.in(builtHill(t, "OPT-6.7B", layers, 1984)).sweepBeta()
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range s.steps {
				t.Logf("%+d: beta %.3f, %.1f %% hot, %.4f s a step", at.at, at.beta, 100*at.run.hot, at.run.step)
			}
			t.Logf("chosen %.3f: %.4f s; eq4 %.3f: %.4f s; %s", s.chosen.beta(), s.chosen.step, s.eq4.beta(), s.eq4.step, s.reason())
			best := s.steps[s.best].run.step
			if c.name == "smartssd" { // the default, where the sweep says nothing of the choice: it is by the rates
				if got := s.chosen.beta(); math.Abs(got/7.932-1) > 0.01 || math.Abs(s.eq4.beta()/5.010-1) > 0.01 || s.chosen.step > 1.08*best {
					t.Errorf("chosen %.3f (%.4f s, the best %.4f), eq4 %.3f: want 7.932 and 5.010, within 8 %% of the best", got, s.chosen.step, best, s.eq4.beta())
				}
			}
			if wantFlat := c.name == "smartssd"; s.flat() != wantFlat {
				t.Errorf("the longest step is %.1f %% over the shortest; flat: want %v", 100*s.spread(), wantFlat)
			} else if at := s.apart(); !wantFlat && (at < -1 || at > 1) {
				t.Errorf("the shortest step, %.4f s, is %+d steps from the chosen %.3f", best, at, s.chosen.beta())
			}
			if s.settled() && s.chosen.step > 1.1*best || s.eq4.step < c.eq4*s.chosen.step {
				t.Errorf("%.4f s at the policy's choice, %.4f s at the best of the sweep, %.4f s by eq4", s.chosen.step, best, s.eq4.step)
			}
		})
	}
}
