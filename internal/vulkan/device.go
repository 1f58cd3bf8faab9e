package vulkan

import (
	"fmt"
	"unsafe"
)

// Flags of Vulkan.
const (
	heapOwn     = 1 // of the device itself
	memoryOwn   = 1
	hostVisible = 2
	coherent    = 4
	cached      = 8

	queueCompute = 2

	stageCompute = 0x20 // of a shader
	bindCompute  = 1

	usage = 1 | 2 | 32 | 0x20000 // copied from and to, stored to, addressed

	pipelineCompute, pipelineTransfer, pipelineHost = 0x800, 0x1000, 0x4000
	shaderRead, shaderWrite                         = 32, 64
	transferRead, transferWrite                     = 0x800, 0x1000
	hostRead, hostWrite                             = 0x2000, 0x4000
)

// Device is an opened device with one queue that computes, and streams of copies (Stream).
type Device struct {
	Info
	p      *Physical
	f      *functions
	handle uintptr
	queue  uintptr
	layout uint64 // push constants, of every kernel
	pool   uint64
	buffer uintptr // of commands
	fence  uint64
	open   bool // commands are being recorded
	lost   error
	memory map[*Memory]bool
	kernel []*Kernel
	copies copying
}

// copying is what streams of copies share.
type copying struct {
	family, index int      // their queue
	shared        []uint32 // families that use the same buffers; nil = one
	streams       []*Stream
}

// MaxPush is how many bytes of push constants every device takes.
const MaxPush = 128

// lacks is what a device needs and does not have.
func (p *Physical) lacks() string {
	switch {
	case p.version < apiVersion:
		return "Vulkan 1.2, it has " + p.API
	case !p.BufferAddress:
		return "buffer addresses (bufferDeviceAddress)"
	case !p.SubgroupSums:
		return "sums over subgroups"
	case p.PushBytes < MaxPush || p.Invocations < 256 || p.SharedBytes < 16<<10:
		return fmt.Sprintf("work groups of 256 with 16 KiB and %d bytes of push constants, it has %d, %d bytes and %d", MaxPush, p.Invocations, p.SharedBytes, p.PushBytes)
	}
	return ""
}

// Open makes a device ready to compute. A device that lacks what kernels need is ErrNoDevice, naming it.
func (p *Physical) Open() (*Device, error) {
	if what := p.lacks(); what != "" {
		return nil, fmt.Errorf("vulkan: %s lacks %s: %w", p.Name, what, ErrNoDevice)
	}
	family := -1
	for i, q := range p.families {
		if q.flags&queueCompute != 0 && q.count > 0 {
			family = i
			break
		}
	}
	if family < 0 {
		return nil, fmt.Errorf("vulkan: %s has no queue that computes: %w", p.Name, ErrNoDevice)
	}
	d := &Device{Info: p.Info, p: p, f: &p.i.f, memory: map[*Memory]bool{}}
	priorities := []float32{1, 1}
	queues := []queueInfo{{header: header{kind: kindQueue}, family: uint32(family), count: 1, priorities: &priorities[0]}}
	d.copies.family, d.copies.index = beside(p.families, family)
	if d.copies.family == family {
		queues[0].count += uint32(d.copies.index)
	} else {
		queues = append(queues, queueInfo{header: header{kind: kindQueue}, family: uint32(d.copies.family), count: 1, priorities: &priorities[0]})
		d.copies.shared = []uint32{uint32(family), uint32(d.copies.family)}
	}
	f12 := &features12{header: header{kind: kindFeatures12}, bufferAddress: 1}
	f2 := &features2{header: header{kind: kindFeatures2, next: unsafe.Pointer(f12)}}
	info := &deviceInfo{header: header{kind: kindDevice, next: unsafe.Pointer(f2)}, queues: uint32(len(queues)), queueInfos: &queues[0]}
	if err := failed("vkCreateDevice", call(d.f.createDevice, p.handle, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&d.handle)))); err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	call(d.f.getQueue, d.handle, uintptr(family), 0, uintptr(unsafe.Pointer(&d.queue)))
	if err := d.prepare(family); err != nil {
		d.Close()
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return d, nil
}

// prepare makes what every command needs.
func (d *Device) prepare(family int) error {
	pushed := &pushRange{stages: stageCompute, size: MaxPush}
	layout := &layoutInfo{header: header{kind: kindPipelineLayout}, ranges: 1, pushRanges: pushed}
	if err := failed("vkCreatePipelineLayout", call(d.f.createLayout, d.handle, uintptr(unsafe.Pointer(layout)), 0, uintptr(unsafe.Pointer(&d.layout)))); err != nil {
		return err
	}
	pool := &poolInfo{header: header{kind: kindCommandPool}, family: uint32(family)}
	if err := failed("vkCreateCommandPool", call(d.f.createPool, d.handle, uintptr(unsafe.Pointer(pool)), 0, uintptr(unsafe.Pointer(&d.pool)))); err != nil {
		return err
	}
	buffer := &commandBufferInfo{header: header{kind: kindCommandBuffer}, pool: d.pool, count: 1}
	if err := failed("vkAllocateCommandBuffers", call(d.f.allocateCommands, d.handle, uintptr(unsafe.Pointer(buffer)), uintptr(unsafe.Pointer(&d.buffer)))); err != nil {
		return err
	}
	fence := &fenceInfo{header: header{kind: kindFence}}
	return failed("vkCreateFence", call(d.f.createFence, d.handle, uintptr(unsafe.Pointer(fence)), 0, uintptr(unsafe.Pointer(&d.fence))))
}

// Close frees the device with its memory and kernels.
func (d *Device) Close() {
	call(d.f.waitIdle, d.handle)
	for m := range d.memory {
		m.Free()
	}
	for _, k := range d.kernel {
		call(d.f.destroyPipeline, d.handle, uintptr(k.pipeline), 0)
	}
	for _, s := range d.copies.streams {
		s.close()
	}
	if d.fence != 0 {
		call(d.f.destroyFence, d.handle, uintptr(d.fence), 0)
	}
	if d.pool != 0 {
		call(d.f.destroyPool, d.handle, uintptr(d.pool), 0)
	}
	if d.layout != 0 {
		call(d.f.destroyLayout, d.handle, uintptr(d.layout), 0)
	}
	call(d.f.destroyDevice, d.handle, 0)
}
