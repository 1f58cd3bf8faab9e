package main

import (
	"os"
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
	spec, err := policy.ExpandFiles(kv.policy, os.ReadFile)
	if err != nil {
		return nil, usageErrorf("--policy %s: %v", kv.policy, err)
	}
	if _, err := policy.Parse(spec); err != nil {
		return nil, usageErrorf("--policy %s: %v", kv.policy, err)
	}
	load.policy = spec
	return a.openEngine(load, budget)
}

// kvJSON is the KV part of generate's and eval's JSON.
type kvJSON struct {
	BytesPeak  map[string]int64 `json:"bytes_peak"`
	BytesMoved map[string]int64 `json:"bytes_moved"`
	HitRate    *float64         `json:"hit_rate"`      // of the fast tier; null without tiers
	TokensKept int              `json:"tokens_kept"`   // a layer and KV head, on average
	KeptShare  float64          `json:"kept_fraction"` // of the positions read
	BytesKept  int64            `json:"bytes_kept"`    // pages and what a policy scans beside them
	TokensRead float64          `json:"tokens_read"`   // a decode step, layer and KV head, on average
}

func kvReport(e *engine.Engine, res *engine.Result) kvJSON {
	k := res.KV
	return kvJSON{BytesPeak: map[string]int64{"host": e.KV().PeakBytes}, BytesMoved: map[string]int64{},
		TokensKept: int(k.Tokens + 0.5), KeptShare: k.Fraction, BytesKept: k.Bytes + k.SketchBytes, TokensRead: k.TokensRead}
}

// noticeKV says what a session holds: tokens, their share of what was read, and bytes.
func (a *app) noticeKV(policy string, u engine.KVUse) {
	a.notice("policy %s: %.1f tokens a layer and KV head, %.1f %% of those read, %s in pages, %s to scan", policy, u.Tokens, 100*u.Fraction,
		units.FormatBytes(u.Bytes), units.FormatBytes(u.SketchBytes))
}
