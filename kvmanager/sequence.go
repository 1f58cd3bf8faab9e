package kvmanager

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// Sequence is one text's KV: for each layer and KV head its tokens in order. Where the pages lie is the layer store's, how
// tokens are written there the encoding's. What can happen to tokens (append, insert, cut, slide, fork, read, store) is a
// method, a file each.
type Sequence struct {
	m      *Manager
	id     uint64 // no other sequence of the manager has or had it; from 1
	lists  lists
	views  []attention.View
	store  layerStore
	enc    encoding
	swaps  Swaps
	slid   int32 // the lowest position that Truncate can cut at, but for 0
	states States
	most   int64 // TakeMost
	closed bool
}

// NewSequence returns an empty sequence.
func (m *Manager) NewSequence() *Sequence {
	m.sequences++
	m.opened++
	n := m.first[len(m.layers)]
	s := &Sequence{m: m, id: m.opened, lists: lists{first: m.first, shape: m.o.Layers, all: make([]head, n)}, views: make([]attention.View, n), states: States{m: m}}
	s.swaps.s = s
	s.store, s.enc = m.newStore(s), m.codec.encode(s)
	return s
}

// ID names the sequence among all of its manager, as views do (attention.View.Cache).
func (s *Sequence) ID() uint64 { return s.id }

// Swaps are those of its tokens that leave and come back.
func (s *Sequence) Swaps() *Swaps { return &s.swaps }

// States are those of the sequence's recurrent layers.
func (s *Sequence) States() *States { return &s.states }

// Tokens is the number of tokens that a layer and head read.
func (s *Sequence) Tokens(layer, kvHead int) int { return len(s.lists.read(layer, kvHead).pos) }

// PositionList is the positions that a layer and head read, in token order; it is the sequence's own and holds until the
// sequence changes.
func (s *Sequence) PositionList(layer, kvHead int) []int32 { return s.lists.read(layer, kvHead).pos }

// Views are the KV that a layer reads, its own or its owner's, one view a head, valid until the sequence changes.
func (s *Sequence) Views(layer int) []attention.View {
	layer = s.m.o.Layers.Owner(layer)
	out := s.views[s.m.first[layer]:s.m.first[layer+1]]
	for i := range out {
		main := &s.lists.at(layer, i).main
		used := pagesOf(main.tokens, s.m.o.Layout.Tokens) // the others are for tokens that Settle moves
		out[i] = attention.View{Layout: *s.m.main(layer), Pages: main.pages[:used:used], Cache: s.id}
		s.enc.show(layer, i, &out[i])
	}
	return out
}

// Bytes is what the sequence's pages hold, shared ones included.
func (s *Sequence) Bytes() int64 { return s.store.bytes() + s.enc.bytes() }

// Append adds n tokens to a layer: k [n, G·dk] (rotated), v [n, G·dv] (not looked at where values lie in their keys), their positions
// ascending past what is there.
// Those of a quantized cache are read in full precision until Settle. On ErrBudget nothing has changed.
func (s *Sequence) Append(layer int, k, v []float32, pos []int32) error {
	if s.closed {
		return fmt.Errorf("kvmanager: append: %w", ErrClosed)
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return err
	}
	l, heads, first := s.m.main(layer), s.m.heads(layer), math.MaxInt
	if l.ValueInKey {
		v = k
	}
	for g := range heads {
		first = min(first, s.lists.at(layer, g).main.tokens/l.Tokens)
		s.enc.append(layer, g, k[g*l.KeyDim:], heads*l.KeyDim, v[g*l.ValueDim:], heads*l.ValueDim, pos)
	}
	s.store.appended(layer, first)
	return nil
}

// Settle quantizes what the last Append to a layer has pushed out of the window, once its rows have attended there. Whatever
// changes or copies a layer's tokens does it first, so that a cache between passes holds the same bytes either way.
func (s *Sequence) Settle(layer int) {
	first, some := math.MaxInt, false
	for g := range s.m.heads(layer) {
		main := &s.lists.at(layer, g).main
		had := main.tokens
		if s.enc.settle(layer, g); main.tokens > had {
			first, some = min(first, had/s.m.o.Layout.Tokens), true
		}
	}
	if some {
		s.store.appended(layer, first)
	}
}

// settleAll is Settle of every layer.
func (s *Sequence) settleAll() {
	for layer := range s.m.layers {
		s.Settle(layer)
	}
}

// apartTokens is from how many tokens on AppendLater's heads are written at the same time.
const apartTokens = 256

// AppendLater is Append of keys and values that are still on their way: the tokens are there, and fill writes their bytes, once,
// from any goroutine. Until it has returned nothing may read the bytes of these tokens, or change the layer.
func (s *Sequence) AppendLater(layer int, pos []int32) (fill func(k, v []float32), err error) {
	if s.closed || !s.m.DefersAppend() {
		return nil, fmt.Errorf("kvmanager: append later: %w", ErrClosed)
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return nil, err
	}
	l, kvHeads, n, first := s.m.main(layer), s.m.heads(layer), len(pos), make([]int, s.m.heads(layer))
	for g := range kvHeads {
		h := s.lists.at(layer, g)
		first[g] = h.main.tokens
		h.main.count(l, pos)
		h.pos = append(h.pos, pos...)
	}
	return func(k, v []float32) {
		if l.ValueInKey {
			v = k
		}
		var heads sync.WaitGroup
		for g := range kvHeads {
			write := func() {
				s.lists.at(layer, g).main.write(l, first[g], n, k[g*l.KeyDim:], kvHeads*l.KeyDim, v[g*l.ValueDim:], kvHeads*l.ValueDim, kvpage.Farthest)
			}
			if n < apartTokens {
				write()
			} else {
				heads.Go(write)
			}
		}
		heads.Wait()
	}, nil
}

// Reserve makes room for n more tokens in a layer, or changes nothing. Where it reports apart, an Append of these tokens
// touches nothing that other sequences have a part in, so that Appends to several sequences may run at the same time.
func (s *Sequence) Reserve(layer, n int) (apart bool, err error) {
	if s.closed {
		return false, fmt.Errorf("kvmanager: reserve: %w", ErrClosed)
	}
	return s.m.DefersAppend(), s.reserve(layer, n)
}

// reserve makes room for n more tokens in every head of a layer, or changes nothing.
func (s *Sequence) reserve(layer, n int) error {
	if s.states.suspended {
		return errSuspended
	}
	err := s.enc.reserve(layer, n)
	if err == nil {
		more := s.lists.counts(layer)
		s.enc.incoming(layer, n, more)
		err = s.store.reserve(layer, more)
	}
	if err != nil {
		s.enc.unreserve(layer)
		return errors.Join(err, s.store.unreserve(layer))
	}
	s.most = max(s.most, s.taken())
	return nil
}

// taken is what the sequence takes of the budget: pages, shared ones included, and states.
func (s *Sequence) taken() int64 {
	states := int64(len(s.states.saved))
	if s.states.now.data != nil {
		states += 2
	}
	return s.Bytes() + states*s.m.StateBytes()
}

// TakeMost is the most that the sequence has taken while tokens came since the last call, in bytes: of a budget that it shares its own part, what lies
// beside its pages and states left out.
func (s *Sequence) TakeMost() int64 {
	most := max(s.most, s.taken())
	s.most = 0
	return most
}

// Keep drops every token of a layer and head but those at the given indices (ascending, in token order) and frees the pages
// that become empty. The bytes of kept tokens do not change, except quantized keys: those of a tile that lost tokens are
// quantized again with their new neighbours, which adds at most half a step of the new scale to each number. On ErrBudget
// (a quantized cache moves up to 15 tokens back into its window) nothing has changed.
func (s *Sequence) Keep(layer, kvHead int, keep []int) error {
	h := s.lists.at(layer, kvHead)
	for i, x := range keep {
		if x < 0 || x >= len(h.pos) || (i > 0 && x <= keep[i-1]) {
			return fmt.Errorf("kvmanager: keep index %d at %d of layer %d head %d with %d tokens: %w", x, i, layer, kvHead, len(h.pos), ErrPlan)
		}
	}
	if len(keep) == len(h.pos) {
		return nil
	}
	s.Settle(layer)
	first := min(same(keep), h.main.tokens) / s.m.o.Layout.Tokens
	if err := s.store.edit(layer, first); err != nil {
		return err
	}
	return errors.Join(s.enc.keep(layer, kvHead, keep), s.store.edited(layer, first))
}

// EditKeys gives fn the keys [n, KeyDim] of a layer and head, of n tokens from a number on at a time, to change them where they are.
// Keys of a quantized cache are quantized again, which adds at most half a step of the new scale to each number; values stay bit for
// bit. Pages that others share are copied first. On ErrBudget nothing has changed.
func (s *Sequence) EditKeys(layer, kvHead int, fn func(from int, keys []float32)) error {
	if s.closed {
		return fmt.Errorf("kvmanager: edit keys: %w", ErrClosed)
	}
	s.Settle(layer)
	if err := s.store.edit(layer, 0); err != nil {
		return err
	}
	return errors.Join(s.enc.editKeys(layer, kvHead, fn), s.store.edited(layer, 0))
}

// MoveKeys is EditKeys of tokens that then have the positions first, first+1, and so on.
func (s *Sequence) MoveKeys(layer, kvHead int, first int32, fn func(from int, keys []float32)) error {
	if err := s.EditKeys(layer, kvHead, fn); err != nil {
		return err
	}
	h := s.lists.at(layer, kvHead)
	for i := range h.pos {
		h.pos[i] = first + int32(i)
	}
	h.main.renumber(first)
	s.enc.renumber(layer, kvHead, first+int32(h.main.tokens))
	return nil
}

// Together is how many of n more tokens (at least 1) may be appended in one pass so that every one of them reads what it would
// read if they came one at a time: quantized caches keep the newest tokens in full precision.
func (s *Sequence) Together(n int) int {
	for layer := range s.m.layers {
		n = s.enc.together(layer, n)
	}
	return n
}

// Truncate forgets every token whose position is not below next (rolling back a pass that was not accepted). ErrSlid where rows
// that follow would read tokens that Slide has freed, ErrPlan where the state of recurrent layers is not known there (States.Before), or
// inactive tokens lie on both sides: then nothing has changed.
func (s *Sequence) Truncate(next int32) error {
	if s.states.suspended {
		return errSuspended
	}
	if err := errors.Join(s.reaches(next), s.states.checkCut(next), s.swaps.parts(next)); err != nil {
		return err
	}
	if next == 0 {
		s.slid = 0
	}
	s.swaps.drop(next)
	err := errors.Join(s.states.cut(next), s.releaseAll())
	for layer := range s.m.layers {
		err = errors.Join(err, s.truncateLayer(layer, next))
	}
	return err
}

func (s *Sequence) truncateLayer(layer int, next int32) error {
	first, rewrites := s.enc.rewrites(layer, next)
	if rewrites {
		if err := s.store.edit(layer, first); err != nil {
			return err
		}
	}
	var err error
	for g := 0; g < s.m.heads(layer) && err == nil; g++ {
		if n := firstAtLeast(s.lists.at(layer, g).pos, next); n < len(s.lists.at(layer, g).pos) {
			err = s.enc.cut(layer, g, n)
		}
	}
	if rewrites {
		err = errors.Join(err, s.store.edited(layer, first))
	}
	if err != nil {
		return err
	}
	s.Settle(layer) // what is left of it, while its pages are there
	return s.store.truncated(layer)
}

// Fork returns a sequence that shares every page with s; either copies a page when it first writes to it.
func (s *Sequence) Fork() (*Sequence, error) {
	if s.closed {
		return nil, fmt.Errorf("kvmanager: fork: %w", ErrClosed)
	}
	if s.states.suspended {
		return nil, errSuspended
	}
	if len(s.swaps.inactive) > 0 {
		return nil, fmt.Errorf("kvmanager: fork of a sequence with inactive tokens: %w", ErrPlan)
	}
	s.settleAll()
	f := s.m.NewSequence()
	f.slid = s.slid
	for i := range s.lists.all {
		f.lists.all[i] = head{main: s.lists.all[i].main.clone(), pos: slices.Clone(s.lists.all[i].pos)}
	}
	s.enc.share(f.enc)
	if err := errors.Join(s.store.share(f.store), s.states.fork(&f.states)); err != nil {
		f.Free()
		return nil, err
	}
	return f, nil
}

// Free gives back every page. A second call does nothing.
func (s *Sequence) Free() {
	if s.closed {
		return
	}
	s.closed = true
	s.swaps.drop(0)
	s.states.free()
	s.enc.free()
	s.store.free()
	clear(s.lists.all)
	s.m.sequences--
	s.m.lend()
}

// Prefetch begins to bring what the next pass reads of a layer into memory, as far as there is room: the tokens from
// position low on.
func (s *Sequence) Prefetch(layer int, low int32) {
	if !s.closed {
		s.store.prefetch(layer, low)
	}
}

// Acquire brings a layer's tokens from position low on into memory, where they stay until Release. What is newer than the
// backing store and is not to stay begins to be written.
func (s *Sequence) Acquire(layer int, low int32) error {
	if s.closed {
		return fmt.Errorf("kvmanager: acquire: %w", ErrClosed)
	}
	if s.states.suspended {
		return errSuspended
	}
	return s.store.acquire(layer, low)
}

// Release lets go of a layer that a pass is done with (Settle); what is not to stay leaves memory once it is stored.
func (s *Sequence) Release(layer int) error {
	if s.closed {
		return nil
	}
	s.Settle(layer)
	return s.store.release(layer)
}

// releaseAll lets go of every layer, where a pass was given up.
func (s *Sequence) releaseAll() error {
	var err error
	for layer := range s.m.layers {
		err = errors.Join(err, s.store.release(layer))
	}
	return err
}
