package offload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"terrace/internal/clock"
	"terrace/internal/storage"
	"terrace/internal/vfs"
)

// SSDOptions say where an SSD store lies and how it does its I/O; zero values mean the defaults.
type SSDOptions struct {
	Name          string // in messages and accounts; default "ssd"
	Dir           string
	CapacityBytes int64 // of the file, hard: it is reserved when the store is opened

	FS       vfs.FS     // nil = the system's
	Share    *vfs.Share // of the disk, beside its other users; nil = it has none. Close leaves it
	NoDirect bool       // through the page cache
	NoRing   bool       // threads instead of io_uring
	Depth    int        // operations under way; default 32

	Clock clock.Clock // what Read and Write wait on; nil = clock.Real

	TokenRows bool // records lie token by token, so that single tokens can be read (Queue.Gather); pages of float types, Page.TokenMajor

	ExtentGroups  int // groups of a layer that lie together; default: about 1 MiB, less in a small file
	MaxIOBytes    int // of one operation; default 256 KiB
	MergeGapBytes int // records this near are read in one operation, the gap between them too; default 8 KiB, -1: none
	GapBytes      int // the same of single tokens, as measured (StorageRates.GapBytes); default 32 KiB
}

func (o *SSDOptions) setDefaults() error {
	switch {
	case o.Dir == "":
		return fmt.Errorf("offload: ssd: no directory given: %w", ErrShape)
	case o.CapacityBytes <= 0:
		return fmt.Errorf("offload: ssd %s: capacity %d bytes, want more than nothing: %w", o.Dir, o.CapacityBytes, ErrShape)
	}
	if o.Name == "" {
		o.Name = "ssd"
	}
	if o.Depth <= 0 {
		o.Depth = 32
	}
	if o.MaxIOBytes <= 0 {
		o.MaxIOBytes = 256 << 10
	}
	switch {
	case o.MergeGapBytes < 0:
		o.MergeGapBytes = 0
	case o.MergeGapBytes == 0:
		o.MergeGapBytes = 8 << 10
	}
	if o.GapBytes <= 0 {
		o.GapBytes = gatherGapBytes
	}
	return nil
}

// fileName is the store's file in its directory, lockName the lock beside it.
const (
	fileName = "terrace.kv"
	lockName = "terrace.lock"
)

// SSD is a Store in one preallocated file. The file is scratch: it belongs to the process that has it open, its contents
// are discarded when it is opened again, and it is removed by Close. Records,
// rows, plans of reads and accounts lie under one lock.
type SSD struct {
	opt    SSDOptions
	shape  Shape
	place  placement
	rows   []rows // [layers] zero where records lie as they are in memory
	byRow  bool   // records lie token by token
	folder *storage.Folder
	lock   io.Closer // of the folder
	file   vfs.File
	engine vfs.Engine
	own    *Queue // of Read and Write
	align  int
	zeros  []byte // between records, in writes
	stage  *storage.Staging

	mu     sync.Mutex
	idle   *sync.Cond // pins fell
	seqs   map[uint64]*sequence
	free   []int32 // extents, the next one last
	pins   int     // segments under way, of all sequences
	stats  Stats
	closed bool
}

// OpenSSD reserves the file and starts the engine. ErrInUse names the process that has the directory, ErrFull gives the room
// that is missing, ErrShape says that the file there is not a store's.
func OpenSSD(shape Shape, o SSDOptions) (_ *SSD, err error) {
	defer func() {
		if err != nil {
			o.Share.Leave()
		}
	}()
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &SSD{opt: o, shape: shape, seqs: map[uint64]*sequence{}}
	s.idle = sync.NewCond(&s.mu)
	if s.folder, err = storage.OpenFolder(o.Dir, storage.Options{FS: o.FS, Buffered: o.NoDirect}); err != nil {
		return nil, fmt.Errorf("offload: ssd: %w", err)
	}
	if s.lock, err = s.folder.Lock(context.Background(), lockName, 0); err != nil {
		return nil, fmt.Errorf("offload: ssd: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := s.openFile(); err != nil {
		return nil, err
	}
	var notice string
	s.engine, notice = vfs.NewEngine(s.file, o.Depth, !o.NoRing)
	s.engine = o.Share.Engine(s.engine)
	s.notice(notice)
	s.own = NewQueue(s, QueueOptions{Depth: s.engine.Depth(), Clock: o.Clock})
	return s, nil
}

// openFile opens, checks and reserves the file and writes its header.
func (s *SSD) openFile() (err error) {
	if err := s.folder.Claim(fileName, headerMagic); err != nil {
		return fmt.Errorf("offload: ssd: %w", err)
	}
	if s.file, err = s.folder.Open(fileName, vfs.OpenOptions{Create: true}); err != nil {
		return fmt.Errorf("offload: ssd: %w", err)
	}
	s.notice(s.folder.Notice())
	s.align = max(s.file.Alignment(), 512)
	s.place, err = newPlacement(s.shape, s.opt, s.align)
	if err == nil {
		s.rows, err = newRows(s.shape, s.opt)
		s.byRow = s.opt.TokenRows
	}
	if err == nil {
		if err = s.folder.Reserve(s.file, fileName, s.opt.CapacityBytes); err == nil {
			err = storage.WriteHeader(s.file, headerMagic, headerVersion, s.header())
		}
		if err != nil {
			err = fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, err)
		}
	}
	if err != nil {
		return errors.Join(err, s.file.Close(), s.folder.FS.Remove(s.folder.Path(fileName)))
	}
	s.free = make([]int32, s.place.extents)
	for i := range s.free {
		s.free[i] = int32(s.place.extents - 1 - i)
	}
	s.stats.CapacityBytes = s.opt.CapacityBytes
	s.zeros = vfs.AlignedBytes(max(s.place.mostStride(), s.align))
	s.stage = s.newStaging()
	return nil
}

func (s *SSD) notice(text string) {
	if text != "" && s.stats.Notice != "" {
		s.stats.Notice += "; "
	}
	s.stats.Notice += text
}

// Name is SSDOptions.Name.
func (s *SSD) Name() string { return s.opt.Name }

// Shape is the shape given to OpenSSD.
func (s *SSD) Shape() Shape { return s.shape }

// Read reads the records with the store's own queue. It returns when nothing is under way any more, even where ctx ends
// before: deadlines are for Queue.
func (s *SSD) Read(ctx context.Context, recs []Record) error { return s.run(ctx, s.own.Read, recs) }

// Write writes the records with the store's own queue.
func (s *SSD) Write(ctx context.Context, recs []Record) error { return s.run(ctx, s.own.Write, recs) }

func (s *SSD) run(ctx context.Context, start func(Priority, []Record) *Ticket, recs []Record) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("offload: ssd: %w", err)
	}
	t := start(Demand, recs)
	err := t.Wait(ctx)
	<-t.Done()
	return err
}

// Stats are the counts so far.
func (s *SSD) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.HostBytes = int64(cap(s.zeros)) + s.stage.Bytes() + int64(cap(s.free))*4
	for _, q := range s.seqs {
		st.HostBytes += q.indexBytes()
	}
	return st
}

// IndexBytes is what sequence.indexBytes comes to at most.
func (s *SSD) IndexBytes(groups int) int64 {
	if groups == 0 {
		return 0
	}
	n := int64(0)
	for layer, place := range s.place.layers {
		if place.groups > 0 {
			extents := (groups + place.groups - 1) / place.groups
			n += 4 * int64(roomFor(extents)+roomFor(groups)+roomFor(groups*s.sumsPer(layer)))
		}
	}
	return n
}

// ResetPeak implements Store.
func (s *SSD) ResetPeak() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.PeakBytes = s.stats.UsedBytes
}

// Trim frees staging that no transfer uses.
func (s *SSD) Trim() { s.stage.Trim(0) }

// closeWait is how long Close waits for a device that does not answer.
const closeWait = 10 * time.Second

// Close waits for what is under way, gives everything back and removes the file.
func (s *SSD) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	late := time.AfterFunc(closeWait, func() { s.mu.Lock(); s.idle.Broadcast(); s.mu.Unlock() })
	deadline := time.Now().Add(closeWait)
	for s.pins > 0 && time.Now().Before(deadline) {
		s.idle.Wait()
	}
	late.Stop()
	pins := s.pins
	s.mu.Unlock()
	if pins > 0 { // the device may still write to the buffers: nothing can be given back
		return fmt.Errorf("offload: ssd %s: %d transfers did not end within %v: %w", s.opt.Dir, pins, closeWait, context.DeadlineExceeded)
	}
	err := errors.Join(s.own.Close(), s.engine.Close(), s.file.Close())
	s.opt.Share.Leave()
	if e := s.folder.FS.Remove(s.folder.Path(fileName)); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	err = errors.Join(err, s.lock.Close())
	s.mu.Lock()
	defer s.mu.Unlock()
	vfs.FreeAligned(s.zeros)
	s.stage.Trim(0)
	s.zeros, s.seqs, s.free = nil, nil, nil
	s.stats.UsedBytes = 0
	if err != nil {
		return fmt.Errorf("offload: ssd: closing %s: %w", s.opt.Dir, err)
	}
	return nil
}
