package engine

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/retrieval"
)

// pass is rows of any sessions that go through the layers together, in one arithmetic: a prompt's chunk, a block of a prompt
// that is read layer by layer, a generated token of each of several sessions, or rows that are computed late. It is a value:
// the engine may hold several at a time, each with its own place in the layers.
type pass struct {
	e        *Engine
	kv       retrieval.Pass // what the rows read and write of the sessions' KV
	sessions []*Session     // of kv.Rows
	ids      []int32
	rows     model.Pass     // of all rows, those of a session adjacent and in order
	head     model.Pass     // of the rows whose logits are computed
	hidden   *tensor.Dense  // [rows, RowWidth]; nil once no row goes on
	want     int            // rows, the last ones, whose logits are wanted; 0 = only KV
	source   rowSource      // of a block: where queries and attention come from; nil = as computed
	failed   []sessionError // sessions that left, at a layer's border
	guess    retrieval.Guesser
	watch    watcher // looks at a layer's queries before its attention; nil = nobody does
	begun    bool    // memory was planned: from then on a failure leaves policies with what they saw
	shared   bool    // parts of prompts, those that end last, and steps behind them (Engine.Advance): logits are wanted of all but parts that end nothing
}

// watcher sees a layer's queries q [rows, Heads·KeyDim] and the views that they are about to attend to.
type watcher func(layer int, p *pass, q *tensor.Dense, views []attention.View) error

// rowSource is what a block of a prompt that passes layer by layer has from elsewhere.
type rowSource interface {
	// queries are the rows' if they were projected before; nil = project them.
	queries(layer int) *tensor.Dense
	// attended is the rows' attention output [rows, Heads·ValueDim] if it was computed before; nil = attend.
	attended(layer int) *tensor.Dense
	// firstAttended is the first row of the block whose attention somebody looks at in the last layer.
	firstAttended(layer int) int
	// restrict changes what the rows attend to.
	restrict(layer int, seq *attention.Seq)
}

// sweep says which verbs a pass takes a layer through.
type sweep uint8

const (
	wholeLayer sweep = iota // all seven
	keysOnly                // Project and Append: attention waits until the keys of all rows of the prompt are there
	afterKeys               // the rest, with queries that are projected again or were kept
)

// open empties the pass.
func (p *pass) open(e *Engine, phase kernels.Phase) {
	p.e, p.hidden, p.source, p.want, p.shared, p.begun = e, nil, nil, 0, false, false
	p.sessions, p.ids, p.failed = p.sessions[:0], p.ids[:0], p.failed[:0]
	p.rows = model.Pass{Phase: phase, Pos: p.rows.Pos[:0], Len: p.rows.Len[:0]}
	p.kv.Open(e.retrieval)
	if p.guess == nil {
		p.guess = p.guessQueries
	}
}

// add appends a session's rows: ids at the positions after what it has read, on the way to a length of tokens.
func (p *pass) add(s *Session, reading retrieval.Reading, ids []int, length int) {
	turned := int32(s.turnLength(length))
	for i, id := range ids {
		p.ids = append(p.ids, int32(id))
		p.rows.Pos = append(p.rows.Pos, s.text.Read()+int32(i))
		p.rows.Len = append(p.rows.Len, turned)
	}
	p.sessions = append(p.sessions, s)
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: s.text, Reading: reading, New: len(ids), Len: length})
}

// seal ends the adding: the rows lie where they stay.
func (p *pass) seal() {
	at := 0
	for i := range p.kv.Rows {
		r := &p.kv.Rows[i]
		r.Pos = p.rows.Pos[at : at+r.New]
		at += r.New
	}
	p.count()
}

// count notes how many of the last rows are steps, and of a shared pass how many sessions' logits are wanted.
func (p *pass) count() {
	p.rows.Steps = 0
	wanted := 0
	for i := range p.kv.Rows {
		r := &p.kv.Rows[i]
		if r.Reading == retrieval.Step {
			p.rows.Steps += len(r.Pos)
		}
		if r.Reading != retrieval.Chunk {
			wanted++
		}
	}
	if p.shared {
		p.want = wanted
	}
}

// run takes passes through all layers, layer by layer in turn, and returns the logits [want, V] of the first. A panic below
// becomes an error, and so does a fault in a model file that was cut while in use (weights.ErrFileChanged): the request fails
// and the process goes on. After an error the passes' sessions are as they were before.
func (e *Engine) run(passes ...*pass) (logits *tensor.Dense, err error) {
	err = guarded(func() error {
		err := e.runLayers(passes)
		if err == nil && passes[0].hidden != nil {
			logits, err = passes[0].logits()
		}
		return err
	})
	err = e.device.settle(err)
	for _, p := range passes {
		if err != nil {
			p.kv.Undo(true)
			partFailed(p)
			continue
		}
		p.kv.End()
		p.kv.Undo(false)
		if logits != nil && p == passes[0] {
			p.removeFailed(&logits)
		} else {
			p.removeFailed()
		}
	}
	return logits, err
}

func (e *Engine) runLayers(passes []*pass) (err error) {
	kv := make([]*retrieval.Pass, 0, 1)
	for _, p := range passes {
		p.seal()
		kv = append(kv, &p.kv)
	}
	if err := e.retrieval.Begin(kv...); err != nil {
		return err
	}
	for _, p := range passes {
		p.begun = true
		if p.hidden, err = e.backend.Embed(&p.rows, p.ids); err != nil {
			return err
		}
		if len(passes) > 1 {
			p.hidden = copied(p.hidden) // the next pass's takes its place
		}
	}
	for layer := range e.m.Layers {
		for _, p := range passes {
			if err := p.runLayer(layer, wholeLayer); err != nil {
				return err
			}
		}
	}
	return nil
}

// logits are those of the rows that are left.
func (p *pass) logits() (*tensor.Dense, error) {
	p.head = model.Pass{Phase: p.e.phase(false), Pos: p.rows.Pos, Len: p.rows.Len}
	for i, s := range p.sessions {
		s.flops.Headed(p.e.m, len(p.kv.Rows[i].Pos))
	}
	return p.e.device.logits(&p.head, p.hidden, p.sessions)
}

// sessionError is a session that left a pass, and why.
type sessionError struct {
	s   *Session
	err error
}

// partFailed lists the sessions with an error apart from the others, and returns the numbers of these sessions' rows.
func partFailed(p *pass) (stay []int) {
	kept, at := 0, 0
	for i := range p.kv.Rows {
		r := p.kv.Rows[i]
		n := len(r.Pos)
		if r.Err != nil {
			p.failed = append(p.failed, sessionError{p.sessions[i], r.Err})
		} else {
			p.kv.Rows[kept], p.sessions[kept] = r, p.sessions[i]
			kept++
			for j := range n {
				stay = append(stay, at+j)
			}
		}
		at += n
	}
	p.kv.Rows, p.sessions = p.kv.Rows[:kept], p.sessions[:kept]
	return stay
}

// removeFailed takes the sessions with an error out of the pass, and their rows out of hidden and of the tensors given.
func (p *pass) removeFailed(rows ...**tensor.Dense) {
	if !p.kv.Failed() {
		return
	}
	stay := partFailed(p)
	p.keepRows(stay, rows...)
	p.want = min(p.want, len(stay))
	p.count()
}

// keepRows keeps rows by their numbers alone, also in the tensors given: of each session as many as its Pos has.
func (p *pass) keepRows(stay []int, rows ...**tensor.Dense) {
	for _, t := range rows {
		*t = pickRows(*t, stay)
	}
	if p.hidden != nil {
		p.hidden = pickRows(p.hidden, stay)
	}
	for i, from := range stay {
		p.rows.Pos[i], p.rows.Len[i] = p.rows.Pos[from], p.rows.Len[from]
	}
	p.rows.Pos, p.rows.Len = p.rows.Pos[:len(stay)], p.rows.Len[:len(stay)]
	at := 0
	for i := range p.kv.Rows {
		n := len(p.kv.Rows[i].Pos)
		p.kv.Rows[i].Pos = p.rows.Pos[at : at+n]
		at += n
	}
}

// mask takes back what failed sessions have added to the cache. Their rows go on to the layer's border, and read nothing. Where no session is
// left the first error ends the pass.
func (p *pass) mask() error {
	if !p.kv.Failed() {
		return nil
	}
	if err := p.kv.Join(); err != nil {
		return err
	}
	p.kv.Undo(false)
	for i := range p.kv.Rows {
		if p.kv.Rows[i].Err == nil {
			return nil
		}
	}
	return p.kv.Rows[0].Err
}

// border ends a layer: failed sessions and their rows leave the pass.
func border(p *pass) error {
	err := p.mask()
	if err == nil {
		p.removeFailed()
	}
	return err
}

// copied is a tensor with memory of its own.
func copied(t *tensor.Dense) *tensor.Dense {
	x := floats(t)
	return tensor.New(tensor.WithShape(t.Shape()...), tensor.WithBacking(append([]float32(nil), x...)))
}

// pickRows is a tensor of some rows, in memory of its own.
func pickRows(t *tensor.Dense, rows []int) *tensor.Dense {
	cols, x := t.Shape()[1], floats(t)
	out := make([]float32, 0, max(len(rows)*cols, 1))
	for _, r := range rows {
		out = append(out, x[r*cols:(r+1)*cols]...)
	}
	if len(rows) == 0 {
		return nil
	}
	return tensor.New(tensor.WithShape(len(rows), cols), tensor.WithBacking(out))
}

// lastRows is a tensor of the last n rows, sharing memory.
func lastRows(t *tensor.Dense, n int) *tensor.Dense {
	rows, cols := t.Shape()[0], t.Shape()[1]
	if rows == n {
		return t
	}
	return tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(floats(t)[(rows-n)*cols:]))
}

// layerRows are the rows [n, Hidden] that a layer is about to norm.
func (e *Engine) layerRows(p *pass, layer int) ([]float32, error) {
	if e.rows == nil || e.m.RowWidth() == e.m.Hidden {
		return floats(p.hidden), nil
	}
	return e.rows.LayerRows(&p.rows, layer, p.hidden)
}

func floats(t *tensor.Dense) []float32 { return model.Float32s(t) }

// guessQueries is a retrieval.Guesser: the next layer's queries from this layer's input.
func (p *pass) guessQueries(layer int) ([]float32, error) {
	guesser, ok := p.e.backend.(model.QueryGuesser)
	if !ok {
		return nil, fmt.Errorf("engine: backend %s cannot guess queries, which the policy needs (query=exact goes without): %w", p.e.backend.Name(), model.ErrUnsupported)
	}
	t, err := guesser.GuessQuery(&p.rows, layer, p.hidden)
	if err != nil {
		return nil, err
	}
	p.e.turnKeys(layer, t)
	return floats(t), nil
}
