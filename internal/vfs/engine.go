package vfs

// IO is one positional operation over several buffers. The submitter fills the first part; the engine sets N and Err and
// then calls Done once, in some goroutine that holds no lock of the engine's. Buffers stay the engine's until then.
type IO struct {
	Write bool
	Off   int64
	Bufs  [][]byte
	Done  func(*IO)
	Owner any // the submitter's

	N   int   // bytes moved
	Err error // nil with a short N at the end of the file
}

// Bytes is the sum of the buffers' lengths.
func (io *IO) Bytes() int { return total(io.Bufs) }

// Engine runs many operations of one file at once.
type Engine interface {
	// Start begins operations, in order as far as the depth allows; it does not wait for any of them.
	Start(ios []*IO)
	// Poll calls Done of what has ended, in this goroutine, without waiting. The engine does so itself too, sooner or later.
	Poll()
	// Name is "io_uring" or "threads".
	Name() string
	// Depth is how many operations are under way at most.
	Depth() int
	// Close ends the engine; nothing may be under way.
	Close() error
}

// Engined is the optional capability of a File to run operations in an engine of its own.
type Engined interface{ NewEngine(depth int) Engine }

// NewEngine makes an engine for a file: io_uring where the file and the kernel allow it and ring is set, else threads that
// block in system calls; notice is one line about why not, empty where the wish was granted.
func NewEngine(f File, depth int, ring bool) (e Engine, notice string) {
	if own, ok := f.(Engined); ok {
		return own.NewEngine(depth), ""
	}
	if !ring {
		return newThreads(f, depth), ""
	}
	fd, ok := f.FD()
	if !ok {
		return newThreads(f, depth), "not a file of the system's: I/O by threads instead of io_uring"
	}
	r, err := newRing(fd, depth)
	if err != nil {
		return newThreads(f, depth), "I/O by threads: " + err.Error()
	}
	return r, ""
}
