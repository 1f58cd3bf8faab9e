package kvmanager

import (
	"fmt"

	"terrace/internal/kvpage"
)

// Options are the shape and limits of a cache.
type Options struct {
	Layers, KVHeads int
	Layout          kvpage.Layout // of one page; Tokens 0 = 16
	BudgetBytes     int64         // hard limit on pages in use; 0 = none
}

// Manager hands out pages under a byte budget and accounts for every one.
type Manager struct {
	o          Options
	slabs      slabs
	inUse      int64 // bytes of referenced pages
	peak       int64
	sequences  int
	allocated  int64 // pages handed out since the start
	freedPages int64
}

// New returns an empty cache. It allocates nothing until the first token.
func New(o Options) (*Manager, error) {
	if o.Layout.Tokens == 0 {
		o.Layout.Tokens = 16
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
	m := &Manager{o: o}
	m.slabs.init(o.Layout.PageBytes(), o.Layout.Tokens)
	return m, nil
}

// Layout is the page layout of the cache.
func (m *Manager) Layout() kvpage.Layout { return m.o.Layout }

// Stats are the byte accounts of a cache.
type Stats struct {
	InUseBytes  int64 // pages referenced now
	PeakBytes   int64 // most ever referenced
	BudgetBytes int64 // 0 = no limit
	Sequences   int
}

// Stats returns the accounts.
func (m *Manager) Stats() Stats {
	return Stats{InUseBytes: m.inUse, PeakBytes: m.peak, BudgetBytes: m.o.BudgetBytes, Sequences: m.sequences}
}

// BytesFor is the page bytes that tokens more tokens need in every layer and head of an empty sequence.
func (m *Manager) BytesFor(tokens int) int64 {
	pages := (tokens + m.o.Layout.Tokens - 1) / m.o.Layout.Tokens
	return int64(pages) * int64(m.o.Layers) * int64(m.o.KVHeads) * int64(m.o.Layout.PageBytes())
}

// take hands out one page with one reference (invariant 2).
func (m *Manager) take() (pageRef, error) {
	size := int64(m.o.Layout.PageBytes())
	if m.o.BudgetBytes > 0 && m.inUse+size > m.o.BudgetBytes {
		return pageRef{}, fmt.Errorf("kvmanager: %d bytes in use, a page needs %d more, the budget is %d: %w", m.inUse, size, m.o.BudgetBytes, ErrBudget)
	}
	p, err := m.slabs.take()
	if err != nil {
		return pageRef{}, err
	}
	m.inUse += size
	m.allocated++
	m.peak = max(m.peak, m.inUse)
	return p, nil
}

// drop gives back one reference.
func (m *Manager) drop(p pageRef) {
	if m.slabs.drop(p) {
		m.inUse -= int64(m.o.Layout.PageBytes())
		m.freedPages++
	}
}

// Close unmaps all memory. Sequences that are still open are an error: somebody forgot to free them.
func (m *Manager) Close() error {
	n := m.sequences
	m.slabs.close()
	if n != 0 {
		return fmt.Errorf("kvmanager: %d sequences were never freed", n)
	}
	return nil
}

// Check verifies invariants 1 and 2; tests call it after every scenario.
func (m *Manager) Check() error {
	refs := m.slabs.referenced()
	if want := int64(refs) * int64(m.o.Layout.PageBytes()); want != m.inUse {
		return fmt.Errorf("kvmanager: %d pages referenced are %d bytes, accounted %d", refs, want, m.inUse)
	}
	if m.allocated-m.freedPages != int64(refs) {
		return fmt.Errorf("kvmanager: %d pages out, %d back, %d referenced", m.allocated, m.freedPages, refs)
	}
	if m.sequences == 0 && refs != 0 {
		return fmt.Errorf("kvmanager: %d pages are referenced and no sequence is open", refs)
	}
	return nil
}
