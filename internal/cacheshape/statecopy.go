package cacheshape

// StateCopy is a device's copy of a layer's state of one text. Whoever owns the state in host memory keeps it beside that.
type StateCopy interface {
	// Bring begins to copy the numbers to host memory.
	Bring() error
	// Fetch waits for what Bring began, or begins it, and writes the numbers to dst.
	Fetch(dst []float32) error
	// Drop gives the device's memory back; the copy is not used again.
	Drop()
}
