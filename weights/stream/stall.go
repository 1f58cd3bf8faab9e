package stream

import (
	"fmt"
	"time"
)

// stallAfter is how long no read may end while somebody waits for one.
const stallAfter = 30 * time.Second

// stall watches over reads that do not end.
type stall struct {
	timer   *time.Timer // while somebody waits
	waiting int
	now     bool // no read has ended for stallAfter; until one does
}

// pause waits until a unit came or left; ErrStalled where no read ends. s.mu is held.
func (s *Store) pause() error {
	w := &s.stall
	if w.timer == nil { // a modelled store
		s.await()
		return nil
	}
	if w.waiting++; w.waiting == 1 && !w.now {
		w.timer.Reset(stallAfter)
	}
	if !w.now {
		s.await()
	}
	if w.waiting--; w.waiting == 0 {
		w.timer.Stop()
	}
	if w.now && !s.closed {
		return fmt.Errorf("stream: %s: no read has ended for %v: %w", s.reading(), stallAfter, ErrStalled)
	}
	return nil
}

// reading is a file that is read now; s.mu is held.
func (s *Store) reading() string {
	for u := range s.units {
		if u.flying > 0 {
			return u.parts[0].Path
		}
	}
	return "the model file"
}

// units are those that come and leave; s.mu is held.
func (s *Store) units(yield func(*unit) bool) {
	for _, u := range s.sweep.units {
		if !yield(u) {
			return
		}
	}
	for i := range s.layers {
		for _, u := range s.layers[i].units {
			if !yield(u) {
				return
			}
		}
	}
}

// expired is the timer's: nothing has ended for so long.
func (s *Store) expired() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stall.waiting > 0 {
		s.stall.now = true
		s.moved.Broadcast()
	}
}

// ended notes that a read has; s.mu is held.
func (s *Store) ended() {
	w := &s.stall
	if w.now = false; w.waiting > 0 && w.timer != nil {
		w.timer.Reset(stallAfter)
	}
}
