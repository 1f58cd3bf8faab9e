package engine

import (
	"runtime/debug"
	"sync/atomic"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/trace"
	"terrace/model"
	"terrace/weights"
)

// seqScratch is the reused list of what each session attends to.
type seqScratch struct{ seqs []attention.Seq }

// begin starts the description of a pass.
func (e *Engine) begin(ph kernels.Phase) {
	e.pass.Phase = ph
	e.pos, e.lens, e.ids = e.pos[:0], e.lens[:0], e.ids[:0]
}

// add appends one row: a token, its position, and the length of its sequence once the whole prompt is read.
func (e *Engine) add(id int, pos, length int32) {
	e.ids = append(e.ids, int32(id))
	e.pos = append(e.pos, pos)
	e.lens = append(e.lens, length)
	e.pass.Pos, e.pass.Len = e.pos, e.lens
}

// passKind says what a pass is for.
type passKind struct {
	prefill bool // a chunk of one session's prompt; otherwise one token of each session
	last    bool // the prompt's last chunk
	want    int  // rows, the last ones, whose logits are wanted; 0 = only KV
}

// forward runs the pass: the rows are those of one session (a prefill chunk) or one row a session (decode). It returns
// logits [want, V]. A panic below becomes an error, and so does a fault in a model file that was cut while in use
// (weights.ErrFileChanged): the request fails and the process goes on.
func (e *Engine) forward(sessions []*Session, kind passKind) (logits *tensor.Dense, err error) {
	err = guarded(func() (err error) {
		logits, err = e.forwardRows(sessions, kind)
		return err
	})
	if err != nil {
		_ = e.joinBehind() // the pass has failed already
	}
	if e.keeper != nil {
		err = e.landed(err)
	}
	return logits, err
}

// guarded is the safety net of a pass.
func guarded(pass func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Crash{Value: r, Stack: debug.Stack()}
		}
	}()
	return weights.Guard(pass)
}

// forwardRows is forward without its safety net.
func (e *Engine) forwardRows(sessions []*Session, kind passKind) (*tensor.Dense, error) {
	if err := e.planTiers(sessions, kind.prefill, len(e.pass.Pos)/len(sessions)); err != nil {
		return nil, err
	}
	hidden, err := e.backend.Embed(&e.pass, e.ids)
	if err != nil {
		return nil, err
	}
	for layer := range e.m.Layers {
		if hidden, err = e.forwardLayer(sessions, kind, layer, hidden); err != nil || hidden == nil {
			return nil, err
		}
	}
	e.head = model.Pass{Phase: e.phase(false), Pos: e.pass.Pos, Len: e.pass.Len}
	for _, s := range sessions {
		s.work.headed(e.m, len(e.pass.Pos)/len(sessions))
	}
	return e.computeLogits(&e.head, hidden, sessions)
}

// forwardLayer takes hidden through one layer. In the last one it goes on with the wanted rows only, nil if there are none.
func (e *Engine) forwardLayer(sessions []*Session, kind passKind, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	pass := &e.pass
	q, k, v, err := e.project(layer, hidden)
	if err != nil {
		return nil, err
	}
	if err := e.take(sessions, kind, layer, k, v); err != nil {
		return nil, err
	}
	if e.onQueries != nil {
		e.onQueries(layer, floats(q), len(pass.Pos))
	}
	rows := len(pass.Pos) / len(sessions)
	final := layer == e.m.Layers-1
	if final && !e.observed(sessions, kind) {
		// Past the last layer's keys and values only the rows whose logits are wanted matter.
		if kind.want == 0 {
			return nil, e.releaseTiers(sessions, layer)
		}
		q, hidden = lastRows(q, kind.want), e.trim(hidden, kind.want)
	}
	if err := e.acquireTiers(sessions, layer, kind); err != nil {
		return nil, err
	}
	if !kind.prefill {
		if err := e.guess(sessions, layer, hidden); err != nil {
			return nil, err
		}
		if err := e.chooseAhead(sessions, layer+1); err != nil {
			return nil, err
		}
	}
	seqs, err := e.plan(sessions, kind, layer, q)
	if err != nil {
		return nil, err
	}
	e.raise(sessions, kind, layer+1)
	e.talk()
	attended, err := e.backend.Attend(pass, layer, q, seqs)
	if err != nil {
		return nil, err
	}
	if err := e.settle(sessions, kind, layer, rows, attended); err != nil {
		return nil, err
	}
	if !kind.prefill {
		if attended, err = e.follow(sessions, layer, attended); err != nil {
			return nil, err
		}
		if err = e.settleBehind(sessions, layer+1); err != nil {
			return nil, err
		}
	}
	if final && len(pass.Pos) > kind.want {
		if kind.want == 0 {
			return nil, nil
		}
		attended, hidden = lastRows(attended, kind.want), e.trim(hidden, kind.want)
	}
	for _, s := range sessions {
		s.work.finished(e.m, layer, len(pass.Pos)/len(sessions))
	}
	return e.backend.Finish(pass, layer, hidden, attended)
}

// project makes a layer's queries, keys and values; afterwards nothing is under way behind it.
func (e *Engine) project(layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	e.talk()
	if q, k, v, err = e.backend.Project(&e.pass, layer, hidden); err != nil {
		return nil, nil, nil, err
	}
	e.talk()
	if e.o.Rotate {
		rotate(model.WritableFloat32s(q), e.m.KeyDim)
		rotate(model.WritableFloat32s(k), e.m.KeyDim)
	}
	return q, k, v, e.joinBehind()
}

// settle lets the policies decide what stays of a layer whose attention is done, and lets go of it.
func (e *Engine) settle(sessions []*Session, kind passKind, layer, rows int, attended *tensor.Dense) error {
	for i, s := range sessions {
		if s.policy != nil {
			if err := e.awaitFilling(); err != nil { // policies read keys
				return err
			}
			if !kind.prefill {
				width := e.m.Heads * e.m.ValDim
				s.policy.mixMean(layer, attended, i*width, (i+1)*width)
			}
			if err := s.policy.after(s, layer, rows, kind.prefill, kind.last); err != nil {
				return err
			}
		}
	}
	if !kind.prefill {
		for _, s := range sessions {
			if err := s.place.done(layer); err != nil {
				return err
			}
		}
	}
	return e.releaseTiers(sessions, layer)
}

// plan says what each session's rows attend to: what the layer holds, or what the policy selects of it.
func (e *Engine) plan(sessions []*Session, kind passKind, layer int, q *tensor.Dense) ([]attention.Seq, error) {
	seqs := e.views(sessions, layer)
	for i, s := range sessions {
		if s.policy != nil {
			width := e.m.Heads * e.m.KeyDim
			n := len(seqs[i].Pos)
			span := e.o.Trace.Layer(trace.Score, "select", layer)
			err := s.policy.before(s, layer, floats(q)[i*n*width:(i+1)*n*width], kind.prefill, kind.last, &seqs[i])
			span.End()
			if err != nil {
				return nil, err
			}
		}
		s.countAttention(layer, &seqs[i])
		if !kind.prefill {
			s.countReads(layer, &seqs[i])
		}
	}
	return seqs, nil
}

// observed reports whether some policy looks at all rows of the last layer's attention.
func (e *Engine) observed(sessions []*Session, kind passKind) bool {
	for _, s := range sessions {
		if s.policy != nil && kind.prefill {
			return true
		}
	}
	return false
}

// trim cuts the pass to its last rows.
func (e *Engine) trim(hidden *tensor.Dense, want int) *tensor.Dense {
	p := &e.pass
	p.Pos, p.Len = p.Pos[len(p.Pos)-want:], p.Len[len(p.Len)-want:]
	return lastRows(hidden, want)
}

// append stores the pass's keys and values in each session's sequence.
func (e *Engine) append(sessions []*Session, layer int, k, v []float32) error {
	rows, apart := len(e.pass.Pos)/len(sessions), e.pool != nil && len(sessions) > 1
	for _, s := range sessions {
		s.work.projected(e.m, layer, rows)
		if apart {
			ok, err := s.seq.Reserve(layer, rows)
			if err != nil {
				return err
			}
			apart = apart && ok
		}
	}
	e.stored = stored{sessions: sessions, layer: layer, rows: rows, k: k, v: v}
	if apart {
		e.pool.Run(len(sessions), e.runStore)
		return e.stored.err()
	}
	for i := range sessions {
		if err := e.store(i); err != nil {
			return err
		}
	}
	return nil
}

// stored is the append in progress.
type stored struct {
	sessions    []*Session
	layer, rows int
	k, v        []float32
	failed      atomic.Pointer[error]
}

func (a *stored) err() error {
	if f := a.failed.Load(); f != nil {
		return *f
	}
	return nil
}

// store appends the rows of session i.
func (e *Engine) store(i int) error {
	a, m := &e.stored, e.m
	lo, hi := i*a.rows, (i+1)*a.rows
	kw, vw := m.KVHeads*m.KeyDim, m.KVHeads*m.ValDim
	return a.sessions[i].seq.Append(a.layer, a.k[lo*kw:hi*kw], a.v[lo*vw:hi*vw], e.pass.Pos[lo:hi])
}

// storeApart is store for sessions at the same time.
func (e *Engine) storeApart(_, i int) {
	if err := e.store(i); err != nil {
		failed := err // on the heap only now
		e.stored.failed.CompareAndSwap(nil, &failed)
	}
}

// views lists what each session's rows attend to.
func (e *Engine) views(sessions []*Session, layer int) []attention.Seq {
	rows := len(e.pass.Pos) / len(sessions)
	out := e.seqs.seqs[:0]
	for i, s := range sessions {
		out = append(out, attention.Seq{Pos: e.pass.Pos[i*rows : (i+1)*rows], Views: s.seq.Views(layer)})
		if e.filling != nil {
			out[i].Await = e.awaitFilling
		}
	}
	e.seqs.seqs = out
	return out
}

// lastRows is a tensor of the last n rows, sharing memory.
func lastRows(t *tensor.Dense, n int) *tensor.Dense {
	rows, cols := t.Shape()[0], t.Shape()[1]
	if rows == n {
		return t
	}
	return tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(floats(t)[(rows-n)*cols:]))
}

func floats(t *tensor.Dense) []float32 { return model.Float32s(t) }
