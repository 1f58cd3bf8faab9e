package vulkan

import (
	"fmt"
	"unsafe"
)

// queueTransfer and queueGraphics are flags of queue families.
const (
	queueGraphics = 1
	queueTransfer = 4
)

// Stream is a second line of copies, which run beside the device's other commands: on a queue that does nothing but copy where the device has
// one, else on a second queue, else behind what was submitted. Who calls takes care that nothing submitted uses the bytes meanwhile.
type Stream struct {
	d      *Device
	queue  uintptr
	pool   uint64
	buffer uintptr
	fence  uint64
	open   bool // copies are being recorded
	flying bool // and were submitted
}

// beside chooses the queue of a stream for a device that computes on the first queue of a family.
func beside(families []queueFamily, computes int) (family, index int) {
	for i, q := range families {
		if q.flags&queueTransfer != 0 && q.flags&(queueGraphics|queueCompute) == 0 && q.count > 0 {
			return i, 0
		}
	}
	return computes, min(1, int(families[computes].count)-1)
}

// Stream makes the device's stream; it is the device's to close.
func (d *Device) Stream() (*Stream, error) {
	s := &Stream{d: d, queue: d.queue}
	call(d.f.getQueue, d.handle, uintptr(d.copies.family), uintptr(d.copies.index), uintptr(unsafe.Pointer(&s.queue)))
	pool := &poolInfo{header: header{kind: kindCommandPool}, family: uint32(d.copies.family)}
	if err := failed("vkCreateCommandPool", call(d.f.createPool, d.handle, uintptr(unsafe.Pointer(pool)), 0, uintptr(unsafe.Pointer(&s.pool)))); err != nil {
		return nil, err
	}
	d.copies.streams = append(d.copies.streams, s)
	buffer := &commandBufferInfo{header: header{kind: kindCommandBuffer}, pool: s.pool, count: 1}
	if err := failed("vkAllocateCommandBuffers", call(d.f.allocateCommands, d.handle, uintptr(unsafe.Pointer(buffer)), uintptr(unsafe.Pointer(&s.buffer)))); err != nil {
		return nil, err
	}
	fence := &fenceInfo{header: header{kind: kindFence}}
	return s, failed("vkCreateFence", call(d.f.createFence, d.handle, uintptr(unsafe.Pointer(fence)), 0, uintptr(unsafe.Pointer(&s.fence))))
}

// Copy records a copy of n bytes, which runs together with the others. Nothing may be on its way (Wait).
func (s *Stream) Copy(to *Memory, at int64, from *Memory, fromAt, n int64) error {
	switch {
	case s.flying:
		return fmt.Errorf("vulkan: a copy is recorded while others of the stream are on their way")
	case at < 0 || fromAt < 0 || n < 1 || at+n > to.Size || fromAt+n > from.Size:
		return fmt.Errorf("vulkan: copy of %d bytes from %d of %d to %d of %d", n, fromAt, from.Size, at, to.Size)
	case s.d.lost != nil:
		return s.d.lost
	}
	if !s.open {
		if err := s.d.check("vkResetCommandPool", call(s.d.f.resetPool, s.d.handle, uintptr(s.pool), 0)); err != nil {
			return err
		}
		const once = 1
		if err := s.d.check("vkBeginCommandBuffer", call(s.d.f.begin, s.buffer, uintptr(unsafe.Pointer(&beginInfo{header: header{kind: kindBegin}, flags: once})))); err != nil {
			return err
		}
		s.open = true
	}
	region := &bufferCopy{uint64(fromAt), uint64(at), uint64(n)}
	call(s.d.f.copyBuffer, s.buffer, uintptr(from.buffer), uintptr(to.buffer), 1, uintptr(unsafe.Pointer(region)))
	return nil
}

// Start has the copies made that were recorded, and does not wait for them.
func (s *Stream) Start() error {
	if s.d.lost != nil || !s.open {
		return s.d.lost
	}
	s.open = false
	if err := s.d.check("vkEndCommandBuffer", call(s.d.f.end, s.buffer)); err != nil {
		return err
	}
	buffer := s.buffer
	info := &submitInfo{header: header{kind: kindSubmit}, buffers: 1, commandBuffers: &buffer}
	if err := s.d.check("vkQueueSubmit", call(s.d.f.submit, s.queue, 1, uintptr(unsafe.Pointer(info)), uintptr(s.fence))); err != nil {
		return err
	}
	s.flying = true
	return nil
}

// Flying reports whether copies are on their way, as far as anybody has waited for them.
func (s *Stream) Flying() bool { return s.flying }

// Wait waits for the copies that were started: what is submitted afterwards sees them behind a Barrier.
func (s *Stream) Wait() error {
	if !s.flying || s.d.lost != nil {
		return s.d.lost
	}
	s.flying = false
	fence := s.fence
	const all, forever = 1, ^uintptr(0)
	if err := s.d.check("vkWaitForFences", call(s.d.f.waitForFences, s.d.handle, 1, uintptr(unsafe.Pointer(&fence)), all, forever)); err != nil {
		return err
	}
	return s.d.check("vkResetFences", call(s.d.f.resetFences, s.d.handle, 1, uintptr(unsafe.Pointer(&fence))))
}

// close destroys what the stream is made of, once the device is idle.
func (s *Stream) close() {
	if s.fence != 0 {
		call(s.d.f.destroyFence, s.d.handle, uintptr(s.fence), 0)
	}
	call(s.d.f.destroyPool, s.d.handle, uintptr(s.pool), 0)
}
