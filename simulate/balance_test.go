package simulate

import (
	"fmt"
	"math"
	"testing"
)

// betaFactor is by what factor ratios of hot to cold tokens differ in a sweep.
const betaFactor = 1.25

// balanceCases are rates of host and drive, B/s of a model's KV and of codes, at which neither compute nor flash bounds a step.
var balanceCases = []struct {
	name string
	set  map[string]float64
	eq4  float64 // by what the paper's formula makes the step longer, at least; 0 = it need not
}{
	{"equal rates", map[string]float64{"f_c": 12e9, "csd_dram_bps": 3e9, "B_s": 3e9}, 1.1},
	{"slow drive", map[string]float64{"f_c": 12e9, "csd_dram_bps": 1e9, "B_s": 3e9}, 0},
	{"slow link", map[string]float64{"f_c": 6e9, "csd_dram_bps": 3e9, "B_s": 1e9}, 1.3},
	{"fast drive", map[string]float64{"f_c": 6e9, "csd_dram_bps": 6e9, "B_s": 6e9}, 1.1},
	{"keys on flash", map[string]float64{"f_c": 12e9, "csd_dram_bytes": 1, "csd_bps": 4e9, "B_s": 3e9}, 0},
}

// TestBetaMinimumOfThePipeline: of the steps that policy, retrieval, kvmanager, offload and the drive take on one clock, at ratios of
// hot to cold tokens that are given, the shortest is at the ratio that the policy chooses, or at the next one. It chooses by f_s of the drive's
// own timing, with no other knowledge of the pipeline; the paper's formula, which adds scoring and delivery that run at the same
// time, chooses farther from it.
func TestBetaMinimumOfThePipeline(t *testing.T) {
	for i, c := range balanceCases {
		if testing.Short() && i%2 == 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			h := builtHill(t, "OPT-6.7B", 4, 1984)
			h.p = h.p.with("gpu_flops", 1e21).with("gpu_mem_bps", 1e21).with("host_share", 1).with("csd_bps", 100e9).with("csd_dram_bytes", 1e12)
			for name, v := range c.set {
				h.p = h.p.with(name, v)
			}
			chosen := builtRun(t, h, "pools=layer,beta_mode=overlap")
			beta := chosen.share / (1 - chosen.share)
			best, at := math.Inf(1), 0
			for i := -3; i <= 3; i++ {
				r := builtRun(t, h, fmt.Sprintf("pools=layer,beta_mode=fixed,beta=%v", beta*math.Pow(betaFactor, float64(i))))
				t.Logf("%+d: beta %.3f, %.1f %% hot, %.4f s a step", i, beta*math.Pow(betaFactor, float64(i)), 100*r.hot, r.step)
				if r.step < best {
					best, at = r.step, i
				}
			}
			if at < -1 || at > 1 {
				t.Errorf("the shortest step, %.4f s, is %+d steps from the chosen %.3f", best, at, beta)
			}
			paper := builtRun(t, h, "pools=layer,beta_mode=eq4")
			t.Logf("chosen %.3f: %.4f s; eq4 %.3f: %.4f s", beta, chosen.step, paper.share/(1-paper.share), paper.step)
			settled := math.Abs(chosen.hot-chosen.share) < 0.05 // the host takes over one token a step: where the first rates were far off it is not there yet
			if settled && chosen.step > 1.1*best || paper.step < c.eq4*chosen.step {
				t.Errorf("%.4f s at the policy's choice, %.4f s at the best of the sweep, %.4f s by eq4", chosen.step, best, paper.step)
			}
		})
	}
}
