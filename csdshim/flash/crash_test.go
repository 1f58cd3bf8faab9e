package flash

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"terrace/internal/vfs"
)

// changing are the operations that a test lets fail.
var changing = []vfs.OpKind{vfs.OpWrite, vfs.OpSync, vfs.OpRename, vfs.OpTruncate}

// failing is a disk whose nth changing operation from now on goes wrong, with the function that says so.
func failing(m *vfs.Mem, seed uint64) (fs vfs.FS, at func(n int, kind vfs.FaultKind)) {
	f := &vfs.Faults{Seed: seed, Of: changing}
	return &vfs.Faulty{FS: m, Faults: f}, func(n int, kind vfs.FaultKind) {
		ops, _ := f.Ops()
		f.Nth, f.Kind = ops+int64(n), kind
	}
}

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
		k := Key{Seq: q.ID, Layer: 0, Group: int32(rng.IntN(8))}
		b := bytes.Repeat([]byte{byte(rng.Uint32())}, 100+rng.IntN(1500))
		if _, err := s.Put([]Item{{Key: k, Parts: [][]byte{b}}}); err != nil {
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
		stays, goes := Key{Seq: q.ID, Layer: 1, Group: g}, Key{Seq: q.ID, Layer: 1, Group: 100}
		h.acked[stays], h.acked[goes] = bytes.Repeat([]byte{byte(g)}, 400), bytes.Repeat([]byte{byte(g)}, 300)
		if _, err := s.Put([]Item{{Key: stays, Parts: [][]byte{h.acked[stays]}}, {Key: goes, Parts: [][]byte{h.acked[goes]}}}); err != nil {
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
	collected := false
	for n := 1; ; n++ {
		m := vfs.NewCrashMem(diskBytes, uint64(n))
		disk, fail := failing(m, uint64(n))
		s, err := Open("drive", Options{Geometry: g, FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		h := &history{map[Key][]byte{}, map[Key][][]byte{}}
		h.settle(t, s)
		fail(n, vfs.PowerOff)
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		err = runHistory(s, rng, h)
		s.Close()
		if err == nil {
			if n < 40 || g == tightGeometry() && !collected {
				t.Fatalf("the history has %d operations only, garbage collected %v", n, collected)
			}
			return // no operation is left to fail at
		}
		m.Crash()
		if s, err = Open("drive", Options{Geometry: g, FS: m}); err != nil {
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
	failedSyncs := 0
	for n := 1; ; n++ {
		m := vfs.NewCrashMem(diskBytes, uint64(n))
		disk, fail := failing(m, uint64(n))
		s, err := Open("drive", Options{Geometry: smallGeometry(), FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		fail(n, vfs.Torn)
		h := &history{map[Key][]byte{}, map[Key][][]byte{}}
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		if err = runHistory(s, rng, h); err == nil {
			s.Close()
			break
		}
		if !errors.Is(err, syscall.EIO) {
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
		m.Crash()
		if s, err = Open("drive", Options{Geometry: smallGeometry(), FS: m}); err != nil {
			t.Fatalf("failure at operation %d, then a crash: %v", n, err)
		}
		h.verify(t, s, "failure and crash", n)
		s.Close()
	}
	if failedSyncs == 0 {
		t.Error("no failed sync ended the writing")
	}
}

// TestCrashWhileTheFolderIsMade turns the machine off at every operation that makes a folder: afterwards it can be opened.
func TestCrashWhileTheFolderIsMade(t *testing.T) {
	for n := 1; ; n++ {
		m := vfs.NewCrashMem(diskBytes, uint64(n))
		disk, fail := failing(m, uint64(n))
		fail(n, vfs.PowerOff)
		s, err := Open("drive", Options{Geometry: smallGeometry(), FS: disk})
		if err == nil {
			s.Close()
			if n < 3 {
				t.Errorf("a folder is made with %d operations", n-1)
			}
			return
		}
		m.Crash()
		if s, err = Open("drive", Options{Geometry: smallGeometry(), FS: m}); err != nil {
			t.Fatalf("crash at operation %d: %v", n, err)
		}
		s.Close()
	}
}

// TestNoSpace: a full file system under the folder fails writes, and loses nothing.
func TestNoSpace(t *testing.T) {
	disk, fail := failing(vfs.NewCrashMem(diskBytes, 1), 1)
	s, err := Open("drive", Options{Geometry: smallGeometry(), FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, _, _ := s.OpenSequence([16]byte{}, 1, 0, nil)
	if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: 0}, Parts: [][]byte{make([]byte, 600)}}}); err != nil {
		t.Fatal(err)
	}
	used := s.Usage().UsedBytes
	fail(1, vfs.ENOSPC)
	if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: 1}, Parts: [][]byte{make([]byte, 600)}}}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write without space: %v", err)
	}
	if u := s.Usage(); u.UsedBytes != used || u.Groups != 1 {
		t.Errorf("a failed write left %+v", u)
	}
	if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: 1}, Parts: [][]byte{make([]byte, 600)}}}); err != nil {
		t.Errorf("write with space again: %v", err)
	}
}
