package engine

import (
	"errors"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
)

// TestLowBitsOnTiers: int3 and int2 KV, most of it below host memory, gives the logits that it gives in memory, bit for bit, alone and in a batch,
// under policies that read everything, choose pages, choose tokens, look at some dimensions and drop tokens, and with layers in other types.
func TestLowBitsOnTiers(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(900, 1), fakes.IDs(17, 2)
	own := []kvpage.Own{{First: 0, Last: 0, Elem: kvpage.I8}, {First: 2, Last: 2, Elem: kvpage.I4}}
	for i, kv := range [][2]kvpage.Elem{{kvpage.I3, kvpage.I2}, {kvpage.I2, kvpage.I3}, {kvpage.F16, kvpage.I3}, {kvpage.I3, kvpage.I3}} {
		for j, name := range []string{"full", "quest:budget=128", "topk:budget=64", "sparq:budget=64", "snapkv:budget=200"} {
			if ((i+j)%3 != 0 || i == 3 && j > 0) && !golden.Thorough() {
				continue
			}
			t.Run(kv[0].String()+" "+kv[1].String()+" "+strings.ReplaceAll(name, ":", " of "), func(t *testing.T) {
				t.Parallel()
				o := Options{Threads: 2, Policy: name, ChunkTokens: 64, KType: kv[0], VType: kv[1], KVTypeSet: true, KVWindow: 32, KVWindowSet: true}
				if i == 3 {
					o.KVOwn = own
				}
				want := forced(t, small(t, o), prompt, next)
				o.Store, o.KVBudgetBytes = below(t, o), 400<<10
				if kv[0] == kvpage.F16 || strings.HasPrefix(name, "topk") { // whole keys, or codes of all of them
					o.KVBudgetBytes = 600 << 10
				}
				if i == 3 { // wider layers
					o.KVBudgetBytes += 80 << 10
				}
				tiered := small(t, o)
				if d := fakes.Worst(want, forced(t, tiered, prompt, next)); d != 0 {
					t.Errorf("on tiers: logits differ by %g", d)
				}
				if s := o.Store.Stats(); s.Writes == 0 || s.Reads == 0 {
					t.Errorf("nothing was stored below host memory: %+v", s)
				}
				o.KVBudgetBytes *= 4
				if d := fakes.Worst(want, inBatch(t, small(t, o), prompt, next)); d != 0 {
					t.Errorf("on tiers in a batch: logits differ by %g", d)
				}
			})
		}
	}
}

// TestLowBitRefusals: pages that cannot hold whole groups, and a drive that takes smaller ones, are refused with a line that names both.
func TestLowBitRefusals(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	for want, o := range map[string]Options{
		"64 tokens a page, want a multiple of 128":                                    {PageTokens: 64},
		"int3 keys share scales over 128 tokens, a drive takes groups of 16":          {Policy: "hillinfer", Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 1 << 20}, {Kind: tier.CSD, Place: "nowhere"}}},
		"drives attend to int3 keys and int2 values of backend native: want f32, f16": {Policy: "sparf", Tiers: []tier.Tier{{Kind: tier.CSD, Place: "nowhere"}}},
	} {
		o.KType, o.VType, o.KVTypeSet = kvpage.I3, kvpage.I2, true
		_, err := Open(m, o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		if !errors.Is(err, ErrOption) && !errors.Is(err, kvpage.ErrLayout) {
			t.Errorf("%v wraps neither", err)
		}
	}
}
