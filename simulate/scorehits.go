package simulate

import (
	"fmt"
	"slices"
)

// HitRate is what part of the tokens that HillInfer reads is hot, of its own code (pipe.go), on a recorded trace and on synthetic ones.
type HitRate struct {
	Pools     string    `json:"pools"` // of policy hillinfer
	Alpha     float64   `json:"alpha"`
	Share     float64   `json:"hot_share"` // of the KV that is hot
	Recorded  float64   `json:"recorded"`
	Synthetic []float64 `json:"synthetic"` // by each fit
}

// Turnover is what part of a step's picks are those of a step some steps before, at a fifth of the tokens.
type Turnover struct {
	Lag       int       `json:"steps_apart"`
	Recorded  float64   `json:"recorded"`
	Synthetic []float64 `json:"synthetic"`
}

// params are a fit's, as those of an experiment.
func (f *ScoreFit) params() P {
	return P{"seed": 1, "persistence": f.Persistence, "level": f.Level, "level_shared": f.LevelShared, "rest_shared": f.RestShared, "recency": f.Recency, "recency_tokens": f.RecencyTokens}
}

// BuiltInScores are the parameters of synthetic traces that the experiments take unless others are set.
func BuiltInScores() ScoreFit {
	p := (&settings{params: traceParams()}).numbers()
	return ScoreFit{p["persistence"], p["level"], p["level_shared"], p["rest_shared"], p["recency"], p["recency_tokens"]}
}

// MeanFit is the mean of fits.
func MeanFit(fits ...ScoreFit) (out ScoreFit) {
	n := float64(len(fits))
	for i := range fits {
		f := &fits[i]
		out.Persistence, out.Level, out.LevelShared = out.Persistence+f.Persistence/n, out.Level+f.Level/n, out.LevelShared+f.LevelShared/n
		out.RestShared, out.Recency, out.RecencyTokens = out.RestShared+f.RestShared/n, out.Recency+f.Recency/n, out.RecencyTokens+f.RecencyTokens/n
	}
	return out
}

// HitRates sets a recorded trace beside synthetic ones of some fits, at four shares of hot KV, both kinds of pools and two rates.
// ErrScores where the trace has fewer layers or steps than the miniature.
func HitRates(t *ScoreTrace, fits ...ScoreFit) (out []HitRate, err error) {
	for _, pools := range []string{"paper", "layer"} {
		for _, alpha := range []float64{0.1, 0.2} {
			for _, share := range []float64{0.1, 0.25, 0.5, 0.8} {
				r := HitRate{Pools: pools, Alpha: alpha, Share: share}
				if r.Recorded, err = hitRate(t, nil, r); err != nil {
					return nil, err
				}
				for i := range fits {
					hit, err := hitRate(t, &fits[i], r)
					if err != nil {
						return nil, err
					}
					r.Synthetic = append(r.Synthetic, hit)
				}
				out = append(out, r)
			}
		}
	}
	return out, nil
}

// hitRate is what a step of the miniature finds hot, of a recorded trace, or of a fit's of the same length; the balance is fixed, so that the
// share is what was asked for, and rates are of no account.
func hitRate(t *ScoreTrace, f *ScoreFit, r HitRate) (float64, error) {
	recorded, err := newReplay(t, t.Prompt, pipeLayers, pipeSteps)
	if err != nil {
		return 0, err
	}
	p := (&settings{params: pick("hillinfer")}).numbers().with("alpha", r.Alpha).with("host_share", 1)
	h := hill{m: shapes["OPT-6.7B"], p: p, batch: 1, context: min(pipeTokens, float64(t.Prompt)), scores: t}
	d, err := h.pipeOn(recorded, fmt.Sprintf("query=guess,beta_mode=fixed,beta=%v,pools=%s", r.Share/(1-r.Share), r.Pools))
	if err != nil {
		return 0, err
	}
	if d.tokens = t.Prompt; f != nil {
		d.trace = newSynthetic(f.params(), t.Prompt)
	}
	run, err := d.run(h.m.layers)
	if err != nil {
		return 0, err
	}
	return 1 - run.crossed/run.read, nil
}

// Turnovers sets picks of a recorded trace, some steps apart, beside those of synthetic ones.
func Turnovers(t *ScoreTrace, fits ...ScoreFit) ([]Turnover, error) {
	recorded, err := newReplay(t, t.Prompt, pipeLayers, pipeSteps)
	if err != nil {
		return nil, err
	}
	sources := []scores{recorded}
	for i := range fits {
		sources = append(sources, newSynthetic(fits[i].params(), t.Prompt))
	}
	lags := []int{1, 2, 4, 8, 16, 32}
	out := make([]Turnover, len(lags))
	for i, s := range sources {
		for at, same := range overlaps(s, t.Prompt, lags) {
			if out[at].Lag = lags[at]; i == 0 {
				out[at].Recorded = same
			} else {
				out[at].Synthetic = append(out[at].Synthetic, same)
			}
		}
	}
	return out, nil
}

// overlaps are the shares of the best fifth of a prompt's tokens that are among those of some steps before.
func overlaps(s scores, prompt int, lags []int) []float64 {
	sums, counts := make([]float64, len(lags)), make([]float64, len(lags))
	for layer := range pipeLayers {
		keys := make([]float32, prompt*pipeDim)
		for pos := range prompt {
			s.key(keys[pos*pipeDim:][:pipeDim], 0, layer, pos)
		}
		var steps [][]bool
		query := make([]float32, pipeDim)
		for step := range pipeSteps {
			s.query(query, 0, layer, prompt+step)
			steps = append(steps, bestFifth(keys, query))
		}
		for i, lag := range lags {
			for step := lag; step < len(steps); step++ {
				same, all := 0, 0
				for pos, picked := range steps[step] {
					if picked {
						all++
						if steps[step-lag][pos] {
							same++
						}
					}
				}
				sums[i], counts[i] = sums[i]+float64(same)/float64(all), counts[i]+1
			}
		}
	}
	for i := range sums {
		sums[i] /= max(1, counts[i])
	}
	return sums
}

// bestFifth says of each key whether its product with a query is among the largest fifth.
func bestFifth(keys, query []float32) []bool {
	n := len(keys) / len(query)
	worth, order := make([]float32, n), make([]int, n)
	for i := range n {
		order[i] = i
		for d, q := range query {
			worth[i] += q * keys[i*len(query)+d]
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case worth[a] > worth[b]:
			return -1
		case worth[a] < worth[b]:
			return 1
		}
		return 0
	})
	out := make([]bool, n)
	for _, i := range order[:(n+4)/5] {
		out[i] = true
	}
	return out
}
