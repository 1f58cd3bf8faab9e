package engine

import (
	"errors"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/kvmanager"
	"terrace/offload"
	"terrace/policy"
)

// below is a lower tier in memory for an engine of these options.
func below(t testing.TB, o Options) *offload.Memory {
	t.Helper()
	e := small(t, o)
	defer e.Close()
	m, err := offload.NewMemory("below", e.shape(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if used := m.Stats().UsedBytes; used != 0 {
			t.Errorf("%d bytes are left in the lower tier", used)
		}
		m.Close()
	})
	return m
}

// together are policies of the prompt and of decoding that work on tiers at the same time.
var together = []string{"sliminfer:layers=1/2,keep=160/96,block=32,gamma=1+hillinfer:guess_from=1,alpha=0.3", "sliminfer:layers=1/2,keep=256/192,block=32+h2o:budget=60",
	"flexprefill:block=16,min_budget=32,gamma=0.5", "flexprefill:block=16,min_budget=32,gamma=0.5+hillinfer:guess_from=1,alpha=0.3", "minference+hillinfer:guess_from=1,alpha=0.3,pools=token"}

// TestTiersChangeNothing: every policy with most of its KV below host memory computes the same logits, bit for bit, alone
// and in a batch, and stays within the budget.
func TestTiersChangeNothing(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(17, 2)
	names := append(allSpecs(t), "hillinfer:pools=token,beta_mode=fixed,beta=0.3", "hillinfer:heads=kv_head,query=exact", "hillinfer:query=prev_step,score=int4", "hillinfer:score=product",
		"hillinfer:alpha=1", "hillinfer:guess_from=0", "hillinfer:heads=softmax,guess_from=0", "hillinfer:heads=max,guess_from=0")
	for i, name := range append(names, together...) {
		t.Run(strings.ReplaceAll(name, ":", " of "), func(t *testing.T) {
			t.Parallel()
			o := Options{Threads: 1 + i%2, Policy: budgeted(name, "60"), Calibration: fakes.IDs(64, 3), ChunkTokens: 32}
			if name == "magicpig" { // whose tables are larger than this model's KV
				o.Policy = "magicpig:bits=4,tables=10"
			}
			want := forced(t, small(t, o), prompt, next)
			o.Store = below(t, o)
			o.KVBudgetBytes = 76 * 4096
			if strings.HasPrefix(name, "retroinfer") || name == "magicpig" { // clusters of 8 tokens
				o.KVBudgetBytes = 142 * 4096
			}
			if strings.HasPrefix(name, "topp") && !strings.Contains(name, "exact") { // 4-bit keys beside the selector's
				o.KVBudgetBytes = 100 * 4096
			}
			if strings.Contains(name, "+hillinfer") { // a layer of the prompt beside what follows blocks that come and go
				o.KVBudgetBytes = 88 * 4096
			}
			if strings.Contains(name, "score=product") { // centroids
				o.KVBudgetBytes = 84 * 4096
			}
			o.KVBudgetBytes += o.rowsThatWait(t, len(prompt))
			if name == "h2o_offload" { // a layer's keys and those of the next two are in memory together
				o.KVBudgetBytes = 168 * 4096
			}
			e := small(t, o)
			if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("on tiers: logits differ by %g", d)
			}
			st := o.Store.Stats()
			if st.Writes == 0 || st.Reads == 0 && !o.prunes(t) {
				t.Errorf("nothing was stored below host memory: %+v", st)
			}
			if p := e.KV().PeakBytes; p > o.KVBudgetBytes {
				t.Errorf("%d bytes in host memory, the budget is %d", p, o.KVBudgetBytes)
			}
			if i%3 != 0 && !golden.Thorough() {
				return
			}
			o.KVBudgetBytes = 210*4096 + 4*o.rowsThatWait(t, len(prompt))
			if d := fakes.Worst(want, inBatch(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("on tiers in a batch: logits differ by %g", d)
			}
		})
	}
}

// TestBudgetIsReached: a text that outgrows its policy's budget while decoding reads the same tokens whether a layer is chosen
// ahead (on tiers) or in its turn.
func TestBudgetIsReached(t *testing.T) {
	prompt, next := fakes.IDs(40, 1), fakes.IDs(8, 2)
	o := Options{Threads: 1, Policy: "infinigen:budget=43,dense_layers=0", Calibration: fakes.IDs(64, 3)}
	want := forced(t, small(t, o), prompt, next)
	o.Store, o.KVBudgetBytes = below(t, o), 96*4096
	if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
}

// TestTextOutgrowsItsPool: steps that begin blocks for which the pool's tables, made at the prompt's end, have no place.
func TestTextOutgrowsItsPool(t *testing.T) {
	prompt, next := fakes.IDs(128, 1), fakes.IDs(120, 2)
	for _, policy := range []string{"hillinfer:alpha=0.3,guess_from=0", "quest:budget=48"} {
		o := Options{Threads: 1, Policy: policy}
		want := forced(t, small(t, o), prompt, next)
		o.Store, o.KVBudgetBytes = below(t, o), 96*4096
		if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
			t.Errorf("%s: logits differ by %g", policy, d)
		}
	}
}

// TestTiersOfWindows: layers with a sliding window read their window only, wherever chunks of the prompt begin.
func TestTiersOfWindows(t *testing.T) {
	prompt, next := fakes.IDs(900, 1), fakes.IDs(40, 2)
	for _, chunk := range []int{128, 100} {
		o := Options{Threads: 2, ChunkTokens: chunk}
		e := windowed(t, o)
		want := forced(t, e, prompt, next)
		store, err := offload.NewMemory("below", e.shape(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		o.Store, o.KVBudgetBytes = store, 140*4096
		if d := fakes.Worst(want, forced(t, windowed(t, o), prompt, next)); d != 0 {
			t.Errorf("chunks of %d: logits differ by %g", chunk, d)
		}
		if store.Stats().Reads == 0 {
			t.Errorf("chunks of %d: nothing was read", chunk)
		}
	}
}

// TestTiersTooSmall names what is missing before the prompt is read.
func TestTiersTooSmall(t *testing.T) {
	o := Options{Threads: 1, ChunkTokens: 32}
	o.Store = below(t, o)
	o.KVBudgetBytes = 8 * 4096
	e := small(t, o)
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), fakes.IDs(150, 1), PrefillHooks{}); !errors.Is(err, kvmanager.ErrBudget) {
		t.Errorf("150 tokens in 8 blocks: %v", err)
	}
}

// TestSessionsOnTiersPart forks, rewinds and goes on with two texts whose shared part lies below.
func TestSessionsOnTiersPart(t *testing.T) {
	prompt, left, right := fakes.IDs(150, 1), fakes.IDs(40, 2), fakes.IDs(40, 3)
	plain := Options{Threads: 2, ChunkTokens: 32}
	run := func(o Options) (out [][]float32) {
		e := small(t, o)
		a, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(a.Prefill(t.Context(), prompt, PrefillHooks{}))
		b, err := a.Fork(a.Policy())
		must(err)
		defer b.Close()
		note := func(s *Session) { out = append(out, append([]float32(nil), s.Logits()...)) }
		must(b.Prefill(t.Context(), right, PrefillHooks{}))
		note(b)
		must(a.Prefill(t.Context(), left, PrefillHooks{}))
		note(a)
		must(b.Rewind(70))
		must(b.Prefill(t.Context(), left, PrefillHooks{}))
		note(b)
		for _, id := range right {
			must(e.DecodeBatch([]*Session{a, b}, []int{id, id + 1}))
			note(a)
			note(b)
		}
		return out
	}
	want := run(plain)
	o := plain
	o.Store, o.KVBudgetBytes = below(t, plain), 64*4096
	if d := fakes.Worst(want, run(o)); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
}

// rowsThatWait is the memory of a prompt's hidden rows that may come back.
func (o *Options) rowsThatWait(t testing.TB, n int) int64 {
	t.Helper()
	s := prefilled(t, small(t, Options{Policy: o.Policy, Calibration: o.Calibration}), fakes.IDs(n, 1))
	return s.KVUse().Swaps.AuxBytes
}

// prunes reports whether a policy makes the prompt so small that what is left of it fits host memory.
func (o *Options) prunes(t testing.TB) bool {
	t.Helper()
	spec, err := policy.Parse(o.Policy)
	return err == nil && (spec.Needs().WholePrompt || strings.HasPrefix(o.Policy, "lazyllm") || strings.HasPrefix(o.Policy, "sliminfer"))
}

// TestGuessFrom: layers before guess_from are scored with their own query, those from it on with the guess, in memory and
// on tiers.
func TestGuessFrom(t *testing.T) {
	prompt, next := fakes.IDs(300, 1), fakes.IDs(9, 2)
	own := forced(t, small(t, Options{Policy: "hillinfer:alpha=0.1,query=exact"}), prompt, next)
	for from, same := range map[string]bool{"3": true, "2": false, "0": false} {
		o := Options{Policy: "hillinfer:alpha=0.1,guess_from=" + from}
		got := forced(t, small(t, o), prompt, next)
		if d := fakes.Worst(own, got); (d == 0) != same {
			t.Errorf("guess_from=%s: logits differ by %g from those of query=exact", from, d)
		}
		o.Store, o.KVBudgetBytes = below(t, o), 96*4096
		if d := fakes.Worst(got, forced(t, small(t, o), prompt, next)); d != 0 {
			t.Errorf("guess_from=%s on tiers: logits differ by %g", from, d)
		}
	}
}

// TestPoolsShareMemory: sessions of a batch keep as many tokens each in memory, whoever came first, and those that remain take
// what the others leave.
func TestPoolsShareMemory(t *testing.T) {
	o := Options{Policy: "hillinfer:alpha=0.1,score=int4", KVBudgetBytes: 260 * 4096}
	o.Store = below(t, o)
	e := small(t, o)
	defer e.Close()
	var sessions []*Session
	for i := range 4 {
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(600, uint64(i)), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	held := func(n int) (least, most int64) {
		t.Helper()
		for step := range 12 {
			if err := e.DecodeBatch(sessions[:n], []int{step, step + 1, step + 2, step + 3}[:n]); err != nil {
				t.Fatal(err)
			}
		}
		for i, s := range sessions[:n] {
			b := s.text.CacheBytes()
			if i == 0 || b < least {
				least = b
			}
			most = max(most, b)
		}
		return least, most
	}
	least, most := held(4)
	if float64(least) < 0.7*float64(most) {
		t.Errorf("pools of four sessions hold %d to %d bytes", least, most)
	}
	for _, s := range sessions[1:] {
		s.Close()
	}
	if _, alone := held(1); float64(alone) < 1.5*float64(most) {
		t.Errorf("a pool holds %d bytes alone, %d beside three others", alone, most)
	}
	if p := e.KV().PeakBytes; p > o.KVBudgetBytes {
		t.Errorf("%d bytes in host memory, the budget is %d", p, o.KVBudgetBytes)
	}
}
