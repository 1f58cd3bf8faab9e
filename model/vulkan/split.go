package vulkan

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/units"
	"terrace/model"
)

// besideWeights is how much of a device's memory is left for what passes need beside weights and KV: staging, activations, logits.
const besideWeights = 256 << 20

// split computes some layers on the device and the others with the native backend: rows go through host memory where the next layer is
// computed elsewhere. What stands before the first layer and behind the last is computed where that layer is.
type split struct {
	device *backend
	host   model.Backend
	native
	on   []bool
	why  string
	k, v [2]*tensor.Dense // copies of the host's keys and values, until the second next call
	turn int
}

// native is what the native backend can beside computing.
type native interface {
	model.QueryGuesser
	model.RowReader
	model.PoolLender
	model.Recurrent
	model.Indexing
}

// openSome opens the device for the last layers, as many as were asked for or have room, without those that it has no kernels for.
func openSome(name string, m *model.Model, o model.BackendOptions) (model.Backend, error) {
	on, why, err := place(name, m, o)
	if err != nil {
		return nil, err
	}
	b, err := OpenLayers(name, m, o, on)
	if err != nil {
		return nil, err
	}
	if s, some := b.(*split); some {
		s.why = why
	}
	return b, nil
}

// place chooses the layers that the device computes, and says why there are no more.
func place(name string, m *model.Model, o model.BackendOptions) (on []bool, why string, err error) {
	free := int64(0)
	if o.DeviceLayers == model.AutoLayers {
		size, err := memoryOf(name)
		if err != nil {
			return nil, "", err
		}
		free = size - size/10 - besideWeights - o.DeviceKVBytes
	}
	on = make([]bool, len(m.Layer))
	left := o.DeviceLayers
	for i := len(on) - 1; i >= 0; i-- {
		if left == 0 {
			break
		}
		left-- // of auto it is never 0
		if what := lacks(m, i); what != "" {
			why = fmt.Sprintf("there are no kernels for %s, which layer %d has", what, i)
			continue
		}
		if o.DeviceLayers == model.AutoLayers {
			need := bytesOf(ofLayer(&m.Params.Layers[i]))
			if i == len(on)-1 {
				need += bytesOf(behind(&m.Params))
			}
			if i == 0 {
				need += bytesOf(before(&m.Params))
			}
			if need > free {
				return on, fmt.Sprintf("the device has no room for layer %d, which takes %s", i, units.FormatBytes(need)), nil
			}
			free -= need
		}
		on[i] = true
	}
	return on, why, nil
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
	if !slices.Contains(on, false) {
		return newDevice(name, m, o, on)
	}
	o.DeviceLayers = model.AllLayers
	host, err := model.OpenBackend("native", m, o)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(name, m, o, on)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return &split{device: d, host: host, native: host.(native), on: on}, nil
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
	for _, on := range b.on {
		if on {
			n++
		}
	}
	return n, b.why
}

// Embed implements model.Backend.
func (b *split) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	if !b.on[0] {
		b.device.begin()
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

// Finish implements model.Backend.
func (b *split) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	if attended != nil {
		attended = b.rows(layer, attended)
	}
	return b.at(layer).Finish(p, layer, b.rows(layer, hidden), attended)
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

// Mix implements model.Recurrent: recurrent layers are the host's.
func (b *split) Mix(p *model.Pass, layer int, hidden *tensor.Dense, states []model.StateRows) (*tensor.Dense, error) {
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
