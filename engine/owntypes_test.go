package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
)

// TestOwnTypes: a cache whose layers all have a type of their own gives the logits of one of that type, to the bit where both have a window,
// and takes its bytes; where one layer has it, the bytes are those of each layer's type.
func TestOwnTypes(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(20, 2)
	all := func(e kvpage.Elem) []kvpage.Own { return []kvpage.Own{{First: 0, Last: 2, Elem: e}} }
	for _, c := range []struct{ cache, own kvpage.Elem }{{kvpage.I2, kvpage.I3}, {kvpage.I4, kvpage.I8}, {kvpage.I8, kvpage.F16}} {
		if c.own == kvpage.I8 && !golden.Thorough() {
			continue
		}
		o := Options{Threads: 2, KVTypeSet: true, KType: c.own, VType: c.own, KVWindow: 32, ChunkTokens: 64, Rotate: RotateNone}
		of := small(t, o)
		want := forced(t, of, prompt, next)
		o.KType, o.VType = c.cache, c.cache
		plain := small(t, o)
		coarse := forced(t, plain, prompt, next)
		o.KVOwn = all(c.own)
		e := small(t, o)
		if got := forced(t, e, prompt, next); !slices.EqualFunc(got, want, slices.Equal[[]float32]) && (c.own.Quantised() || fakes.Worst(got, want) > 1e-5) { // sums end where the window begins
			t.Errorf("%v in all layers of a cache of %v: logits differ by %g", c.own, c.cache, fakes.Worst(got, want))
		}
		if d := fakes.Worst(coarse, want); d == 0 {
			t.Errorf("%v and %v give the same logits", c.cache, c.own)
		}
		fine, rough := TokenBytes(of.cache, of.o.PlainLayout()), TokenBytes(plain.cache, plain.o.PlainLayout())
		if got := e.KVBytesPerToken(); got != fine {
			t.Errorf("%d bytes a token, want %d", got, fine)
		}
		o.KVOwn = []kvpage.Own{{First: 1, Last: 1, Elem: c.own}}
		e = small(t, o)
		if got := forced(t, e, prompt, next); fakes.Worst(got, want) == 0 || fakes.Worst(got, coarse) == 0 {
			t.Errorf("%v in one layer of a cache of %v: logits like those of one type", c.own, c.cache)
		}
		for i, want := range []kvpage.Elem{c.cache, c.own, c.cache} {
			if l := e.kv.Layout(i); l.K != want || l.V != want {
				t.Errorf("layer %d: %v", i, l)
			}
		}
		if got, want := 3*e.KVBytesPerToken(), fine+2*rough; got < want-9 || got > want+9 { // each is rounded down
			t.Errorf("three times the bytes of a token are %d, want %d", got, want)
		}
		n := len(prompt) + len(next)
		if most, floor := KVBytes(e.m, e.o, n), KVBytes(plain.m, plain.o, n); most <= floor || e.KV().PeakBytes <= plain.KV().PeakBytes {
			t.Errorf("%d bytes reckoned and %d at most, %d and %d without", most, e.KV().PeakBytes, floor, plain.KV().PeakBytes)
		}
		for _, e := range []*Engine{e, plain, of} { // where a group is about to leave, the pass of a layer beside what the cache holds
			for _, n := range []int{32 + 3*c.cache.KeyGroup() - 1, 300} {
				e.ResetKVPeak()
				if got := 0; prefillOf(t, e, fakes.IDs(n, 1), &got) != nil || e.KV().PeakBytes != KVBytes(e.m, e.o, n) {
					t.Errorf("%v, %v: %d tokens took %d bytes, reckoned were %d", e.o.KType, e.o.KVOwn, got, e.KV().PeakBytes, KVBytes(e.m, e.o, n))
				}
			}
		}
	}
}

// TestOwnTypeRefusals: types of layers that cannot be are refused when options are read, and by drives that score keys.
func TestOwnTypeRefusals(t *testing.T) {
	t.Parallel()
	m := small(t, Options{}).m
	for want, o := range map[string]Options{
		"3=int8: the model has layers 0 to 2":                            {KType: kvpage.I3, VType: kvpage.I3, KVOwn: []kvpage.Own{{First: 3, Last: 3, Elem: kvpage.I8}}},
		"sliding=f16: no layer has a sliding window":                     {KType: kvpage.I3, VType: kvpage.I3, KVOwn: []kvpage.Own{{Sliding: true, Elem: kvpage.F16}}},
		"0=int2 beside int3 keys and int3 values: want a type of 3 bits": {KType: kvpage.I3, VType: kvpage.I3, KVOwn: []kvpage.Own{{Elem: kvpage.I2}}},
		"layers have types of their own beside quantised ones":           {KType: kvpage.F16, VType: kvpage.F16, KVOwn: []kvpage.Own{{Elem: kvpage.F32}}},
		"tier csd=unix:nowhere: offload: csd: a drive takes one type of": {KType: kvpage.I8, VType: kvpage.I8, KVOwn: []kvpage.Own{{Elem: kvpage.F16}}, Policy: "hillinfer", Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 1 << 20}, {Kind: tier.CSD, Place: "nowhere"}}},
		"drives attend to int8 keys and int8 values of backend native: ": {KType: kvpage.I8, VType: kvpage.I8, KVOwn: []kvpage.Own{{Elem: kvpage.F16}}, Policy: "sparf", Tiers: []tier.Tier{{Kind: tier.CSD, Place: "nowhere"}}},
	} {
		o.KVTypeSet = true
		_, err := Open(m, o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		if !errors.Is(err, ErrOption) && !strings.Contains(want, "csd") {
			t.Errorf("%v does not wrap ErrOption", err)
		}
	}
}
