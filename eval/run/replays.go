package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"terrace/eval"
)

// storesFile has what each placement of a replay did to its stores; a placement that is in it is done.
const storesFile = "stores.json"

// ReplayResult is what results of a replay have beside those of other runs.
type ReplayResult struct {
	TTFTMean float64            `json:"ttft_mean_ms"`
	Hits     map[string]float64 `json:"hits"` // share of the requests by the slowest tier used; "none" where all was computed
	*eval.StoreUse
}

// Replays are the placements of a replay that are done, by name.
type Replays struct {
	f    *Folder
	uses map[string]*eval.StoreUse
}

// Replays reads which placements of the folder's replay are done.
func (f *Folder) Replays() (*Replays, error) {
	r := &Replays{f: f, uses: map[string]*eval.StoreUse{}}
	raw, err := os.ReadFile(f.path(storesFile))
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &r.uses)
	}
	if err != nil {
		return nil, fmt.Errorf("run: %s: %w: %w", f.path(storesFile), ErrFolder, err)
	}
	return r, nil
}

// Done reports whether a placement is done.
func (r *Replays) Done(placement string) bool { return r.uses[placement] != nil }

// Keep notes that a placement is done.
func (r *Replays) Keep(placement string, use *eval.StoreUse) error {
	r.uses[placement] = use
	raw, err := json.MarshalIndent(r.uses, "", "  ")
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return r.f.replace(storesFile, append(raw, '\n'))
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
		p.ReplayResult = &ReplayResult{Hits: map[string]float64{}, StoreUse: r.uses[p.Policy]}
		n, sum := 0, 0.0
		for _, o := range r.f.outcomes {
			if o.Policy != p.Policy || o.ContextUse == nil {
				continue
			}
			n++
			sum += o.TTFT
			if o.CacheTier == "" {
				p.Hits["none"]++
			} else {
				p.Hits[o.CacheTier]++
			}
		}
		p.TTFTMean = sum / float64(max(1, n))
		for tier := range p.Hits {
			p.Hits[tier] /= float64(n)
		}
	}
	raw, err := res.encode()
	if err != nil {
		return nil, fmt.Errorf("run: results: %w", err)
	}
	return &res, r.f.replace(resultsFile, raw)
}
