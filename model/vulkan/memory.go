package vulkan

import (
	"gorgonia.org/tensor"

	"terrace/internal/vulkan"
)

// span is a part of a device's buffer.
type span struct {
	m        *vulkan.Memory
	at, size int64
}

func (s span) absent() bool { return s.m == nil }

// address is what kernels find it by; 0 where there is none.
func (s span) address() uint64 {
	if s.absent() {
		return 0
	}
	return s.m.Address + uint64(s.at)
}

// from is the span behind its first bytes.
func (s span) from(bytes int) span { return span{s.m, s.at + int64(bytes), s.size - int64(bytes)} }

// slabBytes is how much is asked of the device at a time: drivers allow some thousands of allocations.
const slabBytes = 32 << 20

// heap cuts slabs into pieces. Freed pieces are given out again for the same size.
type heap struct {
	d     *vulkan.Device
	free  map[int64][]span
	slab  span // what is left of the newest
	bytes int64
}

// alloc gives a span of at least so many bytes, on a boundary of 256, with room behind it for a kernel that reads whole words.
func (h *heap) alloc(bytes int64) (span, error) {
	size := (bytes + 16 + 255) &^ 255
	if list := h.free[size]; len(list) > 0 {
		s := list[len(list)-1]
		h.free[size] = list[:len(list)-1]
		return s, nil
	}
	if size > h.slab.size {
		m, err := h.d.Allocate(max(size, slabBytes))
		if err != nil {
			return span{}, err
		}
		h.bytes += m.Size
		if m.Size-size < h.slab.size { // the old one has more left
			return span{m, 0, size}, nil
		}
		h.slab = span{m, 0, m.Size}
	}
	s := span{h.slab.m, h.slab.at, size}
	h.slab = h.slab.from(int(size))
	return s, nil
}

// release takes a span back (invariant 2).
func (h *heap) release(s span) {
	if !s.absent() {
		h.free[s.size] = append(h.free[s.size], s)
	}
}

// slot is the place of one call's result or of scratch: it holds until the call's next one.
type slot struct {
	on   span
	host *vulkan.Memory // staging for reading it
	h    *held
	data []float32
}

// room makes the slot hold so many numbers on the device.
func (s *slot) room(b *recorder, numbers int) (span, error) {
	if need := int64(4 * numbers); s.on.absent() || s.on.size < need+16 {
		b.heap.release(s.on)
		var err error
		if s.on, err = b.heap.alloc(need + need/4); err != nil {
			s.on = span{}
			return span{}, err
		}
	}
	return s.on, nil
}

// held is the engine of a tensor that stays on the device until its values are read (model.Remote).
type held struct {
	tensor.StdEng
	b       *recorder
	s       *slot
	on      span
	host    []float32
	batch   int64 // in which the copy to the slot's staging memory was recorded; 0 = it was not
	fetched bool
	wrote   bool
}

// tensor is the slot as a tensor [n, cols].
func (s *slot) tensor(b *recorder, n, cols int) *tensor.Dense {
	if cap(s.data) < n*cols {
		s.data = make([]float32, n*cols)
	}
	s.h = &held{b: b, s: s, on: s.on, host: s.data[:n*cols]}
	return tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(s.h.host), tensor.WithEngine(s.h))
}

// Fetch implements model.Remote.
func (h *held) Fetch() error {
	h.b.mu.Lock()
	defer h.b.mu.Unlock()
	_, err := h.now()
	return err
}

// now reads the values; the recorder is locked.
func (h *held) now() ([]float32, error) {
	if h.fetched || h.wrote {
		return h.host, nil
	}
	if h.batch == 0 {
		if err := h.bring(); err != nil {
			return nil, err
		}
	}
	if h.batch == h.b.batch {
		if err := h.b.submit(); err != nil {
			return nil, err
		}
	}
	copy(h.host, vulkan.Floats(h.s.host.Bytes))
	h.fetched = true
	return h.host, nil
}

// bring records the copy to staging memory, so that the next submission has it.
func (h *held) bring() error {
	bytes := int64(4 * len(h.host))
	if h.s.host == nil || h.s.host.Size < bytes {
		if h.s.host != nil {
			if err := h.b.submit(); err != nil {
				return err
			}
			h.s.host.Free()
			h.s.host = nil
		}
		m, err := h.b.d.Staging(bytes + bytes/4)
		if err != nil {
			return err
		}
		h.s.host = m
	}
	h.b.use.DownBytes += bytes
	h.batch = h.b.batch
	return h.b.copy(span{h.s.host, 0, bytes}, span{h.on.m, h.on.at, bytes})
}

// Wrote implements model.Remote.
func (h *held) Wrote() { h.wrote = true }
