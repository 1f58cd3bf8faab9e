package contexts

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"terrace/internal/vfs"
)

func (s *ssd) remove(ctx context.Context, keys []Key) error {
	var places []place
	return s.turn(ctx, func() error {
		for _, k := range keys {
			if at, ok := s.index[k]; ok {
				places = append(places, at)
				delete(s.index, k)
				at.state().broken = true
			}
		}
		return nil
	}, func() error { return s.blank(places) })
}

// blank frees slots.
func (s *ssd) blank(places []place) error {
	if len(places) == 0 {
		return nil
	}
	zero := alignedBytes(pageBytes)
	for _, at := range places {
		if err := vfs.WriteFull(at.seg.file, [][]byte{zero}, at.off()); err != nil {
			return fmt.Errorf("contexts: %w", err)
		}
	}
	err := syncAll(places)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range places {
		*at.state() = slotState{}
	}
	s.wrote()
	return err
}

// verify reads every record, and says which files are shorter than their name says.
func (s *ssd) verify(ctx context.Context, note func(Finding)) error {
	s.mu.Lock()
	err := s.scan()
	var segs []*segment
	for _, g := range s.segs {
		segs = append(segs, g)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, g := range segs {
		if g.have < g.slots {
			note(Finding{filepath.Join(s.dir, g.name), fmt.Errorf("contexts: %d of %d slots are there: the file was cut: %w", g.have, g.slots, ErrDamaged)})
		}
		for i := range g.have {
			if err := ctx.Err(); err != nil {
				return err
			}
			if found, ok := s.check(place{g, i}); ok {
				note(found)
			}
		}
	}
	return nil
}

// check reads what a slot holds; ok is false where that is nothing.
func (s *ssd) check(at place) (f Finding, ok bool) {
	f.What = fmt.Sprintf("%s, slot %d", filepath.Join(s.dir, at.seg.name), at.slot)
	page := alignedBytes(pageBytes)
	if f.Err = vfs.ReadFull(at.seg.file, [][]byte{page}, at.off()); f.Err != nil {
		return f, true
	}
	if isBlank(page) {
		return f, false
	}
	m, total, _, err := parseHeader(page)
	if err == nil && total > at.seg.slot {
		err = fmt.Errorf("contexts: a record of %d bytes in a slot of %d: %w", total, at.seg.slot, ErrDamaged)
	}
	if err != nil {
		f.Err = err
		return f, true
	}
	f.What += ", record " + m.Key.String()[:12]
	raw := alignedBytes(int(total))
	if f.Err = vfs.ReadFull(at.seg.file, [][]byte{raw}, at.off()); f.Err == nil {
		_, f.Err = Parse(raw)
	}
	if f.Err != nil { // somebody may be writing over it
		if now := readSlot(at.seg, at.slot, page); !now.present || now.entry.Meta != m {
			return f, false
		}
	}
	return f, true
}

// gc frees the slots of damaged records, and deletes what a process that died left, files of other versions, and segments that
// hold nothing.
func (s *ssd) gc(ctx context.Context) (freed int64, err error) {
	var bad []place
	if err := s.verify(ctx, func(Finding) {}); err != nil {
		return 0, err
	}
	err = s.turn(ctx, func() error {
		names, err := s.fs.List(s.dir)
		if err != nil {
			return fmt.Errorf("contexts: %w", err)
		}
		for _, name := range names {
			if _, _, _, kind := parseName(name); kind == unfinishedFile || kind == foreignFile {
				freed += s.sizeOf(name)
				err = errors.Join(err, s.fs.Remove(filepath.Join(s.dir, name)))
			}
		}
		s.foreign = 0
		for _, g := range s.segs {
			empty, before := true, len(bad)
			for i := range g.have {
				at := place{g, i}
				if f, ok := s.check(at); ok && f.Err != nil {
					freed += g.slot
					bad = append(bad, at)
				} else if ok {
					empty = false
				}
			}
			if empty {
				bad = bad[:before]
				freed += g.slot * int64(g.slots)
				err = errors.Join(err, s.delete(g))
			}
		}
		return err
	}, func() error { return s.blank(bad) })
	return freed, err
}
