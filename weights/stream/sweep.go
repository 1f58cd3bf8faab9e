package stream

import "fmt"

// sweep is the layers of a dense model, which a pass goes through in order, one pass after another.
type sweep struct {
	units  []*unit
	pinned []bool
	now    int // the layer that was entered last
}

// Sweeper is who computes with the layers: one pass after another. It belongs to one goroutine at a time.
type Sweeper struct {
	s    *Store
	held []int // layers
}

// Sweeper returns one that holds nothing; End it.
func (s *Store) Sweeper() *Sweeper { return &Sweeper{s: s} }

// Enter waits for a layer, holds it and lets go of others; those that follow are read meanwhile. It is called before anything is
// computed in a layer.
func (t *Sweeper) Enter(layer int) error {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if layer >= len(s.sweep.units) {
		return nil
	}
	t.release()
	if w := &s.sweep; layer != w.now {
		w.now = layer
		s.count(w.units[layer], w.pinned[layer])
	}
	return t.hold(layer)
}

// Peek waits for a layer and holds it beside the one that was entered, until the next Enter.
func (t *Sweeper) Peek(layer int) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if layer >= len(t.s.sweep.units) {
		return nil
	}
	return t.hold(layer)
}

// End lets go of all layers.
func (t *Sweeper) End() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.release()
}

// release lets go of all layers; s.mu is held.
func (t *Sweeper) release() {
	for _, i := range t.held {
		t.s.sweep.units[i].holds--
	}
	if len(t.held) > 0 {
		t.s.moved.Broadcast()
	}
	t.held = t.held[:0]
}

// count counts a layer that was entered; s.mu is held.
func (s *Store) count(u *unit, pinned bool) {
	if pinned {
		return
	}
	use := &s.account.use
	use.Used++
	if u.state == here {
		use.Hits++
	}
	if u.ahead {
		use.Predicted++
	}
}

// hold waits until a layer is here; s.mu is held.
func (t *Sweeper) hold(layer int) error {
	s := t.s
	u := s.sweep.units[layer]
	u.holds++
	t.held = append(t.held, layer)
	if u.ahead = false; u.state == absent {
		u.failure = nil // of reading ahead: who needs it tries for itself
	}
	for {
		switch {
		case s.closed:
			return ErrClosed
		case u.state == here:
			s.readAhead()
			return nil
		case u.state == coming:
			s.hurry(u)
		case u.failure != nil:
			return u.failure
		case !s.beginLayer(layer, &s.urgent) && len(s.urgent)+len(s.early)+s.sweep.flying() == 0:
			return fmt.Errorf("stream: layer %d: all layers that there is room for are in use: %w", layer, ErrBudget)
		}
		s.readAhead()
		if err := s.stall.pause(s); err != nil {
			return err
		}
	}
}

// flying is how many layers are on their way; Store.mu is held.
func (w *sweep) flying() (n int) {
	for _, u := range w.units {
		if u.state == coming {
			n++
		}
	}
	return n
}

// readAhead begins to read the layers that follow, as far as there is room that no nearer one is in; s.mu is held.
func (s *Store) readAhead() {
	w := &s.sweep
	for step := 1; step < len(w.units); step++ {
		i := (w.now + step) % len(w.units)
		u := w.units[i]
		if u.state != absent {
			continue
		}
		if u.failure != nil || !s.beginLayer(i, &s.early) {
			return
		}
		u.ahead = true
		s.account.use.Asked++
	}
}

// beginLayer makes room for a layer, by those that are needed later than it, and begins to read it; s.mu is held.
func (s *Store) beginLayer(layer int, queue *[]*unit) bool {
	w := &s.sweep
	u := w.units[layer]
	for s.held+u.size > s.plan.BudgetBytes {
		furthest, out := w.distance(layer), (*unit)(nil)
		for i, v := range w.units {
			if d := w.distance(i); v.state == here && v.holds == 0 && d > furthest {
				furthest, out = d, v
			}
		}
		if out == nil {
			return false
		}
		s.leave(out)
	}
	s.begin(u, queue)
	return true
}

// distance is how many layers are entered before a layer is again.
func (w *sweep) distance(layer int) int {
	return (layer - w.now + len(w.units)) % len(w.units)
}
