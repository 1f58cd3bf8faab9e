package vulkan

import (
	"errors"
	"fmt"
	"unsafe"
)

// record begins the command buffer if nothing has been recorded since the last Submit.
func (d *Device) record() error {
	if d.lost != nil || d.open {
		return d.lost
	}
	if err := d.check("vkResetCommandPool", call(d.f.resetPool, d.handle, uintptr(d.pool), 0)); err != nil {
		return err
	}
	const once = 1
	if err := d.check("vkBeginCommandBuffer", call(d.f.begin, d.buffer, uintptr(unsafe.Pointer(&beginInfo{header: header{kind: kindBegin}, flags: once})))); err != nil {
		return err
	}
	d.open = true
	return nil
}

// check remembers that the device is lost.
func (d *Device) check(name string, code uintptr) error {
	err := failed(name, code)
	if err != nil {
		err = fmt.Errorf("%w (%s)", err, d.Name)
	}
	if errors.Is(err, ErrLost) {
		d.lost = err
	}
	return err
}

// Dispatch records x·y·z work groups of a kernel with its push constants, at most MaxPush bytes. Kernels recorded one after the
// other may run together: see Barrier.
func (d *Device) Dispatch(k *Kernel, push []byte, x, y, z int) error {
	if len(push) > MaxPush || len(push)%4 != 0 || min(x, y, z) < 1 || max(x, y, z) > d.GroupsAcross {
		return fmt.Errorf("vulkan: kernel %s: %d bytes of push constants and %d·%d·%d groups, want at most %d and 1 to %d", k.name, len(push), x, y, z, MaxPush, d.GroupsAcross)
	}
	if err := d.record(); err != nil {
		return err
	}
	call(d.f.bindPipeline, d.buffer, bindCompute, uintptr(k.pipeline))
	if len(push) > 0 {
		call(d.f.pushConstants, d.buffer, uintptr(d.layout), stageCompute, 0, uintptr(len(push)), uintptr(unsafe.Pointer(&push[0])))
	}
	call(d.f.dispatch, d.buffer, uintptr(x), uintptr(y), uintptr(z))
	return nil
}

// Copy records a copy of n bytes.
func (d *Device) Copy(to *Memory, at int64, from *Memory, fromAt, n int64) error {
	if at < 0 || fromAt < 0 || n < 1 || at+n > to.Size || fromAt+n > from.Size {
		return fmt.Errorf("vulkan: copy of %d bytes from %d of %d to %d of %d", n, fromAt, from.Size, at, to.Size)
	}
	if err := d.record(); err != nil {
		return err
	}
	region := &bufferCopy{uint64(fromAt), uint64(at), uint64(n)}
	call(d.f.copyBuffer, d.buffer, uintptr(from.buffer), uintptr(to.buffer), 1, uintptr(unsafe.Pointer(region)))
	return nil
}

// Barrier records that what follows sees what was recorded before.
func (d *Device) Barrier() error {
	if err := d.record(); err != nil {
		return err
	}
	b := &memoryBarrier{header: header{kind: kindBarrier}, from: shaderWrite | transferWrite, to: shaderRead | shaderWrite | transferRead | transferWrite}
	call(d.f.barrier, d.buffer, pipelineCompute|pipelineTransfer, pipelineCompute|pipelineTransfer, 0, 1, uintptr(unsafe.Pointer(b)), 0, 0, 0, 0)
	return nil
}

// Submit has the device do what was recorded, and waits for it; the host then sees what was copied to staging memory.
func (d *Device) Submit() error {
	if d.lost != nil || !d.open {
		return d.lost
	}
	d.open = false
	b := &memoryBarrier{header: header{kind: kindBarrier}, from: shaderWrite | transferWrite, to: hostRead}
	call(d.f.barrier, d.buffer, pipelineCompute|pipelineTransfer, pipelineHost, 0, 1, uintptr(unsafe.Pointer(b)), 0, 0, 0, 0)
	if err := d.check("vkEndCommandBuffer", call(d.f.end, d.buffer)); err != nil {
		return err
	}
	buffer := d.buffer
	info := &submitInfo{header: header{kind: kindSubmit}, buffers: 1, commandBuffers: &buffer}
	if err := d.check("vkQueueSubmit", call(d.f.submit, d.queue, 1, uintptr(unsafe.Pointer(info)), uintptr(d.fence))); err != nil {
		return err
	}
	fence := d.fence
	const all, forever = 1, ^uintptr(0)
	if err := d.check("vkWaitForFences", call(d.f.waitForFences, d.handle, 1, uintptr(unsafe.Pointer(&fence)), all, forever)); err != nil {
		return err
	}
	return d.check("vkResetFences", call(d.f.resetFences, d.handle, 1, uintptr(unsafe.Pointer(&fence))))
}

// Abandon forgets what was recorded and not submitted.
func (d *Device) Abandon() { d.open = false }
