package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/internal/trace"
	"terrace/offload"
)

// TestOnStorage: with most of its KV in a file a model computes the same logits, bit for bit, and its timeline shows compute
// and both directions of transfers with all their bytes.
func TestOnStorage(t *testing.T) {
	prompt, next := fakes.IDs(150, 1), fakes.IDs(20, 2)
	o := Options{Threads: 2, ChunkTokens: 32}
	want := forced(t, small(t, o), prompt, next)
	var out bytes.Buffer
	o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 34 * 4096}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}
	o.Trace = trace.New(&out, clock.Real().Now)
	e := small(t, o)
	if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
	if own := e.tiers.store.Stats().HostBytes; own == 0 || e.retrieval.StoreBytes() < own/2 || e.KV().PeakBytes < own || e.KV().PeakBytes > o.Tiers[0].CapacityBytes {
		t.Errorf("the store keeps %d bytes in host memory, %d are counted; peak %d", own, e.retrieval.StoreBytes(), e.KV().PeakBytes)
	}
	moved := e.TierUse().MovedBytes
	for row, name := range map[trace.Row]string{trace.Read: "ssd>host", trace.Write: "host>ssd"} {
		if got := o.Trace.Totals(row).Bytes; got == 0 || got != moved[name] {
			t.Errorf("%s: %d bytes in the timeline, %d moved (%v)", name, got, moved[name], moved)
		}
	}
	if o.Trace.Totals(trace.Compute).Busy == 0 {
		t.Error("no compute in the timeline")
	}
	if err := o.Trace.Close(); err != nil || !json.Valid(out.Bytes()) {
		t.Errorf("timeline: %v, valid %v", err, json.Valid(out.Bytes()))
	}
	if _, err := Open(e.m, o); !errors.Is(err, offload.ErrInUse) {
		t.Errorf("a second engine in the directory: %v", err)
	}
}

// TestTokensFromStorage: policies whose tokens are read one by one from a file compute the same logits, bit for bit, as without
// tiers, and read those tokens alone.
func TestTokensFromStorage(t *testing.T) {
	prompt, next := fakes.IDs(400, 1), fakes.IDs(12, 2)
	for _, name := range []string{"hillinfer:alpha=0.2,guess_from=1", "hillinfer:alpha=0.2,score=int4,query=exact", "hillinfer:alpha=0.2,query=prev_step,pools=token"} {
		o := Options{Threads: 2, ChunkTokens: 32, Policy: name}
		want := forced(t, small(t, o), prompt, next)
		o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 120 * 4096}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}
		e := small(t, o)
		if !e.tiers.queue.Gathers() {
			t.Fatal("single tokens cannot be read")
		}
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		got, before, fetched := [][]float32{slices.Clone(s.Logits())}, e.tiers.store.Stats(), e.kv.Stats().TokensFetched
		for _, id := range next {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
			got = append(got, slices.Clone(s.Logits()))
		}
		if d := fakes.Worst(want, got); d != 0 {
			t.Errorf("%s: logits differ by %g", name, d)
		}
		st := e.tiers.store.Stats()
		fetched = e.kv.Stats().TokensFetched - fetched // in each KV head
		l := e.kv.Layout(0)
		if asked := st.ReadBytes - before.ReadBytes; fetched == 0 || asked != fetched*int64(l.PageBytes()/l.Tokens) {
			t.Errorf("%s: %d bytes for %d tokens in heads", name, asked, fetched)
		}
		if p := e.KV().PeakBytes; p > o.Tiers[0].CapacityBytes {
			t.Errorf("%s: %d bytes in host memory, %d are allowed", name, p, o.Tiers[0].CapacityBytes)
		}
		s.Close()
	}
}
