package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"terrace/eval"
)

// storesFile has what each placement of a replay did to its stores; a placement that is in it is done.
const storesFile = "stores.json"

// probesFile has the rates at which placements were replayed beside the run.
const probesFile = "probes.json"

// ReplayResult is what results of a replay have beside those of other runs.
type ReplayResult struct {
	TTFTMean float64            `json:"ttft_mean_ms"`
	E2E      float64            `json:"e2e_ms"` // median, from arrival to the last token
	E2EMean  float64            `json:"e2e_mean_ms"`
	Hits     map[string]float64 `json:"hits"` // share of the requests by the slowest tier used; "none" where all was computed
	// Configs are how the contexts that were found were compressed: shares of those requests, by method and share kept ("keydiff 0.5", "none 1").
	Configs map[string]float64 `json:"configs"`
	*eval.StoreUse
	Sustained *eval.SustainedRate `json:"qps_at_quality,omitempty"` // nil = not searched
}

// Replays are the placements of a replay that are done, by name.
type Replays struct {
	f         *Folder
	uses      map[string]*eval.StoreUse
	probes    map[string][]eval.RateProbe // by placement
	sustained map[string]*eval.SustainedRate
}

// Replays reads which placements of the folder's replay are done, and at which rates they were probed.
func (f *Folder) Replays() (*Replays, error) {
	r := &Replays{f: f, uses: map[string]*eval.StoreUse{}, probes: map[string][]eval.RateProbe{}, sustained: map[string]*eval.SustainedRate{}}
	for name, into := range map[string]any{storesFile: &r.uses, probesFile: &r.probes} {
		raw, err := os.ReadFile(f.path(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(raw, into)
		}
		if err != nil {
			return nil, fmt.Errorf("run: %s: %w: %w", f.path(name), ErrFolder, err)
		}
	}
	return r, nil
}

// Probe is a placement at a speed, measured now unless the folder has it.
func (r *Replays) Probe(placement string, speed float64, measure func() (eval.RateProbe, error)) (eval.RateProbe, error) {
	for _, p := range r.probes[placement] {
		if p.Speed == speed {
			return p, nil
		}
	}
	p, err := measure()
	if err != nil {
		return p, err
	}
	p.Speed = speed
	r.probes[placement] = append(r.probes[placement], p)
	return p, r.write(probesFile, r.probes)
}

// Sustains notes a placement's sustained rate for the results.
func (r *Replays) Sustains(placement string, s *eval.SustainedRate) { r.sustained[placement] = s }

func (r *Replays) write(name string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return r.f.replace(name, append(raw, '\n'))
}

// Done reports whether a placement is done.
func (r *Replays) Done(placement string) bool { return r.uses[placement] != nil }

// Keep notes that a placement is done.
func (r *Replays) Keep(placement string, use *eval.StoreUse) error {
	r.uses[placement] = use
	return r.write(storesFile, r.uses)
}

// WriteFile keeps a further file beside the results.
func (f *Folder) WriteFile(name string, data []byte) error { return f.replace(name, data) }

// Path is the place of a file of the folder.
func (f *Folder) Path(name string) string { return f.path(name) }

// Finish writes results.json of a replay; total is how many outcomes it has when it is complete.
func (r *Replays) Finish(metric eval.Metric, total int) (*Results, error) {
	m, err := r.f.machine()
	if err != nil {
		return nil, err
	}
	res := aggregate(r.f.options, m, len(r.f.outcomes) == total, r.f.outcomes, func(string) eval.Metric { return metric })
	res.QualityMetric = metric.Name
	for i := range res.Policies {
		p := &res.Policies[i]
		p.ReplayResult = &ReplayResult{Hits: map[string]float64{}, Configs: map[string]float64{}, StoreUse: r.uses[p.Policy], Sustained: r.sustained[p.Policy]}
		n, found, sum, ends := 0, 0, 0.0, 0.0
		var own []eval.Outcome
		for _, o := range r.f.outcomes {
			if o.Policy != p.Policy || o.ContextUse == nil {
				continue
			}
			n++
			sum += o.TTFT
			ends += o.E2EMS
			own = append(own, o)
			if o.CacheTier == "" {
				p.Hits["none"]++
			} else {
				found++
				p.Hits[o.CacheTier]++
				p.Configs[o.Method+" "+strconv.FormatFloat(o.Keep, 'g', -1, 64)]++
			}
		}
		p.TTFTMean, p.E2EMean = sum/float64(max(1, n)), ends/float64(max(1, n))
		p.E2E = median(own, func(o eval.Outcome) float64 { return o.E2EMS })
		for tier := range p.Hits {
			p.Hits[tier] /= float64(n)
		}
		for config := range p.Configs {
			p.Configs[config] /= float64(found)
		}
	}
	raw, err := res.encode()
	if err != nil {
		return nil, fmt.Errorf("run: results: %w", err)
	}
	return &res, r.f.replace(resultsFile, raw)
}
