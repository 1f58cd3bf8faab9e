package main

import (
	"strings"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/internal/units"
	"terrace/policy"
)

// kvFlags say where KV lives and what is kept and read of it.
type kvFlags struct {
	policy string
	tiers  []string
}

func (f *kvFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.policy, "policy", "full", "KV policy, name:key=value,… joined by + (see 'infer policies')")
	p.StringArrayVar(&f.tiers, "tier", nil, "tier of the KV cache, fastest first: host=SIZE (repeats; default: host without a cap)")
}

func (f *kvFlags) policyName() string { return f.policy }

// budget reads the host tier's byte cap; 0 = none.
func (f *kvFlags) budget() (int64, error) {
	var bytes int64
	for _, t := range f.tiers {
		name, size, ok := strings.Cut(t, "=")
		if !ok || name != "host" {
			return 0, usageErrorf("--tier %s: want host=SIZE", t)
		}
		n, err := units.ParseBytes(size)
		if err != nil || n <= 0 {
			return 0, usageErrorf("--tier %s: %v", t, err)
		}
		if bytes != 0 {
			return 0, usageErrorf("--tier host is given twice")
		}
		bytes = n
	}
	return bytes, nil
}

// openKVEngine opens an engine with the flags' policy and tiers.
func (a *app) openKVEngine(load *loadFlags, kv *kvFlags) (*loaded, error) {
	budget, err := kv.budget()
	if err != nil {
		return nil, err
	}
	if _, err := policy.Parse(kv.policy); err != nil {
		return nil, usageErrorf("--policy %s: %v", kv.policy, err)
	}
	load.policy = kv.policy
	return a.openEngine(load, budget)
}

// kvJSON is the KV part of generate's and eval's JSON.
type kvJSON struct {
	BytesPeak  map[string]int64 `json:"bytes_peak"`
	BytesMoved map[string]int64 `json:"bytes_moved"`
	HitRate    *float64         `json:"hit_rate"`
	TokensKept int              `json:"tokens_kept"`
}

func kvReport(e *engine.Engine, res *engine.Result) kvJSON {
	return kvJSON{BytesPeak: map[string]int64{"host": e.KV().PeakBytes}, BytesMoved: map[string]int64{}, TokensKept: res.PromptTokens + len(res.IDs)}
}
