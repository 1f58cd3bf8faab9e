package cacheshape

import (
	"errors"
	"strings"
	"testing"
)

// mixed is a window of 2 × 32, a layer of state, 4 × 64 with a layer that shares it, a latent layer, and one that keeps nothing.
func mixed() Model {
	return Model{
		{Heads: 4, KV: KV{Heads: 2, KeyDim: 32, ValueDim: 32, Window: 8}, Owner: 0},
		{State: State{Bytes: 100}},
		{Heads: 8, KV: KV{Heads: 4, KeyDim: 64, ValueDim: 64}, Owner: 2},
		{Heads: 4, Owner: 2},
		{Heads: 6, KV: KV{Heads: 1, KeyDim: 40, ValueDim: 40, ValueInKey: true}, Owner: 4},
		{},
	}
}

func TestWhoReadsWhat(t *testing.T) {
	m := mixed()
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	if m.KV(3) != m[2].KV || m.Group(3) != 1 || m.Group(2) != 2 || m.Owner(1) != -1 || m.KV(1) != (KV{}) || m.Group(5) != 0 {
		t.Error("a layer that shares reads other keys than its owner's, or one without KV reads some")
	}
	if m.Keepers() != 3 || m.KVHeads() != 7 || m.HeadsRead() != 11 || m.Recurrent() != 1 || m.StateBytes() != 100 {
		t.Errorf("%d keepers, %d heads, state in %d of %d bytes", m.Keepers(), m.KVHeads(), m.Recurrent(), m.StateBytes())
	}
	if got := m.Numbers(); got != 2*64+4*128+40 {
		t.Errorf("%d numbers a token", got)
	}
	for from, want := range map[int]int{-1: 0, 0: 2, 1: 2, 2: 4, 3: 4, 4: -1, 5: -1} {
		if got := m.Next(from); got != want {
			t.Errorf("the next behind %d is %d, want %d", from, got, want)
		}
	}
	for owner, want := range map[int]int{0: 0, 2: 3, 4: 4} {
		if got := m.LastReader(owner); got != want {
			t.Errorf("layer %d is read last by %d, want %d", owner, got, want)
		}
	}
	if before := m.HeadsBefore(); before[2] != 2 || before[3] != 6 || before[4] != 6 || before[6] != 7 {
		t.Errorf("heads before: %v", before)
	}
	if _, _, ok := m.Same(); ok {
		t.Error("mixed layers are the same")
	}
	equal := Equal(3, 4, KV{Heads: 2, KeyDim: 8, ValueDim: 8})
	equal[1].KV.Window = 5
	if heads, kv, ok := equal.Same(); !ok || heads != 4 || kv != (KV{Heads: 2, KeyDim: 8, ValueDim: 8}) {
		t.Errorf("equal layers: %d heads of %v, %v", heads, kv, ok)
	}
}

func TestShapesRefused(t *testing.T) {
	for want, change := range map[string]func(m Model){
		"an earlier one":   func(m Model) { m[3].Owner = 4 },
		"keeps some":       func(m Model) { m[3].Owner = 1 },
		"reads those of":   func(m Model) { m[2].Owner = 0 },
		"KV heads":         func(m Model) { m[0].KV.Heads = -1 },
		"query heads":      func(m Model) { m[2].Heads = 6 },
		"numbers, want":    func(m Model) { m[2].KV.KeyDim = 1 << 15 },
		"window of -1":     func(m Model) { m[0].KV.Window = -1 },
		"in keys of 40":    func(m Model) { m[4].KV.ValueDim = 32 },
		"of an index":      func(m Model) { m[4].KV.Index = 40 },
		"-1 numbers of an": func(m Model) { m[2].KV.Index = -1 },
		"bytes of state":   func(m Model) { m[1].State.Bytes = -1 },
		"layer 3: 6 query": func(m Model) { m[3].Heads = 6 },
	} {
		m := mixed()
		change(m)
		if err := m.Validate(); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Model{}).Validate(); !errors.Is(err, ErrShape) {
		t.Errorf("no layers: %v", err)
	}
}
