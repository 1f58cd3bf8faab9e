package engine

import (
	"errors"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
)

// TestLongestText: a text of the length that is named has room, and one of a page more has none.
func TestLongestText(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"no limit": {},
		"host":     {Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 300 << 10}}},
		"int8":     {Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 300 << 10}}, KVTypeSet: true, KType: kvpage.I8, VType: kvpage.I8},
		"ssd":      {Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 120 << 10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}},
		"none":     {Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 1 << 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Threads, o.ChunkTokens, o.Context = 1, 32, 1000
			e := small(t, o)
			n, err := e.LongestText()
			if err != nil || e.KV().Sequences != 0 {
				t.Fatal(n, err, e.KV())
			}
			for _, c := range []struct {
				tokens int
				fits   bool
			}{{n, true}, {n + e.PageTokens(), false}} {
				if c.tokens == 0 || c.tokens > o.Context || !c.fits && name == "int8" {
					continue
				}
				s, err := e.NewSession(nil)
				if err != nil {
					t.Fatal(err)
				}
				err = s.Prefill(t.Context(), fakes.IDs(c.tokens, 1), PrefillHooks{})
				if s.Close(); (err == nil) != c.fits || err != nil && !errors.Is(err, kvmanager.ErrBudget) {
					t.Errorf("%d of the %d tokens that fit: %v", c.tokens, n, err)
				}
			}
			if none := name == "none"; (n == 0) != none || (n == o.Context) != (name == "no limit") {
				t.Errorf("%d tokens", n)
			}
		})
	}
}
