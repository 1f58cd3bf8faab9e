package tokencache

import (
	"slices"

	"terrace/kvmanager"
	"terrace/kvmanager/slab"
)

// chunkSlots is how many slots a shard grows by.
const chunkSlots = 64

// slotIndexBytes is the memory that a shard keeps of a slot beside its bytes.
const slotIndexBytes = 16

// slots is what all shards of a cache share: memory, its account, the limit and the step.
type slots struct {
	m       *kvmanager.Manager
	pools   []*pool
	charged int64
	limit   int // slots a shard may have
	step    uint32
}

// pool is the memory of shards whose slots have one size.
type pool struct {
	*slots
	g   *geometry
	mem slab.Pages // the shards' chunks
}

// pool is that of a geometry.
func (p *slots) pool(g *geometry) *pool {
	for _, x := range p.pools {
		if x.g == g {
			return x
		}
	}
	x := &pool{slots: p, g: g, mem: slab.New(slab.WholeSystemPages(chunkSlots*g.slotBytes), 0)}
	p.pools = append(p.pools, x)
	return x
}

// releaseMemory gives the memory of free chunks back to the system.
func (p *slots) releaseMemory() {
	for _, x := range p.pools {
		x.mem.Release()
	}
}

func (p *slots) close() {
	for _, x := range p.pools {
		x.mem.Close()
	}
}

// charge counts memory of the cache against the manager's budget.
func (p *slots) charge(bytes int64) error {
	if err := p.m.Charge(bytes); err != nil {
		return err
	}
	p.charged += bytes
	return nil
}

func (p *slots) refund(bytes int64) {
	p.m.Refund(bytes)
	p.charged -= bytes
}

// chunkBytes is the memory of a chunk of slots and what is noted of them.
func (p *pool) chunkBytes() int64 { return int64(p.mem.PageBytes()) + slotIndexBytes*chunkSlots }

// shard is the cache of one layer (and KV head).
type shard struct {
	of       *pool
	chunks   []slab.Ref
	bytes    [][]byte  // their memory
	at       []int32   // [granules] slot, or -1
	owner    []int32   // [slots] granule, or -1
	lastUse  []uint32  // [slots] step
	priority []float32 // [slots] the lowest gives way first
	free     []int32
	absorbed int // blocks that were taken in when they were complete

	scored  bool    // its last selection was made from scores: priorities are measured by them
	misses  int     // slots that this step's selection wants beside those it found
	victims []int32 // slots that give way, lowest priority first
	next    int     // of them
}

// cover makes the shard's table cover granules.
func (s *shard) cover(granules int) error {
	if granules <= len(s.at) {
		return nil
	}
	granules += granules/8 + 64
	if err := s.of.charge(int64(4 * (granules - len(s.at)))); err != nil {
		return err
	}
	at := make([]int32, granules)
	for i := copy(at, s.at); i < granules; i++ {
		at[i] = -1
	}
	s.at = at
	return nil
}

// has reports whether a token, by index, is in a slot; the table covers it.
func (s *shard) has(index int32) bool { return s.at[index/int32(s.of.g.granule)] >= 0 }

// slot is the memory of a slot.
func (s *shard) slot(i int32) []byte {
	size := s.of.g.slotBytes
	at := int(i) % chunkSlots * size
	return s.bytes[int(i)/chunkSlots][at : at+size : at+size]
}

// place finds a slot for a granule: a free one, a new one where the limit and the budget allow, or that of the granule with
// the lowest priority. -1 = there is none.
func (s *shard) place(granule int32, priority float32) int32 {
	i := s.vacant()
	if i < 0 {
		return -1
	}
	if old := s.owner[i]; old >= 0 {
		s.at[old] = -1
	}
	s.owner[i], s.at[granule], s.lastUse[i], s.priority[i] = granule, i, s.of.step, priority
	return i
}

// fewestVictims is how many slots are listed at a time to give way.
const fewestVictims = 16

func (s *shard) vacant() int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		return i
	}
	if len(s.owner)+chunkSlots <= s.of.limit+chunkSlots/2 && s.addChunk() {
		return s.vacant()
	}
	for again := false; ; again = true {
		for s.next < len(s.victims) {
			i := s.victims[s.next]
			s.next++
			if s.lastUse[i] < s.of.step { // invariant 2
				return i
			}
		}
		if again {
			return -1
		}
		s.listVictims(max(s.misses, fewestVictims))
	}
}

// addChunk adds slots to a shard where the budget has room that nothing else wants.
func (s *shard) addChunk() bool {
	p := s.of
	size := p.chunkBytes()
	if p.m.Room(size+int64(p.m.BlockBytes())*4) != nil || p.charge(size) != nil {
		return false
	}
	chunk, err := p.mem.Take()
	if err != nil {
		p.refund(size)
		return false
	}
	first := int32(len(s.owner))
	s.chunks, s.bytes = append(s.chunks, chunk), append(s.bytes, p.mem.Data(chunk))
	for i := range int32(chunkSlots) {
		s.owner, s.lastUse, s.priority = append(s.owner, -1), append(s.lastUse, 0), append(s.priority, 0)
		s.free = append(s.free, first+chunkSlots-1-i)
	}
	return true
}

// dropChunk gives a shard's last chunk back, with what is in it.
func (s *shard) dropChunk() {
	last := len(s.chunks) - 1
	first := int32(last * chunkSlots)
	for _, granule := range s.owner[first:] {
		if granule >= 0 {
			s.at[granule] = -1
		}
	}
	s.owner, s.lastUse, s.priority = s.owner[:first], s.lastUse[:first], s.priority[:first]
	s.forgetVictims()
	s.free = slices.DeleteFunc(s.free, func(i int32) bool { return i >= first })
	s.of.mem.Drop(s.chunks[last])
	s.chunks, s.bytes = s.chunks[:last], s.bytes[:last]
	s.of.refund(s.of.chunkBytes())
}

// forget frees the slot of a granule, if it has one.
func (s *shard) forget(granule int32) {
	if int(granule) >= len(s.at) || s.at[granule] < 0 {
		return
	}
	i := s.at[granule]
	s.forgetVictims()
	s.at[granule], s.owner[i] = -1, -1
	s.free = append(s.free, i)
}

// used notes that this step reads a slot.
func (s *shard) used(slot int32) {
	s.lastUse[slot] = s.of.step
	if !s.scored {
		s.priority[slot] = float32(s.of.step)
	}
}

// freshPriority is the priority of a token that nothing is known of: as if it had just been needed.
func (s *shard) freshPriority() float32 {
	if s.scored {
		return 0
	}
	return float32(s.of.step)
}
