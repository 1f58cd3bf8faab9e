package engine

import (
	"fmt"

	"terrace/attention"
	"terrace/internal/trace"
	"terrace/kvmanager"
	"terrace/kvmanager/tokencache"
	"terrace/policy"
)

// placement is where the tokens of a session under a selecting policy lie: a pool in host memory and the rest below. A
// decode step reads the selected tokens alone; what of them is not in the pool is fetched, a layer ahead where the policy
// scores with a query that is known before the layer's own.
type placement struct {
	run    *policyRun
	s      *Session
	pool   *tokencache.Cache // nil until the prompt's end
	pooled []bool            // [Layers] that the policy selects in
	whole  []bool            // [Layers] of them, those that the last step read whole
	ahead  []bool            // [Layers] chosen already for this step
	moves  policy.Moves
	hie    *hie // the drive scores what is cold; nil = the host scores all

	counted tokencache.Stats // up to the last step
	limit   int              // slots that a lane of the pool may have
	sharers int              // pools that shared the budget when that was set

	sketchBytes int64 // charged
	scratch     []tokencache.Scratch
	build       func(worker, i int)
}

// newPlacement prepares a session under a policy whose selections can be read from a pool; nil for others.
func (e *Engine) newPlacement(s *Session) *placement {
	r := s.policy
	if e.tiers == nil || r == nil || r.set.Selector == nil || r.set.Dropper != nil || r.set.Pruner != nil || r.needs.ValueMean || e.kv.Layout().K.Quantised() || e.kv.Layout().V.Quantised() {
		return nil
	}
	switch r.needs.Sketch.Kind {
	case policy.SketchNone, policy.SketchExact, policy.SketchDims: // they read every key
		if r.below == nil {
			return nil
		}
	}
	p := &placement{run: r, s: s, pooled: make([]bool, e.m.Layers), whole: make([]bool, e.m.Layers), ahead: make([]bool, e.m.Layers),
		scratch: make([]tokencache.Scratch, e.o.Threads)}
	for layer := range p.pooled {
		p.pooled[layer] = r.global(layer)
	}
	p.hie = e.newHIE(p)
	p.build = func(worker, i int) { p.pool.Build(i, &p.scratch[worker]) }
	return p
}

// extent is what a pass does to the session's KV.
func (p *placement) extent(x kvmanager.Extent) kvmanager.Extent {
	if p == nil {
		return x
	}
	x.Pooled = p.pooled
	if p.pool != nil && x.Tokens == 0 { // a decode step
		x.Pooled = make([]bool, len(p.pooled))
		for layer := range x.Pooled {
			x.Pooled[layer] = p.pooled[layer] && !p.whole[layer]
		}
	}
	return x
}

// serves reports whether a decode pass leaves a layer to the pool.
func (p *placement) serves(layer int) bool {
	return p != nil && p.pool != nil && p.pool.Serves(layer) && !p.whole[layer]
}

// selects reports whether a decode pass asks the policy what it reads of a layer.
func (p *placement) selects(layer int) bool { return p != nil && p.pool != nil && p.pooled[layer] }

// free gives the pool and the charges back.
func (p *placement) free() error {
	if p == nil {
		return nil
	}
	p.hie.end()
	p.s.e.kv.Refund(p.sketchBytes)
	p.sketchBytes = 0
	err := p.pool.Free()
	if p.pool != nil {
		p.s.e.tiers.pools--
	}
	p.pool = nil
	return err
}

// charge counts the sketches against the budget.
func (p *placement) charge() error {
	var n int64
	for i := range p.run.state {
		if sc := p.run.state[i].index; sc != nil {
			n += sc.Bytes()
		}
	}
	if p.hie != nil {
		p.hie.count(n)
	}
	if n <= p.sketchBytes {
		return nil
	}
	if err := p.s.e.kv.Charge(n - p.sketchBytes); err != nil {
		return fmt.Errorf("engine: what policy %s scans of the keys: %w", p.run.set, err)
	}
	p.sketchBytes = n
	return nil
}

// prompted takes a layer's newest tokens into the pool at the end of a prompt, after its sketch was made; where a drive
// scores, those tokens' sketch is made here.
func (p *placement) prompted(layer int) error {
	if p == nil || !p.pooled[layer] {
		return nil
	}
	if err := p.charge(); err != nil {
		return err
	}
	e, n := p.s.e, p.s.seq.Tokens(layer, 0)
	if p.pool == nil {
		if err := p.openPool(n); err != nil {
			return err
		}
	}
	if p.hie.serves(layer) {
		p.hie.prompted(layer, n, p.run.set.Placer.HotTokens(n, p.hotCapacity(n)))
		if err := p.charge(); err != nil {
			return err
		}
	}
	e.kv.Release() // what left memory makes room for the pool
	return p.pool.Absorb(layer, int32(n-min(n, p.fill(e, layer, n))))
}

// chooseAhead selects the tokens of the next layer before this one's attention, with the query that is known by now, and
// begins to fetch them.
func (e *Engine) chooseAhead(sessions []*Session, layer int) error {
	if layer >= e.m.Layers {
		return nil
	}
	for _, s := range sessions {
		p := s.place
		if p == nil || p.pool == nil || !p.pooled[layer] || p.run.needs.QueryOf(layer) == policy.QueryExact {
			continue
		}
		st := &p.run.state[layer]
		if q := st.guessed(p.run.needs.QueryOf(layer), nil); q != nil {
			span := e.o.Trace.Layer(trace.Score, "choose", layer)
			err := p.choose(layer, q)
			span.End()
			if err != nil {
				return err
			}
		}
	}
	e.talk()
	return nil
}

// settle decides on a layer with the drive's answer and begins to fetch.
func (p *placement) settle(layer int) error {
	p.run.picks.Reset(p.run.m.KVHeads)
	p.run.scored = nil
	if err := p.hie.settle(layer, &p.run.picks); err != nil {
		return err
	}
	return p.begin(layer)
}

// choose asks the policy for a layer and begins to fetch; where a drive scores, it is asked, and settle does the rest.
func (p *placement) choose(layer int, q []float32) error {
	r, s := p.run, p.s
	st := &r.state[layer]
	p.ahead[layer] = true
	if p.hie.serves(layer) {
		return p.hie.ask(layer, q)
	}
	l := r.observe(s, layer, 1)
	l.Queries, l.Rows, l.Scores = q, 1, st.index
	if err := r.selects(s, st, r.reader.views, l); err != nil {
		return err
	}
	return p.begin(layer)
}

// begin begins to fetch what was picked of a layer.
func (p *placement) begin(layer int) error {
	r, s := p.run, p.s
	st := &r.state[layer]
	if r.picks.All {
		p.whole[layer] = true
		s.seq.Prefetch(layer, 0)
		return nil
	}
	p.whole[layer] = false
	st.kept = copyPicks(st.kept, r.picks.Heads)
	return p.pool.Begin(layer, st.kept, r.scored)
}

// read makes the views of a layer's selection, the newest token in them; the policy is asked now if it was not before.
func (p *placement) read(layer int, q []float32, seq *attention.Seq) error {
	r, s := p.run, p.s
	st := &r.state[layer]
	if p.hie.serves(layer) {
		r.sketchHot(st, seq.Views, r.observe(s, layer, 1), &p.hie.hot)
	} else if err := r.refreshSketch(st, seq.Views, r.observe(s, layer, 1)); err != nil {
		return err
	}
	if !p.ahead[layer] {
		if err := p.choose(layer, st.guessed(r.needs.QueryOf(layer), q)); err != nil {
			return err
		}
	}
	p.ahead[layer] = false
	if p.hie != nil && p.hie.layers[layer].asking {
		if err := p.settle(layer); err != nil {
			return err
		}
	}
	if r.needs.Query == policy.QueryPrevious {
		st.previous = append(st.previous[:0], q...)
	}
	if p.whole[layer] {
		return s.seq.Acquire(layer, 0)
	}
	if err := p.pool.Finish(layer); err != nil {
		return err
	}
	views, sel, tiles, err := p.pool.Views(layer)
	if err != nil {
		return err
	}
	r.pool.Run(tiles, p.build)
	seq.Views, seq.Select = views, sel
	return nil
}

// done takes what is newly complete into the pool, after a layer's attention.
func (p *placement) done(layer int) error {
	if !p.selects(layer) {
		return nil
	}
	p.pool.Done(layer)
	return p.pool.Absorb(layer, 0)
}

// step begins a decode step.
func (p *placement) step() {
	if p != nil && p.pool != nil {
		if p.sharers != p.s.e.tiers.pools {
			p.share(int(p.s.next))
		}
		p.pool.Step()
		clear(p.ahead)
		p.hie.step(int(p.s.next) + 1)
	}
}

// stepped ends a decode step that brought the session to n tokens: the policy says what is hot from now on.
func (p *placement) stepped(n int) error {
	if p == nil || p.pool == nil {
		return nil
	}
	if pl := p.run.set.Placer; pl != nil {
		pl.EndStep(n, p.hotCapacity(n), p.found(), &p.moves)
		if p.hie != nil {
			p.hie.stepped(n, p.hotCapacity(n), &p.moves)
			p.balanced(n)
		}
		if pl.WholeTokens() {
			for _, pos := range p.moves.Demote {
				p.pool.Forget(pos) // what was promoted is kept when it is read next
			}
		}
	}
	return p.charge()
}

// cut forgets what a pass that failed has left.
func (p *placement) cut(n int32) error {
	if p == nil || p.pool == nil {
		return nil
	}
	clear(p.ahead)
	if p.hie != nil {
		p.hie.cut(int(n))
	}
	p.pool.Cut(n)
	return p.pool.Abandon()
}
