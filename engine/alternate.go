package engine

import (
	"gorgonia.org/tensor"

	"terrace/retrieval"
)

// alternates reports whether a decode step of sessions is cut into two mini-batches: where drives attend, so that they work for
// one while the other is computed (InstInfer, Sec. IV-A).
func (e *Engine) alternates(sessions []*Session) bool {
	if e.drives == nil || len(sessions) < 2 {
		return false
	}
	for _, s := range sessions {
		if !s.text.OnDrives() {
			return false
		}
	}
	return true
}

// alternate reads one token in each of several sessions, in two mini-batches, whose numbers are those of one. It returns the sessions
// that failed.
func (e *Engine) alternate(sessions []*Session, ids []int) (failed []sessionError) {
	if e.second == nil {
		e.second = &pass{}
	}
	half := (len(sessions) + 1) / 2
	m := [2]miniBatch{{p: &e.pass, from: 0, to: half}, {p: e.second, from: half, to: len(sessions)}}
	for i := range m {
		b := &m[i]
		b.p.open(e, e.phase(false))
		for j := b.from; j < b.to; j++ {
			b.p.add(sessions[j], retrieval.Step, ids[j:j+1], len(sessions[j].tokens)+1)
		}
		b.p.seal()
		b.p.want = len(b.p.sessions)
	}
	err := guarded(func() error { return e.alternateLayers(&m) })
	for i := range m {
		failed = append(failed, m[i].end(err, sessions, ids)...)
	}
	spoil(failed)
	return failed
}

// miniBatch is one half of a step's sessions.
type miniBatch struct {
	p        *pass
	from, to int
	logits   []float32 // [sessions left, V]
	err      error     // all of its sessions have failed
}

func (e *Engine) alternateLayers(m *[2]miniBatch) error {
	for i := range m {
		b := &m[i]
		hidden, err := e.backend.Embed(&b.p.rows, b.p.ids)
		if err != nil {
			return err
		}
		b.p.hidden = copied(hidden) // the other's takes its place
		b.err = b.ask(0)
	}
	for layer := range e.m.Layers {
		for i := range m {
			b := &m[i]
			if b.err == nil {
				b.err = b.take(layer)
			}
			if b.err == nil && layer+1 < e.m.Layers {
				b.err = b.ask(layer + 1)
			}
		}
	}
	for i := range m {
		b := &m[i]
		if b.err != nil {
			continue
		}
		logits, err := b.p.logits()
		if err != nil {
			return err
		}
		b.logits = append(b.logits[:0], floats(logits)...)
	}
	return nil
}

// ask projects a layer's rows and asks the drives.
func (b *miniBatch) ask(layer int) error {
	p := b.p
	q, err := p.project(layer, wholeLayer)
	if err == nil {
		p.kv.Select(layer, policyFloats(&p.kv, q))
	}
	return err
}

// take waits for the drives' answer about a layer and computes the rest of it.
func (b *miniBatch) take(layer int) error {
	p := b.p
	if _, err := p.fetch(layer); err != nil {
		return err
	}
	attended := p.fromDrives(layer)
	if err := p.mask(); err != nil {
		return err
	}
	if err := p.finish(layer, attended); err != nil {
		return err
	}
	return border(p)
}

// fromDrives is the rows' attention where drives have computed it; nil elsewhere.
func (p *pass) fromDrives(layer int) *tensor.Dense {
	out := p.kv.FromDrives(layer)
	if out == nil {
		return nil
	}
	p.kv.Attended(layer, out)
	return tensor.New(tensor.WithShape(len(p.rows.Pos), p.e.attendedWidth(layer)), tensor.WithBacking(out))
}

// end closes the mini-batch; err is of both. It returns the sessions that failed.
func (b *miniBatch) end(err error, sessions []*Session, ids []int) []sessionError {
	p := b.p
	if err == nil {
		err = b.err
	}
	if err == nil {
		p.kv.End()
	}
	p.kv.Undo(err != nil)
	if err != nil {
		partFailed(p)
		failed := p.failed
		for _, s := range p.sessions {
			failed = append(failed, sessionError{s, err})
		}
		return failed
	}
	logits := tensor.New(tensor.WithShape(len(p.sessions), p.e.m.Vocab), tensor.WithBacking(b.logits))
	p.removeFailed(&logits)
	k := keeping{e: p.e, sessions: p.sessions, all: sessions, ids: ids, logits: floats(logits)}
	for i := range p.sessions {
		k.keep(0, i)
	}
	return p.failed
}
