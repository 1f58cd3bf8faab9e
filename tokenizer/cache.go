package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// wordCache remembers the ids of words already encoded. It is a fixed array of
// slots, two for every hash, each replaced as a whole, so it needs no lock,
// never grows past cacheSlots entries of cacheWordMaxBytes (about 10 MB when
// full), and a lost race costs one more encoding and nothing else.
type wordCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedWord]
}

const (
	cacheSlots        = 1 << 16
	cacheWordMaxBytes = 48
)

type cachedWord struct {
	word string
	ids  []int32
}

func newWordCache() *wordCache { return &wordCache{seed: maphash.MakeSeed()} }

// get returns the ids of word when they are cached, and the slot to put them
// in when they are not: the empty one of its two, else the one that another bit
// of the hash names.
func (c *wordCache) get(word string) (ids []int32, slot *atomic.Pointer[cachedWord], ok bool) {
	hash := maphash.String(c.seed, word)
	pair := c.slots[hash%(cacheSlots/2)*2:][:2]
	first := pair[0].Load()
	if first != nil && first.word == word {
		return first.ids, nil, true
	}
	second := pair[1].Load()
	if second != nil && second.word == word {
		return second.ids, nil, true
	}
	switch {
	case first == nil:
		return nil, &pair[0], false
	case second == nil:
		return nil, &pair[1], false
	}
	return nil, &pair[hash>>63], false
}
