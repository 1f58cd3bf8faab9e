package retrieval

import (
	"math"
	"slices"
	"testing"
)

// check holds the accounts of a scenario that rests against each other, as bbolt's Check does those of a file:
//
//  1. bytes: what the cache has in use beside its pages is the sum of what is charged here: the store's host memory, rows between two
//     layers, each sequence's index, sketches below, token cache, tokens that change place, layers on their way to drives.
//  2. budget: what is in use is not above it, and each index is charged with what it takes at least.
//  3. positions: of each layer and KV head they ascend and lie below what is read; views show as many.
//  4. between passes nothing of a layer is prepared, asked or on its way, and no question waits to be sent.
//  5. Shared counts the token caches that are open; none has slots beyond its limit.
//  6. hot tokens: slots and tokens name each other, free slots are nobody's, every token behind coldEnd is hot, held counts them.
//  7. what was observed has a column for each token, and no negative sum.
//
// kvmanager checks pages, references and frames (Manager.Check).
func (s *scenario) check(t testing.TB) {
	t.Helper()
	f, kv := s.shared, s.shared.o.KV
	if err := kv.Check(); err != nil {
		t.Error(err)
	}
	charged, caches := f.charged+f.rows, 0
	for _, name := range s.names() {
		x := s.texts[name].Sequence
		charged += x.chargedNow()
		x.checkPositions(t, name)
		x.checkObserved(t, name)
		c, ok := x.res.(*cached)
		if !ok {
			continue
		}
		if c.cache != nil {
			caches++
		}
		c.checkRests(t, name)
		if c.drive != nil {
			for layer := range c.drive.each {
				c.drive.layers[layer].hot.check(t)
			}
		}
	}
	st := kv.Stats()
	if st.ChargedBytes != charged && kv.StateBytes() == 0 {
		t.Errorf("the cache has %d bytes charged, their owners %d", st.ChargedBytes, charged)
	}
	if st.BudgetBytes > 0 && st.InUseBytes > st.BudgetBytes {
		t.Errorf("%d bytes in use, the budget is %d", st.InUseBytes, st.BudgetBytes)
	}
	if caches != f.caches {
		t.Errorf("%d token caches are open, %d are counted", caches, f.caches)
	}
	if f.overlap.done != nil || len(f.asking) > 0 {
		t.Errorf("between passes: %d questions wait, an overlap is under way: %v", len(f.asking), f.overlap.done != nil)
	}
}

// chargedNow is what a sequence has charged, by those who did.
func (t *Sequence) chargedNow() (n int64) {
	if t.sel != nil {
		n += t.sel.charged + t.sel.below.Charged()
	}
	if a := t.onDrives(); a != nil && a.down != nil {
		n += a.down.bytes
	}
	c, ok := t.res.(*cached)
	if ok && c.cache != nil {
		n += c.cache.Bytes()
	}
	if ok && c.drive != nil && c.drive.moving.run != nil {
		n += c.drive.moving.run.bytes
	}
	return n
}

// checkPositions looks at what each layer and KV head holds.
func (t *Sequence) checkPositions(tb testing.TB, name string) {
	tb.Helper()
	if t.OnDrives() {
		return
	}
	for layer := range t.f.o.Shape.Layers {
		if !t.f.o.Shape.Layers.Keeps(layer) {
			continue
		}
		for g, view := range t.seq.Views(layer) {
			pos := t.seq.PositionList(layer, g)
			for i, p := range pos {
				if i > 0 && p <= pos[i-1] || p < 0 || p >= t.read {
					tb.Fatalf("%s, layer %d head %d: position %d at %d of %d tokens read", name, layer, g, p, i, t.read)
				}
			}
			if n := view.Tokens(); n != len(pos) || n != t.seq.Tokens(layer, g) {
				tb.Errorf("%s, layer %d head %d: a view of %d tokens, %d positions, %d counted", name, layer, g, n, len(pos), t.seq.Tokens(layer, g))
			}
		}
	}
	if t.sel != nil && t.obs.prompt > 0 && t.sel.charged < t.sel.indexBytes() {
		tb.Errorf("%s: an index of %d bytes, %d are charged", name, t.sel.indexBytes(), t.sel.charged)
	}
}

// checkObserved looks at what the policy is shown.
func (t *Sequence) checkObserved(tb testing.TB, name string) {
	tb.Helper()
	for layer := range t.obs.layers {
		l := &t.obs.layers[layer]
		for h, sums := range l.sums {
			if g := h / t.obs.group(layer); len(sums) > int(t.read) || t.set.Keeper == nil && t.set.Dropper == nil && len(sums) > t.seq.Tokens(layer, g) {
				tb.Errorf("%s, layer %d head %d: %d sums of %d tokens", name, layer, h, len(sums), t.seq.Tokens(layer, g))
			}
			if slices.ContainsFunc(sums, func(x float32) bool { return x < 0 || math.IsNaN(float64(x)) }) {
				tb.Errorf("%s, layer %d head %d: sums %v", name, layer, h, sums)
			}
		}
		if want := t.obs.needs.Queries; want > 0 && l.rows > max(want, len(l.queries)/max(t.obs.width(layer), 1)) {
			tb.Errorf("%s, layer %d: %d queries, %d are wanted", name, layer, l.rows, want)
		}
	}
}

// checkRests looks at what a cached sequence has between passes.
func (c *cached) checkRests(t testing.TB, name string) {
	t.Helper()
	for layer := range c.layers {
		// What the first layer reads may be chosen and asked for behind the last one: nothing else is.
		if l := &c.layers[layer]; l.prepared && layer != c.budget.firstSelecting() {
			t.Errorf("%s, layer %d is prepared between passes", name, layer)
		}
		if c.drive.asking(layer) && !c.layers[layer].prepared {
			t.Errorf("%s, layer %d is asked about and not prepared", name, layer)
		}
	}
	if c.tiles != 0 {
		t.Errorf("%s: %d tiles wait to be laid out", name, c.tiles)
	}
	if c.cache == nil {
		return
	}
	if s := c.cache.Stats(); s.Missed > s.Picked || s.Bytes != c.cache.Bytes() {
		t.Errorf("%s: %+v", name, s)
	}
}

// check is rule 6.
func (h *hotTokens) check(t testing.TB) {
	t.Helper()
	held, coldEnd := 0, 0
	for i, s := range h.of {
		if s < 0 {
			coldEnd = i + 1
			continue
		}
		held++
		if int(s) >= len(h.index) || h.index[s] != int32(i) {
			t.Fatalf("token %d has slot %d, which names another: %v", i, s, h.index)
		}
	}
	if held != h.held || coldEnd != h.coldEnd {
		t.Fatalf("%d held and cold before %d, counted %d and %d", held, coldEnd, h.held, h.coldEnd)
	}
	free := slices.Clone(h.free)
	slices.Sort(free)
	if n := len(slices.Compact(free)); n != len(h.free) || n+held != len(h.index) {
		t.Fatalf("%d slots, %d held, free ones %v", len(h.index), held, h.free)
	}
	for _, s := range h.free {
		if h.index[s] >= 0 {
			t.Fatalf("slot %d is free and token %d's", s, h.index[s])
		}
	}
}
