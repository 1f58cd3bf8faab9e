package vulkan

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/tensor"

	"terrace/internal/vulkan"
	"terrace/model"
)

// Kinds of recurrences, and flags of the kernels.
const (
	byHead, byChannel, space = 0, 1, 2 // recur

	convSilu, convBias, convFactors = 1, 2, 4

	silu, sigmoid, softplus          = 0, 1, 2 // gated
	gateBefore, gateNorm, gateBehind = 1, 2, 4
)

// mixes are what recurrent layers and gates need on the device beside what others do.
type mixes struct {
	in, convolved, decays, sizes, gates, low, side, gated slot

	landing  landing
	recorded int64 // command buffer that a mixer was last recorded in
}

// mixerWeights are the weights of a recurrent layer and of a gate.
func mixerWeights(l *model.LayerParams) (linears []*model.Linear, vectors []model.NormParams) {
	r := &l.Recurrent
	linears = append(slices.Clone(r.In), r.Z, r.A, r.B, r.ZDown, r.ADown, r.Out, l.OutGate)
	for _, v := range []*model.Vector{r.ConvBias, r.Decay, r.DTBias, r.D, r.Norm} {
		vectors = append(vectors, model.NormParams{W: v})
	}
	return linears, vectors
}

// lacksMixer is what of a layer's recurrent mixer there are no kernels for; empty = nothing.
func lacksMixer(l *model.LayerConfig) string {
	switch {
	case l.NGrams != nil:
		return "embeddings of n-grams"
	case l.Delta != nil && l.Delta.KeyDim > widest:
		return fmt.Sprintf("keys of %d numbers in a DeltaNet (%d at most)", l.Delta.KeyDim, widest)
	case l.SSM != nil && l.SSM.State > widest:
		return fmt.Sprintf("states of %d numbers in a Mamba-2 mixer (%d at most)", l.SSM.State, widest)
	}
	return ""
}

// recurring is a recurrent mixer's work on the rows of a pass.
type recurring struct {
	*steps
	r   *model.RecurrentParams
	t   *texts
	n   int
	x   span // [n, D], what the mixer is of
	out span // [n, outputs]
}

// Mix implements model.Recurrent. States stay on the device where their owners let them (states.go).
func (b *backend) Mix(p *model.Pass, layer int, hidden *tensor.Dense, states []model.StateRows) (*tensor.Dense, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, l, n := &b.m.Layer[layer], &b.m.Params.Layers[layer], hidden.Shape()[0]
	s := b.steps(p)
	rows := s.input(hidden, &b.block)
	if s.err != nil {
		return nil, s.err
	}
	t, err := b.texts(layer, n, states)
	if err != nil {
		return nil, fmt.Errorf("vulkan: layer %d: %w", layer, err)
	}
	to, width := &b.attended, l.O
	if c.Heads > 0 {
		to, width = &b.side, l.Recurrent.Out
	}
	out := s.room(to, n*width.Cols)
	mix := &recurring{steps: s, r: &l.Recurrent, t: t, n: n, x: s.attentionInput(l, rows, n), out: out}
	switch {
	case c.Delta != nil:
		mix.delta(c.Delta)
	case c.SSM != nil:
		mix.space(c.SSM)
	case c.Conv != nil:
		mix.convolution(c.Conv)
	default:
		s.keep(fmt.Errorf("vulkan: layer %d has no recurrent mixer", layer))
	}
	b.recorded = b.batch
	if s.err == nil {
		s.keep(t.hand())
	}
	if s.err != nil {
		t.abandon()
		return nil, s.err
	}
	if c.Heads == 0 {
		return s.result(to, n, width.Cols, false)
	}
	s.addBlock(width, model.NormParams{}, out, rows, n)
	return nil, mix.changed(hidden, rows)
}

// changed says that the rows of a tensor were changed where they lie on the device, and brings them to one that does not lie there.
func (s *recurring) changed(t *tensor.Dense, on span) error {
	if s.err != nil {
		return s.err
	}
	if h, ok := t.Engine().(*held); ok && h.on == on && !h.wrote {
		h.fetched, h.batch = false, 0
		return nil
	}
	if _, err := s.result(&s.block, s.n, s.m.Hidden, true); err != nil {
		return err
	}
	got, err := s.block.h.now()
	if err == nil {
		copy(model.WritableFloat32s(t), got)
	}
	return err
}

// settle has done what mixers recorded in an earlier pass: prompts of layers that nobody reads from would grow one command buffer.
func (b *backend) settle() error {
	if b.recorded == 0 || b.recorded != b.batch {
		return nil
	}
	return b.submit()
}

// inputs computes a mixer's products In x, each [n, rows], and returns where numbers [from, from+count) of all of them lie.
func (s *recurring) inputs() func(from, count int) (span, int) {
	width := 0
	for _, w := range s.r.In {
		width += w.Rows
	}
	all := s.room(&s.in, s.n*width)
	at := 0
	for i, w := range s.r.In {
		y := all.from(4 * s.n * at)
		record := func() { s.product(w, s.x, y, s.n, 1, 0) }
		if i == 0 {
			record()
		} else {
			s.besides(record)
		}
		at += w.Rows
	}
	return func(from, count int) (span, int) {
		first := 0
		for _, w := range s.r.In {
			if from >= first && from+count <= first+w.Rows {
				return all.from(4 * (s.n*first + from - first)), w.Rows
			}
			first += w.Rows
		}
		s.keep(fmt.Errorf("vulkan: numbers %d to %d of a mixer's inputs lie in no one of its products: %w", from, from+count, model.ErrUnsupported))
		return all, width
	}
}

// beside is W·x, which needs nothing of the kernel before.
func (s *recurring) beside(w *model.Linear, at *slot) span {
	y := s.room(at, s.n*w.Rows)
	s.besides(func() { s.product(w, s.x, y, s.n, 1, 0) })
	return y
}

// twice is up·(down·x), or up·x where there is no down.
func (s *recurring) twice(down, up *model.Linear, at *slot) span {
	if down.Absent() {
		return s.beside(up, at)
	}
	y := s.room(at, s.n*up.Rows)
	low := s.room(&s.low, s.n*down.Rows)
	s.product(down, s.x, low, s.n, 1, 0)
	s.product(up, low, y, s.n, 1, 0)
	return y
}

// channels is a convolution over channels of the rows of a pass.
type channels struct {
	all, kernel  int
	flags        int
	b, c         span // factors
	width        int  // of segments, of which the first ones are made unit length, and those at the front scaled
	unit, scaled int
	scale        float32
}

// convolve takes channels [at, at+count), which lie from x on stride numbers a row, through the convolution into y [n, channels], and the texts'
// last inputs to their states.
func (s *recurring) convolve(c *channels, x span, stride, at, count int, y span) {
	w, err := s.weights.convolution(s.r)
	s.keep(err)
	bias, err := s.weights.vector(s.r.ConvBias)
	s.keep(err)
	flags := c.flags
	if !bias.absent() {
		flags |= convBias
	}
	record := func(kernel string, n, groups int) {
		gx, gy := s.grid(groups)
		s.run(kernel, push{}.at(x).at(c.b).at(c.c).at(w).at(bias).at(y).at(s.t.table).at(s.t.of).
			int(n).int(count).int(at).int(c.all).int(stride).int(flags).int(c.width).int(c.unit).int(c.scaled).float(c.scale), gx, gy, 1, uint32(c.kernel))
	}
	rows := func() { record("conv", s.n, s.n*groupsOf(count, c.width)) }
	if at > 0 { // the channels before have nothing to do with these
		s.besides(rows)
	} else {
		rows()
	}
	if c.kernel == 1 {
		return
	}
	tail := func() { record("tail", s.t.many, s.t.many*groupsOf(count, 64)) }
	if s.t.moves {
		s.besides(tail)
	} else {
		tail()
	}
}

// convolution returns the weights of a layer's convolution, [channels, taps].
func (w *weights) convolution(r *model.RecurrentParams) (span, error) {
	if on, ok := w.taps[r]; ok || len(r.Conv) == 0 {
		return on, nil
	}
	var all []float32
	for _, v := range r.Conv {
		part, err := v.Values()
		if err != nil {
			return span{}, err
		}
		all = append(all, part...)
	}
	on, err := w.upload(vulkan.Bytes(all), r.Conv[0].Tensor.Name)
	if err != nil {
		return span{}, err
	}
	if w.taps == nil {
		w.taps = map[*model.RecurrentParams]span{}
	}
	w.taps[r] = on
	return on, nil
}

// convolution is model.ShortConv: out = C ⊙ conv(B⊙u).
func (s *recurring) convolution(c *model.ShortConv) {
	in := s.inputs()
	b, _ := in(0, c.Width)
	gate, _ := in(c.Width, c.Width)
	u, stride := in(2*c.Width, c.Width)
	s.convolve(&channels{all: c.Width, kernel: c.Kernel, flags: convFactors, b: b, c: gate, width: 128}, u, stride, 0, c.Width, s.out)
}

// recurrence is what a step of a state is made of.
type recurrence struct {
	kind                  uint32
	heads, width, numbers int // a head's state is [numbers, width]
	channels              int // of a row of the convolution's outputs
	queries, keys, values int // where they begin in it
	groups                int // heads of queries and keys
	modulo                bool
	step, decays          int // numbers a row of what decays are of; of decay a head
	from                  int // where heads begin in a state
	least, most           float32
}

// recur takes states through the rows of a pass.
func (s *recurring) recur(k *recurrence, x, a, beta span) {
	vector := func(v *model.Vector) span {
		on, err := s.weights.vector(v)
		s.keep(err)
		return on
	}
	modulo := 0
	if k.modulo {
		modulo = 1
	}
	gx, gy := s.grid(s.t.many * k.heads * groupsOf(k.width, 16))
	s.run("recur", push{}.at(x).at(a).at(beta).at(vector(s.r.Decay)).at(vector(s.r.DTBias)).at(vector(s.r.D)).at(s.out).at(s.t.table).
		int(s.t.many).int(k.heads).int(k.width).int(k.channels).int(k.step).int(k.queries).int(k.keys).int(k.values).int(k.groups).int(modulo).
		int(k.from).int(k.decays).float(k.least).float(k.most), gx, gy, 1, k.kind, uint32(k.numbers))
}

// delta is model.DeltaNet: out [n, value heads · dv], normed and gated.
func (s *recurring) delta(d *model.DeltaNet) {
	keys, all := d.KeyHeads*d.KeyDim, 2*d.KeyHeads*d.KeyDim+d.ValueHeads*d.ValueDim
	in := s.inputs()
	beta := s.beside(s.r.B, &s.sizes)
	a := s.twice(s.r.ADown, s.r.A, &s.decays)
	z := s.twice(s.r.ZDown, s.r.Z, &s.gates)
	y := s.room(&s.convolved, s.n*all)
	c := &channels{all: all, kernel: d.Kernel, flags: convSilu, width: d.KeyDim, unit: 2 * d.KeyHeads, scaled: d.KeyHeads, scale: float32(1 / math.Sqrt(float64(d.KeyDim)))}
	at := 0
	for _, w := range s.r.In {
		from, stride := in(at, w.Rows)
		s.convolve(c, from, stride, at, w.Rows, y)
		at += w.Rows
	}
	k := &recurrence{kind: byHead, heads: d.ValueHeads, width: d.ValueDim, numbers: d.KeyDim, channels: all, keys: keys, values: 2 * keys, groups: d.KeyHeads, modulo: d.Modulo,
		step: s.r.A.Rows, decays: 1, from: (d.Kernel - 1) * all}
	if d.ByChannel {
		k.kind = byChannel
		decay, err := s.r.Decay.Values()
		s.keep(err)
		k.decays = len(decay) / d.ValueHeads
	}
	s.recur(k, y, a, beta)
	act := uint32(silu)
	if d.Sigmoid {
		act = sigmoid
	}
	s.gate(s.out, z, s.out, s.r.Norm, gating{groups: d.ValueHeads, width: d.ValueDim, stride: d.ValueHeads * d.ValueDim, share: 1, flags: gateNorm | gateBehind}, act, s.n)
}

// space is model.Mamba2: out [n, heads · head's numbers], normed and gated.
func (s *recurring) space(m *model.Mamba2) {
	inner, each := m.Heads*m.HeadDim, m.Groups*m.State
	all := inner + 2*each
	in := s.inputs()
	z, stride := in(0, inner)
	u, across := in(inner, all)
	dt, step := in(inner+all, m.Heads)
	y := s.room(&s.convolved, s.n*all)
	s.convolve(&channels{all: all, kernel: m.Kernel, flags: convSilu, width: 128}, u, across, 0, all, y)
	s.recur(&recurrence{kind: space, heads: m.Heads, width: m.HeadDim, numbers: m.State, channels: all, queries: inner + each, keys: inner, groups: m.Groups,
		step: step, decays: 1, from: (m.Kernel - 1) * all, least: m.DTMin, most: m.DTMax}, y, dt, span{})
	g := gating{groups: m.Groups, width: inner / m.Groups, stride: stride, share: 1, step: inner / m.Groups}
	switch m.Norm {
	case model.GatedNorm:
		g.flags = gateBefore | gateNorm
	case model.NormThenGate:
		g.flags = gateNorm | gateBehind
	default:
		g.flags = gateBehind
	}
	s.gate(s.out, z, s.out, s.r.Norm, g, silu, s.n)
}

// gating is how rows are normed and gated: each of their groups of a width, by gates of stride numbers a row, each for share numbers.
type gating struct{ groups, width, stride, share, step, flags int }

// gate is y = x times act(z), with a norm where the flags say so.
func (s *steps) gate(x, z, y span, norm *model.Vector, g gating, act uint32, n int) {
	w := span{}
	if g.flags&gateNorm != 0 {
		var err error
		w, err = s.weights.vector(norm)
		s.keep(err)
	}
	gx, gy := s.grid(n * g.groups)
	s.run("gated", push{}.at(x).at(z).at(w).at(y).int(n).int(g.groups).int(g.width).int(g.stride).int(g.share).int(g.step).int(g.flags).float(s.m.NormEps), gx, gy, 1, act)
}

// finishMixer adds what a layer's mixer gave, gated and projected, to the residual x.
func (s *steps) finishMixer(layer int, mixed, x span, n int) {
	l := &s.m.Params.Layers[layer]
	if s.m.Layer[layer].Gate != model.NoGate {
		mixed = s.gateOutput(layer, x, mixed, n)
	}
	s.addBlock(l.O, l.PostAttnNorm, mixed, x, n)
	if s.m.PostNorm {
		s.norm(l.AttnNorm, x, x, n, s.m.Hidden)
	}
}

// gateOutput is a layer's attention y [n, H·dv] times its gate, of the rows x that went into the layer.
func (s *steps) gateOutput(layer int, x, y span, n int) span {
	a, l := &s.m.Layer[layer].Attention, &s.m.Params.Layers[layer]
	z := s.room(&s.gates, n*l.OutGate.Rows)
	s.product(l.OutGate, s.attentionInput(l, x, n), z, n, 1, 0)
	act := uint32(sigmoid)
	if a.Gate == model.SoftplusGate {
		act = softplus
	}
	width := a.Heads * a.ValDim
	out := s.room(&s.gated, n*width)
	s.gate(y, z, out, nil, gating{groups: 1, width: width, stride: l.OutGate.Rows, share: width / l.OutGate.Rows, flags: gateBehind}, act, n)
	return out
}
