package tokencache

import (
	"errors"

	"terrace/kvmanager"
	"terrace/offload"
)

// staging is buffers for records on their way to a cache.
type staging struct {
	arena []byte
	size  int
	free  []int32
	all   int
}

func (g *staging) init(arena []byte, size int) {
	g.arena, g.size, g.all = arena, size, len(arena)/size
	for i := range int32(g.all) {
		g.free = append(g.free, i)
	}
}

func (g *staging) take() int32 {
	i := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	return i
}

func (g *staging) buffer(i int32) []byte {
	return g.arena[int(i)*g.size : int(i+1)*g.size : int(i+1)*g.size]
}

func (g *staging) close() {
	offload.FreeAligned(g.arena)
	g.arena, g.free = nil, nil
}

// gathering is where single tokens arrive: two layers' at a time, the one that is computed and the next.
type gathering struct {
	on     bool // else whole groups are read
	record int  // bytes of the largest layer's record: the pages of all KV heads, also where heads pick by themselves
	halves [2][]byte
	used   [2]bool
}

// init divides the staging of n records of a shard where the backing store hands out single tokens; it returns what is left for
// whole groups.
func (g *gathering) init(blocks kvmanager.Blocks, geo *geometry, o Options, n int) (groups int) {
	if o.Pages || !blocks.Gathers() {
		return n
	}
	groups = max(4, n/8)
	shards := geo.kvHeads / geo.heads
	each := max((n-groups)/(2*shards), 1)
	g.on, g.record = true, shards*geo.recordBytes()
	for i := range g.halves {
		g.halves[i] = offload.AlignedBytes(each * g.record)
	}
	return groups
}

// half is one that is not used, -1 = both are.
func (g *gathering) half() int {
	for i, used := range g.used {
		if !used {
			return i
		}
	}
	return -1
}

// bytes is the memory that single tokens arrive in.
func (g *gathering) bytes() int64 { return int64(len(g.halves[0]) + len(g.halves[1])) }

func (g *gathering) close() {
	for i := range g.halves {
		if g.halves[i] != nil {
			offload.FreeAligned(g.halves[i])
		}
	}
	*g = gathering{}
}

// tokenReads is the single tokens that one layer's selection lacks.
type tokenReads struct {
	tokens  []int32
	records []int32 // as the backing store numbers those that are being read
	asked   int     // of them that are being read or were
	from    int     // first of those being read
	t       *offload.Ticket
	half    int
}

// end waits for a read. The memory of one that stalls is not used again (invariant 4).
func (w *tokenReads) end(c *Cache) error {
	err := c.blocks.Manager().Await(w.t, w.asked-w.from)
	w.t = nil
	c.gather.used[w.half] = errors.Is(err, kvmanager.ErrStalled)
	return err
}
