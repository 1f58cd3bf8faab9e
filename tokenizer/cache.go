package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// wordCache remembers the ids of words already encoded. It is a fixed array of
// slots indexed by hash, each replaced as a whole, so it needs no lock, never
// grows past cacheSlots entries of cacheWordMaxBytes (about 8 MB when full),
// and a lost race costs one more encoding and nothing else.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

const (
	cacheSlots        = 1 << 15
	cacheWordMaxBytes = 48
)

type cachedWord struct {
	word string
	ids  []int32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

// get returns the ids of word when they are cached, and the slot to put them
// in when they are not.
func (c *wordCache) get(word string) (ids []int32, slot *atomic.Pointer[cachedWord], ok bool) {
	slot = &c.slots[maphash.String(c.seed, word)%cacheSlots]
	if e := slot.Load(); e != nil && e.word == word {
		return e.ids, slot, true
	}
	return nil, slot, false
}
