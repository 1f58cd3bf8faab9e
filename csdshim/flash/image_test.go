package flash

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"terrace/internal/vfs"
)

// TestImageThatIsCut: pages that somebody cut off the image of an open store are an error of the groups on them, also where they are
// read as memory; others are still read, and what is written afterwards is too.
func TestImageThatIsCut(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, func(o *Options) {
		o.FS, o.NoSync = vfs.OS{}, true
		o.Geometry.PageBytes, o.Geometry.CapacityBytes = 4096, 200*4096
	})
	if runtime.GOOS == "linux" && s.view == nil {
		t.Fatal("the image is not seen as memory")
	}
	seq, _, err := s.OpenSequence([16]byte{1}, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	put := func(group int32) (last uint32) {
		t.Helper()
		pages, err := s.Put([]Item{{Key: Key{Seq: seq.ID, Group: group}, Parts: [][]byte{bytes.Repeat([]byte{byte(group) + 1}, 5000)}}})
		if err != nil {
			t.Fatal(err)
		}
		return max(pages[0], pages[1])
	}
	get := func(group int32) error {
		dst := make([]byte, 5000)
		_, err := s.Get([]Request{{Key: Key{Seq: seq.ID, Group: group}, Dst: dst}})
		if err == nil && !bytes.Equal(dst, bytes.Repeat([]byte{byte(group) + 1}, 5000)) {
			t.Errorf("group %d has other bytes", group)
		}
		return err
	}
	last := map[int32]uint32{}
	high := int32(0)
	for g := range int32(8) {
		if last[g] = put(g); last[g] > last[high] {
			high = g
		}
	}
	image := filepath.Join(dir, "flash.img")
	if err := os.Truncate(image, int64(last[high])*4096); err != nil {
		t.Fatal(err)
	}
	if err := get(high); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a group that was cut off: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	for g := range int32(8) {
		if err := get(g); g != high && err != nil {
			t.Errorf("group %d: %v", g, err)
		}
	}
	put(8)
	if err := get(8); err != nil {
		t.Errorf("written after the cut: %v", err)
	}
}
