package engine

import (
	"errors"
	"slices"
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
			n, err := e.LongestText(0)
			if err != nil || e.KV().Sequences != 0 {
				t.Fatal(n, err, e.KV())
			}
			for _, policy := range []string{"", "quest:budget=64", "hillinfer", "snapkv"} {
				under := o
				under.Policy, under.Tiers = policy, slices.Clone(o.Tiers)
				for i := range under.Tiers {
					under.Tiers[i].Place = t.TempDir()
				}
				want, err := small(t, under).LongestText(0)
				if got, gerr := Longest(e.Model(), under, 0); gerr != nil || err != nil || got != want {
					t.Errorf("%s: %d tokens without opening anything (%v), want %d (%v)", policy, got, gerr, want, err)
				}
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
