package engine

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/model"
)

// promptPass reads a whole prompt layer by layer: hidden holds a row of every position that is still alive, and each layer
// takes the rows in chunks, so that activations inside a layer stay as small as in a prefill by chunks. Policies that prune
// rows or choose a mask need it: they decide about a layer once the whole prompt has reached it.
//
// Memory beside the KV: 4·D bytes a row. A row's results are those of a prefill by chunks, bit for bit, as long as every row
// stays alive: no row's arithmetic depends on the rows that share its pass.
type promptPass struct {
	e      *Engine
	s      *Session
	ctx    context.Context
	hidden []float32 // [rows, D]
	pos    []int32   // [rows] positions alive, ascending
	lens   []int32   // [rows] the prompt's length, as rotary scaling wants it
	total  int
	late   bool // rows that come back while decoding
	logits []float32
}

// byLayer reports whether a prompt must pass layer by layer. A later prompt of the same session is read in chunks, whole.
func (r *policyRun) byLayer() bool { return r != nil && (r.set.Pruner != nil || r.set.Masker != nil) }

// readByLayer is Prefill of an empty session under such a policy. On an error, or when ctx is cancelled, the session is
// empty again.
func (s *Session) readByLayer(ctx context.Context, ids []int, hooks PrefillHooks) error {
	if hooks.Each != nil {
		return fmt.Errorf("engine: policy %s prunes or masks the prompt: only its last token's logits are to be had: %w", s.policy.set, model.ErrUnsupported)
	}
	p := &promptPass{e: s.e, s: s, ctx: ctx, total: len(ids)}
	s.policy.prompt = len(ids)
	s.policy.openStages(len(ids))
	if err := guarded(func() error { return p.run(ids, hooks.Progress) }); err != nil {
		return errors.Join(err, s.restart())
	}
	s.tokens = append(s.tokens, ids...)
	s.next = int32(len(ids))
	s.logits = append(s.logits[:0], p.logits...)
	s.e.kv.Release()
	return nil
}

func (p *promptPass) run(ids []int, progress func(done, total int)) error {
	if err := p.embed(ids); err != nil {
		return err
	}
	if err := p.e.planPrompt(p.s, p.e.o.ChunkTokens, len(ids)); err != nil {
		return err
	}
	for layer := range p.e.m.Layers {
		if err := p.layer(layer); err != nil {
			return err
		}
		if err := p.e.releaseTiers([]*Session{p.s}, layer); err != nil {
			return err
		}
		if progress != nil {
			progress(max(1, len(ids)*(layer+1)/p.e.m.Layers), len(ids))
		}
	}
	e, last := p.e, len(p.pos)-1
	head := model.Pass{Phase: e.phase(false), Pos: p.pos[last:], Len: p.lens[last:]}
	out, err := e.computeLogits(&head, p.rows(last, last+1), []*Session{p.s})
	if err != nil {
		return err
	}
	p.s.work.headed(e.m, 1)
	p.logits = floats(out)
	return nil
}

// embed fills hidden.
func (p *promptPass) embed(ids []int) error {
	e, n := p.e, len(ids)
	p.hidden, p.pos, p.lens = make([]float32, n*e.m.Hidden), make([]int32, n), make([]int32, n)
	for i := range ids {
		p.pos[i], p.lens[i] = int32(i), int32(n)
	}
	for lo := 0; lo < n; lo += e.o.ChunkTokens {
		hi := min(lo+e.o.ChunkTokens, n)
		e.ids = e.ids[:0]
		for _, id := range ids[lo:hi] {
			e.ids = append(e.ids, int32(id))
		}
		h, err := e.backend.Embed(p.pass(lo, hi), e.ids)
		if err != nil {
			return err
		}
		copy(p.hidden[lo*e.m.Hidden:], floats(h))
	}
	return nil
}

// pass describes the rows lo to hi-1.
func (p *promptPass) pass(lo, hi int) *model.Pass {
	p.e.pass = model.Pass{Phase: p.e.phase(true), Pos: p.pos[lo:hi], Len: p.lens[lo:hi]}
	return &p.e.pass
}

// rows is hidden of the rows lo to hi-1, sharing memory.
func (p *promptPass) rows(lo, hi int) *tensor.Dense {
	d := p.e.m.Hidden
	return tensor.New(tensor.WithShape(hi-lo, d), tensor.WithBacking(p.hidden[lo*d:hi*d]))
}

// chunks calls fn for the alive rows, a pass at a time; the policy sees its last rows in one.
func (p *promptPass) chunks(fn func(lo, hi int) error) error {
	n := len(p.pos)
	for lo := 0; lo < n; {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		hi := lo + p.s.policy.chunk(n-lo, p.e.o.ChunkTokens)
		if err := fn(lo, hi); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

// layer takes the rows through one layer; past the last one only the last row is left.
func (p *promptPass) layer(layer int) error {
	r := p.s.policy
	if r.prunes(layer) {
		return p.prune(layer)
	}
	if r.masks(layer) {
		return p.mask(layer)
	}
	final := layer == p.e.m.Layers-1
	err := p.chunks(func(lo, hi int) error {
		q, err := p.project(layer, lo, hi)
		if err != nil {
			return err
		}
		from := lo
		if final {
			if from = max(lo, p.firstWanted()); from >= hi {
				return nil
			}
			q = lastRows(q, hi-from)
		}
		attended, err := p.attend(layer, q, from, hi)
		if err != nil {
			return err
		}
		if final {
			if hi < len(p.pos) {
				return nil
			}
			from, attended = hi-1, lastRows(attended, 1)
		}
		return p.finish(layer, from, hi, attended)
	})
	if err != nil {
		return err
	}
	return r.after(p.s, layer, p.total, true, true)
}

// firstWanted is the first row whose attention in the last layer somebody looks at: the last row's goes on to the logits,
// the policy may want the weights of more.
func (p *promptPass) firstWanted() int {
	r, n := p.s.policy, len(p.pos)
	if r.set.Keeper == nil && r.set.Dropper == nil && r.needs.PromptMass == 0 {
		return n - 1
	}
	if r.needs.PromptMass < 0 {
		return 0
	}
	return n - max(1, r.needs.PromptMass)
}

// project appends the rows' keys and values and returns their queries.
func (p *promptPass) project(layer, lo, hi int) (*tensor.Dense, error) {
	e := p.e
	q, k, v, err := e.backend.Project(p.pass(lo, hi), layer, p.rows(lo, hi))
	if err != nil {
		return nil, err
	}
	if e.o.Rotate {
		rotate(model.WritableFloat32s(q), e.m.KeyDim)
		rotate(model.WritableFloat32s(k), e.m.KeyDim)
	}
	if r := p.s.policy; r.masks(layer) { // which keeps all queries itself
		r.collectStats(&r.state[layer], layer, floats(q), p.pos[lo:hi])
	} else {
		r.collect(layer, floats(q), p.pos[lo:hi])
	}
	if err := e.append([]*Session{p.s}, layer, floats(k), floats(v)); err != nil {
		return nil, err
	}
	return q, e.acquireTiers([]*Session{p.s}, layer, passKind{prefill: true})
}

// attend is attention of the rows lo to hi-1 over what the layer holds, with the weights that the policy wants of them.
func (p *promptPass) attend(layer int, q *tensor.Dense, lo, hi int) (*tensor.Dense, error) {
	r := p.s.policy
	var mass *attention.Mass
	if r.global(layer) && r.wantsMass(true, hi == len(p.pos), p.total) {
		r.askMass(&r.state[layer], p.s, layer, hi-lo, p.total, true)
		mass = &r.state[layer].massOut
	}
	return p.attendSeq(layer, q, lo, hi, attention.Seq{Mass: mass})
}

// attendSeq is attention of the rows lo to hi-1, with the mask or the sums that seq has.
func (p *promptPass) attendSeq(layer int, q *tensor.Dense, lo, hi int, seq attention.Seq) (*tensor.Dense, error) {
	pass := p.pass(lo, hi)
	if err := p.e.acquireTiers([]*Session{p.s}, layer, passKind{prefill: true}); err != nil {
		return nil, err
	}
	seq.Pos, seq.Views = pass.Pos, p.s.seq.Views(layer)
	if p.late {
		p.s.policy.readActive(p.s, layer, &seq)
	}
	p.e.seqs.seqs = append(p.e.seqs.seqs[:0], seq)
	p.s.countAttention(layer, &seq)
	return p.e.backend.Attend(pass, layer, q, p.e.seqs.seqs)
}

// finish takes the rows lo to hi-1 through the rest of the layer; their attention output is [hi-lo, H·dv].
func (p *promptPass) finish(layer, lo, hi int, attended *tensor.Dense) error {
	hidden := p.rows(lo, hi)
	out, err := p.e.backend.Finish(p.pass(lo, hi), layer, hidden, attended)
	if err != nil {
		return err
	}
	p.s.work.finished(p.e.m, layer, hi-lo)
	if to, from := p.hidden[lo*p.e.m.Hidden:hi*p.e.m.Hidden], floats(out); &to[0] != &from[0] {
		copy(to, from)
	}
	return nil
}
