package engine

import (
	"errors"
	"testing"

	"terrace/engine/fakes"
)

// onTiers is what a policy does with its KV below, after it computed the same logits, bit for bit, as in memory.
func onTiers(t *testing.T, policy string, budget int64) TierUse {
	t.Helper()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(17, 2)
	o := Options{Threads: 2, Policy: policy, ChunkTokens: 32}
	want := forced(t, small(t, o), prompt, next)
	o.Store, o.KVBudgetBytes = below(t, o), budget
	e := small(t, o)
	if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
		t.Errorf("%s on tiers: logits differ by %g", policy, d)
	}
	if p := e.KV().PeakBytes; p > budget {
		t.Errorf("%s: %d bytes in host memory, the budget is %d", policy, p, budget)
	}
	return e.TierUse()
}

// TestBuffers: how much of what was read stays in host memory changes which bytes move and no logit; kvswap's groups
// are counted: so many a step and layer, each found or read, and the fewer read the more stays.
func TestBuffers(t *testing.T) {
	t.Parallel()
	const kvswap = "kvswap:budget=60,query=exact"
	none, own, all := onTiers(t, kvswap+",reuse=2", 120*4096).Reuse, onTiers(t, kvswap, 120*4096).Reuse, onTiers(t, kvswap+",reuse=100%", 120*4096).Reuse
	layers := int64(small(t, Options{Threads: 1}).m.Layers)
	for name, u := range map[string]ReuseUse{"none": none, "own": own, "all": all} {
		if u.Asked != 15*layers*17 || u.Found+u.Read != u.Asked || u.GroupBytes != 4*256 {
			t.Errorf("%s: %+v", name, u)
		}
	}
	if none.Read <= own.Read || own.Read < all.Read {
		t.Errorf("groups read with a buffer of nothing, of the budget and of everything: %d, %d, %d", none.Read, own.Read, all.Read)
	}
}

// TestClusterBuffer: how many of retroinfer's clusters stay in host memory changes no logit. How much is then fetched depends on how fast
// blocks are stored and leave.
func TestClusterBuffer(t *testing.T) {
	const retro = "retroinfer:cluster=8,update=16,recent=4,retrieval=10%,estimation=50%"
	held := func(policy string) int64 {
		o := Options{Threads: 1, Policy: policy, ChunkTokens: 32}
		o.Store, o.KVBudgetBytes = below(t, o), 200*4096
		e := small(t, o)
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := errors.Join(s.Prefill(t.Context(), fakes.IDs(400, 1), PrefillHooks{}), s.Decode(2)); err != nil {
			t.Fatal(err)
		}
		return s.text.CacheBytes()
	}
	if few, more := held(retro+",buffer=0"), held(retro); few > more/2 {
		t.Errorf("%d bytes of clusters in memory where none is to stay, %d with as many as fit", few, more)
	}
	if use := onTiers(t, retro+",buffer=0", 200*4096).Reuse; use != (ReuseUse{}) {
		t.Errorf("retroinfer reads no groups: %+v", use)
	}
}
