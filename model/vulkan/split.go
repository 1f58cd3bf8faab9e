package vulkan

import (
	"errors"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/model"
)

// split computes some layers on the device and the others with the native backend: rows go through host memory where the next layer is
// computed elsewhere. What stands before the first layer and behind the last is computed where that layer is.
type split struct {
	device *backend
	host   model.Backend
	native
	placement
	k, v [2]*tensor.Dense // copies of the host's keys and values, until the second next call
	turn int
}

// native is what the native backend can beside computing.
type native interface {
	model.QueryGuesser
	model.RowReader
	model.PoolLender
	model.MixerFinisher
	model.Recurrent
	model.Indexing
}

// memoryOf is how much memory the device of a name has.
func memoryOf(name string) (int64, error) {
	d, done, err := open(name)
	if err != nil {
		return 0, err
	}
	defer done()
	return d.MemoryBytes, nil
}

// OpenLayers opens a backend that computes the given layers of a model on the device, and the others with the native backend.
// ErrUnsupported where it has no kernels for one of them, or there are none.
func OpenLayers(name string, m *model.Model, o model.BackendOptions, on []bool) (model.Backend, error) {
	if err := computes(name, m); err != nil {
		return nil, err
	}
	none := "any layer"
	for i := range on {
		what := lacks(m, i)
		if what == "" {
			what = lacksExperts(m, i)
		}
		if on[i] && what != "" {
			return nil, noKernels(name, what)
		}
		if on[i] {
			none = ""
		} else if none != "" && what != "" {
			none = what
		}
	}
	if none != "" {
		return nil, noKernels(name, none)
	}
	return openPlaced(name, m, o, placed(on))
}

// openPlaced opens a backend for layers that have kernels.
func openPlaced(name string, m *model.Model, o model.BackendOptions, at placement) (model.Backend, error) {
	if !slices.Contains(at.on, false) && !slices.Contains(at.apart, true) {
		return newDevice(name, m, o, at)
	}
	o.DeviceLayers, o.HostExperts = model.AllLayers, 0
	host, err := model.OpenBackend("native", m, o)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(name, m, o, at)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return &split{device: d, host: host, native: host.(native), placement: at}, nil
}

// at is where a layer is computed.
func (b *split) at(layer int) model.Backend {
	if b.on[layer] {
		return b.device
	}
	return b.host
}

// rows are a tensor's as a layer is given them: the host gets a copy of what lies on the device, which it may change.
func (b *split) rows(layer int, t *tensor.Dense) *tensor.Dense {
	if _, remote := t.Engine().(model.Remote); b.on[layer] || !remote {
		return t
	}
	return clone(t)
}

func clone(t *tensor.Dense) *tensor.Dense {
	return tensor.New(tensor.WithShape(t.Shape().Clone()...), tensor.WithBacking(append([]float32(nil), model.Float32s(t)...)))
}

// Name implements model.Backend.
func (b *split) Name() string { return b.device.Name() }

// DeviceLayers implements model.LayerPlacer.
func (b *split) DeviceLayers() (n int, why string) {
	return b.count()
}

// Embed implements model.Backend.
func (b *split) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	if !b.on[0] {
		if err := b.device.begin(); err != nil {
			return nil, err
		}
	}
	return b.at(0).Embed(p, ids)
}

// Project implements model.Backend. The host's keys and values are copied, as they must hold longer than a backend without a device keeps them.
func (b *split) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	q, k, v, err = b.at(layer).Project(p, layer, b.rows(layer, hidden))
	if err != nil || b.on[layer] {
		return q, k, v, err
	}
	b.turn = 1 - b.turn
	if k != nil {
		k = clone(k)
	}
	if v != nil {
		v = clone(v)
	}
	b.k[b.turn], b.v[b.turn] = k, v
	return q, k, v, nil
}

// Attend implements model.Backend.
func (b *split) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	for i := range seqs {
		if wait := seqs[i].Await; wait != nil && !b.on[layer] { // which the native backend does not know
			if err := wait(); err != nil {
				return nil, err
			}
		}
	}
	return b.at(layer).Attend(p, layer, b.rows(layer, q), seqs)
}

// Finish implements model.Backend. Where the host has a layer's experts, rows come down behind the attention block; where the device has them
// alone, they go up there.
func (b *split) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	if attended != nil {
		attended = b.rows(layer, attended)
	}
	if b.alone[layer] {
		hidden = b.rows(layer, hidden)
		if attended != nil {
			if err := b.native.FinishMixer(p, layer, hidden, attended); err != nil {
				return nil, err
			}
		}
		return b.device.network(p, layer, hidden)
	}
	out, err := b.at(layer).Finish(p, layer, b.rows(layer, hidden), attended)
	if err == nil && b.apart[layer] {
		out, err = b.host.Finish(p, layer, clone(out), nil)
	}
	return out, err
}

// Logits implements model.Backend.
func (b *split) Logits(p *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	last := len(b.on) - 1
	return b.at(last).Logits(p, b.rows(last, hidden))
}

// GuessQuery implements model.QueryGuesser.
func (b *split) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	return b.at(layer).(model.QueryGuesser).GuessQuery(p, layer, b.rows(layer, hidden))
}

// LayerRows implements model.RowReader.
func (b *split) LayerRows(p *model.Pass, layer int, hidden *tensor.Dense) ([]float32, error) {
	if _, remote := hidden.Engine().(model.Remote); remote {
		hidden = clone(hidden)
	}
	return b.native.LayerRows(p, layer, hidden)
}

// Mix implements model.Recurrent.
func (b *split) Mix(p *model.Pass, layer int, hidden *tensor.Dense, states []model.StateRows) (*tensor.Dense, error) {
	if b.on[layer] {
		return b.device.Mix(p, layer, hidden, states)
	}
	rows := b.rows(layer, hidden)
	out, err := b.native.Mix(p, layer, rows, states)
	if err == nil && out == nil && rows != hidden {
		copy(model.WritableFloat32s(hidden), rows.Float32s())
	}
	return out, err
}

// Argmax implements model.Chooser, where the device makes the logits.
func (b *split) Argmax() ([]int32, []bool, error) { return b.device.Argmax() }

// Pool implements model.PoolLender.
func (b *split) Pool() *kernels.Pool { return b.native.Pool() }

// ForgetKV implements model.KVKeeper.
func (b *split) ForgetKV(cache uint64) { b.device.ForgetKV(cache) }

// UploadKV implements model.KVKeeper.
func (b *split) UploadKV(layer int, views []attention.View) {
	if b.on[layer] {
		b.device.UploadKV(layer, views)
	}
}

// SettleKV implements model.KVKeeper.
func (b *split) SettleKV() { b.device.SettleKV() }

// DeviceUse implements model.KVKeeper.
func (b *split) DeviceUse() model.DeviceUse { return b.device.DeviceUse() }

// Close implements model.Backend.
func (b *split) Close() error { return errors.Join(b.device.Close(), b.host.Close()) }
