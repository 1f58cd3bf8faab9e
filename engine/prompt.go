package engine

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/policy"
	"terrace/retrieval"
)

// RowLogits receives logits [rows, V] of the tokens from index first on; it must copy what it keeps.
type RowLogits func(first int, logits []float32) error

// PrefillHooks are called after each chunk; nil = not.
type PrefillHooks struct {
	Each     RowLogits             // the logits of every token (which are computed only then)
	Progress func(done, total int) // prompt tokens read so far
}

// Prefill reads a prompt in chunks; afterwards Logits holds those of its last token. A prompt that does not fit is
// ErrContext and changes nothing; a cancelled context stops between chunks (Read). Where a tier loses KV the text is read again,
// but not when somebody has seen its logits (hooks.Each). A model file that changed meanwhile is weights.ErrFileChanged.
func (s *Session) Prefill(ctx context.Context, ids []int, hooks PrefillHooks) error {
	r, err := s.BeginPrompt(ids, hooks)
	if err != nil {
		return err
	}
	return r.Read(ctx, len(ids))
}

// prefill is Prefill without a second chance.
func (s *Session) prefill(ctx context.Context, ids []int, hooks PrefillHooks) error {
	r, err := s.newReading(ids, hooks)
	if err != nil {
		return err
	}
	return r.upTo(ctx, len(ids), s.e.o.ChunkTokens)
}

// chunk runs one pass of a prompt.
func (s *Session) chunk(ids []int, total int, last bool, each RowLogits) error {
	e, p, first := s.e, &s.e.pass, len(s.tokens)
	p.open(e, e.phase(true))
	reading := retrieval.Chunk
	if last {
		p.want = 1
		if !s.rereads() { // else the prompt ends after the second pass
			reading = retrieval.LastChunk
		}
	}
	if each != nil {
		p.want = len(ids)
	}
	p.add(s, reading, ids, total)
	logits, err := e.run(p)
	if err != nil {
		return err
	}
	s.tokens = append(s.tokens, ids...)
	if logits == nil || each == nil && e.device.postpone(logits, p.sessions) {
		return nil
	}
	return guarded(func() error {
		x := floats(logits)
		if last {
			s.logits = append(s.logits[:0], x[len(x)-e.m.Vocab:]...)
		}
		if each != nil {
			return each(first, x)
		}
		return nil
	})
}

// readsByLayer reports whether a prompt must pass layer by layer: under policies that prune rows or choose a mask, which
// decide about a layer once the whole prompt has reached it. (So must one whose KV goes down to drives, of which one layer
// at a time is in host memory.) A later prompt of the same session is read in chunks, whole.
func readsByLayer(set *policy.Set) bool {
	return set.Pruner != nil || set.Masker != nil
}

// wholePrompt reads a whole prompt layer by layer: hidden holds a row of every position that is still alive, and each layer
// takes the rows in blocks, so that activations inside a layer stay as small as in a prefill by chunks.
//
// On tiers other prompts go this way in sections (PromptReading.section), of which base and more say where they lie.
//
// Memory beside the KV: 4·RowWidth bytes a row. A row's results are those of a prefill by chunks, bit for bit, as long as every
// row stays alive: no row's arithmetic depends on the rows that share its pass.
type wholePrompt struct {
	e      *Engine
	s      *Session
	ctx    context.Context
	hidden []float32 // [rows, RowWidth]
	pos    []int32   // [rows] positions alive, ascending
	lens   []int32   // [rows] the prompt's length, as rotary scaling wants it
	kept   keptRows
	pass   pass
	lo, hi int // rows of the block in progress

	promptSpan
}

// promptSpan says which positions the rows are of.
type promptSpan struct {
	total int  // positions of the text once the prompt is read
	base  int  // positions read before
	more  bool // rows of the prompt follow these
	rest  int  // how many
	late  bool // rows that come back while decoding
}

// keptRows are what was computed of all rows of a layer before they go on. Fields are nil where nothing was.
type keptRows struct {
	queries  []float32 // [rows, Heads·KeyDim]
	attended []float32 // [rows, Heads·ValueDim]
	mask     *layerMask
	again    bool // the rows' keys are cached and the policies have seen their attention
}

// readByLayer is Prefill of an empty session under such a policy. On an error, or when ctx is cancelled, the session is
// empty again.
func (s *Session) readByLayer(ctx context.Context, ids []int, hooks PrefillHooks) error {
	if hooks.Each != nil {
		return fmt.Errorf("engine: policy %s prunes or masks the prompt: only its last token's logits are available: %w", s.text.Policy(), model.ErrUnsupported)
	}
	w := &wholePrompt{e: s.e, s: s, ctx: ctx, promptSpan: promptSpan{total: len(ids)}}
	s.text.SetPrompt(len(ids))
	s.revival.open(len(ids))
	if err := guarded(func() error { return w.run(ids, hooks.Progress) }); err != nil {
		return errors.Join(err, s.restart())
	}
	s.tokens = append(s.tokens, ids...)
	s.text.SetRead(int32(len(ids)))
	s.e.kv.Release()
	return nil
}

// section reads rows of a prompt layer by layer where KV lies on a tier, as many as have room in host memory between two layers: a
// layer's KV goes down once and comes back at most once a section instead of once a chunk. 0 = none have, chunks are as good, or
// some of what is asked for needs chunks. After an error the session is as it was before, or empty if it was.
func (r *PromptReading) section(ctx context.Context, rows int) (n int, err error) {
	s, f := r.s, r.s.e.retrieval
	if rows <= s.e.o.ChunkTokens || r.narrow || r.hooks.Each != nil || s.chunked != nil || s.arriving != nil || s.e.device.keeper != nil || s.rereads() || readsByLayer(s.text.Policy()) {
		return 0, nil
	}
	w := &wholePrompt{e: s.e, s: s, ctx: ctx, promptSpan: promptSpan{base: len(s.tokens), total: len(s.tokens) + r.unread()}}
	hidden := s.e.tiers.hidden()
	if n = f.HoldRows(s.text, rows, w.total, 4*s.e.m.RowWidth()+hidden.besideRow(s.e)); n == 0 {
		return 0, nil
	}
	lent := n
	hidden.lend(s.e, lent)
	defer func() { hidden.lend(s.e, -lent); f.DropRows() }()
	w.rest = r.unread() - n
	w.more = w.rest > 0
	err = guarded(func() error {
		return w.run(r.ids[r.read:r.read+n], func(done, _ int) {
			if r.hooks.Progress != nil && done < n {
				r.hooks.Progress(r.read+done, len(r.ids))
			}
		})
	})
	if err == nil {
		s.tokens = append(s.tokens, r.ids[r.read:r.read+n]...)
		s.text.EndSection(int32(len(s.tokens)))
		return n, nil
	}
	if r.narrow = errors.Is(err, kvmanager.ErrBudget) && (w.base == 0 || s.text.Causal()); r.narrow {
		n, err = 0, nil // a chunk may still do
	}
	if w.base == 0 {
		return n, errors.Join(err, s.restart())
	}
	w.pass.kv.Undo(true)
	return n, err
}

func (w *wholePrompt) run(ids []int, progress func(done, total int)) error {
	err := w.eachLayer(ids, func(layer int) error {
		err := w.layer(layer)
		if err == nil && progress != nil {
			progress(max(1, len(ids)*(layer+1)/w.e.m.Layers), len(ids))
		}
		return err
	})
	if err != nil {
		return err
	}
	if w.more {
		return nil
	}
	p := w.block(len(w.pos)-1, len(w.pos))
	out, err := p.logits()
	if err == nil {
		w.s.logits = append(w.s.logits[:0], floats(out)...)
	}
	return err
}

// eachLayer takes the prompt through the layers.
func (w *wholePrompt) eachLayer(ids []int, through func(layer int) error) error {
	if err := w.embed(ids); err != nil {
		return err
	}
	w.block(0, min(len(ids), w.e.o.ChunkTokens))
	if err := w.e.retrieval.Begin(&w.pass.kv); err != nil {
		return err
	}
	for layer := range w.e.m.Layers {
		if err := through(layer); err != nil {
			return err
		}
		w.pass.kv.Release(layer)
		if err := border(&w.pass); err != nil {
			return err
		}
	}
	return nil
}

// embed fills hidden.
func (w *wholePrompt) embed(ids []int) error {
	n := len(ids)
	w.hidden, w.pos, w.lens = make([]float32, n*w.e.m.RowWidth()), make([]int32, n), make([]int32, n)
	turned := int32(w.s.turnLength(w.total))
	for i := range ids {
		w.pos[i], w.lens[i] = int32(w.base+i), turned
	}
	for lo := 0; lo < n; lo += w.e.o.ChunkTokens {
		p := w.block(lo, min(lo+w.e.o.ChunkTokens, n))
		for _, id := range ids[lo:w.hi] {
			p.ids = append(p.ids, int32(id))
		}
		h, err := w.e.backend.Embed(&p.rows, p.ids)
		if err != nil {
			return err
		}
		copy(w.hidden[lo*w.e.m.RowWidth():], floats(h))
	}
	return nil
}

// block is a pass of the rows lo to hi-1.
func (w *wholePrompt) block(lo, hi int) *pass {
	p, reading, last := &w.pass, retrieval.Block, hi == len(w.pos) && !w.more
	if last {
		reading = retrieval.LastBlock
	}
	switch {
	case w.late:
		reading = retrieval.Late
	case w.kept.again:
		reading = retrieval.Again
	}
	p.open(w.e, w.e.phase(true))
	w.lo, w.hi = lo, hi
	p.source, p.rows.Pos, p.rows.Len = w, w.pos[lo:hi], w.lens[lo:hi]
	p.sessions = append(p.sessions, w.s)
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: w.s.text, Reading: reading, New: hi - lo, Pos: p.rows.Pos, Len: w.total})
	p.hidden = w.rows(lo, hi)
	if last {
		p.want = 1
	}
	return p
}

// rows is hidden of the rows lo to hi-1, sharing memory.
func (w *wholePrompt) rows(lo, hi int) *tensor.Dense {
	d := w.e.m.RowWidth()
	return tensor.New(tensor.WithShape(hi-lo, d), tensor.WithBacking(w.hidden[lo*d:hi*d]))
}

// queries implements rowSource.
func (w *wholePrompt) queries(layer int) *tensor.Dense {
	return w.part(w.kept.queries, w.e.queryWidth(layer))
}

// attended implements rowSource.
func (w *wholePrompt) attended(layer int) *tensor.Dense {
	return w.part(w.kept.attended, w.e.attendedWidth(layer))
}

// part is the block's rows of what was kept; nil = nothing was.
func (w *wholePrompt) part(x []float32, width int) *tensor.Dense {
	if x == nil {
		return nil
	}
	return tensor.New(tensor.WithShape(w.hi-w.lo, width), tensor.WithBacking(x[w.lo*width:w.hi*width]))
}

// restrict implements rowSource.
func (w *wholePrompt) restrict(layer int, seq *attention.Seq) {
	if w.kept.mask != nil {
		seq.Sparse, seq.ColumnSums = w.kept.mask.part(w, layer, w.lo, w.hi), nil
	}
}

// blocks calls fn with a pass for the alive rows from a row on, a block at a time; the policy sees its last rows in one.
func (w *wholePrompt) blocks(from int, fn func(p *pass) error) error {
	n := len(w.pos)
	for lo := from; lo < n; {
		hi := min(n, lo+w.s.text.ChunkRows(n-lo+w.rest, w.e.o.ChunkTokens))
		if err := w.oneBlock(lo, hi, fn); err != nil {
			return err
		}
		lo = hi
	}
	return nil
}

func (w *wholePrompt) oneBlock(lo, hi int, fn func(p *pass) error) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	return fn(w.block(lo, hi))
}

// layer takes the rows through one layer; past the last one only the last row is wanted.
func (w *wholePrompt) layer(layer int) error {
	var err error
	switch t := w.s.text; {
	case t.Prunes(layer):
		err = w.pruneLayer(layer)
	case t.Policy().Masker != nil && t.Acts(layer):
		err = w.maskLayer(layer)
	default:
		err = w.blocks(0, func(p *pass) error { return w.through(p, layer, wholeLayer) })
	}
	masked := w.kept.mask != nil
	w.kept = keptRows{}
	if err == nil && !w.more {
		err = w.s.text.EndPrompt(layer, w.total-w.base)
	}
	if err == nil && masked { // decoding wants the newest few of the queries, if any
		w.s.text.KeepQueries(layer, nil, 0)
	}
	return err
}

// through takes a block through a layer; what comes out is its hidden rows, of the last layer the last row alone.
func (w *wholePrompt) through(p *pass, layer int, do sweep) error {
	if err := p.runLayer(layer, do); err != nil || do == keysOnly || p.hidden == nil {
		return err
	}
	d, from := w.e.m.RowWidth(), floats(p.hidden)
	if to := w.hidden[w.hi*d-len(from) : w.hi*d]; &to[0] != &from[0] {
		copy(to, from)
	}
	if w.e.m.Layer[layer].Window > 0 {
		p.kv.Release(layer) // what the next rows do not read need not stay
	}
	return nil
}

// firstAttended implements rowSource: the last row's attention goes on to the logits, a policy may want the weights of more.
func (w *wholePrompt) firstAttended(int) int {
	needs, set, n := w.s.text.Needs(), w.s.text.Policy(), len(w.pos)
	switch {
	case w.kept.mask != nil || needs.PromptSums < 0:
		return 0
	case w.more:
		return n - w.lo
	case set.Keeper == nil && set.Dropper == nil && needs.PromptSums == 0:
		return max(0, n-1-w.lo)
	}
	return max(0, n-max(1, needs.PromptSums)-w.lo)
}
