package engine

// behind takes drives' answers to the questions about the next layer while this one is still computed: it decides what that
// layer reads and begins to fetch it, so that a layer's questions and its fetches both hide behind compute. Between
// settleBehind and joinBehind nothing else touches the sessions' placement, policy and cache.
type behind struct {
	stop chan struct{} // closed: what has no answer yet is left to the layer itself
	done chan struct{} // closed: err is set; nil = nothing is under way
	err  error
}

// settleBehind takes the answers about a layer that are there, and waits for the others in the background.
func (e *Engine) settleBehind(sessions []*Session, layer int) error {
	e.talk()
	defer e.talk()
	waiting := false
	for _, s := range sessions {
		p := s.place
		switch {
		case p == nil || p.hie == nil || layer >= e.m.Layers || !p.hie.layers[layer].asking:
		case !p.hie.answered(layer):
			waiting = true
		default:
			if err := p.settle(layer); err != nil {
				return err
			}
		}
	}
	if !waiting {
		return nil
	}
	b := &e.behind
	b.stop, b.done, b.err = make(chan struct{}), make(chan struct{}), nil
	go b.run(sessions, layer)
	return nil
}

// run settles the sessions' layer one after another, as their answers come.
func (b *behind) run(sessions []*Session, layer int) {
	defer close(b.done)
	b.err = guarded(func() error {
		for _, s := range sessions {
			p := s.place
			if p == nil || p.hie == nil || !p.hie.layers[layer].asking {
				continue
			}
			select {
			case <-p.hie.layers[layer].ask.done:
			case <-b.stop:
				return nil
			}
			if err := p.settle(layer); err != nil {
				return err
			}
		}
		return nil
	})
}

// joinBehind ends what settleBehind has begun: an answer that is being taken is, those that have not come are not waited for.
func (e *Engine) joinBehind() error {
	b := &e.behind
	if b.done == nil {
		return nil
	}
	close(b.stop)
	<-b.done
	b.done = nil
	return b.err
}

// talk lets what talks to a drive run between two pieces of work, where it shares a core with those who compute.
func (e *Engine) talk() {
	if e.tiers != nil && e.tiers.drive {
		yield()
	}
}
