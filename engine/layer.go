package engine

import (
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/model"
	"terrace/retrieval"
)

// runLayer takes the pass's rows through one layer: Project, Append, Select, Fetch, Attend, Prune, Finish. It is the only
// place where that happens, for prompts in chunks and layer by layer, for decode steps, and for rows that are computed late.
// After the last layer hidden holds the rows whose logits are wanted; nil = none. Sessions that fail on the way leave at its border.
func (p *pass) runLayer(layer int, do sweep) error {
	if err := verbs(p, layer, do); err != nil {
		return err
	}
	return border(p)
}

func verbs(p *pass, layer int, do sweep) error {
	if err := arriveStored(p.sessions, layer, p.e.m.Layers); err != nil {
		return err
	}
	if !p.e.cache.Reads(layer) {
		return p.runMixer(layer)
	}
	q, err := p.project(layer, do) // Project, Append
	if err != nil || do == keysOnly {
		return err
	}
	if p.e.m.Layer[layer].Recurs() {
		if _, err := p.mix(layer); err != nil { // beside attention
			return err
		}
	}
	if q = p.lastLayer(layer, q); q == nil {
		p.kv.Release(layer)
		return nil
	}
	attended, err := p.read(layer, q) // Select, Fetch, Attend
	if err != nil {
		return err
	}
	if attended, err = p.prune(layer, attended); err != nil { // Prune
		return err
	}
	return p.finish(layer, attended) // Finish
}

// read decides what the rows read of a layer, waits for it, and attends to it; the next layer is prepared meanwhile.
func (p *pass) read(layer int, q *tensor.Dense) (*tensor.Dense, error) {
	p.kv.Select(layer, policyFloats(&p.kv, q))
	if p.e.cache.Keeps(layer) {
		if err := p.prepare(layer + 1); err != nil {
			return nil, err
		}
	}
	seqs, err := p.fetch(layer)
	if err != nil {
		return nil, err
	}
	if p.watch != nil {
		if err := p.watch(layer, p, q, seqs[0].Views); err != nil {
			return nil, err
		}
	}
	return p.attend(layer, q, seqs)
}

// project makes the rows' queries, and stores their keys and values unless these are in the cache already.
func (p *pass) project(layer int, do sweep) (*tensor.Dense, error) {
	if p.source != nil && do == afterKeys {
		if q := p.source.queries(layer); q != nil {
			return q, nil
		}
	}
	e := p.e
	e.retrieval.Yield()
	q, k, v, err := e.backend.Project(&p.rows, layer, p.hidden)
	if err != nil {
		return nil, err
	}
	e.retrieval.Yield()
	if e.indexes != nil && p.kv.Indexes(layer) {
		p.kv.Index(floats(e.indexes.IndexQueries()))
	}
	e.turnKeys(layer, q)
	e.turnKeys(layer, k)
	e.turnValues(layer, v)
	for i, s := range p.sessions {
		s.flops.Projected(e.m, layer, len(p.kv.Rows[i].Pos))
	}
	if do == afterKeys || !e.cache.Keeps(layer) {
		return q, nil
	}
	if err := p.append(layer, k, v); err != nil {
		return nil, err
	}
	e.tiers.hidden().keep(p, layer)
	if err := showHidden(p, layer); err != nil {
		return nil, err
	}
	if x := policyFloats(&p.kv, q); x != nil {
		p.kv.Observe(layer, x)
	}
	return q, p.mask()
}

// showHidden shows the rows that the layer's attention projects from to whoever looks at them.
func showHidden(p *pass, layer int) error {
	wanted := retrieval.WantsHidden(&p.kv, layer)
	for _, s := range p.sessions {
		wanted = wanted || s.rowsSeen != nil
	}
	if !wanted {
		return nil
	}
	x, err := normedRows(p, layer)
	if err != nil {
		return err
	}
	retrieval.ObserveHidden(&p.kv, layer, x)
	at, d := 0, p.e.m.Hidden
	for i, s := range p.sessions {
		n := len(p.kv.Rows[i].Pos)
		if s.rowsSeen != nil && p.kv.Rows[i].Reading.Prompt() {
			s.rowsSeen(layer, x[at*d:(at+n)*d], p.kv.Rows[i].Pos)
		}
		at += n
	}
	return nil
}

// normedRows are the rows [n, Hidden] that the layer's attention projects from: what it reads of the residual, behind its norm.
func normedRows(p *pass, layer int) ([]float32, error) {
	m, n := p.e.m, len(p.rows.Pos)
	x, err := p.e.layerRows(p, layer)
	if err != nil {
		return nil, err
	}
	normed := slices.Clone(x[:n*m.Hidden])
	for i := range n {
		if err := m.Normalise(m.Params.Layers[layer].AttnNorm, normed[i*m.Hidden:(i+1)*m.Hidden]); err != nil {
			return nil, err
		}
	}
	return normed, nil
}

// append stores keys and values, at once or while the device goes on.
func (p *pass) append(layer int, k, v *tensor.Dense) error {
	if p.e.device.later(p) {
		return p.e.device.download(p, layer, k, v)
	}
	if v == nil { // latent: the value is the key
		return p.kv.Append(layer, floats(k), nil)
	}
	return p.kv.Append(layer, floats(k), floats(v))
}

// policyFloats are a tensor's numbers where a policy looks at them; nil = none does, and a device keeps them.
func policyFloats(kv *retrieval.Pass, t *tensor.Dense) []float32 {
	if !kv.Asks() {
		return nil
	}
	return floats(t)
}

// lastLayer leaves only the rows that matter behind the last layer's keys and values: those whose attention somebody looks at;
// nil = none.
func (p *pass) lastLayer(layer int, q *tensor.Dense) *tensor.Dense {
	if layer < p.e.m.Layers-1 {
		return q
	}
	rows, from := len(p.rows.Pos), 0
	switch {
	case p.shared:
		p.lastOfEach(&q)
		return q
	case p.watch != nil:
	case p.source != nil:
		from = p.source.firstAttended(layer)
	case !p.kv.Asks():
		from = rows - p.want
	}
	if from >= rows {
		p.hidden = nil
		return nil
	}
	p.trim(rows - from)
	return lastRows(q, rows-from)
}

// lastOfEach leaves the last row of each session; those of prompts that go on are dropped by trim.
func (p *pass) lastOfEach(rows ...**tensor.Dense) {
	stay, at := make([]int, 0, len(p.kv.Rows)), 0
	for i := range p.kv.Rows {
		r := &p.kv.Rows[i]
		at += len(r.Pos)
		stay, r.Pos = append(stay, at-1), r.Pos[len(r.Pos)-1:]
	}
	p.keepRows(stay, rows...)
}

// trim cuts the pass to its last n rows: of a prompt's; a step's go on.
func (p *pass) trim(n int) {
	cut := len(p.rows.Pos) - n
	if cut == 0 {
		return
	}
	p.hidden = lastRows(p.hidden, n)
	p.rows.Pos, p.rows.Len = p.rows.Pos[cut:], p.rows.Len[cut:]
	for i := range p.kv.Rows {
		r := &p.kv.Rows[i]
		n := min(cut, len(r.Pos))
		r.Pos, cut = r.Pos[n:], cut-n
	}
}

// prepare readies the next layer, behind one that keeps keys and values, while this one is computed: retrieval chooses and reads ahead, a device uploads.
func (p *pass) prepare(next int) error {
	if err := p.kv.Prepare(next, p.guess); err != nil {
		return err
	}
	p.e.device.upload(p, next)
	p.e.retrieval.Yield()
	return nil
}

// fetch waits for what the rows read of a layer.
func (p *pass) fetch(layer int) ([]attention.Seq, error) {
	seqs := p.kv.Fetch(layer)
	if err := p.mask(); err != nil {
		return nil, err
	}
	for i, s := range p.sessions {
		if p.kv.Rows[i].Err != nil {
			continue
		}
		seq, reading := &seqs[i], p.kv.Rows[i].Reading
		if p.source != nil {
			p.source.restrict(layer, seq)
		}
		s.revival.readActive(layer, reading, seq)
		switch {
		case seq.Sparse == nil: // a mask's pairs are counted by the mask
			attending(&s.flops, p.e.m, layer, seq, s.text.Seq())
		case s.text.Indexes(layer):
			s.flops.Pairs(p.e.m, layer, p.e.m.Layer[layer].Heads, s.text.MaskedPairs())
		}
		if reading == retrieval.Step {
			s.text.CountReads(layer, seq)
		}
	}
	p.e.device.await(seqs)
	return seqs, nil
}

// attend is the rows' attention over what was fetched; the policies look at its weights afterwards.
func (p *pass) attend(layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	if p.source != nil {
		if done := p.source.attended(layer); done != nil {
			return done, nil
		}
	}
	if attended := p.fromDrives(layer); attended != nil {
		return attended, nil
	}
	attended, err := attendBeside(p, layer, q, seqs)
	if err != nil {
		return nil, err
	}
	if p.kv.Asks() {
		if err := p.e.device.landed(); err != nil { // policies read keys
			return nil, err
		}
	}
	var out []float32
	if p.kv.ChangesOutput() {
		out = model.WritableFloat32s(attended)
	}
	p.kv.Attended(layer, out)
	return attended, nil
}

// attendBeside is the backend's attention, on the same threads as what is decided of the next layer.
func attendBeside(p *pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	p.kv.BeginBeside()
	defer p.kv.EndBeside() // after a panic too: nothing of this pass may wait in the pool
	return p.e.backend.Attend(&p.rows, layer, q, seqs)
}

// prune follows what is active of a pruned prompt in the layers behind a pruning layer, in decode steps; what a prompt prunes
// leaves before its attention (wholePrompt). The drive's answers about the next layer are taken from here on.
func (p *pass) prune(layer int, attended *tensor.Dense) (*tensor.Dense, error) {
	attended, err := p.follow(layer, attended)
	if err == nil {
		err = p.mask()
	}
	if err != nil {
		return nil, err
	}
	p.kv.Overlap(layer + 1)
	return attended, nil
}

// finish takes the rows through the rest of the layer.
func (p *pass) finish(layer int, attended *tensor.Dense) error {
	if layer == p.e.m.Layers-1 && len(p.rows.Pos) > p.want {
		if p.want == 0 {
			p.hidden = nil
			return nil
		}
		if attended != nil {
			attended = lastRows(attended, p.want)
		}
		p.trim(p.want)
	}
	for i, s := range p.sessions {
		s.flops.Finished(p.e.m, layer, len(p.kv.Rows[i].Pos))
	}
	p.e.turnValues(layer, attended)
	var err error
	p.hidden, err = p.e.backend.Finish(&p.rows, layer, p.hidden, attended)
	return err
}
