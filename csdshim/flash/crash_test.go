package flash

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// disk is a file system of its own: what was not synced when it crashes is lost, kept, or torn, as chance wills. After a
// number of operations it fails one, or crashes.
type disk struct {
	mu      sync.Mutex
	rng     *rand.Rand
	files   map[string]*diskFile
	ops     int
	failAt  int   // this operation fails; 0 = none
	err     error // with this
	crashed bool
}

type diskFile struct {
	d       *disk
	now     []byte
	durable []byte
	pending []write
}

type write struct {
	off  int64
	data []byte
}

var (
	errCrash = errors.New("the machine is off")
	errIO    = errors.New("input/output error")
)

func newDisk(seed uint64) *disk {
	return &disk{rng: rand.New(rand.NewPCG(seed, 2)), files: map[string]*diskFile{}}
}

func (d *disk) Open(path string) (File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[filepath.Base(path)]
	if f == nil {
		f = &diskFile{d: d}
		d.files[filepath.Base(path)] = f
	}
	return f, nil
}

func (d *disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.step(); err != nil {
		return err
	}
	d.files[filepath.Base(to)] = d.files[filepath.Base(from)]
	delete(d.files, filepath.Base(from))
	return nil
}

func (d *disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, filepath.Base(path))
	return nil
}

// step counts a changing operation and says whether it fails; mu is held.
func (d *disk) step() error {
	d.ops++
	if d.crashed {
		return errCrash
	}
	if d.ops == d.failAt {
		if d.err == errCrash {
			d.crashed = true
		}
		return d.err
	}
	return nil
}

// crash ends everything and leaves what a disk might have of it.
func (d *disk) crash() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crashed = false
	d.failAt, d.ops = 0, 0
	for _, f := range d.files {
		for _, w := range f.pending {
			switch d.rng.IntN(3) {
			case 0: // lost
			case 1:
				f.durable = put(f.durable, w.off, w.data)
			default: // torn at a sector
				f.durable = put(f.durable, w.off, w.data[:d.rng.IntN(len(w.data)+1)/64*64])
			}
		}
		f.pending, f.now = nil, bytes.Clone(f.durable)
	}
}

func put(b []byte, off int64, data []byte) []byte {
	if need := int(off) + len(data); need > len(b) {
		b = append(b, make([]byte, need-len(b))...)
	}
	copy(b[off:], data)
	return b
}

func (f *diskFile) ReadAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off >= int64(len(f.now)) {
		return 0, io.EOF
	}
	n := copy(b, f.now[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		n := f.d.rng.IntN(len(b) + 1) // a part of it was written
		f.now = put(f.now, off, b[:n])
		f.pending = append(f.pending, write{off, bytes.Clone(b[:n])})
		return n, err
	}
	f.now = put(f.now, off, b)
	f.pending = append(f.pending, write{off, bytes.Clone(b)})
	return len(b), nil
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		f.pending = nil // the kernel marks pages clean after a failed sync
		return err
	}
	f.durable, f.pending = bytes.Clone(f.now), nil
	return nil
}

func (f *diskFile) Truncate(n int64) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.step(); err != nil {
		return err
	}
	f.now, f.durable, f.pending = f.now[:n], bytes.Clone(f.now[:n]), nil
	return nil
}

func (f *diskFile) Close() error { return nil }

// history writes, replaces and drops groups until the disk fails, noting what was acknowledged and what may or may not be.
type history struct {
	acked map[Key][]byte
	maybe map[Key][][]byte // contents of writes without an answer; nil content: dropped
}

func runHistory(s *Store, rng *rand.Rand, h *history) error {
	q, _, err := s.OpenSequence([16]byte{3}, 1, 0, nil)
	if err != nil {
		return err
	}
	for i := range 25 {
		if i%9 == 8 {
			s.commitMu.Lock()
			err := s.compact(true, 0)
			s.commitMu.Unlock()
			if err != nil {
				return err
			}
			continue
		}
		if rng.IntN(12) == 0 {
			from := 1 + rng.IntN(8)
			err := s.Cut(q.ID, from)
			for k := range h.acked {
				if int(k.Group) >= from {
					h.maybe[k] = append(h.maybe[k], h.acked[k], nil) // a cut is not synced: after a crash it may be undone
					delete(h.acked, k)
				}
			}
			if err != nil {
				return err
			}
			continue
		}
		k := Key{q.ID, 0, int32(rng.IntN(8))}
		b := bytes.Repeat([]byte{byte(rng.Uint32())}, 100+rng.IntN(1500))
		if _, err := s.Put([]Item{{k, [][]byte{b}}}); err != nil {
			if old := h.acked[k]; old != nil {
				h.maybe[k] = append(h.maybe[k], old)
				delete(h.acked, k)
			}
			h.maybe[k] = append(h.maybe[k], b, nil)
			return err
		}
		h.acked[k] = b
		delete(h.maybe, k)
	}
	return nil
}

// settle writes groups that stay, each beside one that is replaced by the next, so that live pages lie among garbage.
func (h *history) settle(t *testing.T, s *Store) {
	t.Helper()
	q, _, err := s.OpenSequence([16]byte{3}, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for g := range int32(20) {
		stays, goes := Key{q.ID, 1, g}, Key{q.ID, 1, 100}
		h.acked[stays], h.acked[goes] = bytes.Repeat([]byte{byte(g)}, 400), bytes.Repeat([]byte{byte(g)}, 300)
		if _, err := s.Put([]Item{{stays, [][]byte{h.acked[stays]}}, {goes, [][]byte{h.acked[goes]}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// verify reads everything back: what was acknowledged must be there, what was not may be there whole, or missing.
func (h *history) verify(t *testing.T, s *Store, what string, n int) {
	t.Helper()
	for k, want := range h.acked {
		got := make([]byte, len(want))
		if _, err := s.Get([]Request{{k, 0, got}}); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s at operation %d: acknowledged %+v: %v", what, n, k, err)
		}
	}
	for k, list := range h.maybe {
		ok := false
		for _, want := range list {
			got := make([]byte, len(want))
			_, err := s.Get([]Request{{k, 0, got}})
			ok = ok || err == nil && bytes.Equal(got, want) || err != nil && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt))
		}
		if !ok {
			t.Fatalf("%s at operation %d: %+v holds something that was never written", what, n, k)
		}
	}
}

// TestCrashAtEveryOperation turns the machine off at every write and sync: after it, all that was acknowledged is there.
func TestCrashAtEveryOperation(t *testing.T) {
	t.Run("roomy", func(t *testing.T) { crashAtEveryOperation(t, smallGeometry()) })
	t.Run("tight", func(t *testing.T) { crashAtEveryOperation(t, tightGeometry()) })
}

// tightGeometry is so small that garbage is collected all the time.
func tightGeometry() Geometry {
	return Geometry{Channels: 1, Dies: 1, Planes: 1, PageBytes: 512, BlockPages: 4, CapacityBytes: 60 * 512}
}

func crashAtEveryOperation(t *testing.T, g Geometry) {
	collected, dir := false, t.TempDir()
	for n := 1; ; n++ {
		d := newDisk(uint64(n))
		opts := Options{Geometry: g, FS: d}
		s, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		h := &history{map[Key][]byte{}, map[Key][][]byte{}}
		h.settle(t, s)
		d.ops, d.failAt, d.err = 0, n, errCrash
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		err = runHistory(s, rng, h)
		s.Close()
		if err == nil {
			if n < 40 || g == tightGeometry() && !collected {
				t.Fatalf("the history has %d operations only, garbage collected %v", n, collected)
			}
			return // no operation is left to fail at
		}
		d.crash()
		if s, err = Open(dir, opts); err != nil {
			t.Fatalf("crash at operation %d: %v", n, err)
		}
		h.verify(t, s, "crash", n)
		if err := runHistory(s, rng, h); err != nil { // and it works on
			t.Fatalf("after a crash at operation %d: %v", n, err)
		}
		h.verify(t, s, "crash and more", n)
		collected = collected || s.Usage().PagesMoved > 0
		s.Close()
	}
}

// TestFailEveryOperation lets every write and sync fail once: the error is reported, nothing acknowledged is lost, now or
// after a restart; after a failed sync nothing more is written.
func TestFailEveryOperation(t *testing.T) {
	failedSyncs, dir := 0, t.TempDir()
	for n := 1; ; n++ {
		d := newDisk(uint64(n))
		opts := Options{Geometry: smallGeometry(), FS: d}
		s, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		d.failAt, d.err = n, errIO
		h := &history{map[Key][]byte{}, map[Key][][]byte{}}
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		if err = runHistory(s, rng, h); err == nil {
			s.Close()
			break
		}
		if !errors.Is(err, errIO) {
			t.Fatalf("operation %d: %v", n, err)
		}
		h.verify(t, s, "failure", n)
		if err = runHistory(s, rng, h); errors.Is(err, ErrFailed) {
			failedSyncs++
		} else if err != nil {
			t.Fatalf("after a failure at operation %d: %v", n, err)
		}
		h.verify(t, s, "failure and more", n)
		s.Close()
		d.crash()
		if s, err = Open(dir, opts); err != nil {
			t.Fatalf("failure at operation %d, then a crash: %v", n, err)
		}
		h.verify(t, s, "failure and crash", n)
		s.Close()
	}
	if failedSyncs == 0 {
		t.Error("no failed sync ended the writing")
	}
}

// TestNoSpace: a full file system under the folder fails writes, and loses nothing.
func TestNoSpace(t *testing.T) {
	d := newDisk(1)
	s, err := Open(t.TempDir(), Options{Geometry: smallGeometry(), FS: d})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, _, _ := s.OpenSequence([16]byte{}, 1, 0, nil)
	if _, err := s.Put([]Item{{Key{q.ID, 0, 0}, [][]byte{make([]byte, 600)}}}); err != nil {
		t.Fatal(err)
	}
	used := s.Usage().UsedBytes
	d.failAt, d.err = d.ops+1, syscall.ENOSPC
	if _, err := s.Put([]Item{{Key{q.ID, 0, 1}, [][]byte{make([]byte, 600)}}}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write without space: %v", err)
	}
	if u := s.Usage(); u.UsedBytes != used || u.Groups != 1 {
		t.Errorf("a failed write left %+v", u)
	}
	if _, err := s.Put([]Item{{Key{q.ID, 0, 1}, [][]byte{make([]byte, 600)}}}); err != nil {
		t.Errorf("write with space again: %v", err)
	}
}
