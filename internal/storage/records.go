package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"terrace/internal/vfs"
)

// Records are values under names, each in a file NAME.kvVERSION of a folder, where VERSION is that of the values' format. A file is written
// under another name (behind it .tmp), synced and renamed, and never changed.
type Records struct {
	folder *Folder
	suffix string
	named  func(name string) bool
	most   int64

	mu   sync.Mutex
	open map[string]*handle // of which more will be read
	old  []*handle          // the same, the oldest first
}

// tmpSuffix ends the names of files that are not finished.
const tmpSuffix = ".tmp"

// Value is a record to be stored.
type Value struct {
	Name  string
	Bytes []byte    // a multiple of PageBytes
	Used  time.Time // as Scan gives it
}

// NewRecords are the records of a folder; named says which names are theirs, mostBytes how long one may be.
func NewRecords(folder *Folder, version int, mostBytes int64, named func(string) bool) *Records {
	return &Records{folder: folder, suffix: ".kv" + strconv.Itoa(version), named: named, most: mostBytes, open: map[string]*handle{}}
}

// Scan lists the records, with when they were used last, and what lies there besides: files of other versions, and unfinished ones.
func (r *Records) Scan() (records, foreign, unfinished []vfs.Info, err error) {
	list, err := r.folder.FS.List(r.folder.dir)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("storage: %w", err)
	}
	for _, x := range list {
		name, tmp := strings.CutSuffix(x.Name, tmpSuffix)
		name, ours := strings.CutSuffix(name, r.suffix)
		switch _, version, _ := cutLast(x.Name, ".kv"); {
		case tmp && ours && r.named(name):
			unfinished = append(unfinished, x)
		case ours && r.named(name):
			x.Name = name
			records = append(records, x)
		case !ours && !tmp && isNumber(version):
			foreign = append(foreign, x)
		}
	}
	return records, foreign, unfinished, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if at := strings.LastIndex(s, sep); at > 0 {
		return s[:at], s[at+len(sep):], true
	}
	return s, "", false
}

func isNumber(s string) bool { _, err := strconv.ParseUint(s, 10, 16); return err == nil }

// Size is how long a record is, found by looking; ErrMissing.
func (r *Records) Size(name string) (int64, error) {
	f, err := r.folder.FS.OpenFile(r.folder.Path(name+r.suffix), vfs.OpenOptions{Read: true})
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("storage: %s: %w", name, ErrMissing)
	}
	if err != nil {
		return 0, fmt.Errorf("storage: %w", err)
	}
	size, err := f.Size()
	return size, errors.Join(err, f.Close())
}

// syncWorkers is how many files are synced at a time: file systems make several syncs one.
const syncWorkers = 16

// Put stores values, in order, as far as that can be; n of them are there for certain. Who puts has the folder's lock.
func (r *Records) Put(values []Value) (n int, err error) {
	var files []vfs.File
	var from, to []string
	for _, v := range values {
		f, begun := r.begin(v)
		if err = begun; err != nil {
			break
		}
		files = append(files, f)
		to = append(to, r.folder.Path(v.Name+r.suffix))
		from = append(from, to[len(to)-1]+tmpSuffix)
	}
	var group errgroup.Group
	group.SetLimit(syncWorkers)
	synced := make([]error, len(files))
	for i, f := range files {
		group.Go(func() error {
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				synced[i] = fmt.Errorf("storage: %w", err)
			}
			return nil
		})
	}
	_ = group.Wait()
	if n = slices.IndexFunc(synced, func(err error) bool { return err != nil }); n >= 0 {
		err = synced[n]
	} else {
		n = len(files)
	}
	for i, name := range from[:n] {
		_ = r.folder.FS.SetTime(name, values[i].Used) // a hint
	}
	if e := r.folder.FS.RenameAll(from[:n], to[:n]); e != nil {
		n, err = 0, fmt.Errorf("storage: %w", e)
	}
	for _, name := range from[n:] {
		_ = r.folder.FS.Remove(name) // Recover does, where this does not
	}
	return n, err
}

// begin writes a value to a file that is not finished.
func (r *Records) begin(v Value) (vfs.File, error) {
	name := v.Name + r.suffix + tmpSuffix
	if len(v.Bytes)%PageBytes != 0 || !r.named(v.Name) {
		return nil, fmt.Errorf("storage: record %s of %d bytes, want a multiple of %d: %w", v.Name, len(v.Bytes), PageBytes, ErrShape)
	}
	f, err := r.folder.Open(name, vfs.OpenOptions{Create: true})
	if err != nil {
		return nil, err
	}
	b := v.Bytes
	if !vfs.Aligned(b, f.Alignment()) {
		b = append(Aligned(len(b))[:0], b...)
	}
	err = tried(func() error {
		err := f.Truncate(0)
		if err == nil {
			err = f.Preallocate(int64(len(b)))
		}
		if err == nil {
			err = vfs.WriteFull(f, [][]byte{b}, 0)
		}
		if errors.Is(err, vfs.ErrNoSpace) {
			err = fmt.Errorf("%w: %w", err, ErrFull)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("storage: %w", err), f.Close(), r.folder.FS.Remove(r.folder.Path(name)))
	}
	return f, nil
}

// handle is an open record.
type handle struct {
	name  string
	f     vfs.File
	bytes int64
	users int
	gone  bool // closed by its last user
}

// maxOpen is how many records stay open between two reads of their parts.
const maxOpen = 512

// take opens a record, or finds it open.
func (r *Records) take(name string) (*handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.open[name]; h != nil {
		h.users++
		return h, nil
	}
	f, err := r.folder.Open(name+r.suffix, vfs.OpenOptions{Read: true})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("storage: %s: %w", name, ErrMissing)
	}
	if err != nil {
		return nil, err
	}
	h := &handle{name: name, f: f, users: 1}
	if h.bytes, err = f.Size(); err == nil && (h.bytes == 0 || h.bytes%PageBytes != 0 || h.bytes > r.most) {
		err = fmt.Errorf("storage: %s%s has %d bytes, want a multiple of %d up to %d: %w", name, r.suffix, h.bytes, PageBytes, r.most, ErrCorrupt)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.open[name], r.old = h, append(r.old, h)
	if len(r.old) > maxOpen {
		r.drop(r.old[0])
	}
	return h, nil
}

// drop has a record closed, now or by its last user. r.mu is held.
func (r *Records) drop(h *handle) {
	h.gone = true
	delete(r.open, h.name)
	r.old = slices.DeleteFunc(r.old, func(o *handle) bool { return o == h })
	if h.users == 0 {
		_ = h.f.Close() // it was read only
	}
}

// give ends a read of a record; it stays open if more of it will be read.
func (r *Records) give(h *handle, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.users--
	if h.gone && h.users == 0 {
		_ = h.f.Close()
	} else if !h.gone && !more {
		r.drop(h)
	}
}

// Forget closes records, all of them where none is named: what others put in their place is found, and the room of what others removed is free.
func (r *Records) Forget(names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range slices.Clone(r.old) {
		if len(names) == 0 || slices.Contains(names, h.name) {
			r.drop(h)
		}
	}
}

// Get reads a record, or its first most bytes where most > 0. ErrMissing, ErrCorrupt where its length is none that a record has.
func (r *Records) Get(name string, most int64) ([]byte, error) {
	h, err := r.take(name)
	if err != nil {
		return nil, err
	}
	defer r.give(h, false)
	if most <= 0 {
		most = h.bytes
	}
	b := Aligned(int(min(most, h.bytes)))
	if err := r.read(h, b, 0); err != nil {
		return nil, err
	}
	return b, nil
}

// ReadPart reads a record's bytes from off on into dst, as far as it goes; it returns how many. off and len(dst) are multiples of PageBytes. The
// last part closes the record's file.
func (r *Records) ReadPart(name string, dst []byte, off int64) (n int, err error) {
	h, err := r.take(name)
	if err != nil {
		return 0, err
	}
	defer func() { r.give(h, err == nil && off+int64(n) < h.bytes) }()
	if off >= h.bytes {
		return 0, fmt.Errorf("storage: %s ends at %d: %w", name, h.bytes, ErrMissing)
	}
	n = int(min(int64(len(dst)), h.bytes-off))
	return n, r.read(h, dst[:n], off)
}

func (r *Records) read(h *handle, b []byte, off int64) error {
	err := tried(func() error { return vfs.ReadFull(h.f, [][]byte{b}, off) })
	if err != nil {
		return fmt.Errorf("storage: %s%s: %w", h.name, r.suffix, err)
	}
	return nil
}

// Touch notes that a record was used; one that is not there is no error.
func (r *Records) Touch(name string, used time.Time) {
	_ = r.folder.FS.SetTime(r.folder.Path(name+r.suffix), used) // a hint
}

// Remove deletes records; those that are not there are no error.
func (r *Records) Remove(names ...string) error {
	r.Forget(names...)
	var files []string
	for _, name := range names {
		files = append(files, name+r.suffix)
	}
	return r.RemoveFiles(files)
}

// RemoveFiles deletes files of the folder, as Scan gives them.
func (r *Records) RemoveFiles(names []string) (err error) {
	for _, name := range names {
		if e := r.folder.FS.Remove(r.folder.Path(name)); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("storage: %w", e))
		}
	}
	return err
}
