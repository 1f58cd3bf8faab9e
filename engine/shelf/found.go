package shelf

import (
	"container/list"

	"terrace/kvmanager/contexts"
)

// rememberedBlocks is how many blocks of prompts are remembered, by their keys: those asked longest ago are forgotten first.
const rememberedBlocks = 1 << 17

// prompts are those that have come, as chains of the keys of their blocks.
type prompts struct {
	through map[contexts.Key]int           // how many go through a block
	ends    map[contexts.Key]*list.Element // by their last block
	order   list.List                      // of []contexts.Key, asked longest ago first
	blocks  int
}

func newPrompts() *prompts {
	return &prompts{through: map[contexts.Key]int{}, ends: map[contexts.Key]*list.Element{}}
}

// shared is how many blocks a prompt begins with that others have begun with.
func (p *prompts) shared(keys []contexts.Key) (n int) {
	for n < len(keys) && p.through[keys[n]] > 0 {
		n++
	}
	return n
}

// leaf reports whether a prompt has ended with a block, and none has gone on behind it.
func (p *prompts) leaf(key contexts.Key) bool { return p.ends[key] != nil && p.through[key] == 1 }

func (p *prompts) remember(keys []contexts.Key) {
	last := keys[len(keys)-1]
	if e := p.ends[last]; e != nil {
		p.order.MoveToBack(e)
		return
	}
	p.ends[last] = p.order.PushBack(keys)
	p.blocks += len(keys)
	for _, k := range keys {
		p.through[k]++
	}
	for p.blocks > rememberedBlocks && p.order.Len() > 1 {
		oldest := p.order.Front().Value.([]contexts.Key)
		p.forget(oldest[len(oldest)-1])
	}
}

// forget forgets the prompt that ended with a block.
func (p *prompts) forget(last contexts.Key) {
	e := p.ends[last]
	if e == nil {
		return
	}
	keys := p.order.Remove(e).([]contexts.Key)
	delete(p.ends, last)
	p.blocks -= len(keys)
	for _, k := range keys {
		if p.through[k]--; p.through[k] == 0 {
			delete(p.through, k)
		}
	}
}
