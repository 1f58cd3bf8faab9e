package flash

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"terrace/internal/vfs"
	"terrace/internal/vfs/view"
)

// Options of a store.
type Options struct {
	Geometry Geometry
	// FS is where the folder lies; nil means the operating system's.
	FS vfs.FS
	// NoSync leaves out the syncs: acknowledged groups then survive the process, not the machine.
	NoSync bool
	// GroupBufferBytes is what the group buffer may hold now, asked at every append (it shares the drive's DRAM); nil = nothing:
	// partial groups go to flash.
	GroupBufferBytes func() int64
}

// Store is the flash of one drive, with its translation layer: one lock and one journal stand over reading,
// writing, collecting and recovery, which are files of their own.
type Store struct {
	geo   Geometry
	opts  Options
	dir   string
	lock  io.Closer
	image vfs.File
	view  *view.View // the image as memory; nil where the system has none: it is read by calls

	commitMu sync.Mutex // orders journal and index changes
	journal  *journal
	queueMu  sync.Mutex
	queue    *commit // the next commit, still open for more

	io sync.RWMutex // readers of pages against erasing

	mu     sync.Mutex
	index  *index
	blocks *blocks
	used   int64 // pages: live, or given out for groups on their way
	peak   int64
	counts counts
	life   life
	buffer groupBuffer
	failed error
	closed bool

	housekeeping Housekeeping
}

// counts are totals since the store was opened.
type counts struct {
	PagesRead, PagesProgrammed, PagesMoved, BlocksErased uint64
}

// Open opens a drive's folder or makes it. A folder that another process has is ErrLocked; one of another geometry is
// ErrGeometry; a damaged one ErrCorrupt.
func Open(dir string, o Options) (*Store, error) {
	if err := o.Geometry.Validate(); err != nil {
		return nil, err
	}
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if err := o.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("csdshim: flash: %w", err)
	}
	lock, err := lockFolder(o.FS, dir)
	if err != nil {
		return nil, err
	}
	s := &Store{geo: o.Geometry, opts: o, dir: dir, lock: lock, index: newIndex(), blocks: newBlocks(o.Geometry), life: newLife(o.Geometry)}
	if err := s.open(); err != nil {
		s.closeFiles()
		return nil, err
	}
	return s, nil
}

func (s *Store) open() error {
	if err := s.checkGeometry(); err != nil {
		return err
	}
	var err error
	if s.image, err = s.opts.FS.OpenFile(filepath.Join(s.dir, "flash.img"), vfs.OpenOptions{Create: true}); err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	if m, ok := s.image.(vfs.Mapper); ok {
		s.view, _ = m.Map(int64(s.geo.blocks()) * int64(s.geo.BlockPages) * int64(s.geo.PageBytes)) // no room for it: calls
	}
	if err := remove(s.opts.FS, filepath.Join(s.dir, "journal.new")); err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	if s.journal, err = openJournal(s.opts.FS, filepath.Join(s.dir, "journal"), s.replay); err != nil {
		return fmt.Errorf("csdshim: flash: %s: %w", s.dir, err)
	}
	s.blocks.fill()
	s.peak = s.used
	s.recoverKV()
	return s.compact(false, compactBytes)
}

// geometryForm is the text of geometry.toml.
const geometryForm = "format = %d\n\n[geometry]\nchannels = %d\ndies = %d\nplanes = %d\npage_bytes = %d\nblock_pages = %d\ncapacity_bytes = %d\nspare_percent = %d\n"

// checkGeometry compares the folder's geometry with the one asked for, or writes it down.
func (s *Store) checkGeometry() error {
	path := filepath.Join(s.dir, "geometry.toml")
	form := func(format int, g Geometry) string {
		return fmt.Sprintf(geometryForm, format, g.Channels, g.Dies, g.Planes, g.PageBytes, g.BlockPages, g.CapacityBytes, g.SparePercent)
	}
	text, err := readFile(s.opts.FS, path)
	if errors.Is(err, fs.ErrNotExist) {
		return writeFile(s.opts.FS, path, []byte(form(1, s.geo)))
	}
	if err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	var format int
	var g Geometry
	_, err = fmt.Sscanf(string(text), geometryForm, &format, &g.Channels, &g.Dies, &g.Planes, &g.PageBytes, &g.BlockPages, &g.CapacityBytes, &g.SparePercent)
	if err != nil || form(format, g) != string(text) {
		return fmt.Errorf("csdshim: flash: %s is not as a drive writes it: %w", path, ErrCorrupt)
	}
	if format != 1 || g != s.geo {
		return fmt.Errorf("csdshim: flash: %s was made as %s, asked for is %s: use the same capacity and profile, or another folder: %w", s.dir, describe(format, g), describe(1, s.geo), ErrGeometry)
	}
	return nil
}

func describe(format int, g Geometry) string {
	return fmt.Sprintf("format %d with %d bytes in pages of %d, blocks of %d, %d channels of %d dies with %d planes, %d %% spare", format, g.CapacityBytes, g.PageBytes, g.BlockPages, g.Channels, g.Dies, g.Planes, g.SparePercent)
}

// replay applies one frame of the journal.
func (s *Store) replay(payload []byte) error {
	c := &cursor{b: payload, ok: true}
	for len(c.b) > 0 && c.ok {
		switch kind := c.take(1)[0]; kind {
		case recordSequence:
			s.index.add(c.sequence())
		case recordGroup:
			if err := s.replayGroup(c.group(), c.ok); err != nil {
				return err
			}
		case recordCut:
			if st := s.index.byID[c.u32()]; st != nil {
				s.forget(s.index.cut(st, int(c.u32())))
			} else {
				c.take(4)
			}
		case recordCounters:
			s.index.nextID, s.index.version = max(s.index.nextID, c.u32()), max(s.index.version, c.u32())
		case recordShape, recordRows:
			if err := s.replayKV(kind, c); err != nil {
				return err
			}
		case recordLife, recordErased, recordWear:
			s.replayLife(kind, c)
		default:
			return fmt.Errorf("csdshim: flash: journal: record of kind %d: %w", kind, ErrCorrupt)
		}
	}
	if !c.ok {
		return fmt.Errorf("csdshim: flash: journal: record is cut short: %w", ErrCorrupt)
	}
	return nil
}

func (s *Store) replayGroup(e *entry, ok bool) error {
	st := s.index.byID[e.key.Seq]
	if !ok || st == nil {
		return nil // cut short (reported by the caller), or of a sequence that was dropped while the group was on its way
	}
	if e.key.Layer < 0 || e.key.Layer >= maxIndex || e.key.Group < 0 || e.key.Group > maxIndex || e.key.Table >= tables {
		return fmt.Errorf("csdshim: flash: journal: layer %d, group %d: %w", e.key.Layer, e.key.Group, ErrCorrupt)
	}
	for _, p := range e.pages {
		if int64(p.number) >= int64(len(s.blocks.all))*int64(s.geo.BlockPages) {
			return fmt.Errorf("csdshim: flash: journal: page %d of %d: %w", p.number, len(s.blocks.all)*s.geo.BlockPages, ErrCorrupt)
		}
	}
	old := s.index.put(st, e)
	s.life.group(old, e)
	if old != nil {
		s.forget([]*entry{old})
	}
	for _, p := range e.pages {
		s.blocks.adopt(p.number, e, false)
	}
	s.used += int64(len(e.pages))
	return nil
}

// maxIndex is the largest layer or group number.
const maxIndex = 1 << 24

// forget makes the pages of groups that left the index garbage.
func (s *Store) forget(gone []*entry) {
	for _, e := range gone {
		for _, p := range e.pages {
			s.blocks.invalidate(p.number)
		}
		s.used -= int64(len(e.pages))
	}
}

// lockFolder takes the folder for this process.
func lockFolder(fs vfs.FS, dir string) (io.Closer, error) {
	l, err := fs.Lock(filepath.Join(dir, "lock"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("csdshim: flash: another drive serves the folder: %w: %w", err, ErrLocked)
	}
	if err != nil {
		return nil, fmt.Errorf("csdshim: flash: %w", err)
	}
	return l, nil
}

// Close syncs and releases the folder. Groups that were acknowledged are safe without it.
func (s *Store) Close() error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	totals, failed := appendLife(nil, &s.life), s.failed
	s.mu.Unlock()
	s.io.Lock()
	defer s.io.Unlock()
	if failed == nil {
		_ = s.journal.append(totals, false) // counters only
	}
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	var errs []error
	if s.view != nil {
		errs = append(errs, s.view.Close())
	}
	if s.image != nil {
		errs = append(errs, s.image.Close())
	}
	if s.journal != nil {
		errs = append(errs, s.journal.file.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// maxText bounds what is read of geometry.toml.
const maxText = 64 << 10

// readFile reads a small file.
func readFile(fs vfs.FS, path string) (text []byte, err error) {
	f, err := fs.OpenFile(path, vfs.OpenOptions{})
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.NewSectionReader(f, 0, maxText))
	return text, errors.Join(err, f.Close())
}

// writeFile puts a file there in one step that survives a loss of power.
func writeFile(fs vfs.FS, path string, text []byte) error {
	temp := path + ".new"
	if err := remove(fs, temp); err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	f, err := fs.OpenFile(temp, vfs.OpenOptions{Create: true})
	if err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	err = vfs.WriteFull(f, [][]byte{text}, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fs.Rename(temp, path)
	}
	if err != nil {
		return fmt.Errorf("csdshim: flash: %s: %w", path, err)
	}
	return nil
}

// remove deletes a file; one that is not there is no error.
func remove(in vfs.FS, path string) error {
	if err := in.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
