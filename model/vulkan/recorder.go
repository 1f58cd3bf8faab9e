package vulkan

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"terrace/internal/vulkan"
	"terrace/model"
)

const (
	stagingBytes = 8 << 20
	smallBytes   = 1 << 10 // kernels read less than that where it is staged; more is copied to the device first
)

// recorder records kernels and transfers for a device and submits them together.
type recorder struct {
	mu      sync.Mutex
	d       *vulkan.Device
	built   pipelines
	heap    heap
	staging *vulkan.Memory
	inputs  *vulkan.Memory // staged bytes on the device, at the same places
	staged  int64
	batch   int64 // number of the command buffer that is being recorded
	last    kindOfCommand
	beside  bool // the next kernel needs nothing of the one before
	use     model.DeviceUse
	done    func() // closes the device
}

type kindOfCommand uint8

const (
	nothing kindOfCommand = iota
	kernelRan
	copied
)

func newRecorder(d *vulkan.Device) (*recorder, error) {
	r := &recorder{d: d, built: pipelines{}, heap: heap{d: d, free: map[int64][]span{}}, batch: 1}
	var err error
	if r.staging, err = d.Staging(stagingBytes); err == nil {
		r.inputs, err = d.Allocate(stagingBytes)
	}
	return r, err
}

// run records a kernel of x·y·z work groups.
func (r *recorder) run(name string, p push, x, y, z int, constants ...uint32) error {
	k, err := r.built.get(r.d, name, constants...)
	if err == nil && !(r.beside && r.last == kernelRan) {
		err = r.d.Barrier()
	}
	r.beside, r.last = false, kernelRan
	if err == nil {
		err = r.d.Dispatch(k, p, x, y, z)
	}
	return deviceError(err)
}

// copy records a copy; copies that follow each other may run together.
func (r *recorder) copy(to, from span) error {
	if r.last != copied {
		if err := r.d.Barrier(); err != nil {
			return deviceError(err)
		}
	}
	r.last = copied
	return deviceError(r.d.Copy(to.m, to.at, from.m, from.at, from.size))
}

// submit has everything done that was recorded.
func (r *recorder) submit() error {
	begun := time.Now()
	err := r.d.Submit()
	r.use.Compute += time.Since(begun)
	r.batch++
	r.staged, r.last = 0, nothing
	return deviceError(err)
}

// stage copies bytes to staging memory; they are counted as uploaded.
func (r *recorder) stage(data []byte) (span, error) {
	if r.staged+int64(len(data)) > stagingBytes {
		if err := r.submit(); err != nil {
			return span{}, err
		}
	}
	s := span{r.staging, r.staged, int64(len(data))}
	copy(r.staging.Bytes[r.staged:], data)
	r.staged += int64(len(data)+255) &^ 255
	return s, nil
}

// upload records the copy of bytes to the device.
func (r *recorder) upload(to span, data []byte) error {
	for at := 0; at < len(data); {
		n := min(len(data)-at, stagingBytes/2)
		s, err := r.stage(data[at : at+n])
		if err == nil {
			err = r.copy(to.from(at), s)
		}
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// give has kernels recorded before the next submission read bytes. Those of one call must be given before its kernels are recorded, and fit
// the staging memory together (reserve).
func (r *recorder) give(data []byte) (span, error) {
	if len(data) == 0 {
		return span{r.inputs, 0, 0}, nil
	}
	r.use.UpBytes += int64(len(data))
	s, err := r.stage(data)
	if err != nil || len(data) <= smallBytes {
		return s, err
	}
	to := span{r.inputs, s.at, s.size}
	return to, r.copy(to, s)
}

// reserve makes room for bytes that are given together.
func (r *recorder) reserve(bytes int) error {
	if bytes > stagingBytes {
		return fmt.Errorf("vulkan: %d bytes of inputs to one call, the staging memory has %d: %w", bytes, stagingBytes, model.ErrUnsupported)
	}
	if r.staged+int64(bytes) > stagingBytes {
		return r.submit()
	}
	return nil
}

// deviceError adds the sentinel that decides how a command ends.
func deviceError(err error) error {
	if errors.Is(err, vulkan.ErrMemory) && !errors.Is(err, model.ErrDeviceMemory) {
		return fmt.Errorf("%w: %w", err, model.ErrDeviceMemory)
	}
	return err
}

func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.d.Abandon()
	r.done()
}
