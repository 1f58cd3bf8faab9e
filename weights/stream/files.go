package stream

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"terrace/internal/vfs"
	"terrace/weights/mapped"
)

// Files reads model files by direct I/O, past the page cache, and where a file system has none, through it.
type Files struct {
	o    Options
	read atomic.Int64 // bytes

	shares vfs.Shares // of the disk that the files lie on
	share  *vfs.Share // their own

	mu     sync.Mutex
	open   map[string]*file
	cached bool // the notice was given
}

type file struct {
	vfs.File
	identity *mapped.Identity
	share    *vfs.Share
}

// NewFiles opens nothing yet.
func NewFiles(o Options) *Files {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Again == nil {
		o.Again = func(error, int) bool { return false }
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	f := &Files{o: o, open: map[string]*file{}}
	f.share = f.shares.New("weights", 1)
	return f
}

// ReadBytes is what has been read so far.
func (f *Files) ReadBytes() int64 { return f.read.Load() }

// Beside is a share of the disk that the files lie on for somebody else's reads and writes (name, weight: vfs.Shares.New), where they go
// to the same disk; nil where they do not. Leave it.
func (f *Files) Beside(name string, weight float64, path string) *vfs.Share {
	f.mu.Lock()
	defer f.mu.Unlock()
	for own := range f.open {
		if vfs.SameDisk(own, path) {
			return f.shares.New(name, weight)
		}
	}
	return nil
}

// DiskUse is what users of the disk have had, the files' own first; nil where it is theirs alone.
func (f *Files) DiskUse() []vfs.ShareUse {
	if use := f.shares.Use(); len(use) > 1 {
		return use
	}
	return nil
}

// get opens a file at its first use.
func (f *Files) get(path string) (*file, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.open[path]; got != nil {
		return got, nil
	}
	identity, err := mapped.Stamp(path)
	if err != nil {
		return nil, err
	}
	if f.o.Check != nil {
		if err := f.o.Check(); err != nil {
			return nil, err
		}
	}
	opened, err := f.o.FS.OpenFile(path, vfs.OpenOptions{Direct: true, Read: true})
	if errors.Is(err, vfs.ErrNoDirect) {
		if !f.cached {
			f.o.Notice(fmt.Sprintf("%s: its file system has no direct I/O, weights are read through the page cache", path))
			f.cached = true
		}
		opened, err = f.o.FS.OpenFile(path, vfs.OpenOptions{Read: true})
	}
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	got := &file{opened, identity, f.share}
	f.open[path] = got
	return got, nil
}

// stageBytes is the memory that a read of so many bytes needs, whatever the file's alignment.
func stageBytes(n int) int { return (n + 2*mostAlign + pageBytes - 1) / pageBytes * pageBytes }

// mostAlign is the largest alignment of direct I/O that is met.
const mostAlign = 4096

// span reads n bytes of a file from offset on into stage, page-aligned memory of stageBytes, and returns them where they came to lie.
func (f *Files) span(path string, offset int64, n int, stage []byte) ([]byte, error) {
	got, err := f.get(path)
	if err != nil {
		return nil, err
	}
	align := int64(got.Alignment())
	if align > mostAlign {
		return nil, fmt.Errorf("stream: %s: direct I/O wants multiples of %d bytes, at most %d are supported: %w", path, align, mostAlign, ErrRead)
	}
	from, skip, want := window(offset, n, align)
	for made := 1; ; made++ {
		have, err := got.fill(stage[:want], from, skip+n)
		f.read.Add(int64(have))
		if err == nil {
			err = got.identity.CheckUnchanged()
		}
		if err == nil {
			return stage[skip : skip+n], nil
		}
		if changed := got.identity.CheckUnchanged(); changed != nil {
			return nil, changed
		}
		if !f.o.Again(err, made) {
			return nil, fmt.Errorf("stream: %s: %d bytes at %d: %w: %w", path, n, offset, ErrRead, err)
		}
	}
}

// window is the aligned range of a file that n bytes at an offset lie in, the bytes of it before them, and its length.
func window(offset int64, n int, align int64) (from int64, skip, want int) {
	from = offset / align * align
	skip = int(offset - from)
	return from, skip, int((int64(skip+n) + align - 1) / align * align)
}

// fill reads until so many bytes of p have come.
func (g *file) fill(p []byte, off int64, least int) (have int, err error) {
	for have < least {
		n, err := g.share.Read(int64(len(p)-have), func() (int, error) { return g.ReadVecAt([][]byte{p[have:]}, off+int64(have)) })
		have += n
		switch {
		case have >= least:
		case err != nil && !errors.Is(err, io.EOF):
			return have, err
		case n == 0:
			return have, io.ErrUnexpectedEOF
		case n%g.Alignment() != 0: // the next read would not be aligned
			return have, io.ErrUnexpectedEOF
		}
	}
	return have, nil
}

// ReadAt fills p from offset on, whatever its address.
func (f *Files) ReadAt(path string, p []byte, offset int64) error {
	piece := min(len(p), pieceBytes)
	stage := vfs.AlignedBytes(stageBytes(piece))
	defer vfs.FreeAligned(stage)
	for at := 0; at < len(p); at += piece {
		n := min(piece, len(p)-at)
		got, err := f.span(path, offset+int64(at), n, stage)
		if err != nil {
			return err
		}
		copy(p[at:], got)
	}
	return nil
}

// Close closes the files.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for path, got := range f.open {
		errs = append(errs, got.Close())
		delete(f.open, path)
	}
	return errors.Join(errs...)
}
