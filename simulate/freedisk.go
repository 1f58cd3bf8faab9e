package simulate

import (
	"sync"
	"time"

	"terrace/internal/clock"
	"terrace/internal/vfs"
)

// FreeDisk is a file system in memory whose operations end as they are started, in the caller's goroutine: what a run on it takes beside
// moving the bytes is what the host does for its tier, without a device. It is for one goroutine at a time.
type FreeDisk struct {
	*vfs.Mem
	clock clock.Clock

	mu    sync.Mutex
	use   FreeUse
	inner []*time.Duration // what is under way, the last one now
	since time.Duration
}

// FreeUse is what a FreeDisk's operations have taken of the caller.
type FreeUse struct {
	Ops, Bytes int64
	Moving     time.Duration // moving the bytes, which a device would
	Taking     time.Duration // what was done with them when they had come: checksums, putting them in place, booking
}

// NewFreeDisk is an empty one, by the machine's clock.
func NewFreeDisk() *FreeDisk { return &FreeDisk{Mem: vfs.NewMem(diskBytes), clock: clock.Real()} }

// Used is what was used since it was asked last.
func (d *FreeDisk) Used() FreeUse {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.use
	d.use = FreeUse{}
	return u
}

// turn books what has passed, and what is under way from now on; nil = what was before.
func (d *FreeDisk) turn(to *time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if n := len(d.inner); n > 0 {
		*d.inner[n-1] += now - d.since
	}
	d.since = now
	if to != nil {
		d.inner = append(d.inner, to)
	} else {
		d.inner = d.inner[:len(d.inner)-1]
	}
}

// OpenFile implements vfs.FS; direct files are in memory too.
func (d *FreeDisk) OpenFile(name string, o vfs.OpenOptions) (vfs.File, error) {
	direct := o.Direct
	o.Direct = false
	f, err := d.Mem.OpenFile(name, o)
	if err != nil {
		return nil, err
	}
	return freeFile{f, d, direct}, nil
}

type freeFile struct {
	vfs.File
	d      *FreeDisk
	direct bool
}

// Alignment is a sector's.
func (f freeFile) Alignment() int {
	if f.direct {
		return 512
	}
	return f.File.Alignment()
}

// NewEngine implements vfs.Engined.
func (f freeFile) NewEngine(depth int) vfs.Engine { return freeEngine{f, depth} }

type freeEngine struct {
	f     freeFile
	depth int
}

// Start moves the bytes and says so.
func (e freeEngine) Start(ios []*vfs.IO) {
	d := e.f.d
	d.turn(&d.use.Moving)
	defer d.turn(nil)
	for _, op := range ios {
		if op.Write {
			op.N, op.Err = e.f.WriteVecAt(op.Bufs, op.Off)
		} else {
			op.N, op.Err = e.f.ReadVecAt(op.Bufs, op.Off)
		}
		d.mu.Lock()
		d.use.Ops, d.use.Bytes = d.use.Ops+1, d.use.Bytes+int64(op.Bytes())
		d.mu.Unlock()
		d.turn(&d.use.Taking)
		op.Done(op)
		d.turn(nil)
	}
}

func (e freeEngine) Poll()        {}
func (e freeEngine) Name() string { return "free" }
func (e freeEngine) Depth() int   { return e.depth }
func (e freeEngine) Close() error { return nil }
