package kvmanager

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"terrace/internal/units"
)

// Growth is by how much a pass lets a sequence grow: it adds Rows tokens, on the way to Tokens in a layer and head.
type Growth struct {
	Seq    *Sequence
	Rows   int
	Tokens int
	// Cached marks layers that a token cache serves: decode steps don't read them whole, and after a prompt nothing of them stays.
	// nil = none.
	Cached []bool
	// Beside is the bytes that will be charged beside the pages on the way to Tokens, or in this step (what a policy scans, a
	// cache's staging): the plan leaves them free, and a refusal names a size that holds them. What a quantized cache keeps in full
	// precision is counted by the plan itself.
	Beside int64
	// Had is how many tokens each layer has before the pass, where they are not there: the plan of a text of that length.
	Had int
	// ByLayer marks a prompt all of whose rows go through one layer before the next: a later reader of a layer with a window begins
	// at its first token.
	ByLayer bool
}

// tiers is the sequence's layer store, of a cache with a backing store.
func (e Growth) tiers() *tiered { return e.Seq.store.(*tiered) }

// whole reports whether the pass reads a layer whole.
func (e Growth) whole(layer int) bool { return e.Tokens > 0 || e.stay(layer) }

// stay reports whether what was read of a layer may stay in memory.
func (e Growth) stay(layer int) bool { return e.Cached == nil || !e.Cached[layer] }

// ring is the memory of two layers that are read one after the other, where they take most: the one that is computed with and the one
// that is on its way, and beside them those before that a later layer reads again.
func (k *backing) ring(need []int) int {
	ring, shape := 0, k.m.o.Layers
	for layer := shape.Next(-1); layer >= 0; layer = shape.Next(layer) {
		next := shape.Next(layer)
		if next < 0 {
			next = shape.Next(-1)
		}
		n := need[layer]
		if next != layer {
			n += need[next]
		}
		for before := shape.Next(-1); before < layer; before = shape.Next(before) {
			if before != next && shape.LastReader(before) >= layer {
				n += need[before]
			}
		}
		ring = max(ring, n)
	}
	return ring
}

// least is the memory of what is read at the same time: a layer, and those before it that a later one reads again.
func (k *backing) least(need []int) int {
	shape := k.m.o.Layers
	held := make([]int, len(need)+1)
	for layer, n := range need {
		if shape.Keeps(layer) {
			for at := layer; at <= shape.LastReader(layer); at++ {
				held[at] += n
			}
		}
	}
	return slices.Max(held)
}

// Plan decides before a pass what stays in host memory and what is streamed. A pass reads the layers in turn, so of every
// layer the same share stays, its first blocks, and the rest goes through a ring of two layers: one that is computed with
// and one that is on its way. ErrBudget, with the numbers, where not even one layer fits.
func (m *Manager) Plan(pass []Growth) error {
	if m.backing == nil {
		return nil
	}
	if err := m.late; err != nil {
		m.late = nil
		return err
	}
	if err := m.backing.takeWritten(); err != nil {
		return err
	}
	return m.backing.plan(pass)
}

func (k *backing) plan(pass []Growth) error {
	m := k.m
	need, stay := k.needs(pass)
	sum, most, ring := 0, k.least(need), k.ring(need)
	for layer := range need {
		sum += stay[layer]
	}
	apart := k.apart(pass)
	have := k.unitsFree(pass) - apart
	if have < sum {
		if err := k.clearOthers(pass); err != nil {
			return err
		}
		have = k.unitsFree(pass) - apart
	}
	for want := max(ring, sum); have < want && m.cachesYield(); have = k.unitsFree(pass) - apart {
	}
	for ; have < most && m.statesYield(); have = k.unitsFree(pass) - apart {
	}
	if have < most {
		return k.tooSmall(most, apart, have+apart)
	}
	share := 1.0
	if have < sum || have < ring {
		share = max(0, float64(have-ring)/float64(max(sum-ring, sum/2, 1)))
	}
	for _, e := range pass {
		quota := e.tiers().quota
		for layer := range quota {
			quota[layer] = 0
			if e.stay(layer) {
				quota[layer] = int(share * float64(e.blocks(layer)))
			}
		}
	}
	return nil
}

// Spare is how many bytes of the budget are left beside two whole layers of a pass, what the plan leaves free for it, and what is
// charged by others than token caches: those give way. Negative where it does not fit; math.MaxInt64 without a budget.
func (m *Manager) Spare(x Growth) int64 {
	if m.o.BudgetBytes == 0 || m.backing == nil {
		return math.MaxInt64
	}
	pass := []Growth{x}
	need, _ := m.backing.needs(pass)
	units := m.backing.ring(need) + m.backing.apart(pass)
	left := m.o.BudgetBytes - m.charged - int64(units)*m.unit - m.backing.beside(pass)
	for _, c := range m.caches {
		left += c.Bytes()
	}
	for _, t := range m.backing.sequences {
		left -= t.s.enc.bytes() // of which the pass counts what is to come
	}
	return left
}

// Settle waits for every transfer that is under way. What failed to be read is read again when somebody wants it.
func (m *Manager) Settle() error {
	k := m.backing
	if k == nil {
		return nil
	}
	for len(k.writes) > 0 {
		if err := k.await(k.writes[0]); err != nil {
			return err
		}
	}
	for len(k.reads) > 0 {
		if err := k.awaitUnwanted(k.reads[0]); err != nil {
			return err
		}
	}
	return nil
}

// tooSmall says what a pass needs and what there is.
func (k *backing) tooSmall(most, apart, have int) error {
	size, budget := k.m.unit, k.m.o.BudgetBytes
	need, beside := int64(most+apart)*size, budget-int64(have)*size
	return &BudgetError{What: fmt.Sprintf("a pass (a layer %s, tokens being written %s, beside them %s)", units.FormatBytes(int64(most)*size), units.FormatBytes(int64(apart)*size), units.FormatBytes(beside)),
		NeedBytes: need + beside, BudgetBytes: budget, Below: true}
}

// needs is the units of memory of the blocks that the pass reads of each layer, and of them those that may stay.
func (k *backing) needs(pass []Growth) (need, stay []int) {
	need, stay = make([]int, len(k.m.layers)), make([]int, len(k.m.layers))
	var seen map[*block]bool
	if len(pass) > 1 {
		seen = map[*block]bool{}
	}
	for _, e := range pass {
		for layer := range need {
			n := (e.blocks(layer) - e.again(layer, seen)) * k.m.units(layer)
			if e.whole(layer) {
				need[layer] += n
			}
			if e.stay(layer) {
				stay[layer] += n
			}
		}
	}
	return need, stay
}

// again is how many of the blocks that the pass reads of a layer other sequences of the pass read too, and were counted with those
// seen before; seen is nil where the pass has one sequence.
func (e Growth) again(layer int, seen map[*block]bool) (n int) {
	if seen == nil {
		return 0
	}
	blocks := e.tiers().layers[layer].blocks
	for _, b := range blocks[max(0, len(blocks)-e.blocks(layer)):] {
		if b.refs < 2 {
			continue
		}
		if seen[b] {
			n++
		}
		seen[b] = true
	}
	return n
}

// blocks is how many blocks of a layer the pass reads.
func (e Growth) blocks(layer int) int {
	m := e.Seq.m
	if m.heads(layer) == 0 {
		return 0
	}
	t := m.o.Layout.Tokens
	n := max(e.Tokens, max(e.Had, e.Seq.lists.most(layer))+e.Rows)
	if w := m.sliding(layer); w > 0 && !(e.ByLayer && m.o.Layers.LastReader(layer) != layer) {
		n = min(n, w+e.Rows+t)
	}
	return (n + t - 1) / t
}

// sliding is the window of what a layer keeps, in tokens; 0 = all is read.
func (m *Manager) sliding(layer int) int {
	return m.o.Layers[layer].KV.Window
}

// apart is the units of memory for what is not read layer by layer: blocks with room in every layer, and what is on its
// way to the backing store while the next layer computes.
func (k *backing) apart(pass []Growth) int {
	t, n, most := k.m.o.Layout.Tokens, 0, 0
	for layer := range k.m.layers {
		most = max(most, k.m.units(layer))
	}
	for _, e := range pass {
		n += most * (2*((e.Rows+t-1)/t) + 2)
		layers := e.tiers().layers
		for layer := range layers {
			if k.m.heads(layer) > 0 {
				n += k.m.units(layer) * max(1, layers[layer].withRoom())
			}
		}
	}
	return n
}

// beside is the bytes that will be charged.
func (k *backing) beside(pass []Growth) (bytes int64) {
	for _, e := range pass {
		bytes += e.Beside + e.Seq.enc.growth(e.Rows, max(e.Tokens, max(e.Had, e.Seq.lists.longest())+e.Rows))
	}
	return bytes
}

// unitsFree is how many units of memory the pass may have beside what will be charged, what its sequences hold now included. What is charged
// already and what will be are one sum here, so that rounding to units does not depend on how far a text is.
func (k *backing) unitsFree(pass []Growth) int {
	m := k.m
	if m.o.BudgetBytes == 0 {
		return 1 << 40 // no limit
	}
	mine, seen := 0, map[*block]bool{}
	for _, e := range pass {
		for _, lb := range e.tiers().layers {
			for _, b := range lb.blocks {
				if !b.inMemory() || b.refs > 1 && seen[b] {
					continue
				}
				mine += k.m.units(int(b.layer))
				if b.refs > 1 {
					seen[b] = true
				}
			}
		}
	}
	free := m.o.BudgetBytes - m.inUse - k.beside(pass)
	if free < 0 {
		free -= m.unit - 1 // rounded down
	}
	return int(free/m.unit) + mine
}

// clearOthers lets the blocks of sequences that are not in the pass leave memory, those too that are on their way.
func (k *backing) clearOthers(pass []Growth) error {
	var err error
	for _, t := range k.sequences {
		if !slices.ContainsFunc(pass, func(e Growth) bool { return e.Seq == t.s }) {
			clear(t.quota)
			err = errors.Join(err, t.s.releaseAll())
		}
	}
	for len(k.writes) > 0 {
		if werr := k.await(k.writes[0]); werr != nil {
			return errors.Join(err, werr)
		}
	}
	for _, r := range slices.Clone(k.reads) {
		if !slices.ContainsFunc(r.blocks, unwanted) {
			continue
		}
		if rerr := k.awaitUnwanted(r); rerr != nil {
			return errors.Join(err, rerr)
		}
		k.sweep(r.blocks)
	}
	return err
}
