package tokenizer

import "hash/maphash"

// tokenTable finds an id by its text: an open-addressed table of ids, each with
// 32 bits of its key's hash, whose keys live in the caller's slice. It takes 8
// bytes a slot, is at most half full, builds about four times faster than a Go
// map, does not copy the strings, and answers nearly every "no" without
// touching a key. Immutable once built, so safe for concurrent use.
type tokenTable struct {
	keys  []string
	slots []tokenSlot
	seed  maphash.Seed
	mask  uint64
	// maxKey is the length of the longest key, in bytes: no longer text can
	// be one.
	maxKey int
}

type tokenSlot struct {
	next int32 // id+1, 0 = empty
	tag  uint32
}

// newTokenTable indexes keys for which keep(id) is true (all when nil). On
// equal keys the first id wins and dup names the second one; dup is -1 when
// all differ.
func newTokenTable(keys []string, keep func(id int) bool) (t *tokenTable, dup int) {
	size := 16
	for size < 2*len(keys) {
		size *= 2
	}
	t = &tokenTable{keys: keys, slots: make([]tokenSlot, size), seed: maphash.MakeSeed(), mask: uint64(size - 1)}
	dup = -1
	for id, key := range keys {
		if keep != nil && !keep(id) {
			continue
		}
		hash := maphash.String(t.seed, key)
		slot := t.lookup(key, hash)
		if slot.next != 0 {
			if dup < 0 {
				dup = id
			}
			continue
		}
		*slot = tokenSlot{int32(id) + 1, uint32(hash >> 32)}
		t.maxKey = max(t.maxKey, len(key))
	}
	return t, dup
}

// lookup returns the slot of a key, or the empty one where it would stand.
func (t *tokenTable) lookup(key string, hash uint64) *tokenSlot {
	tag := uint32(hash >> 32)
	for i := hash & t.mask; ; i = (i + 1) & t.mask {
		slot := &t.slots[i]
		if slot.next == 0 || slot.tag == tag && t.keys[slot.next-1] == key {
			return slot
		}
	}
}

// find returns the id of text, or -1.
func (t *tokenTable) find(text string) int32 {
	if len(text) > t.maxKey {
		return -1
	}
	return t.lookup(text, maphash.String(t.seed, text)).next - 1
}

// pairTable maps a pair of neighbouring ids to the rank of their merge and the
// id that it makes: 16 bytes a slot, at most half full, linear probing.
type pairTable struct {
	slots []pairSlot
	shift uint8
}

type pairSlot struct {
	key   uint64 // left<<32 | right, plus one; 0 = empty
	rank  uint32
	token int32
}

func newPairTable(pairs int) *pairTable {
	bits := uint8(4)
	for 1<<bits < 2*pairs {
		bits++
	}
	return &pairTable{slots: make([]pairSlot, 1<<bits), shift: 64 - bits}
}

func pairKey(left, right int32) uint64 {
	return (uint64(uint32(left))<<32 | uint64(uint32(right))) + 1
}

// add stores a merge; the first of equal pairs (the lowest rank) stays.
func (t *pairTable) add(left, right int32, rank uint32, token int32) {
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	for i := key * fibonacci >> t.shift; ; i = (i + 1) & mask {
		if t.slots[i].key == key {
			return
		}
		if t.slots[i].key == 0 {
			t.slots[i] = pairSlot{key, rank, token}
			return
		}
	}
}

const fibonacci = 0x9E3779B97F4A7C15

// noRank is the rank of a pair that does not merge.
const noRank = ^uint32(0)

// find returns the rank and result of merging left and right, or noRank.
func (t *pairTable) find(left, right int32) (rank uint32, token int32) {
	if left < 0 || right < 0 {
		return noRank, -1
	}
	key := pairKey(left, right)
	mask := uint64(len(t.slots) - 1)
	for i := key * fibonacci >> t.shift; ; i = (i + 1) & mask {
		slot := &t.slots[i]
		if slot.key == key {
			return slot.rank, slot.token
		}
		if slot.key == 0 {
			return noRank, -1
		}
	}
}
