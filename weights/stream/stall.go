package stream

import (
	"fmt"
	"slices"
	"time"
)

// stallAfter is how long no read may end while somebody waits for one.
const stallAfter = 30 * time.Second

// stall is how the store waits, and watches over reads that do not end.
type stall struct {
	await   func()      // waits until a unit came or left; Store.mu is held
	timer   *time.Timer // while somebody waits
	since   time.Time   // the timer was set
	waiting int
	now     bool // no read has ended for stallAfter; until one does
}

// pause waits until a unit came or left; ErrStalled where no read ends. s.mu is held.
func (w *stall) pause(s *Store) error {
	if w.timer == nil { // a modelled store
		w.await()
		return nil
	}
	if w.waiting++; w.waiting == 1 && !w.now {
		w.set()
	}
	if !w.now {
		w.await()
	}
	if w.waiting--; w.waiting == 0 {
		w.timer.Stop()
	}
	if w.now && !s.closed {
		return fmt.Errorf("stream: %s: no read has ended for %v: %w", reading(s), stallAfter, ErrStalled)
	}
	return nil
}

// reading is a file that is read now; s.mu is held.
func reading(s *Store) string {
	all := slices.Clone(s.sweep.units)
	for i := range s.layers {
		all = append(all, s.layers[i].units...)
	}
	for _, u := range all {
		if u.flying > 0 {
			return u.parts[0].Path
		}
	}
	return "the model file"
}

// expired is the timer's: nothing has ended for so long.
func (w *stall) expired(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.waiting > 0 && time.Since(w.since) >= stallAfter { // else it was set again meanwhile
		w.now = true
		s.moved.Broadcast()
	}
}

// ended notes that a read has; Store.mu is held.
func (w *stall) ended() {
	if w.now = false; w.waiting > 0 && w.timer != nil {
		w.set()
	}
}

// set starts the time again.
func (w *stall) set() {
	w.since = time.Now()
	w.timer.Reset(stallAfter)
}
