package stream

import (
	"terrace/internal/kernels"
)

// slots is memory of units, in classes of one size. A class maps memory by the slab; memory that a unit has left is taken by the next
// of its size, and the rest of it is given back to the system when another class grows. Its owner bounds it and guards it. Nil
// slots have no memory to give: all that is taken of them is nil.
//
// What stays lies in one mapping of its own: the system gives huge pages, so that each class's last one is partly empty.
type slots struct {
	classes map[int64]*class
	stays   []byte // room for what stays, yet to be taken
	slabs   [][]byte
}

// reserve makes room for what stays, so many bytes of it.
func (s *slots) reserve(bytes int64) {
	if s != nil && bytes > 0 {
		s.stays = s.slab(bytes)
	}
}

// keep returns memory for what stays.
func (s *slots) keep(size int64) []byte {
	if s == nil {
		return nil
	}
	if int64(len(s.stays)) < size {
		return s.take(size)
	}
	m := s.stays[:size:size]
	s.stays = s.stays[size:]
	return m
}

// slab maps memory, or takes it from the heap where the system maps none.
func (s *slots) slab(bytes int64) []byte {
	data, mapping, err := kernels.MapHuge(int(bytes))
	if err != nil {
		return make([]byte, bytes)
	}
	s.slabs = append(s.slabs, mapping)
	return data
}

type class struct {
	fresh []byte   // of the newest slab, never used
	left  [][]byte // that units have left
	dry   [][]byte // of those, what was given back to the system
}

// slabBytes is how much address space a class maps at a time; untouched memory of it costs nothing.
const slabBytes = 32 << 20

// take returns memory; its content is undefined.
func (s *slots) take(size int64) []byte {
	if s == nil {
		return nil
	}
	if s.classes == nil {
		s.classes = map[int64]*class{}
	}
	c := s.classes[size]
	if c == nil {
		c = &class{}
		s.classes[size] = c
	}
	for _, list := range []*[][]byte{&c.left, &c.dry} {
		if n := len(*list); n > 0 {
			m := (*list)[n-1]
			*list = (*list)[:n-1]
			return m
		}
	}
	s.trim()
	if int64(len(c.fresh)) < size {
		c.fresh = s.slab(max(size, slabBytes/size*size))
	}
	m := c.fresh[:size:size]
	c.fresh = c.fresh[size:]
	return m
}

// give takes memory back from a unit.
func (s *slots) give(m []byte) {
	if s == nil {
		return
	}
	c := s.classes[int64(len(m))]
	if c == nil { // of what was to stay
		return
	}
	c.left = append(c.left, m)
}

// trim gives to the system what no unit is in.
func (s *slots) trim() {
	for _, c := range s.classes {
		for _, m := range c.left {
			kernels.GiveBack(m)
		}
		c.dry, c.left = append(c.dry, c.left...), nil
	}
}

func (s *slots) free() {
	for _, m := range s.slabs {
		kernels.Unmap(m)
	}
	s.slabs, s.classes, s.stays = nil, nil, nil
}
