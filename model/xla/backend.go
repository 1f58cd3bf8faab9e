package xla

import (
	"fmt"
	"slices"
	"terrace/attention"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

func init() {
	model.RegisterBackend("gomlx:go", func(m *model.Model, o model.BackendOptions) (model.Backend, error) {
		// Operations one after the other, each on all CPUs: several that run together and wait for workers can wait for each other for
		// ever (gomlx's workerspool.Pool.Saturate). The option for threads prints to standard output; the default is one a CPU.
		d, err := gobackend.New("ops_sequential")
		if err != nil {
			return nil, fmt.Errorf("xla: gomlx:go: %w", err)
		}
		return newBackend("gomlx:go", m, o, d)
	})
}

// features are what the backend computes beyond plain decoders.
var features = []model.Feature{
	model.ShortConvolutions, model.GatedDeltaNet, model.AttentionSinks, model.OutputGates, model.NoPreNorms, model.WholeRowNorms, model.ClampedActivations,
	model.SharedKeys, model.KeysAsValues, model.NormedValues, model.PerLayerInputs, model.OutputFactors, model.ExpertsBesideNetwork, model.ExpertFactors,
	model.SigmoidRouters, model.RouterBiases, model.ScaledExperts, model.CappedRouters, model.SharedExperts, model.ExpertBiases,
}

// backend implements model.Backend, model.QueryGuesser, model.KVKeeper, model.Recurrent, model.Typed and Counter: the sum of
// their methods.
type backend struct {
	name    string
	dtype   model.DType // of matrices, keys and values on the device
	m       *model.Model
	device  *device
	weights *weights
	rotary  *model.RotaryRows
	shared  passOperands
	reader  attention.Reader

	mirrors   map[mirrorKey]*mirror
	uploading map[mirrorKey]*kvUpload
	maxScores int   // of one run of attention
	flash     bool  // the device has attention of its own
	kvBudget  int64 // bytes of keys and values on the device; 0 = no limit
	passes    int64 // since the start

	// Results, each until its call's next one, k and v until the second next. Those of this turn are of the layer and rows
	// projected last.
	embedded, q, attended, hidden, guessed, logits slot
	k, v                                           [2]slot
	turn                                           int
	projectedLayer                                 int
	projectedPos, projectedLen                     []int32
}

// Counter is what every backend of this package can do beside model.Backend.
type Counter interface {
	Counts() Counts
}

func newBackend(name string, m *model.Model, o model.BackendOptions, c compute.Backend) (model.Backend, error) {
	if m.LogN {
		c.Finalize()
		return nil, fmt.Errorf("xla: %s: queries that grow with the position (LogN): %w", name, model.ErrUnsupported)
	}
	if err := m.OnlyPlain(name, features...); err != nil {
		c.Finalize()
		return nil, fmt.Errorf("xla: %w", err)
	}
	if half := dtypes.BFloat16; o.DType == model.BFloat16 && !c.Capabilities().DTypes[half] {
		c.Finalize()
		return nil, fmt.Errorf("xla: %s: the device does not know %v: %w", name, o.DType, model.ErrUnsupported)
	}
	d := &device{name: name, compute: c, programs: map[string]*graph.Graph{}, trace: o.Trace}
	scores, gpu := cacheScores, name == "xla:cuda"
	if gpu {
		scores = gpuScores
	}
	return &backend{name: name, maxScores: scores, flash: gpu && c.Capabilities().Operations[compute.OpTypeFusedScaledDotProductAttention], m: m, device: d, dtype: o.DType, weights: newWeights(d, o.DType == model.BFloat16), rotary: model.NewRotaryRows(&m.Config),
		mirrors: map[mirrorKey]*mirror{}, uploading: map[mirrorKey]*kvUpload{}, kvBudget: o.DeviceKVBytes, projectedLayer: -1}, nil
}

// Name implements model.Backend.
func (b *backend) Name() string { return b.name }

// DType implements model.Typed.
func (b *backend) DType() model.DType { return b.dtype }

// stored is x as keys and values lie on the device.
func (b *backend) stored(x node) node { return graph.ConvertDType(x, b.storedType()) }

func (b *backend) storedType() dtypes.DType {
	if b.dtype == model.BFloat16 {
		return dtypes.BFloat16
	}
	return dtypes.Float32
}

// Counts implements Counter.
func (b *backend) Counts() Counts {
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	return b.device.counts
}

// Close implements model.Backend.
func (b *backend) Close() error {
	b.SettleKV()
	for key, m := range b.mirrors {
		b.drop(key, m)
	}
	b.shared.free()
	for _, s := range []*slot{&b.embedded, &b.q, &b.k[0], &b.k[1], &b.v[0], &b.v[1], &b.attended, &b.hidden, &b.guessed, &b.logits} {
		s.free()
	}
	b.weights.free()
	b.device.close()
	return nil
}

// Embed implements model.Backend. Only ids and positions are uploaded.
func (b *backend) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	m := b.m
	b.passes++
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return nil, fmt.Errorf("xla: token %d of the pass is id %d, the vocabulary has %d: %w", i, id, m.Vocab, model.ErrToken)
		}
	}
	c := b.call(-1, len(ids))
	c.ints(c.padded(ids, 0), c.bucket)
	c.linear(m.Params.Embed)
	c.linear(m.Params.EmbedIn)
	if m.Params.Positions == nil {
		c.none()
		c.none()
	} else {
		rows := make([]int32, len(p.Pos))
		for i, pos := range p.Pos {
			rows[i] = pos + int32(m.PosOffset)
			if int(rows[i]) >= m.Params.Positions.Rows {
				return nil, fmt.Errorf("xla: position %d, the model has learned %d: %w", pos, m.Params.Positions.Rows-m.PosOffset, model.ErrConfig)
			}
		}
		table, _, err := b.weights.linear(m.Params.Positions, true)
		c.add(table, err)
		c.ints(c.padded(rows, 0), c.bucket)
	}
	c.norm(m.Params.EmbedNorm)
	out, err := c.lateOne("embed", b.embed, m.RowWidth(), &b.embedded)
	if err == nil {
		b.embedded.h.ids = slices.Clone(ids)
	}
	return out, err
}

// embed is the program of Embed.
func (b *backend) embed(in *params) []node {
	m := b.m
	ids := in.next()
	table, _ := in.next(), in.next() // embeddings have no bias
	x := embedded(table, ids)
	if m.Params.EmbedIn.Absent() {
		_, _ = in.next(), in.next()
		x = factor(x, m.EmbedScale)
	} else {
		x = in.linear(x)
	}
	if table, rows := in.next(), in.next(); table != nil {
		x = graph.Add(x, embedded(table, rows))
	}
	x = in.norm(&m.Config, x, m.Params.EmbedNorm.W.Absent() || !m.Params.EmbedIn.Absent())
	if m.PerLayer > 0 { // a row carries its token's id, exact below 1<<24
		x = graph.Concatenate([]node{x, asFloat(graph.ExpandAxes(ids, 1))}, 1)
	}
	return []node{x}
}

// residual is the part of rows x [n, RowWidth] that layers work on, [n, D].
func (b *backend) residual(x node) node {
	if b.m.PerLayer == 0 {
		return x
	}
	return graph.Slice(x, graph.AxisRange(), graph.AxisRange(0, b.m.Hidden))
}

// Project implements model.Backend.
func (b *backend) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	m, a, l := b.m, &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	if a.Owner != layer {
		q, err := b.query(p, layer, hidden, &b.q)
		return q, nil, nil, err
	}
	b.turn = 1 - b.turn
	b.projectedLayer = -1
	c := b.call(layer, len(p.Pos))
	c.rows(hidden)
	c.norm(l.AttnNorm)
	interlaced := c.angles(p, layer)
	for _, w := range []*model.Linear{l.Q, l.K, l.V} {
		c.linear(w)
	}
	c.norm(l.QNorm)
	c.norm(l.KNorm)
	c.norm(l.VNorm)
	out, err := c.into(fmt.Sprintf("project interlaced=%v %s", interlaced, heads(a)), func(in *params) []node {
		x := b.residual(in.next())
		x = in.norm(&m.Config, x, m.PostNorm)
		cos, sin := in.next(), in.next()
		q, k := in.linear(x), in.linear(x)
		v := k
		if l.V.Absent() {
			_, _ = in.next(), in.next()
		} else {
			v = in.linear(x)
		}
		q, k = in.headNorm(&m.Config, q, a.Heads, a.KeyDim), in.headNorm(&m.Config, k, a.KVHeads, a.KeyDim)
		v = in.headNorm(&m.Config, v, a.KVHeads, a.ValDim)
		return []node{turn(q, a.Heads, a.KeyDim, interlaced, cos, sin), b.stored(turn(k, a.KVHeads, a.KeyDim, interlaced, cos, sin)), b.stored(v)}
	}, &b.q, &b.k[b.turn], &b.v[b.turn])
	if err != nil {
		return nil, nil, nil, err
	}
	b.projectedLayer, b.projectedPos, b.projectedLen = layer, append(b.projectedPos[:0], p.Pos...), append(b.projectedLen[:0], p.Len...)
	return out[0], out[1], out[2], nil
}

// heads tells apart the programs of layers that differ.
func heads(a *model.Attention) string {
	return fmt.Sprintf("heads=%d/%d of %d/%d", a.Heads, a.KVHeads, a.KeyDim, a.ValDim)
}

// GuessQuery implements model.QueryGuesser.
func (b *backend) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	return b.query(p, layer, hidden, &b.guessed)
}

// query is what Project makes of the queries alone.
func (b *backend) query(p *model.Pass, layer int, hidden *tensor.Dense, to *slot) (*tensor.Dense, error) {
	m, a, l := b.m, &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	c := b.call(layer, len(p.Pos))
	c.rows(hidden)
	c.norm(l.AttnNorm)
	interlaced := c.angles(p, layer)
	c.linear(l.Q)
	c.norm(l.QNorm)
	return c.one(fmt.Sprintf("query interlaced=%v %s", interlaced, heads(a)), func(in *params) []node {
		x := b.residual(in.next())
		x = in.norm(&m.Config, x, m.PostNorm)
		cos, sin := in.next(), in.next()
		q := in.linear(x)
		return []node{turn(in.headNorm(&m.Config, q, a.Heads, a.KeyDim), a.Heads, a.KeyDim, interlaced, cos, sin)}
	}, to)
}

// Logits implements model.Backend.
func (b *backend) Logits(_ *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	m := b.m
	c := b.call(-1, hidden.Shape()[0])
	c.rows(hidden)
	c.norm(m.Params.FinalNorm)
	c.linear(m.Params.EmbedOut)
	c.linear(m.Params.Output)
	return c.lateOne("logits", func(in *params) []node {
		x := b.residual(in.next())
		x = in.norm(&m.Config, x, m.NoFinal)
		if m.Params.EmbedOut.Absent() {
			_, _ = in.next(), in.next()
		} else {
			x = in.linear(x)
		}
		return []node{softcap(factor(in.linear(x), m.LogitScale), m.LogitSoftcap)}
	}, m.Params.Output.Rows, &b.logits)
}
