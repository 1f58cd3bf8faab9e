package prefixcache

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// packed is what a policy leaves of a text, compressed just now.
func packed(t *testing.T, c *Cache, ids []int, under string, ranked bool) ([]*contexts.Record, *policy.Spec) {
	t.Helper()
	spec, err := policy.Parse(under)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.e.NewSession(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if ranked {
		NoteRanks(s)
	}
	if err := s.Prefill(t.Context(), ids, engine.PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	records, err := c.Pack(s, ids, spec, "")
	if err != nil {
		t.Fatal(err)
	}
	return records, spec
}

// same fails where two contexts differ in a key, a position, a rank, or a bit of a token's key or value. What lies behind the last
// token of a page says nothing.
func same(t *testing.T, c *Cache, got, want []*contexts.Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	l, _ := c.e.Layouts()
	kept := 0
	for i := range want {
		if got[i].Meta != want[i].Meta {
			t.Fatalf("record %d: %+v, want %+v", i, got[i].Meta, want[i].Meta)
		}
		a, err := c.parse(got[i])
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.parse(want[i])
		if err != nil {
			t.Fatal(err)
		}
		for at, h := range b.heads {
			if !slices.Equal(a.heads[at].Main, h.Main) || !slices.Equal(a.heads[at].Ranks, h.Ranks) || (a.heads[at].Ranks == nil) != (h.Ranks == nil) {
				t.Fatalf("record %d, head %d: tokens %v, want %v", i, at, a.heads[at].Main, h.Main)
			}
		}
		for layer := range c.e.Model().Layers {
			x, _ := a.layer(layer, got[i].Section(1+layer))
			y, _ := b.layer(layer, want[i].Section(1+layer))
			for g := range y {
				kept += len(y[g].Pos)
				if !slices.Equal(rows(l, x[g].Data, len(y[g].Pos)), rows(l, y[g].Data, len(y[g].Pos))) {
					t.Fatalf("record %d, layer %d, head %d: other KV", i, layer, g)
				}
			}
		}
	}
	if kept == 0 {
		t.Fatal("nothing is kept: the test says nothing")
	}
}

// rows are the keys and values of the first tokens of pages.
func rows(l kvpage.Layout, pages []byte, tokens int) []float32 {
	k, v, out := make([]float32, l.KeyDim), make([]float32, l.ValueDim), []float32(nil)
	for i := range tokens {
		page := pages[i/l.Tokens*l.PageBytes():][:l.PageBytes()]
		kvpage.ReadK(l, page, i%l.Tokens, k)
		kvpage.ReadV(l, page, i%l.Tokens, v)
		out = append(append(out, k...), v...)
	}
	return out
}

// shrinking is an engine and a store to make contexts smaller with.
func shrinking(t *testing.T, o engine.Options) *Cache {
	t.Helper()
	o.Threads, o.Repeat = 1, &engine.RepeatText{First: []int{2, 3, 4}, Next: []int{5, 6}, Suffix: []int{7}}
	store := stored(t, vfs.NewMem(1<<30), 64<<20)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := Use(small(t, o), store, "small")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestShrink: a compressed context made smaller has the bits of the whole compressed to that share, and can be made smaller again.
func TestShrink(t *testing.T) {
	t.Parallel()
	ids, c := fakes.IDs(330, 5), shrinking(t, engine.Options{})
	for _, method := range []string{"keydiff", "knorm", "snapkv", "kvzip", "kvzip:budgets=layer", "kvzip:budgets=head", "snapkv:window=100"} {
		sep := ":"
		if strings.Contains(method, ":") {
			sep = ","
		}
		most, from := packed(t, c, ids, method+sep+"ratio=0.3", true)
		for _, ratio := range []string{"0.5", "0.75", "0.9"} { // the last is less than snapkv's window
			want, to := packed(t, c, ids, method+sep+"ratio="+ratio, true)
			got, err := c.Shrink(most, ids, from, to, "")
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			same(t, c, got, want)
			if most, from = got, to; got[0].Ranks == 0 {
				t.Errorf("%s: no ranks are left", to)
			}
		}
	}
}

// TestShrinkRefused: what is not the beginning of the same order is refused by name, and so are records without ranks.
func TestShrinkRefused(t *testing.T) {
	t.Parallel()
	ids, c := fakes.IDs(330, 5), shrinking(t, engine.Options{})
	half, from := packed(t, c, ids, "knorm:ratio=0.5", true)
	for _, to := range []string{"knorm:ratio=0.5", "knorm:ratio=0.25", "keydiff:ratio=0.75", "knorm:literal=true,ratio=0.75", "knorm:ratio=0"} {
		spec, err := policy.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Shrink(half, ids, from, spec, ""); !errors.Is(err, contexts.ErrNoRanks) {
			t.Errorf("%s to %s: %v", from, to, err)
		}
	}
	to, err := policy.Parse("knorm:ratio=0.75")
	if err != nil {
		t.Fatal(err)
	}
	old, _ := packed(t, c, ids, "knorm:ratio=0.5", false)
	if old[0].Ranks != 0 {
		t.Fatal("ranks that nobody asked for")
	}
	if _, err := c.Shrink(old, ids, from, to, ""); !errors.Is(err, contexts.ErrNoRanks) {
		t.Errorf("without ranks: %v", err)
	}
	for name, records := range map[string][]*contexts.Record{"none": nil, "a part": half[:1], "turned": {half[1], half[0], half[2]}} {
		if _, err := c.Shrink(records, ids, from, to, ""); !errors.Is(err, contexts.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if spec, err := policy.Parse("pyramidkv:ratio=0.5"); err != nil || spec.Ranks() {
		t.Errorf("pyramidkv, which embeds snapkv, is ranked: %v", err)
	}
}

// TestShrinkDamagedRanks: ranks that are no order, under checksums that are right, are found, and nothing is made of them.
func TestShrinkDamagedRanks(t *testing.T) {
	t.Parallel()
	ids, c := fakes.IDs(330, 5), shrinking(t, engine.Options{})
	half, from := packed(t, c, ids, "knorm:ratio=0.5", true)
	to, err := policy.Parse("knorm:ratio=0.75")
	if err != nil {
		t.Fatal(err)
	}
	r := half[0]
	last := len(r.Section(0)) - 4 // the last rank of the last head
	for name, damage := range map[string]func(b []byte) []byte{
		"twice":        func(b []byte) []byte { copy(b[last:], b[last-4:last]); return b },
		"beyond":       func(b []byte) []byte { binary.LittleEndian.PutUint32(b[last:], 1<<31); return b },
		"not kept":     func(b []byte) []byte { binary.LittleEndian.PutUint32(b[last:], 200); return b },
		"cut":          func(b []byte) []byte { return b[:last] },
		"more":         func(b []byte) []byte { return append(b, 0, 0, 0, 0) },
		"another mark": func(b []byte) []byte { binary.LittleEndian.PutUint32(b[last-4*64:], 2); return b },
		"head without": func(b []byte) []byte {
			b = b[:last+4-4*64-4]
			return binary.LittleEndian.AppendUint32(b, 0)
		},
	} {
		directory := damage(slices.Clone(r.Section(0)))
		sizes := []int{len(directory)}
		for i := 1; i < r.Sections(); i++ {
			sizes = append(sizes, len(r.Section(i)))
		}
		bad, err := contexts.Build(r.Meta, sizes, func(i int, dst []byte) ([]byte, error) {
			if i == 0 {
				return append(dst, directory...), nil
			}
			return append(dst, r.Section(i)...), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contexts.Parse(bad.Raw()); err != nil {
			t.Fatalf("%s: the checksums are wrong: %v", name, err)
		}
		if _, err := c.Shrink(append([]*contexts.Record{bad}, half[1:]...), ids, from, to, ""); !errors.Is(err, contexts.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
