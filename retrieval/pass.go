package retrieval

import (
	"fmt"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/trace"
)

// Rows are one text's rows in a pass.
type Rows struct {
	Sequence *Sequence
	Reading  Reading
	New      int       // tokens that the pass adds to the text
	Pos      []int32   // [n] positions, ascending: of the New tokens, or of the last of them where no more go on
	Len      int       // tokens that the text has once its prompt is read
	index    []float32 // index queries of the rows that were projected, of the layer in progress (Pass.Index)
	Err      error     // the text cannot go on: its rows are left out of what follows, and read nothing
	undone   bool      // what the pass has added to the text is taken back
}

// Pass is rows of any texts that go through the layers together. The zero value with Open is empty; it may be used again.
type Pass struct {
	Rows []Rows
	f    *Shared
	seqs []attention.Seq
	job  appendJob
	all  together
}

// appendJob is the append in progress.
type appendJob struct {
	layer int
	k, v  []float32
	first []int // row of each text's first
	run   func(worker, i int)
}

// Guesser returns the queries [rows, Heads·KeyDim] of a layer guessed from the input of the layer before (InfiniGen;
// algorithms.md 5.3), for all rows of the pass.
type Guesser func(layer int) ([]float32, error)

// Open empties the pass for texts that share f.
func (p *Pass) Open(f *Shared) {
	p.f, p.Rows = f, p.Rows[:0]
	if p.job.run == nil {
		p.job.run = p.appendOne
	}
	p.all.init(p)
}

// Failed reports whether a text has an error.
func (p *Pass) Failed() bool {
	for i := range p.Rows {
		if p.Rows[i].Err != nil {
			return true
		}
	}
	return false
}

// Asks reports whether a policy looks at what the rows ask and read.
func (p *Pass) Asks() bool {
	for i := range p.Rows {
		if t := p.Rows[i].Sequence; !t.Plain() || len(t.watchers) > 0 {
			return true
		}
	}
	return false
}

// ChangesOutput reports whether Attended may change the attention output.
func (p *Pass) ChangesOutput() bool {
	for i := range p.Rows {
		if t := p.Rows[i].Sequence; t.sel != nil && (t.sel.means.layers != nil || t.obs.needs.Estimates) && p.Rows[i].Reading == Step {
			return true
		}
	}
	return false
}

// Fail notes the error of a text, by its place in Rows; nil is none.
func (p *Pass) Fail(i int, err error) { p.fail(i, err) }

// fail notes a text's error.
func (p *Pass) fail(i int, err error) {
	if err != nil && p.Rows[i].Err == nil {
		p.Rows[i].Err = err
	}
}

// Append stores a layer's new keys [rows, KVHeads·KeyDim] and values [rows, KVHeads·ValueDim] (nil where values lie in their keys), of a
// layer that keeps some. Nothing is under way behind
// the layer before afterwards.
func (p *Pass) Append(layer int, k, v []float32) error {
	if err := p.f.overlap.join(p.f); err != nil {
		return err
	}
	j := &p.job
	j.layer, j.k, j.v, j.first = layer, k, v, j.first[:0]
	row, apart := 0, p.f.o.Pool != nil && len(p.Rows) > 1
	for i := range p.Rows {
		j.first = append(j.first, row)
		row += len(p.Rows[i].Pos)
		if apart && p.Rows[i].drives() == nil {
			ok, err := p.Rows[i].Sequence.seq.Reserve(layer, len(p.Rows[i].Pos))
			p.fail(i, err)
			apart = apart && ok
		}
	}
	var pool *kernels.Pool
	if apart {
		pool = p.f.o.Pool
	}
	pool.Run(len(p.Rows), j.run)
	return nil
}

// appendOne appends one text's rows; texts share nothing, so several may be appended to at the same time once room is
// reserved.
func (p *Pass) appendOne(_, i int) {
	r, j, shape := &p.Rows[i], &p.job, &p.f.o.Shape
	if r.Err != nil {
		return
	}
	kv := shape.kv(j.layer)
	kw, vw := kv.Heads*kv.KeyDim, kv.Heads*kv.ValueDim
	lo, hi := j.first[i], j.first[i]+len(r.Pos)
	k, v := j.k[lo*kw:hi*kw], j.v
	if !kv.ValueInKey {
		v = v[lo*vw : hi*vw]
	}
	if a := r.drives(); a != nil {
		p.fail(i, a.append(k, v))
		return
	}
	if r.Reading == Late {
		p.fail(i, r.Sequence.seq.Insert(j.layer, k, v, r.Pos))
		return
	}
	p.fail(i, r.Sequence.seq.Append(j.layer, k, v, r.Pos))
}

// Join ends what Overlap has begun, where nothing is appended next.
func (p *Pass) Join() error { return p.f.overlap.join(p.f) }

// Observe shows the policies a layer's queries q [rows, Heads·KeyDim], those of all rows.
func (p *Pass) Observe(layer int, q []float32) {
	width, row := p.f.o.Shape.queryWidth(layer), 0
	for i := range p.Rows {
		r := &p.Rows[i]
		n := len(r.Pos)
		if r.watched(layer) {
			r.Sequence.Observe(layer, q[row*width:(row+n)*width], r.Pos)
		}
		row += n
	}
}

// watched reports whether a text's policy sees its rows of a layer.
func (r *Rows) watched(layer int) bool {
	return r.Err == nil && r.Reading != Late && (r.Reading.Prompt() || r.Sequence.set.Dropper != nil || r.Sequence.follows(layer))
}

// follows reports whether a pruning layer's active blocks are followed while decoding, with the newest queries.
func (t *Sequence) follows(layer int) bool {
	if t.set.Swapper == nil || !t.set.Follows() {
		return false
	}
	return t.Prunes(layer)
}

// Select decides what the rows read of a layer: the selecting policy's choice in decode steps, everything else as it is. q
// [rows, Heads·KeyDim] are the rows' queries, or nil where no policy asks (Asks). Pages that are read whole are in host memory afterwards.
func (p *Pass) Select(layer int, q []float32) {
	width, row := p.f.o.Shape.queryWidth(layer), 0
	p.seqs = p.seqs[:0]
	for i := range p.Rows {
		r := &p.Rows[i]
		n := len(r.Pos)
		p.seqs = append(p.seqs, attention.Seq{Pos: r.Pos})
		if r.Err == nil {
			var own []float32
			if q != nil {
				own = q[row*width : (row+n)*width]
			}
			p.fail(i, p.selectOne(r, layer, own, &p.seqs[i]))
		}
		row += n
	}
	p.f.askAll(false)
}

func (p *Pass) selectOne(r *Rows, layer int, q []float32, seq *attention.Seq) error {
	if a := r.drives(); a != nil {
		return a.selectOnDrives(r, layer, q, seq)
	}
	t, n := r.Sequence, len(r.Pos)
	if r.Reading.Prompt() {
		if err := t.res.whole(p.f.o.Shape.owner(layer), r.Pos[0]); err != nil {
			return err
		}
		seq.Views = t.seq.Views(layer)
		seq.ColumnSums = t.Sums(layer, n, int(t.read)+n, r.Reading)
		if t.Indexes(layer) {
			return t.sel.maskRows(layer, r, seq)
		}
		return nil
	}
	if err := t.res.open(p.f.o.Shape.owner(layer), r.Pos[0]); err != nil {
		return err
	}
	seq.Views = t.seq.Views(layer)
	if t.Indexes(layer) {
		t.sel.query = r.indexQuery(n - 1)
	}
	defer p.f.o.Trace.Layer(trace.Score, "select", layer).End()
	return t.res.begin(layer, q, seq)
}

// Prepare readies the next layer that keeps keys and values, from a layer on, while the one before is still to be attended to: its query
// is guessed, what it reads is chosen where that can be known, and what is not in host memory begins to be read. Behind the last
// one it is the first of the next pass.
func (p *Pass) Prepare(layer int, guess Guesser) error {
	shape, current := p.f.o.Shape.Layers, layer-1
	layer = shape.Next(layer - 1)
	first := shape.Next(-1)
	if first < 0 {
		return nil // no layer keeps any
	}
	next := layer
	if layer < 0 {
		next = first
	}
	for i := range p.Rows {
		if r := &p.Rows[i]; r.Err == nil {
			r.Sequence.res.prefetch(next, r.Pos[0], r.Reading == Step || (r.Reading == LastChunk || r.Reading == LastBlock) && next == first)
		}
	}
	if layer >= 0 {
		if err := p.guess(layer, guess); err != nil {
			return err
		}
		p.all.prepare(current, layer)
		p.f.askAll(p.all.along.layer > 0)
	}
	p.f.Yield()
	return nil
}

// guess stores a layer's query for the texts whose policy wants it.
func (p *Pass) guess(layer int, guess Guesser) error {
	var q []float32
	width, row := p.f.o.Shape.queryWidth(layer), 0
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Err == nil && r.Reading == Step && r.Sequence.wantsGuess(layer) {
			if q == nil {
				var err error
				if q, err = guess(layer); err != nil {
					return err
				}
			}
			l := &r.Sequence.sel.layers[layer]
			l.guess = append(l.guess[:0], q[row*width:(row+1)*width]...)
		}
		row += len(r.Pos)
	}
	return nil
}

// Fetch waits for what the rows read of a layer and returns what each text's rows attend to, in the order of Rows: nothing, where a text
// has failed.
func (p *Pass) Fetch(layer int) []attention.Seq {
	for i := range p.Rows {
		r := &p.Rows[i]
		if a := r.drives(); a != nil {
			p.fail(i, a.answered())
			continue
		}
		if r.Err != nil || r.Reading.Prompt() {
			continue
		}
		t, seq, owner := r.Sequence, &p.seqs[i], p.f.o.Shape.owner(layer)
		c, _ := t.res.(*cached)
		if c != nil && !c.ready(owner) {
			p.all.build() // while the rest is on its way
		}
		if err := t.res.finish(owner, seq); err != nil {
			p.fail(i, err)
			continue
		}
		if c != nil {
			p.all.add(c)
		}
		t.sel.wantNorm(layer, seq)
		if t.set.Stepper == nil || t.Prunes(layer) {
			seq.ColumnSums = t.Sums(layer, 1, int(t.read)+1, Step)
		}
	}
	p.all.build()
	for i := range p.Rows {
		if r := &p.Rows[i]; r.Err != nil {
			p.seqs[i] = attention.Seq{Pos: r.Pos, Views: make([]attention.View, p.f.o.Shape.kv(layer).Heads)}
		}
	}
	return p.seqs
}

// Attended follows a layer's attention, whose output out [rows, Heads·ValueDim] it may change: the policies decide what
// stays, and pages may leave host memory.
func (p *Pass) Attended(layer int, out []float32) {
	width, row := p.f.o.Shape.outWidth(layer), 0
	for i := range p.Rows {
		r := &p.Rows[i]
		t, n := r.Sequence, len(r.Pos)
		if r.Err == nil {
			if !r.Reading.byLayer() {
				settleRead(p, t, layer)
			}
			switch {
			case r.Reading == LastChunk:
				p.fail(i, t.EndPrompt(layer, r.New))
			case r.Reading == Step:
				if t.sel != nil && p.ChangesOutput() {
					addUnread(t.sel, layer, out[row*width:(row+n)*width])
				}
				p.fail(i, t.endStep(layer))
				if r.Err == nil {
					p.fail(i, t.res.attended(p.f.o.Shape.owner(layer)))
				}
			}
		}
		row += n
		if r.Err == nil && !r.Reading.byLayer() && !(r.Reading == Step && t.swaps(layer)) {
			p.fail(i, t.Release(layer))
		}
	}
}

// settleRead quantizes what a layer that keeps keys and values has read in full precision.
func settleRead(p *Pass, t *Sequence, layer int) {
	if p.f.o.Shape.Layers.Keeps(layer) && t.onDrives() == nil {
		t.seq.Settle(layer)
	}
}

// Release lets go of the pages that a layer has read, unless a later one reads them too.
func (t *Sequence) Release(layer int) error {
	if owner := t.ends(layer); owner >= 0 {
		return t.res.release(owner)
	}
	return nil
}

// Release lets go of the pages that a layer of a prompt has read, unless a later one reads them too; of a layer with a sliding window in
// any case: its next rows do not read all of them.
func (p *Pass) Release(layer int) {
	layers := p.f.o.Shape.Layers
	for i := range p.Rows {
		settleRead(p, p.Rows[i].Sequence, layer)
	}
	owner := layers.Owner(layer)
	if owner < 0 || layers.LastReader(owner) != layer && layers[owner].KV.Window == 0 {
		return
	}
	for i := range p.Rows {
		if r := &p.Rows[i]; r.Err == nil {
			p.fail(i, r.Sequence.res.release(owner))
		}
	}
}

// End closes a pass that all layers have seen: its rows are read.
func (p *Pass) End() {
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Err != nil {
			continue
		}
		if r.Reading == Step {
			before := r.Sequence.seq.TakeMost() + r.Sequence.ChargedBytes()
			if err := r.Sequence.res.stepped(int(r.Sequence.read) + r.New); err != nil {
				p.fail(i, err)
				continue
			}
			r.Sequence.stepMost = max(r.Sequence.stepMost, before, r.Sequence.seq.TakeMost()+r.Sequence.ChargedBytes())
			r.Sequence.sel.stepped()
		}
		r.Sequence.read += int32(r.New)
		r.Sequence.seq.States().Commit(r.Sequence.read)
		if p.f.o.WindowOnly && r.Sequence.Plain() {
			r.Sequence.seq.Slide(r.certain())
		}
		if r.Reading != Step {
			r.Sequence.seq.TakeMost()
		}
		if r.Reading == LastChunk && r.Sequence.set.Keeper != nil {
			p.f.o.KV.Release() // what the policy dropped is not to stay resident
		}
	}
}

// certain is the text's length without guesses (a step's rows but the first), which may be taken back.
func (r *Rows) certain() int32 {
	if r.Reading == Step {
		return r.Sequence.read - int32(r.New) + 1
	}
	return r.Sequence.read
}

// Undo takes back what a failed pass has added to a text: all of them where whole is set, else those with an error.
func (p *Pass) Undo(whole bool) {
	_ = p.f.overlap.join(p.f) // the pass has failed already
	for i := range p.Rows {
		if r := &p.Rows[i]; !r.undone && (whole || r.Err != nil) {
			r.undone = true
			r.undo()
		}
	}
}

// undo takes back what a failed pass has added to the text. A tier that is gone fails that too, for the same reason: it is said
// once.
func (r *Rows) undo() {
	var err error
	t := r.Sequence
	if r.Reading.Prompt() {
		err = t.res.free()
		t.sel.drop()
		if t.read == 0 {
			t.obs.init(t) // what was seen of the prompt is seen again
		}
	} else {
		err = t.res.cut(t.read)
		t.sel.cut(t.read)
		if more := t.sel.charge(); err == nil { // what the pass has added to the index is its memory from now on
			err = more
		}
	}
	if more := t.seq.Truncate(t.read); err == nil {
		err = more
	}
	if err != nil && !t.f.Tiered() {
		r.Err = fmt.Errorf("%w; and taking the rows back failed: %w", r.Err, err)
	}
}
