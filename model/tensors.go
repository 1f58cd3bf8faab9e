package model

import "gorgonia.org/tensor"

// Remote is the engine of a tensor whose values lie on a device until somebody reads them: what a backend's calls hand to
// each other need not pass through host memory.
type Remote interface {
	tensor.Engine
	// Fetch brings the values to the tensor's backing, once.
	Fetch() error
	// Wrote says that the backing was written: the device's values no longer count.
	Wrote()
}

// Float32s is the row-major backing of a backend's tensor, for reading. A device that fails to deliver it panics with its
// error, which the engine's passes turn into a failed request.
func Float32s(t *tensor.Dense) []float32 {
	if r, ok := t.Engine().(Remote); ok {
		if err := r.Fetch(); err != nil {
			panic(err)
		}
	}
	return t.Float32s()
}

// WritableFloat32s is Float32s for writing: what the backend computes next from the tensor are the values written.
func WritableFloat32s(t *tensor.Dense) []float32 {
	x := Float32s(t)
	if r, ok := t.Engine().(Remote); ok {
		r.Wrote()
	}
	return x
}
