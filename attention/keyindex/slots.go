package keyindex

import (
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// HoldSlots has an empty index hold only the tokens that have a slot, under it.
func (x *Index) HoldSlots(s Slots) {
	for i := range x.heads {
		x.heads[i].slots = s
	}
}

// MovedTokens says that an index that holds slots is of n tokens now: some have left, others have come that have no slot. Who has
// one keeps it.
func (x *Index) MovedTokens(n int) {
	for i := range x.heads {
		x.heads[i].tokens = n
	}
}

// refreshSlots is refresh of a head that holds keys of some tokens only, under their slots.
func (h *sketch) refreshSlots(pos []int32, l *policy.Layer, kvHead int) {
	n := len(pos)
	if h.tokens == 0 {
		h.start(n, l, kvHead, nil)
	}
	if cap(h.scratch.keys) < kernels.PanelCols*h.dim {
		h.scratch.keys, h.scratch.code = make([]float32, kernels.PanelCols*h.dim), make([]int8, h.dim)
	}
	for i := h.tokens; i < n; {
		m := 0
		for i+m < n && m < kernels.PanelCols && h.slots.Slot(i+m) >= 0 {
			m++
		}
		if m == 0 {
			i++
			continue
		}
		keys := h.scratch.keys[:m*h.dim]
		h.scratch.reader.Keys(h.view, i, i+m, keys)
		h.addSlots(i, m, keys)
		i += m
	}
	h.tokens = n
}

// addSlots adds m tokens from i on, whose keys are given, under their slots.
func (h *sketch) addSlots(i, m int, keys []float32) {
	if h.product == nil {
		for j := range m {
			h.addKey(int(h.slots.Slot(i+j)), keys[j*h.dim:(j+1)*h.dim])
		}
		return
	}
	at := make([]int32, m)
	for j := range at {
		at[j] = h.slots.Slot(i + j)
	}
	h.product.PutAt(at, keys)
}

// PutRecords adds tokens, by their slots, from gathered records: each holds up to 16 of the tokens in order, and of each KV
// head the keys in a page of layout l, headBytes apart.
func (x *Index) PutRecords(tokens []int32, data []byte, l kvpage.Layout, headBytes int) {
	record, key := len(x.heads)*headBytes, make([]float32, l.KeyDim)
	for i, token := range tokens {
		b := data[i/kvpage.Tile*record:][:record]
		for g := range x.heads {
			kvpage.ReadK(l, b[g*headBytes:(g+1)*headBytes], i%kvpage.Tile, key)
			h := &x.heads[g]
			h.addKey(int(h.slots.Slot(int(token))), key)
		}
	}
}
