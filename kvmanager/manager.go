package kvmanager

import (
	"fmt"

	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/units"
	"terrace/kvmanager/slab"
	"terrace/offload"
)

// Options are the shape and limits of a cache.
type Options struct {
	Layers      cacheshape.Model
	Layout      kvpage.Layout // of pages, but for the widths, which are each layer's; Tokens 0 = kvpage.Elem.PageTokens
	BudgetBytes int64         // hard limit on pages in use; 0 = none
	// Window is how many of the newest tokens a quantized cache keeps in f16 (KIVI's residual); see WindowSet. Tokens
	// leave it a group at a time (kvpage.Elem.KeyGroup), so that keys get their scales from their neighbours.
	Window int
	// WindowSet says that Window was chosen, so 0 keeps only the tokens that do not fill a group yet; otherwise 0 = DefaultWindow.
	WindowSet bool
	// Backing, where not nil, is the queue of the store that holds what the budget does not: passes then Plan, Acquire and
	// Release each layer. It stays the caller's.
	Backing *offload.Queue
	// Clock is whose time transfers have to end in; nil = clock.Real.
	Clock clock.Clock
}

// DefaultWindow is KIVI's residual length.
const DefaultWindow = 128

// The two kinds of pages. A cache of floats has only the first.
const (
	mainPages     = iota // in the cache's layout; with a backing store these are frames of whole blocks
	residualPages        // the full-precision window before a quantized cache: f16, one tile a page
	kinds
)

// Manager hands out pages under a byte budget and accounts for every one: who takes, plans or
// gives back asks here, so that one account holds.
type Manager struct {
	o        Options
	layers   []layerPages
	first    []int        // each layer's first list of tokens among those of all, [layers+1]
	classes  []*pageClass // one a size
	unit     int64        // bytes that every block's frame is a multiple of: what plans count in
	codec    codec
	backing  *backing                   // nil = everything stays in host memory
	newStore func(*Sequence) layerStore // of a new sequence
	caches   []Reclaimer
	borrower Borrower // of what the budget leaves; nil = nobody
	lent     int64    // bytes that it may hold
	account
	saving    []*States // that have saved states
	sequences int
	opened    uint64 // sequences since the start
	homes     uint64 // sequence numbers of the backing store that were given out
	version   uint64 // of the page content that was stamped last
	late      error  // of a transfer that nobody waited for
}

// account is what a cache holds and has moved.
type account struct {
	inUse          int64 // bytes of referenced pages, and what is charged
	charged        int64 // of them those that are not pages
	peak           int64
	allocated      int64 // pages handed out since the start
	freed          int64
	asked, fetched int64 // tokens, a layer and KV head, that passes with a backing store asked for, and of them those that were not in memory
}

// New returns an empty cache. It allocates nothing until the first token.
func New(o Options) (*Manager, error) {
	if o.Layout.Tokens == 0 {
		o.Layout.Tokens = o.Layout.K.PageTokens()
	}
	if err := o.Layers.Validate(); err != nil {
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
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	m := &Manager{o: o, codec: floatCodec{}}
	m.newStore = func(s *Sequence) layerStore { return newPaged(s) }
	if o.Backing != nil {
		m.backing = &backing{frames: frames{m}, homes: homes{o.Backing, m.NewHome}}
		m.newStore = func(s *Sequence) layerStore { return newTiered(s, m.backing) }
	}
	if err := m.layOut(); err != nil {
		return nil, err
	}
	if o.Layout.K.Quantised() || o.Layout.V.Quantised() {
		m.codec = newQuantizer(m)
	}
	return m, nil
}

// frameAlign is what the memory of a block is aligned to, so that storage reads and writes it without a copy.
const frameAlign = 4096

// DefersAppend reports whether AppendLater can be used, and whether appends to several sequences may run at the same time: in
// a cache of floats without a backing store.
func (m *Manager) DefersAppend() bool {
	_, floats := m.codec.(floatCodec)
	return floats && m.backing == nil
}

// NewHome is a sequence number of the backing store that nobody else uses.
func (m *Manager) NewHome() uint64 {
	m.homes++
	return m.homes
}

// Backing is the queue of the backing store; nil = there is none.
func (m *Manager) Backing() *offload.Queue { return m.o.Backing }

// Shape is what each layer keeps.
func (m *Manager) Shape() cacheshape.Model { return m.o.Layers }

// Format is the layout of the cache's pages but for the widths, which are each layer's (Layout).
func (m *Manager) Format() kvpage.Layout { return m.o.Layout }

// Layout is the layout of the pages that a layer reads.
func (m *Manager) Layout(layer int) kvpage.Layout { return *m.main(m.o.Layers.Owner(layer)) }

// BlockBytes is what a block (a page's tokens of one layer, all KV heads) takes in host memory, of the layer whose blocks are largest.
func (m *Manager) BlockBytes() int {
	n := int64(0)
	for i := range m.layers {
		n = max(n, m.layers[i].blockBytes())
	}
	return int(n)
}

// Stats are the byte accounts of a cache.
type Stats struct {
	InUseBytes   int64 // pages referenced now, and what is charged
	ChargedBytes int64 // of them those that are not pages (Charge)
	PeakBytes    int64 // most in use since the start or ResetPeak
	BudgetBytes  int64 // 0 = no limit
	Sequences    int
	// TokensRead counts the tokens, a layer and KV head, that passes with a backing store have asked for, TokensFetched those of
	// them that were not in memory.
	TokensRead, TokensFetched int64
}

// Stats returns the accounts.
func (m *Manager) Stats() Stats {
	return Stats{InUseBytes: m.inUse, ChargedBytes: m.charged, PeakBytes: m.peak, BudgetBytes: m.o.BudgetBytes, Sequences: m.sequences,
		TokensRead: m.asked, TokensFetched: m.fetched}
}

// ResetPeak starts a new measurement of PeakBytes from what is in use now.
func (m *Manager) ResetPeak() { m.peak = m.inUse }

// BytesFor is the bytes that a sequence of that many tokens holds: pages in every layer and head, and state.
func (m *Manager) BytesFor(tokens int) int64 {
	main, residual := m.codec.split(tokens)
	var n int64
	if tokens > 0 {
		n = 2 * m.StateBytes()
	}
	for i := range m.layers {
		if m.layers[i].heads == 0 {
			continue
		}
		for kind, count := range [kinds]int{main, residual} {
			l := &m.layers[i].layouts[kind]
			n += int64(m.layers[i].heads) * int64((count+l.Tokens-1)/l.Tokens) * int64(l.PageBytes())
		}
	}
	return n
}

// stamp is a version that no page content had before (invariant 5).
func (m *Manager) stamp() uint64 {
	m.version++
	return m.version
}

// Room reports whether that many more bytes fit the budget as things are: nothing of the cache leaves memory for them, what it has lent
// comes back.
func (m *Manager) Room(more int64) error {
	m.takeBack(more)
	if m.o.BudgetBytes > 0 && m.inUse+more > m.o.BudgetBytes {
		return &BudgetError{What: fmt.Sprintf("%s beside %s in use", units.FormatBytes(more), units.FormatBytes(m.inUse)), NeedBytes: m.inUse + more, BudgetBytes: m.o.BudgetBytes, Below: m.backing != nil}
	}
	return nil
}

// take hands out one page with one reference (invariant 2). With a backing store other blocks leave memory where there is no
// room.
func (m *Manager) take(of *pageClass) (slab.Ref, error) {
	if err := m.makeRoom(of.bytes); err != nil {
		return slab.Ref{}, err
	}
	p, err := of.pages.Take()
	if err != nil {
		return slab.Ref{}, err
	}
	m.inUse += of.bytes
	m.allocated++
	m.peak = max(m.peak, m.inUse)
	return p, nil
}

// drop gives back one reference.
func (m *Manager) drop(of *pageClass, p slab.Ref) {
	if of.pages.Drop(p) {
		m.inUse -= of.bytes
		m.freed++
	}
}

// note keeps the first error that nobody waited for, until the next Plan.
func (m *Manager) note(err error) {
	if m.late == nil {
		m.late = err
	}
}

// Release gives the memory of freed pages back to the system; called after an eviction that freed much.
func (m *Manager) Release() {
	for _, of := range m.classes {
		of.pages.Release()
	}
}

// Close unmaps all memory. Sequences that are still open are an error: somebody forgot to free them.
func (m *Manager) Close() error {
	n := m.sequences
	for _, of := range m.classes {
		of.pages.Close()
	}
	if n != 0 {
		return fmt.Errorf("kvmanager: %d sequences were never freed", n)
	}
	return nil
}

// Check verifies invariants 1 and 2; tests call it after every scenario.
func (m *Manager) Check() error {
	refs, want := 0, int64(0)
	for _, of := range m.classes {
		n := of.pages.Referenced()
		refs += n
		want += int64(n) * of.bytes
	}
	if want += m.charged; want != m.inUse {
		return fmt.Errorf("kvmanager: %d pages referenced and %d bytes beside them are %d bytes, accounted %d", refs, m.charged, want, m.inUse)
	}
	if m.o.BudgetBytes > 0 && m.inUse+m.lent > m.o.BudgetBytes {
		return fmt.Errorf("kvmanager: %d bytes are in use and %d lent of a budget of %d", m.inUse, m.lent, m.o.BudgetBytes)
	}
	if m.allocated-m.freed != int64(refs) {
		return fmt.Errorf("kvmanager: %d pages out, %d back, %d referenced", m.allocated, m.freed, refs)
	}
	if m.sequences == 0 && refs != 0 {
		return fmt.Errorf("kvmanager: %d pages are referenced and no sequence is open", refs)
	}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }
