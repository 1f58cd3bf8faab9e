package vulkan

import (
	"fmt"
	"unsafe"
)

// Memory is a buffer in memory of its own.
type Memory struct {
	Address uint64 // for kernels
	Size    int64
	Bytes   []byte // what the host sees of it; nil = nothing
	d       *Device
	buffer  uint64
	memory  uint64
}

// Allocate gives bytes on the device. Errors wrap ErrMemory where there are not as many.
func (d *Device) Allocate(size int64) (*Memory, error) {
	return d.allocate(size, []uint32{memoryOwn, 0})
}

// Staging gives bytes that host and device see, for transfers.
func (d *Device) Staging(size int64) (*Memory, error) {
	m, err := d.allocate(size, []uint32{hostVisible | coherent | cached, hostVisible | coherent})
	if err != nil {
		return nil, err
	}
	var at unsafe.Pointer
	if err := failed("vkMapMemory", call(d.f.mapMemory, d.handle, uintptr(m.memory), 0, uintptr(size), 0, uintptr(unsafe.Pointer(&at)))); err != nil {
		m.Free()
		return nil, err
	}
	m.Bytes = unsafe.Slice((*byte)(at), size)
	return m, nil
}

// allocate tries the memory types that have all flags of a wish, wish by wish.
func (d *Device) allocate(size int64, wishes []uint32) (*Memory, error) {
	m := &Memory{d: d, Size: size}
	info := &bufferInfo{header: header{kind: kindBuffer}, size: uint64(size), usage: usage}
	if shared := d.copies.shared; len(shared) > 1 { // families that take turns without handing buffers over
		info.sharing, info.families, info.familyList = 1, uint32(len(shared)), unsafe.Pointer(&shared[0])
	}
	if err := failed("vkCreateBuffer", call(d.f.createBuffer, d.handle, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&m.buffer)))); err != nil {
		return nil, err
	}
	var need requirements
	call(d.f.requirements, d.handle, uintptr(m.buffer), uintptr(unsafe.Pointer(&need)))
	err := fmt.Errorf("vulkan: %s has no memory of the kind wanted: %w", d.Name, ErrMemory)
	flags := &allocateFlags{header: header{kind: kindAllocateFlags}, flags: 2} // addressed
	for _, t := range d.types(need.types, wishes) {
		if int64(need.size) > int64(d.p.memory.heap[d.p.memory.typed[t].heap].size) {
			err = fmt.Errorf("vulkan: %s has %d bytes of memory, %d are wanted at once: %w", d.Name, d.p.memory.heap[d.p.memory.typed[t].heap].size, need.size, ErrMemory)
			continue
		}
		want := &allocateInfo{header: header{kind: kindAllocate, next: unsafe.Pointer(flags)}, size: need.size, typ: uint32(t)}
		if err = failed("vkAllocateMemory", call(d.f.allocate, d.handle, uintptr(unsafe.Pointer(want)), 0, uintptr(unsafe.Pointer(&m.memory)))); err == nil {
			break
		}
		err = fmt.Errorf("%w (%d bytes on %s)", err, size, d.Name)
	}
	if err == nil {
		err = failed("vkBindBufferMemory", call(d.f.bindMemory, d.handle, uintptr(m.buffer), uintptr(m.memory), 0))
	}
	if err != nil {
		m.Free()
		return nil, err
	}
	m.Address = uint64(call(d.f.bufferAddress, d.handle, uintptr(unsafe.Pointer(&addressInfo{header: header{kind: kindAddress}, buffer: m.buffer}))))
	d.memory[m] = true
	return m, nil
}

// types are the memory types of a mask that fulfil a wish, the first wish's first.
func (d *Device) types(mask uint32, wishes []uint32) (list []int) {
	seen := uint32(0)
	for _, w := range wishes {
		for t := range int(d.p.memory.types) {
			if bit := uint32(1) << t; mask&bit != 0 && seen&bit == 0 && d.p.memory.typed[t].flags&w == w {
				seen |= bit
				list = append(list, t)
			}
		}
	}
	return list
}

// Free gives the bytes back; nothing submitted may use them any more.
func (m *Memory) Free() {
	delete(m.d.memory, m)
	call(m.d.f.destroyBuffer, m.d.handle, uintptr(m.buffer), 0)
	if m.memory != 0 {
		call(m.d.f.free, m.d.handle, uintptr(m.memory), 0) // which unmaps it
	}
	m.Bytes = nil
}
