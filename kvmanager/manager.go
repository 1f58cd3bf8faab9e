package kvmanager

import (
	"fmt"
	"terrace/attention"

	"terrace/internal/kvpage"
	"terrace/kvmanager/slab"
)

// Options are the shape and limits of a cache.
type Options struct {
	Layers, KVHeads int
	Layout          kvpage.Layout // of one page; Tokens 0 = 16
	BudgetBytes     int64         // hard limit on pages in use; 0 = none
	// Window is how many of the newest tokens a quantised cache keeps in f16 (KIVI's residual); see WindowSet. Tokens
	// leave it 16 at a time, so that each tile of keys gets its scales from 16 neighbours.
	Window int
	// WindowSet says that Window was chosen, so 0 keeps only the tokens that do not fill a tile yet; otherwise 0 = DefaultWindow.
	WindowSet bool
	// Lower, where not nil, holds what the budget does not: passes then Plan, Acquire and Release each layer.
	Lower Lower
	// Sliding is each layer's sliding window in tokens, 0 = it reads all; nil = all layers do. Only tiers look at it.
	Sliding []int
}

// DefaultPageTokens is how many tokens a page holds where nobody chose.
const DefaultPageTokens = 16

// DefaultWindow is KIVI's residual length.
const DefaultWindow = 128

// The two kinds of pages. A cache of floats has only the first.
const (
	settled = iota // in the cache's layout
	recent         // the full-precision window before a quantised cache: f16, one tile a page
	kinds
)

// Manager hands out pages under a byte budget and accounts for every one.
type Manager struct {
	o          Options
	layout     [kinds]kvpage.Layout
	slabs      [kinds]slab.Pages
	quantised  bool // keys or values are: tokens settle out of a window
	bulk       attention.Reader
	k, v       []float32 // a tile on its way out of the window
	inUse      int64     // bytes of referenced pages
	peak       int64
	sequences  int
	allocated  int64 // pages handed out since the start
	freedPages int64
	version    uint64       // of the page content that was stamped last
	opened     uint64       // sequences since the start
	size       [kinds]int64 // of a page, or of a block's frame on tiers

	lower   Lower
	tiered  []*Sequence // open ones, on tiers
	caches  []Reclaimer
	homes   uint64
	writes  []*transfer // under way, oldest first
	late    error       // of a transfer that nobody waited for
	failed  int         // writes that did
	cursor  int         // layer that was released last
	asked   int64       // tokens, a layer and KV head, that passes on tiers asked for, and of them
	fetched int64       // those that were not in memory
	charged int64       // bytes in use that are not pages
}

// New returns an empty cache. It allocates nothing until the first token.
func New(o Options) (*Manager, error) {
	if o.Layout.Tokens == 0 {
		o.Layout.Tokens = DefaultPageTokens
	}
	if o.Layers < 1 || o.KVHeads < 1 {
		return nil, fmt.Errorf("kvmanager: %d layers of %d KV heads, want at least one of each", o.Layers, o.KVHeads)
	}
	if err := o.Layout.Validate(); err != nil {
		return nil, fmt.Errorf("kvmanager: %w", err)
	}
	if o.BudgetBytes < 0 {
		return nil, fmt.Errorf("kvmanager: budget of %d bytes", o.BudgetBytes)
	}
	if o.Window < 0 {
		return nil, fmt.Errorf("kvmanager: window of %d tokens", o.Window)
	}
	if o.Window == 0 && !o.WindowSet {
		o.Window = DefaultWindow
	}
	m := &Manager{o: o, quantised: o.Layout.K.Quantised() || o.Layout.V.Quantised()}
	m.layout[settled] = o.Layout
	m.layout[recent] = kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: o.Layout.KeyDim, ValueDim: o.Layout.ValueDim, Tokens: kvpage.Tile}
	for kind := range m.slabs {
		m.size[kind] = int64(m.layout[kind].PageBytes())
		tokens := m.layout[kind].Tokens
		if o.Lower != nil && kind == settled {
			m.lower, tokens = o.Lower, 0 // a frame's positions belong to its block
			m.size[kind] = int64(roundUp(o.KVHeads*o.Layout.PageBytes(), frameAlign))
		}
		m.slabs[kind] = slab.New(int(m.size[kind]), tokens)
	}
	return m, nil
}

// Layout is the page layout of the cache.
func (m *Manager) Layout() kvpage.Layout { return m.o.Layout }

// BlockBytes is what a block (a page's tokens of one layer, all KV heads) takes in host memory.
func (m *Manager) BlockBytes() int { return int(m.size[settled]) }

// Stats are the byte accounts of a cache.
type Stats struct {
	InUseBytes  int64 // pages referenced now
	PeakBytes   int64 // most referenced since the start or ResetPeak
	BudgetBytes int64 // 0 = no limit
	Sequences   int
	// TokensRead counts the tokens, a layer and KV head, that passes on tiers have asked for, TokensFetched those of them that
	// were not in memory.
	TokensRead, TokensFetched int64
}

// Stats returns the accounts.
func (m *Manager) Stats() Stats {
	return Stats{InUseBytes: m.inUse, PeakBytes: m.peak, BudgetBytes: m.o.BudgetBytes, Sequences: m.sequences,
		TokensRead: m.asked, TokensFetched: m.fetched}
}

// ResetPeak starts a new measurement of PeakBytes from what is in use now.
func (m *Manager) ResetPeak() { m.peak = m.inUse }

// BytesFor is the page bytes that a sequence of that many tokens holds in every layer and head.
func (m *Manager) BytesFor(tokens int) int64 {
	late := 0
	if m.quantised {
		late = tokens - m.settling(0, tokens)
	}
	var n int64
	for kind, count := range [kinds]int{tokens - late, late} {
		l := m.layout[kind]
		n += int64((count+l.Tokens-1)/l.Tokens) * int64(l.PageBytes())
	}
	return n * int64(m.o.Layers) * int64(m.o.KVHeads)
}

// settling is how many tokens leave a window of had tokens when n more come: whole tiles, so that the window keeps its size.
func (m *Manager) settling(had, n int) int {
	return max(0, had+n-m.o.Window) / kvpage.Tile * kvpage.Tile
}

// stamp is a version that no page content had before (invariant 5).
func (m *Manager) stamp() uint64 {
	m.version++
	return m.version
}

// Room reports whether that many more bytes fit the budget as things are; nothing leaves memory for them.
func (m *Manager) Room(more int64) error {
	if m.o.BudgetBytes > 0 && m.inUse+more > m.o.BudgetBytes {
		return fmt.Errorf("kvmanager: %d bytes in use, %d more are needed, the budget is %d: %w", m.inUse, more, m.o.BudgetBytes, ErrBudget)
	}
	return nil
}

// take hands out one page with one reference (invariant 2). On tiers other blocks leave memory where there is no room.
func (m *Manager) take(kind int) (slab.Ref, error) {
	size := m.size[kind]
	if err := m.makeRoom(size); err != nil {
		return slab.Ref{}, err
	}
	p, err := m.slabs[kind].Take()
	if err != nil {
		return slab.Ref{}, err
	}
	m.inUse += size
	m.allocated++
	m.peak = max(m.peak, m.inUse)
	return p, nil
}

// drop gives back one reference.
func (m *Manager) drop(kind int, p slab.Ref) {
	if m.slabs[kind].Drop(p) {
		m.inUse -= m.size[kind]
		m.freedPages++
	}
}

// note keeps the first error that nobody waited for, until the next Plan.
func (m *Manager) note(err error) {
	if m.late == nil {
		m.late = err
	}
}

// Close unmaps all memory. Sequences that are still open are an error: somebody forgot to free them.
func (m *Manager) Close() error {
	n := m.sequences
	for kind := range m.slabs {
		m.slabs[kind].Close()
	}
	if n != 0 {
		return fmt.Errorf("kvmanager: %d sequences were never freed", n)
	}
	return nil
}

// Check verifies invariants 1 and 2; tests call it after every scenario.
func (m *Manager) Check() error {
	refs, want := 0, int64(0)
	for kind := range m.slabs {
		n := m.slabs[kind].Referenced()
		refs += n
		want += int64(n) * m.size[kind]
	}
	if want += m.charged; want != m.inUse {
		return fmt.Errorf("kvmanager: %d pages referenced and %d bytes beside them are %d bytes, accounted %d", refs, m.charged, want, m.inUse)
	}
	if m.allocated-m.freedPages != int64(refs) {
		return fmt.Errorf("kvmanager: %d pages out, %d back, %d referenced", m.allocated, m.freedPages, refs)
	}
	if m.sequences == 0 && refs != 0 {
		return fmt.Errorf("kvmanager: %d pages are referenced and no sequence is open", refs)
	}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
