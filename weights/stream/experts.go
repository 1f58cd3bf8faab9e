package stream

// layer is one layer's experts.
type layer struct {
	units []*unit
	clock int64 // tokens that have chosen among them
	bytes int64 // here or coming
	share int64 // that it may hold without giving way to others
}

// divide shares out the room for experts: each layer gets its part, less what is left for those that are on their way.
func (s *Store) divide() {
	room, all, most, count := s.plan.BudgetBytes-s.plan.PinnedBytes(), int64(0), int64(0), 0
	for i := range s.layers {
		for _, u := range s.layers[i].units {
			all += u.size
			most = max(most, u.size)
			count++
		}
	}
	if all > room {
		room -= min(room/8, most*int64(2*max(s.plan.Used, 1)))
	}
	for i := range s.layers {
		own := int64(0)
		for _, u := range s.layers[i].units {
			own += u.size
		}
		if all > 0 {
			s.layers[i].share = int64(float64(room) * float64(own) / float64(all))
		}
	}
}

// Step is a pass's use of one layer's experts, from Use to End.
type Step struct {
	s     *Store
	layer int
	left  []int // experts that were not given out, in order
	order bool
	now   int // given out last; -1 = none
}

// Use begins a step of n tokens in a layer: rows[e] of them chose expert e. What is not there is read. In order, experts come as they
// are numbered; otherwise those that are there first. A step ends with End, whatever happened.
func (s *Store) Use(step *Step, layer int, rows func(expert int) int, n int, order bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*step = Step{s: s, layer: layer, left: step.left[:0], order: order, now: -1}
	l := &s.layers[layer]
	l.clock += int64(n)
	use := &s.account.use
	for e, u := range l.units {
		k := rows(e)
		if k == 0 {
			if u.ahead {
				u.ahead = false
				use.Wasted++
				s.account.trust.learn(false)
			}
			continue
		}
		u.keep.chosen(float64(k)/float64(n), int64(n), l.clock)
		step.left = append(step.left, e)
		u.holds++
		use.Used++
		switch u.state {
		case here:
			use.Hits++
		case absent:
			u.failure = nil // of a prediction: the step tries for itself
		}
		if u.ahead {
			u.ahead = false
			use.Predicted++
			s.account.trust.learn(true)
			s.hurry(u)
		}
	}
	step.fetch()
}

// fetch begins to read what is not there, as far as there is room; s.mu is held.
func (t *Step) fetch() {
	l := &t.s.layers[t.layer]
	for _, e := range t.left {
		if u := l.units[e]; u.state == absent && u.failure == nil && !t.s.beginExpert(t.layer, u, &t.s.urgent, true) {
			return
		}
	}
}

// Next waits for an expert that the step has not had and returns it; its matrices stay until the next call. ok is false behind the last.
func (t *Step) Next() (expert int, ok bool, err error) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.release()
	if len(t.left) == 0 {
		return 0, false, nil
	}
	l := &s.layers[t.layer]
	for {
		t.fetch()
		at, err := t.ready(l)
		if err != nil {
			return 0, false, err
		}
		if at >= 0 {
			t.now = t.left[at]
			t.left = append(t.left[:at], t.left[at+1:]...)
			return t.now, true, nil
		}
		if !t.giveWay(l) {
			if err := s.stall.pause(s); err != nil {
				return 0, false, err
			}
		}
	}
}

// giveWay lets the step's last expert that is there leave, to be read again, where the one whose turn it is finds no room beside those
// that wait for theirs; s.mu is held.
func (t *Step) giveWay(l *layer) bool {
	if !t.order || l.units[t.left[0]].state != absent {
		return false
	}
	for i := len(t.left) - 1; i > 0; i-- {
		if u := l.units[t.left[i]]; u.state == here && u.holds == 1 {
			t.s.leave(u)
			return true
		}
	}
	return false
}

// ready is the place in left of an expert that is there and whose turn it is, -1 for none; s.mu is held.
func (t *Step) ready(l *layer) (int, error) {
	if t.s.closed {
		return -1, ErrClosed
	}
	for i, e := range t.left {
		switch u := l.units[e]; {
		case u.state == here:
			return i, nil
		case u.failure != nil:
			return -1, u.failure
		}
		if t.order {
			return -1, nil
		}
	}
	return -1, nil
}

// release lets go of the expert that was given out last; s.mu is held.
func (t *Step) release() {
	if t.now >= 0 {
		t.s.layers[t.layer].units[t.now].holds--
		t.s.moved.Broadcast()
		t.now = -1
	}
}

// End lets go of all that the step held.
func (t *Step) End() {
	if t.s == nil {
		return
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.release()
	l := &t.s.layers[t.layer]
	for _, e := range t.left {
		l.units[e].holds--
		l.units[e].failure = nil // which is the next step's to find again
	}
	t.left, t.s = t.left[:0], nil
}

// Predict begins to read what of the experts of a layer is not there: those that the next step in it will probably choose. It waits for
// nothing, and takes no memory from what is held. Where predictions were lately wrong more often than right it does nothing, but now and
// then, to see whether they have become better.
func (s *Store) Predict(layer int, experts []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || layer >= len(s.layers) || len(s.layers[layer].units) == 0 || !s.account.trust.given() {
		return
	}
	l := &s.layers[layer]
	for _, e := range experts {
		l.units[e].holds++ // none leaves for another
	}
	for _, e := range experts {
		u := l.units[e]
		if u.state != absent {
			continue
		}
		if !s.beginExpert(layer, u, &s.early, false) {
			break
		}
		u.ahead = true
		s.account.use.Asked++
	}
	for _, e := range experts {
		l.units[e].holds--
	}
}

// beginExpert makes room for an expert and begins to read it; false where there is no room yet; s.mu is held.
func (s *Store) beginExpert(layer int, u *unit, queue *[]*unit, needed bool) bool {
	for s.held+u.size > s.plan.BudgetBytes {
		out := s.leaver(layer, u.size, needed)
		if out == nil {
			return false
		}
		s.leave(out)
	}
	s.layers[layer].bytes += u.size
	u.owner = &s.layers[layer]
	s.begin(u, queue)
	return true
}

// leaver chooses the expert that leaves for one of a layer: the least worth of the layer that is furthest above its share with it, else
// of the layer's own, else, where a step waits, of any, and of what a prediction asked for. nil: all are held or on their way; s.mu is
// held.
func (s *Store) leaver(layer int, need int64, needed bool) (out *unit) {
	most := int64(0)
	for i := range s.layers {
		l := &s.layers[i]
		over := l.bytes - l.share
		if i == layer {
			over += need
		}
		if over > most {
			if u := l.least(false); u != nil {
				out, most = u, over
			}
		}
	}
	if out == nil {
		out = s.layers[layer].least(false)
	}
	for i := 0; out == nil && needed && i < 2*len(s.layers); i++ {
		out = s.layers[i%len(s.layers)].least(i >= len(s.layers))
	}
	return out
}

// least is the layer's expert that is worth least of those that may leave, with or without those that a prediction asked for; nil for
// none.
func (l *layer) least(ahead bool) (out *unit) {
	worth := 0.0
	for _, u := range l.units {
		if u.state != here || u.holds > 0 || u.ahead && !ahead {
			continue
		}
		if w := u.keep.now(l.clock); out == nil || w < worth {
			out, worth = u, w
		}
	}
	return out
}
