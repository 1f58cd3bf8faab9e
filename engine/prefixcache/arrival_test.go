package prefixcache

import (
	"slices"
	"testing"
	"time"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
)

// TestArrivalFaults: whatever happens to a prefix while layers of it are used already, the text's logits are those of a prompt that
// was computed, to the bit; nothing is said to be reused that was not.
func TestArrivalFaults(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 3), fakes.IDs(2, 4)
	o := engine.Options{Threads: 1, ChunkTokens: 32}
	mem := vfs.NewMem(1 << 30)
	want := forced(t, small(t, o), prompt, next)
	resumed(t, mem, small, o, prompt, nil, "")
	e := small(t, o)
	opening := &vfs.Faults{}
	if err := storedUnder(t, &vfs.Faulty{FS: mem, Faults: opening}, 64<<20, contexts.Options{ReadOnly: true}).Close(); err != nil {
		t.Fatal(err)
	}
	opened, _ := opening.Ops()
	all, partly, lost := 0, 0, 0
	for seed := range uint64(60) {
		faults := &vfs.Faults{Seed: seed, Chance: map[vfs.OpKind]float64{vfs.OpRead: []float64{0.01, 0.03, 0.1}[seed%3]}, Kinds: []vfs.FaultKind{vfs.EIO, vfs.Short, vfs.Flip, vfs.Misplace}, After: opened}
		rule := contexts.Rule{Wait: true}
		if seed%4 == 3 { // one read never comes back
			faults = &vfs.Faults{Of: []vfs.OpKind{vfs.OpRead}, Nth: opened + int64(seed), Kind: vfs.Hang}
			rule = contexts.Rule{Base: 100 * time.Millisecond}
		}
		store := storedUnder(t, &vfs.Faulty{FS: mem, Faults: faults}, 64<<20, contexts.Options{Rule: rule, PartBytes: 4096, ReadOnly: true})
		cache, err := Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		found := cache.Find(t.Context(), prompt, nil, "")
		begun, err := found.Resume(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.BeginPrompt(prompt[begun.Tokens:], engine.PrefillHooks{})
		for err == nil && r.Left() > 0 {
			err = r.Read(t.Context(), 7)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch n := found.Reused().Tokens; {
		case n > begun.Tokens || n%64 != 0:
			t.Errorf("seed %d: %d tokens reused, %d begun", seed, n, begun.Tokens)
		case n < begun.Tokens:
			lost++
		case n == 256:
			all++
		default:
			partly++
		}
		for i, got := range stepped(t, s, next) {
			if !slices.Equal(got, want[i]) {
				t.Fatalf("seed %d, step %d, %v: logits differ by %g", seed, i, found.Reused(), fakes.Worst([][]float32{got}, want[i:i+1]))
			}
		}
		if s.Tokens() != len(prompt)+len(next) || s.IDs()[17] != prompt[17] {
			t.Errorf("seed %d: the session says it has read %d tokens", seed, s.Tokens())
		}
		s.Close()
		faults.Stop()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("%d whole, %d in part, %d lost on the way", all, partly, lost); all == 0 || lost < 5 {
		t.Errorf("%d hits were whole and %d were lost on the way: the test says nothing", all, lost)
	}
}

// TestContextArrivalFaults: a compressed context whose layers are used while others come has, whatever happens to them, the logits that
// it has compressed just now, to the bit.
func TestContextArrivalFaults(t *testing.T) {
	t.Parallel()
	text, question := fakes.IDs(330, 5), fakes.IDs(20, 6)
	o := engine.Options{Policy: "snapkv:ratio=0.3", Threads: 1}
	mem := vfs.NewMem(1 << 30)
	ask := func(store *contexts.Store) (begun, after engine.Reused, logits []float32) {
		t.Helper()
		e := small(t, o)
		cache, err := Use(e, store, "small")
		if err != nil {
			t.Fatal(err)
		}
		found := cache.Find(t.Context(), text, e.Policy(), "")
		s, begun, err := OpenContext(t.Context(), e, text, e.Policy(), found, engine.PrefillHooks{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), question, engine.PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if u := s.KVUse(); u.Fraction > 0.8 {
			t.Errorf("%v of the tokens are kept", u.Fraction)
		}
		f, err := s.Fork(nil) // all is there now
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return begun, found.Reused(), slices.Clone(s.Logits())
	}
	first := stored(t, mem, 64<<20)
	_, _, want := ask(first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	opening := &vfs.Faults{}
	if err := storedUnder(t, &vfs.Faulty{FS: mem, Faults: opening}, 64<<20, contexts.Options{ReadOnly: true}).Close(); err != nil {
		t.Fatal(err)
	}
	opened, _ := opening.Ops()
	all, lost := 0, 0
	for seed := range uint64(30) {
		faults := &vfs.Faults{Seed: seed, Chance: map[vfs.OpKind]float64{vfs.OpRead: []float64{0, 0.02, 0.05}[seed%3]}, Kinds: []vfs.FaultKind{vfs.EIO, vfs.Short, vfs.Flip, vfs.Misplace}, After: opened}
		rule := contexts.Rule{Wait: true}
		if seed%5 == 4 { // one read never comes back
			faults = &vfs.Faults{Of: []vfs.OpKind{vfs.OpRead}, Nth: opened + int64(seed), Kind: vfs.Hang}
			rule = contexts.Rule{Base: 100 * time.Millisecond}
		}
		store := storedUnder(t, &vfs.Faulty{FS: mem, Faults: faults}, 64<<20, contexts.Options{Rule: rule, PartBytes: 4096, ReadOnly: true})
		begun, after, got := ask(store)
		switch {
		case after.Tokens != 0 && (after.Tokens != len(text) || after.Tier != "ssd"), after.Tokens > begun.Tokens:
			t.Errorf("seed %d: %v reused, %v begun", seed, after, begun)
		case after.Tokens > 0:
			all++
		case begun.Tokens > 0:
			lost++
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, %v begun, %v reused: logits differ by %g", seed, begun, after, fakes.Worst([][]float32{got}, [][]float32{want}))
		}
		faults.Stop()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if t.Logf("%d hits, %d lost on the way", all, lost); all < 5 || lost < 3 {
		t.Errorf("%d hits and %d lost on the way: the test says nothing", all, lost)
	}
}

// TestArriving: until its prompt's rest was read a session whose KV is on its way refuses what needs all of it, and can be closed.
func TestArriving(t *testing.T) {
	t.Parallel()
	prompt, fs := fakes.IDs(200, 3), vfs.NewMem(1<<30)
	o := engine.Options{Threads: 1}
	resumed(t, fs, small, o, prompt, nil, "")
	e, store := small(t, o), stored(t, fs, 64<<20)
	defer store.Close()
	cache, err := Use(e, store, "small")
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	reused, err := cache.Find(t.Context(), prompt, nil, "").Resume(t.Context(), s)
	if err != nil || reused.Tokens != 192 {
		t.Fatal(reused, err)
	}
	if _, err := s.Fork(nil); err == nil {
		t.Error("it was forked")
	}
	if err := s.Rewind(10); err == nil {
		t.Error("it was rewound")
	}
	s.Close()
}
