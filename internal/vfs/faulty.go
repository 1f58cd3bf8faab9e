package vfs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

// OpKind is what an operation of a file system does.
type OpKind uint8

// The operations that faults strike.
const (
	OpOpen OpKind = iota
	OpMkdir
	OpRemove
	OpLock
	OpRead
	OpWrite
	OpPreallocate
	OpSync
	OpRename
	OpTruncate
	OpPunch
	opKinds
)

var opNames = [opKinds]string{"open", "mkdir", "remove", "lock", "read", "write", "preallocate", "sync", "rename", "truncate", "punch"}

// String is the operation's name in logs.
func (k OpKind) String() string { return opNames[k] }

// FaultKind is what goes wrong.
type FaultKind uint8

// The faults. Short ends an operation half done (a read at the end of the file, a write with ErrShortWrite); Flip changes one
// bit of what is read, or of what is written; Misplace reads or writes the neighbouring 4 KiB; Lose writes nothing and says
// nothing; Hang waits until Release; Torn writes a beginning and fails with EIO; PowerOff does too, and so does every operation
// after it (Mem.Crash says what is left). A Sync that fails with EIO leaves what was written since the last one unsynced for
// good.
const (
	None FaultKind = iota
	EIO
	ENOSPC
	Short
	Flip
	Misplace
	Lose
	Hang
	Torn
	PowerOff
)

// Faults decides which operations of a Faulty file system go wrong. Fields are set before use.
type Faults struct {
	Seed   uint64
	Of     []OpKind           // the operations that count; empty: all
	Nth    int64              // the Nth operation (from 1) gets Kind; 0: none
	Times  int64              // how many operations from the Nth on; default 1
	Kind   FaultKind          // for Nth
	Chance map[OpKind]float64 // of a fault, drawn from Kinds
	Kinds  []FaultKind
	After  int64        // no chance before so many operations
	Log    func(string) // every operation, "read f 4096 at 8192: flip"; nil: none

	mu      sync.Mutex
	rnd     *rand.Rand
	ops     int64
	struck  int64
	off     bool
	dead    bool // the power is off
	release chan struct{}
}

// Ops is how many operations there were, and how many of them went wrong.
func (f *Faults) Ops() (ops, struck int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops, f.struck
}

// Stop lets everything go well from now on; what hangs goes on.
func (f *Faults) Stop() {
	f.mu.Lock()
	f.off, f.dead = true, false
	f.mu.Unlock()
	f.Release()
}

func (f *Faults) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

// Release lets everything that hangs go on.
func (f *Faults) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.release != nil {
		close(f.release)
		f.release = nil
	}
}

// next decides about one operation; bit is a random number for Flip.
func (f *Faults) next(kind OpKind, name string, off, size int64) (fault FaultKind, bit uint64) {
	f.mu.Lock()
	if f.rnd == nil {
		f.rnd = rand.New(rand.NewPCG(f.Seed, 6))
	}
	counted := len(f.Of) == 0 || slices.Contains(f.Of, kind)
	if counted {
		f.ops++
	}
	bit = f.rnd.Uint64()
	switch p := f.rnd.Float64(); {
	case f.off || !counted && !f.dead:
	case f.dead:
		fault = EIO
	case f.Nth != 0 && f.ops >= f.Nth && f.ops < f.Nth+max(f.Times, 1):
		fault = f.Kind
	case f.ops > f.After && len(f.Kinds) > 0 && p < f.Chance[kind]:
		fault = f.Kinds[f.rnd.IntN(len(f.Kinds))]
	}
	var hang chan struct{}
	if fault != None {
		f.struck++
	}
	f.dead = f.dead || fault == PowerOff
	if fault == Hang {
		if f.release == nil {
			f.release = make(chan struct{})
		}
		hang = f.release
	}
	f.mu.Unlock()
	if f.Log != nil {
		f.Log(fmt.Sprintf("%v %s %d at %d%s", kind, name, size, off, faultNames[fault]))
	}
	if hang != nil {
		<-hang
	}
	return fault, bit
}

var faultNames = [...]string{"", ": EIO", ": ENOSPC", ": short", ": flip", ": misplace", ": lose", ": hang", ": torn", ": power off"}

// fails gives the error of an operation that has no data.
func (f *Faults) fails(kind OpKind, name string, size int64) error {
	switch fault, _ := f.next(kind, name, 0, size); fault {
	case None, Hang, Lose:
		return nil
	case ENOSPC:
		return fmt.Errorf("vfs: %v %s: %w: %w", kind, name, syscall.ENOSPC, ErrNoSpace)
	}
	return fmt.Errorf("vfs: %v %s: %w", kind, name, syscall.EIO)
}

// Faulty is a file system whose operations go wrong as Faults decide. Its files have no descriptor, so engines use threads
// and every operation passes here.
type Faulty struct {
	FS     FS
	Faults *Faults
}

// OpenFile opens a file whose operations may fail.
func (y *Faulty) OpenFile(name string, o OpenOptions) (File, error) {
	if err := y.Faults.fails(OpOpen, name, 0); err != nil {
		return nil, err
	}
	f, err := y.FS.OpenFile(name, o)
	if err != nil {
		return nil, err
	}
	return &faultyFile{f, name, y.Faults}, nil
}

// MkdirAll makes a directory, or fails.
func (y *Faulty) MkdirAll(dir string) error {
	if err := y.Faults.fails(OpMkdir, dir, 0); err != nil {
		return err
	}
	return y.FS.MkdirAll(dir)
}

// Remove deletes a file, or fails.
func (y *Faulty) Remove(name string) error {
	if err := y.Faults.fails(OpRemove, name, 0); err != nil {
		return err
	}
	return y.FS.Remove(name)
}

// Rename puts a file in another's place, or fails.
func (y *Faulty) Rename(from, to string) error {
	if err := y.Faults.fails(OpRename, to, 0); err != nil {
		return err
	}
	return y.FS.Rename(from, to)
}

// RenameAll puts files in others' places, up to one that fails.
func (y *Faulty) RenameAll(from, to []string) error {
	for i := range from {
		if err := y.Rename(from[i], to[i]); err != nil {
			return err
		}
	}
	return nil
}

// SetTime is that of the file system below.
func (y *Faulty) SetTime(name string, t time.Time) error { return y.FS.SetTime(name, t) }

// Lock takes a lock, or fails.
func (y *Faulty) Lock(name string) (io.Closer, error) {
	if err := y.Faults.fails(OpLock, name, 0); err != nil {
		return nil, err
	}
	return y.FS.Lock(name)
}

// List is that of the file system below.
func (y *Faulty) List(dir string) ([]Info, error) { return y.FS.List(dir) }

// FreeBytes is that of the file system below.
func (y *Faulty) FreeBytes(dir string) (int64, error) { return y.FS.FreeBytes(dir) }

type faultyFile struct {
	File
	name   string
	faults *Faults
}

func (f *faultyFile) FD() (int, bool) { return -1, false }

func (f *faultyFile) Preallocate(size int64) error {
	if err := f.faults.fails(OpPreallocate, f.name, size); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.faults.fails(OpSync, f.name, 0); err != nil {
		if m, ok := f.File.(*memFile); ok && !f.faults.isDead() {
			m.unsynced()
		}
		return err
	}
	return f.File.Sync()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.faults.fails(OpTruncate, f.name, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) PunchHole(off, size int64) error {
	if err := f.faults.fails(OpPunch, f.name, size); err != nil {
		return err
	}
	return f.File.PunchHole(off, size)
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) { return f.ReadVecAt([][]byte{p}, off) }

func (f *faultyFile) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	fault, bit := f.faults.next(OpRead, f.name, off, int64(total(bufs)))
	switch fault {
	case EIO, ENOSPC, Torn, PowerOff:
		return 0, fmt.Errorf("vfs: read %s: %w", f.name, syscall.EIO)
	case Short:
		n, err := f.File.ReadVecAt([][]byte{bufs[0][:len(bufs[0])/2]}, off)
		if err == nil {
			err = io.EOF
		}
		return n, err
	case Misplace, Lose:
		off = neighbour(off)
	}
	n, err := f.File.ReadVecAt(bufs, off)
	if fault == Flip {
		flip(bufs, bit)
	}
	return n, err
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WriteVecAt([][]byte{p}, off)
}

func (f *faultyFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	fault, bit := f.faults.next(OpWrite, f.name, off, int64(total(bufs)))
	switch fault {
	case EIO:
		return 0, fmt.Errorf("vfs: write %s: %w", f.name, syscall.EIO)
	case ENOSPC:
		return 0, fmt.Errorf("vfs: write %s: %w: %w", f.name, syscall.ENOSPC, ErrNoSpace)
	case Torn, PowerOff:
		n := 0
		if whole := bytes.Join(bufs, nil); len(whole) > 0 {
			n, _ = f.File.WriteAt(whole[:bit%uint64(len(whole)+1)], off)
		}
		return n, fmt.Errorf("vfs: write %s: %w", f.name, syscall.EIO)
	case Short:
		n, err := f.File.WriteVecAt([][]byte{bufs[0][:len(bufs[0])/2]}, off)
		if err == nil {
			err = io.ErrShortWrite
		}
		return n, err
	case Lose:
		return total(bufs), nil
	case Misplace:
		off = neighbour(off)
	case Flip: // the caller's bytes stay as they are
		n, err := f.File.WriteVecAt(bufs, off)
		if err == nil {
			at := int64(bit % uint64(n))
			one := make([]byte, 1)
			if _, err = f.File.ReadAt(one, off+at); err == nil {
				one[0] ^= 1 << (bit >> 32 % 8)
				_, err = f.File.WriteAt(one, off+at)
			}
		}
		return n, err
	}
	return f.File.WriteVecAt(bufs, off)
}

// neighbour is another place nearby: the one before where there is one.
func neighbour(off int64) int64 {
	if off >= 4096 {
		return off - 4096
	}
	return off + 4096
}

func flip(bufs [][]byte, bit uint64) {
	at := int(bit % uint64(total(bufs)))
	for _, b := range bufs {
		if at < len(b) {
			b[at] ^= 1 << (bit >> 32 % 8)
			return
		}
		at -= len(b)
	}
}
