package model

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
)

// native is the default backend: gorgonia tensors over internal/kernels, on the CPU. It has a method for each kind
// of mixer, network and norm, which share its scratch.
type native struct {
	m    *Model
	pool *kernels.Pool
	ws   scratch
	rope []ropeTable // one a Config.Ropes entry
	// extra tables of length-dependent ropes, by rope index and length
	ropeAt map[[2]int]*ropeTable
	// operands of row tasks, so that the prebuilt functions below need no closure a call
	rows   rowTask
	gather moeScratch
	// operands of the matmul in progress
	products [4]kernels.Product
	gated    kernels.Gated
	fused    kernels.RowNorm
	biases   [4][]float32

	streaming streaming                      // what of the weights is in memory
	taps      map[*RecurrentParams][]float32 // convolution's
}

func init() { RegisterBackend("native", newNative) }

func newNative(m *Model, o BackendOptions) (Backend, error) {
	b := &native{m: m, pool: kernels.NewPool(max(1, o.Threads)), ropeAt: map[[2]int]*ropeTable{}, taps: map[*RecurrentParams][]float32{}}
	b.rope = make([]ropeTable, len(m.Ropes))
	for i := range b.rope {
		b.rope[i].rope = &m.Ropes[i]
	}
	b.rows.init(b)
	b.streaming.init(b)
	return b, nil
}

func (b *native) Name() string { return "native" }

// Pool implements PoolLender.
func (b *native) Pool() *kernels.Pool { return b.pool }

func (b *native) Close() error {
	b.streaming.end()
	b.pool.Close()
	return nil
}

// Embed implements Backend.
func (b *native) Embed(p *Pass, ids []int32) (*tensor.Dense, error) {
	m, n := b.m, len(ids)
	if !m.Params.EmbedIn.Absent() {
		return b.embedProjected(p, ids)
	}
	hidden := b.ws.dense(&b.ws.hidden, n, m.Hidden)
	x := floats(hidden)
	if err := m.checkIDs(ids); err != nil {
		return nil, err
	}
	if err := m.Params.Embed.Gather(x, ids); err != nil {
		return nil, err
	}
	if s := m.EmbedScale; s != 0 && s != 1 {
		for i := range ids {
			kernels.Scale(x[i*m.Hidden:(i+1)*m.Hidden], s)
		}
	}
	if m.Params.Positions != nil {
		if err := b.addPositions(p, x); err != nil {
			return nil, err
		}
	}
	if !m.Params.EmbedNorm.W.Absent() {
		if err := b.norm(x, x, n, m.Hidden, m.Params.EmbedNorm); err != nil {
			return nil, err
		}
	}
	if m.Copies > 1 {
		hidden = b.embedCopies(hidden, ids)
		return hidden, b.streaming.predict(p, 0, floats(hidden), n)
	}
	if err := b.streaming.predict(p, 0, x, n); err != nil {
		return nil, err
	}
	if m.wide() {
		return b.widen(p, ids, x, n)
	}
	return hidden, nil
}

// checkIDs refuses tokens outside the vocabulary.
func (m *Model) checkIDs(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return fmt.Errorf("model: token %d of the pass is id %d, the vocabulary has %d: %w", i, id, m.Vocab, ErrToken)
		}
	}
	return nil
}

// addPositions adds the learned position rows.
func (b *native) addPositions(p *Pass, x []float32) error {
	m := b.m
	table := m.Params.Positions
	row := b.ws.floats(&b.ws.row, m.Hidden)
	for i, pos := range p.Pos {
		at := int(pos) + m.PosOffset
		if at >= table.Rows {
			return fmt.Errorf("model: position %d, the model has learned %d: %w", pos, table.Rows-m.PosOffset, ErrConfig)
		}
		if err := table.Row(row, at); err != nil {
			return err
		}
		kernels.Add(x[i*m.Hidden:(i+1)*m.Hidden], row)
	}
	return nil
}

// Project implements Backend.
func (b *native) Project(p *Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	if err := b.streaming.enter(layer); err != nil {
		return nil, nil, nil, err
	}
	if q, k, v, err = b.project(p, layer, hidden); err == nil {
		err = b.predictNext(p, layer, hidden)
	}
	return q, k, v, err
}

func (b *native) project(p *Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	x, n, norm, err := b.blockRows(p, layer, hidden, b.inputNorm(l), &l.AttnHyper)
	if err != nil {
		return nil, nil, nil, err
	}
	if a.Latent != nil {
		return b.projectLatent(p, layer, x, n, norm)
	}
	if a.Index != nil {
		return b.projectIndexed(p, layer, x, n, norm)
	}
	q = b.ws.dense(&b.ws.q, n, a.Heads*a.KeyDim)
	if a.Owner != layer {
		if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: l.Q, dst: floats(q)}); err != nil {
			return nil, nil, nil, err
		}
		return q, nil, nil, b.turn(p, layer, floats(q), l.QNorm, nil, NormParams{})
	}
	k, v, err = b.keysValues(p, layer, x, n, norm, floats(q))
	return q, k, v, err
}

// inputNorm is the norm before a layer's mixers.
func (b *native) inputNorm(l *LayerParams) NormParams {
	if b.m.PostNorm {
		return NormParams{}
	}
	return l.AttnNorm
}

// Attend implements Backend.
func (b *native) Attend(p *Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	a := &b.m.Layer[layer].Attention
	n := q.Shape()[0]
	qw, ow := a.Heads*a.StoredKey(), a.Heads*a.StoredValue()
	out := b.ws.dense(&b.ws.attended, n, ow)
	x, y, at := floats(q), floats(out), 0
	for i := range seqs {
		s := &seqs[i]
		rows := len(s.Pos)
		s.Q, s.Out = x[at*qw:(at+rows)*qw], y[at*ow:(at+rows)*ow]
		at += rows
	}
	if at != n {
		return nil, fmt.Errorf("model: sequences hold %d rows, the pass has %d", at, n)
	}
	params, err := b.m.AttentionParams(layer)
	if err != nil {
		return nil, err
	}
	prompts := len(seqs)
	for left := p.Steps; left > 0 && p.Phase == kernels.Prefill; left -= len(seqs[prompts].Pos) {
		prompts--
	}
	if prompts > 0 {
		attention.Attend(b.pool, p.Phase, params, seqs[:prompts])
	}
	if prompts < len(seqs) {
		attention.Attend(b.pool, kernels.Decode, params, seqs[prompts:])
	}
	return out, nil
}

// AttentionParams are the attention figures of one layer.
func (m *Model) AttentionParams(layer int) (attention.Params, error) {
	a := &m.Layer[layer].Attention
	sinks, err := m.Params.Layers[layer].Sinks.Values()
	return attention.Params{Heads: a.Heads, KVHeads: a.KVHeads, KeyDim: a.StoredKey(), ValueDim: a.StoredValue(),
		Scale: a.ScoreScale(), Softcap: a.Softcap, Window: a.Window, Chunk: a.Chunk, Sinks: sinks}, err
}

// Finish implements Backend.
func (b *native) Finish(p *Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	if err := b.streaming.enter(layer); err != nil {
		return nil, err
	}
	n := hidden.Shape()[0]
	switch x := floats(hidden); {
	case b.m.wide():
		return b.finishWide(p, layer, hidden, attended)
	case b.m.Copies > 1:
		return b.finishCopies(p, layer, hidden, attended)
	case b.m.Parallel:
		return hidden, b.finishParallel(p, layer, x, n, attended)
	default:
		if err := b.finishRows(p, layer, x, n, attended); err != nil {
			return nil, err
		}
		return hidden, b.scaleOut(layer, x[:n*b.m.Hidden])
	}
}

// finishRows adds a layer's blocks to the residual stream x [n, D].
func (b *native) finishRows(p *Pass, layer int, x []float32, n int, attended *tensor.Dense) error {
	m, l := b.m, &b.m.Params.Layers[layer]
	if attended != nil {
		if err := b.mixerBlock(p, layer, x, n, attended); err != nil {
			return err
		}
	}
	if m.Layer[layer].NoFFN {
		return nil
	}
	norm := l.FFNNorm
	if m.PostNorm {
		norm = NormParams{}
	}
	block := b.blockOut(x, n, l.PostFFNNorm)
	if err := b.feedForward(p.arithmetic(), l, layer, block, x, n, norm); err != nil {
		return err
	}
	if err := b.addBlock(x, block, n, l.PostFFNNorm); err != nil || !m.PostNorm {
		return err
	}
	return b.norm(x, x, n, m.Hidden, l.FFNNorm)
}

// mixerBlock is finishMixer with the residual of low rank beside it, where the layer has one.
func (b *native) mixerBlock(p *Pass, layer int, x []float32, n int, mixed *tensor.Dense) error {
	l := &b.m.Params.Layers[layer]
	if l.Laurel == nil {
		return b.finishMixer(p, layer, x, n, mixed)
	}
	beside, err := b.laurel(p, l, x, n)
	if err != nil {
		return err
	}
	if err := b.finishMixer(p, layer, x, n, mixed); err != nil {
		return err
	}
	kernels.Add(x[:n*b.m.Hidden], beside)
	kernels.Scale(x[:n*b.m.Hidden], float32(math.Sqrt(0.5)))
	return nil
}

// FinishMixer implements MixerFinisher.
func (b *native) FinishMixer(p *Pass, layer int, hidden, attended *tensor.Dense) error {
	if b.m.wide() || b.m.Copies > 1 || b.m.Parallel {
		return fmt.Errorf("model: attention of %s without its network: %w", b.m.Arch, ErrUnsupported)
	}
	if err := b.streaming.enter(layer); err != nil {
		return err
	}
	return b.mixerBlock(p, layer, floats(hidden), hidden.Shape()[0], attended)
}

// finishParallel adds the outputs of a layer's attention and feed-forward network to the residual stream x that both read.
func (b *native) finishParallel(p *Pass, layer int, x []float32, n int, attended *tensor.Dense) error {
	l := &b.m.Params.Layers[layer]
	beside := product{dst: b.ws.floats(&b.ws.beside, n*b.m.Hidden)}
	if err := b.feedForward(p.arithmetic(), l, layer, beside, x, n, l.FFNNorm); err != nil {
		return err
	}
	if err := b.finishMixer(p, layer, x, n, attended); err != nil {
		return err
	}
	return b.addBlock(x, beside, n, l.PostFFNNorm)
}

// finishMixer adds what a layer's mixer gave, gated and projected, to the residual stream x.
func (b *native) finishMixer(p *Pass, layer int, x []float32, n int, mixed *tensor.Dense) error {
	m, a, l := b.m, &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	y, err := floats(mixed), error(nil)
	if a.Latent != nil {
		y, err = b.latentValues(p, layer, y, n)
	}
	if err == nil && a.Gate != NoGate {
		y, err = b.gateOutput(p, layer, x, y, n)
	}
	if err != nil {
		return err
	}
	block := b.blockOut(x, n, l.PostAttnNorm)
	block.w = l.O
	if err := b.matmul(p.arithmetic(), y, n, block); err != nil {
		return err
	}
	if err := b.addBlock(x, block, n, l.PostAttnNorm); err != nil || !m.PostNorm {
		return err
	}
	return b.norm(x, x, n, m.Hidden, l.AttnNorm)
}

// blockOut is where a block's last product goes: straight into the residual stream x, unless something comes between.
func (b *native) blockOut(x []float32, n int, post NormParams) product {
	if s := b.m.ResidualScale; post.W.Absent() && !b.m.PostNorm && (s == 0 || s == 1) {
		return product{dst: x, add: true}
	}
	return product{dst: b.ws.floats(&b.ws.block, n*b.m.Hidden)}
}

// addBlock adds a block's output to the residual stream where it is not there yet, after its own norm where the model has
// one.
func (b *native) addBlock(x []float32, block product, n int, post NormParams) error {
	if block.add {
		return nil
	}
	if !post.W.Absent() {
		if err := b.norm(block.dst, block.dst, n, b.m.Hidden, post); err != nil {
			return err
		}
	}
	t := &b.rows
	t.dst, t.x, t.rows, t.width, t.scale = x, block.dst, n, b.m.Hidden, b.m.ResidualScale
	b.pool.Run(t.tasks(n), t.joinRows)
	return nil
}

// Logits implements Backend.
func (b *native) Logits(p *Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	m, n, norm := b.m, hidden.Shape()[0], b.m.Params.FinalNorm
	x, err := floats(hidden), error(nil)
	switch {
	case m.wide():
		x, err = b.unwiden(p, hidden)
	case m.Copies > 1:
		x, err = b.mixCopies(p.arithmetic(), x, n, &m.Params.Final)
	}
	if err != nil {
		return nil, err
	}
	if m.NoFinal {
		norm = NormParams{}
	}
	if !m.Params.EmbedOut.Absent() {
		var err error
		if x, err = b.projectOut(p, x, n, norm); err != nil {
			return nil, err
		}
		norm = NormParams{}
	}
	out := b.ws.dense(&b.ws.logits, n, m.Vocab)
	y := floats(out)
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: m.Params.Output, dst: y}); err != nil {
		return nil, err
	}
	if s := m.LogitScale; s != 0 && s != 1 {
		kernels.Scale(y, s)
	}
	if m.LogitSoftcap > 0 {
		kernels.Softcap(y, m.LogitSoftcap)
	}
	return out, nil
}

// GuessQuery implements QueryGuesser.
func (b *native) GuessQuery(p *Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	if err := b.streaming.peek(layer); err != nil {
		return nil, err
	}
	m, l := b.m, &b.m.Params.Layers[layer]
	x, n, norm, err := b.blockRows(p, layer, hidden, b.inputNorm(l), &l.AttnHyper)
	if err != nil {
		return nil, err
	}
	if m.Layer[layer].Latent != nil {
		q := b.ws.dense(&b.ws.guess, n, m.Layer[layer].Heads*m.Layer[layer].StoredKey())
		return q, b.latentQuery(p, layer, x, n, norm, floats(q))
	}
	normed := x
	if !norm.W.Absent() {
		normed = b.ws.floats(&b.ws.guessNormed, n*m.Hidden)
		if err := b.norm(normed, x, n, m.Hidden, norm); err != nil {
			return nil, err
		}
	}
	q := b.ws.dense(&b.ws.guess, n, m.Layer[layer].Heads*m.Layer[layer].KeyDim)
	if err := b.matmul(p.arithmetic(), normed, n, product{w: l.Q, dst: floats(q)}); err != nil {
		return nil, err
	}
	a := &m.Layer[layer].Attention
	if err := b.turn(p, layer, floats(q), l.QNorm, nil, NormParams{}); err != nil || a.Index == nil {
		return q, err
	}
	return b.ws.spread(&b.ws.wideGuess, floats(q), n, a.Heads, a.KeyDim, a.StoredKey()), nil
}
