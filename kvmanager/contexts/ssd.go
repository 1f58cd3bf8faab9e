package contexts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"terrace/internal/vfs"
)

// ssd keeps records in slots of preallocated files, read and written directly. A folder holds
//
//	NNNNNN-SLOT-COUNT.kv1  a segment: COUNT slots of SLOT bytes; a record begins at a slot's beginning with its commit page
//	recency.kv1            when slots were used last, and the generation: hints, never needed
//	lock.kv1               taken by the process that writes
//
// and, where a process died while it made one, NNNNNN-SLOT-COUNT.kv1.tmp. A slot whose first page is zero is free. A record is
// written in four steps, with a sync (fdatasync) behind each of the first three where it changed anything: blank the commit
// pages of records that give way; write the records without their first page; write the first pages; count the generation up.
type ssd struct {
	fs     vfs.FS
	dir    string
	cap    int64
	direct bool
	wait   time.Duration   // for the lock
	fixed  bool            // nothing gives way to others
	yield  func([]*Record) // has what gives way first; nil = nobody

	writing    sync.Mutex // held by who writes; before mu
	mu         sync.Mutex // of what follows
	segs       map[int]*segment
	index      map[Key]place
	old        []*segment // deleted files that a reader may still have open
	recency    vfs.File   // nil = none
	generation uint64
	foreign    int64 // bytes of files of other versions
	readOnly   error // why nothing can be written; nil = it can
}

// segment is one file of equal slots.
type segment struct {
	n, slots int
	slot     int64
	name     string
	file     vfs.File
	have     int // slots that the file is long enough for
	taken    []slotState
}

// slotState is what is known of a slot.
type slotState struct {
	entry   Entry
	present bool
	broken  bool // its record was found damaged: it counts as free
	unread  bool // its commit page could not be read: neither free nor taken
}

// place is a slot.
type place struct {
	seg  *segment
	slot int
}

func (p place) off() int64 { return int64(p.slot) * p.seg.slot }

func (p place) state() *slotState { return &p.seg.taken[p.slot] }

// openSSD opens a folder, made where it is not there. notice is one line about what the file system could not give.
func openSSD(fsys vfs.FS, spec Spec, readOnly bool) (s *ssd, notice string, err error) {
	dir := spec.Place
	s = &ssd{fs: fsys, dir: dir, cap: spec.CapacityBytes, direct: !spec.Buffered, wait: lockWait, segs: map[int]*segment{}, index: map[Key]place{}}
	if readOnly {
		s.readOnly = ErrReadOnly
	} else if err := fsys.MkdirAll(dir); err != nil {
		s.readOnly = err
	}
	if _, err := fsys.List(dir); err != nil {
		return nil, "", fmt.Errorf("contexts: %w", err)
	}
	if err := s.scan(); err != nil {
		return nil, "", errors.Join(err, s.close())
	}
	if !s.direct && !spec.Buffered {
		notice = "no direct I/O in this file system: records pass the page cache"
	}
	if s.foreign > 0 {
		notice = fmt.Sprintf("%d bytes of another version's files lie there, which are left alone", s.foreign)
	}
	return s, notice, nil
}

// open opens a file of the folder, directly where that can be, for reading alone where it cannot be written.
func (s *ssd) open(name string, create bool) (vfs.File, error) {
	path, o := filepath.Join(s.dir, name), vfs.OpenOptions{Create: create, Direct: s.direct, Read: errors.Is(s.readOnly, ErrReadOnly)}
	f, err := s.fs.OpenFile(path, o)
	if errors.Is(err, vfs.ErrNoDirect) {
		s.direct, o.Direct = false, false
		f, err = s.fs.OpenFile(path, o)
	}
	if err != nil && !create && !o.Read && !errors.Is(err, fs.ErrNotExist) {
		o.Read = true
		if r, rerr := s.fs.OpenFile(path, o); rerr == nil {
			s.readOnly = err
			return r, nil
		}
	}
	return f, err
}

// scan makes the index from the slots' commit pages. What cannot be opened holds nothing.
func (s *ssd) scan() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	s.openRecency()
	s.generation = s.readGeneration()
	s.foreign = 0
	seen := map[int]bool{}
	for _, name := range names {
		n, slot, slots, kind := parseName(name)
		switch {
		case kind == foreignFile:
			s.foreign += s.sizeOf(name)
		case kind == segmentFile:
			if s.segs[n] == nil || s.segs[n].name != name {
				s.forget(n)
				if f, err := s.open(name, false); err == nil {
					s.segs[n] = &segment{n: n, slots: slots, slot: slot, name: name, file: f, taken: make([]slotState, slots)}
				}
			}
			seen[n] = true
		}
	}
	for n := range s.segs {
		if !seen[n] {
			s.forget(n)
		}
	}
	return s.readPages()
}

// forget lets a segment go whose file is gone; who reads it may go on.
func (s *ssd) forget(n int) {
	if g := s.segs[n]; g != nil {
		s.old = append(s.old, g)
		delete(s.segs, n)
	}
}

// scanWorkers is how many commit pages are read at a time.
const scanWorkers = 16

// readPages reads every slot's commit page.
func (s *ssd) readPages() error {
	var group errgroup.Group
	group.SetLimit(scanWorkers)
	for _, g := range s.segs {
		size, err := g.file.Size()
		if err != nil {
			size = 0
		}
		g.have = int(min(size/g.slot, int64(g.slots)))
		for first := 0; first < g.slots; first += scanWorkers {
			group.Go(func() error {
				page := alignedBytes(pageBytes)
				for i := first; i < min(first+scanWorkers, g.slots); i++ {
					g.taken[i] = readSlot(g, i, page)
				}
				return nil
			})
		}
	}
	err := group.Wait()
	clear(s.index)
	for _, g := range s.segs {
		for i := range g.taken {
			if st := &g.taken[i]; st.present && !st.broken && !st.unread {
				s.index[st.entry.Key] = place{g, i}
			}
		}
	}
	return err
}

// readSlot looks at a slot; a record that was found damaged before stays so until its commit page changes.
func readSlot(g *segment, i int, page []byte) slotState {
	if i >= g.have {
		return slotState{}
	}
	if err := vfs.ReadFull(g.file, [][]byte{page}, int64(i)*g.slot); err != nil {
		return slotState{present: true, unread: true}
	}
	if isBlank(page) {
		return slotState{}
	}
	m, total, _, err := parseHeader(page)
	if err != nil || total > g.slot {
		return slotState{present: true, broken: true}
	}
	was := g.taken[i]
	return slotState{entry: Entry{Meta: m, Bytes: total}, present: true, broken: was.broken && was.entry.Meta == m}
}

// look finds a record's slot; where another process has written since, the folder is looked at again.
func (s *ssd) look(key Key) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.index[key]; ok {
		return p, true
	}
	if s.readGeneration() == s.generation {
		return place{}, false
	}
	if err := s.scan(); err != nil {
		return place{}, false
	}
	p, ok := s.index[key]
	return p, ok
}

func (s *ssd) has(key Key) bool { _, ok := s.look(key); return ok }

func (s *ssd) read(_ context.Context, key Key) (*Record, error) {
	p, ok := s.look(key)
	if !ok {
		return nil, ErrMiss
	}
	s.mu.Lock()
	e := p.state().entry
	s.mu.Unlock()
	if e.Key != key {
		return nil, ErrMiss
	}
	r, err := p.read(e)
	if err == nil && r.Key == key {
		return r, nil
	}
	return nil, s.lost(p, e, err)
}

// read reads the record that lies in a slot.
func (p place) read(e Entry) (*Record, error) {
	raw := alignedBytes(int(e.Bytes))
	if err := vfs.ReadFull(p.seg.file, [][]byte{raw}, p.off()); err != nil {
		return nil, err
	}
	return Parse(raw)
}

// readPart implements parted.
func (s *ssd) readPart(_ context.Context, key Key, dst []byte, off int64) (int, error) {
	p, ok := s.look(key)
	if !ok {
		return 0, ErrMiss
	}
	s.mu.Lock()
	e := p.state().entry
	s.mu.Unlock()
	if e.Key != key || off >= e.Bytes {
		return 0, ErrMiss
	}
	dst = dst[:min(int64(len(dst)), e.Bytes-off)]
	return len(dst), vfs.ReadFull(p.seg.file, [][]byte{dst}, p.off()+off)
}

// lost is the error of a record that could not be read: a miss where somebody has written over it since, or taken its file away.
// A damaged one's slot is free from now on; one that the device does not give is left alone.
func (s *ssd) lost(p place, e Entry, err error) error {
	now := readSlot(p.seg, p.slot, alignedBytes(pageBytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := p.state(); st.entry.Meta == e.Meta {
		if at, ok := s.index[e.Key]; ok && at == p {
			delete(s.index, e.Key)
		}
		st.broken, st.unread = errors.Is(err, ErrDamaged), !errors.Is(err, ErrDamaged)
	}
	gone := s.segs[p.seg.n] != p.seg || errors.Is(err, io.ErrUnexpectedEOF)
	if err == nil || gone || !now.present || !now.broken && !now.unread && now.entry.Meta != e.Meta {
		return ErrMiss
	}
	return fmt.Errorf("contexts: %s, slot %d: %w", filepath.Join(s.dir, p.seg.name), p.slot, err)
}

func (s *ssd) list(context.Context) (out []Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.index {
		e := p.state().entry
		e.Used = s.usedAt(p)
		out = append(out, e)
	}
	return out, nil
}

func (s *ssd) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.index {
		n += p.state().entry.Bytes
	}
	return n
}

func (s *ssd) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, g := range s.segs {
		err = errors.Join(err, g.file.Close())
	}
	for _, g := range s.old {
		err = errors.Join(err, g.file.Close())
	}
	if s.recency != nil {
		err = errors.Join(err, s.recency.Close())
	}
	s.segs, s.old, s.recency = nil, nil, nil
	clear(s.index)
	return err
}
