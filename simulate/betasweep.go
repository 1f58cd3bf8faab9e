package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// betaFactor is by what factor ratios of hot to cold tokens differ in a sweep, and betaSteps how many lie on either side of the
// chosen one.
const (
	betaFactor = 1.25
	betaSteps  = 3
)

// flatSweep is how much longer the longest step of a sweep may be than the shortest for the ratio not to matter.
const flatSweep = 0.05

// balanceCase are rates of host and drive, B/s of a model's KV and of codes, over those of the hardware file. Host memory has room for
// every ratio.
type balanceCase struct {
	name string
	set  map[string]float64
	eq4  float64 // by what the paper's formula makes the step longer, at least; 0 = it need not
}

// free are rates at which neither compute nor flash bounds a step.
var free = map[string]float64{"gpu_flops": 1e21, "gpu_mem_bps": 1e21, "csd_bps": 100e9, "csd_dram_bytes": 1e12}

var balanceCases = []balanceCase{
	{"smartssd", nil, 0},
	{"smartssd, host of 12 GB/s", map[string]float64{"f_c": 12e9}, 1.3},
	{"equal rates", beside(map[string]float64{"f_c": 12e9, "csd_dram_bps": 3e9, "B_s": 3e9}), 1.1},
	{"slow drive", beside(map[string]float64{"f_c": 12e9, "csd_dram_bps": 1e9, "B_s": 3e9}), 0},
	{"slow link", beside(map[string]float64{"f_c": 6e9, "csd_dram_bps": 3e9, "B_s": 1e9}), 1.3},
	{"fast drive", beside(map[string]float64{"f_c": 6e9, "csd_dram_bps": 6e9, "B_s": 6e9}), 1.1},
	{"keys on flash", beside(map[string]float64{"f_c": 12e9, "csd_dram_bytes": 1, "csd_bps": 4e9, "B_s": 3e9}), 0},
}

// beside are rates over the free ones.
func beside(set map[string]float64) map[string]float64 {
	for name, v := range free {
		if _, ok := set[name]; !ok {
			set[name] = v
		}
	}
	return set
}

// in is a step at a case's rates.
func (c balanceCase) in(h hill) hill {
	h.p = h.p.with("host_share", 1)
	for name, v := range c.set {
		h.p = h.p.with(name, v)
	}
	return h
}

// betaSweep is what HillInfer's step takes on the product's own code at ratios of hot to cold tokens that are given, and at those that
// the policy chooses.
type betaSweep struct {
	chosen, eq4 pipeRun // beta_mode=overlap, and the paper's formula
	steps       []betaStepAt
	best        int // of steps
}

type betaStepAt struct {
	at   int // factors of betaFactor from the chosen ratio
	beta float64
	run  pipeRun
}

// beta is the ratio that a run's policy wants, at most that of a text of which a token is cold: all hot is no ratio.
func (r pipeRun) beta() float64 { return min(r.share/(1-r.share), pipeTokens) }

func (h hill) sweepBeta() (out betaSweep, err error) {
	if out.chosen, err = h.builtStep("pools=layer,beta_mode=overlap"); err != nil {
		return out, err
	}
	for at := -betaSteps; at <= betaSteps; at++ {
		s := betaStepAt{at: at, beta: out.chosen.beta() * math.Pow(betaFactor, float64(at))}
		if s.run, err = h.builtStep(fmt.Sprintf("pools=layer,beta_mode=fixed,beta=%v", s.beta)); err != nil {
			return out, err
		}
		out.steps = append(out.steps, s)
		if s.run.step < out.steps[out.best].run.step {
			out.best = len(out.steps) - 1
		}
	}
	out.eq4, err = h.builtStep("pools=layer,beta_mode=eq4")
	return out, err
}

// apart is how many factors the shortest step's ratio is from the chosen one.
func (s betaSweep) apart() int { return s.steps[s.best].at }

// spread is how much longer the longest step is than the shortest.
func (s betaSweep) spread() float64 {
	longest := slices.MaxFunc(s.steps, func(a, b betaStepAt) int {
		switch {
		case a.run.step < b.run.step:
			return -1
		case a.run.step > b.run.step:
			return 1
		}
		return 0
	})
	return longest.run.step/s.steps[s.best].run.step - 1
}

// flat says that no ratio of the sweep matters: something bounds the step that no split changes.
func (s betaSweep) flat() bool { return s.spread() <= flatSweep }

// settled says that the host holds what the policy wants: it takes over one token a step, so that where the first rates were far off it
// does not yet.
func (s betaSweep) settled() bool { return math.Abs(s.chosen.hot-s.chosen.share) < 0.05 }

// reason is why a chosen ratio, or the step taken with it, is not that of the minimum; empty where it is.
func (s betaSweep) reason() string {
	var why []string
	if s.flat() {
		why = append(why, fmt.Sprintf("the sweep is flat, its longest step %.1f %% over its shortest: delivery and compute bound it, which no split changes", 100*s.spread()))
	}
	if !s.settled() {
		why = append(why, fmt.Sprintf("the run that chose had %.0f %% hot yet of %.0f %%: a token changes place a step", 100*s.chosen.hot, 100*s.chosen.share))
	}
	return strings.Join(why, "; ")
}

// hillSweep adds each case's sweep.
func hillSweep(b *builder) error {
	for _, name := range b.axes.texts("rates") {
		i := slices.IndexFunc(balanceCases, func(c balanceCase) bool { return c.name == name })
		if i < 0 {
			var known []string
			for _, c := range balanceCases {
				known = append(known, c.name)
			}
			return fmt.Errorf("rates=%s: known are %s", name, strings.Join(known, "; "))
		}
		err := b.hillTry(func(model string, h hill) error {
			s, err := balanceCases[i].in(h).sweepBeta()
			if err != nil {
				return err
			}
			x := func(more ...any) map[string]any {
				return X(append(more, "model", model, "context", h.context, "batch", h.batch)...)
			}
			add := func(series, metric, unit string, x map[string]any, v float64) *Row {
				b.model(series, metric, unit, x, v)
				r := &b.rows[len(b.rows)-1]
				r.Code = Shared
				return r
			}
			for _, at := range s.steps {
				add(name+", sweep", "step_s", "s", x("apart", at.at, "beta", math.Round(1000*at.beta)/1000), at.run.step)
			}
			chosen := name + ", chosen"
			add(chosen, "beta", "ratio", x(), s.chosen.beta())
			add(chosen, "step_s", "s", x(), s.chosen.step).Reason = s.reason()
			add(chosen, "minimum_apart", "count", x(), float64(s.apart())).Reason = s.reason()
			add(name+", eq4", "beta", "ratio", x(), s.eq4.beta())
			add(name+", eq4", "step_s", "s", x(), s.eq4.step)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
