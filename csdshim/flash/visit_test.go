package flash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"terrace/internal/vfs"
	"terrace/internal/vfs/view"
)

// visitBytes are two whole pages of 512 and a part of a third.
const visitBytes = 1300

// visitGroup is what group g holds.
func visitGroup(g int) []byte {
	b := make([]byte, visitBytes)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 31*g)
	}
	return b
}

// visited visits groups and returns which were shown in which order, and the pages read; their bytes and the pages' sizes must be right.
func visited(t *testing.T, s *Store, seq uint32, bytesEach int, groups ...int) (shown []int, pages []uint32, err error) {
	t.Helper()
	keys := make([]Key, len(groups))
	for i, g := range groups {
		keys[i] = Key{Seq: seq, Group: int32(g)}
	}
	pages, err = s.Visit(keys, bytesEach, func(i int, pages [][]byte) {
		shown = append(shown, groups[i])
		if len(pages) != 3 || len(pages[0]) != 512 || len(pages[2]) != visitBytes-1024 || !bytes.Equal(bytes.Join(pages, nil), visitGroup(groups[i])) {
			t.Errorf("group %d is shown as %d pages of other bytes", groups[i], len(pages))
		}
	})
	return shown, pages, err
}

func putVisited(t *testing.T, s *Store, groups int) (seq uint32, pages []uint32) {
	t.Helper()
	q, _, err := s.OpenSequence([16]byte{1}, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	for g := range groups {
		p, err := s.Put([]Item{{Key: Key{Seq: q.ID, Group: int32(g)}, Parts: [][]byte{visitGroup(g)}}})
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p...)
	}
	return q.ID, pages
}

// TestVisit: groups are shown whole, in the order asked for; what is missing, of another size or damaged is an error and never shown.
func TestVisit(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, nil)
	seq, stored := putVisited(t, s, 4)
	before := s.Usage().PagesRead
	shown, pages, err := visited(t, s, seq, visitBytes, 2, 0, 3)
	want := fmt.Sprint(append(append(append([]uint32(nil), stored[6:9]...), stored[0:3]...), stored[9:]...))
	if err != nil || fmt.Sprint(shown) != "[2 0 3]" || fmt.Sprint(pages) != want || s.Usage().PagesRead-before != 9 {
		t.Errorf("shown %v, pages %v, want %s, %d counted: %v", shown, pages, want, s.Usage().PagesRead-before, err)
	}
	for _, size := range []int{visitBytes - 1, visitBytes + 1, 512} {
		if shown, _, err := visited(t, s, seq, size, 1); !errors.Is(err, ErrNotFound) || len(shown) > 0 {
			t.Errorf("as %d bytes: shown %v, %v", size, shown, err)
		}
	}
	if shown, _, err := visited(t, s, seq, visitBytes, 1, 4); !errors.Is(err, ErrNotFound) || len(shown) > 0 {
		t.Errorf("a missing group: shown %v, %v", shown, err)
	}
	path := filepath.Join(dir, "flash.img")
	image := content(t, disks.of(dir), path)
	image[int(stored[2*3+2])*512+visitBytes-1025] ^= 1 // the last byte of group 2
	setContent(t, disks.of(dir), path, image)
	shown, _, err = visited(t, s, seq, visitBytes, 0, 2, 1)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "group 2: page 2 ") || fmt.Sprint(shown) != "[0]" {
		t.Errorf("a damaged group: shown %v, %v", shown, err)
	}
}

// TestVisitOfBadMemory: where the image's memory fails in the middle, all is read by calls, and shown from the first group on.
func TestVisitOfBadMemory(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getpagesize() != 4096 {
		t.Skip("no views of single kibibytes on this system")
	}
	dir := t.TempDir()
	s := mustOpen(t, dir, func(o *Options) {
		o.FS, o.NoSync, o.Geometry.PageBytes = vfs.OS{}, true, 512
		o.Geometry.Channels, o.Geometry.Dies, o.Geometry.BlockPages, o.Geometry.CapacityBytes = 1, 1, 256, 2000*512
	})
	seq, _ := putVisited(t, s, 24) // one after another: 32 KiB and more
	image, err := os.ReadFile(filepath.Join(dir, "flash.img"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut")
	if err := os.WriteFile(cut, image[:4096], 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(cut)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bad, err := view.Map(int(f.Fd()), 2048*512)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.view.Close(); err != nil {
		t.Fatal(err)
	}
	s.view = bad
	shown, _, err := visited(t, s, seq, visitBytes, 0, 23, 1)
	if err != nil || fmt.Sprint(shown) != "[0 0 23 1]" {
		t.Errorf("shown %v, %v", shown, err)
	}
}
