package vulkan

import (
	"fmt"
	"math"
	"slices"

	"terrace/internal/kernels/quant"
	"terrace/internal/vulkan"
	"terrace/model"
)

// onDevice are the types that kernels read; weights of others are float32 on the device.
var onDevice = []quant.Type{quant.F32, quant.F16, quant.BF16, quant.Q4_0, quant.Q4_1, quant.Q5_0, quant.Q5_1, quant.Q8_0, quant.Q2_K, quant.Q3_K,
	quant.Q4_K, quant.Q5_K, quant.Q6_K, quant.IQ4_NL, quant.IQ4_XS, quant.MXFP4}

// matrix is a weight on the device.
type matrix struct {
	on         span
	typ        quant.Type
	rows, cols int
	stride     int  // words a row
	bias       span // [rows]; absent = none
}

// source tells weights apart: parts of one tensor are shared (tied embeddings).
type source struct {
	tensor          any
	from, rows, run int
}

// weights are on the device once they were used, or all of them after load.
type weights struct {
	r        *recorder
	matrices map[*model.Linear]*matrix
	shared   map[source]span
	vectors  map[*model.Vector]span
	taps     map[*model.RecurrentParams]span // of convolutions, [channels, taps]
	stacks   map[*model.Linear]*stack        // of experts, by the first one's
	bytes    int64
}

// before and behind are the weights that are used before the first layer and behind the last one.
func before(p *model.Params) ([]*model.Linear, []model.NormParams) {
	return []*model.Linear{p.Embed, p.Positions, p.EmbedIn}, []model.NormParams{p.EmbedNorm}
}

func behind(p *model.Params) ([]*model.Linear, []model.NormParams) {
	return []*model.Linear{p.EmbedOut, p.Output}, []model.NormParams{p.FinalNorm}
}

// ofLayer are the weights of a layer but for its experts'.
func ofLayer(l *model.LayerParams) ([]*model.Linear, []model.NormParams) {
	norms := []model.NormParams{l.AttnNorm, l.PostAttnNorm, l.QNorm, l.KNorm, l.VNorm, l.FFNNorm, l.PostFFNNorm, {W: l.RouterBias}, {W: l.ExpertScale}}
	if b := l.Beside; b != nil {
		norms = append(norms, b.RouterNorm, b.ExpertNorm, b.DensePost, b.ExpertPost)
	}
	linears, vectors := mixerWeights(l)
	return append(linears, l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down, l.Router, l.SharedRouter, l.SharedGate, l.SharedUp, l.SharedDown, l.ExpertIn, l.ExpertOut), append(vectors, norms...)
}

// load uploads all that passes through these layers use.
func (w *weights) load(m *model.Model, at *placement) error {
	p, on := &m.Params, at.on
	if on[0] {
		if err := w.put(before(p)); err != nil {
			return err
		}
	}
	for i := range p.Layers {
		if on[i] || at.alone[i] {
			l := at.part(m, i)
			if err := w.put(ofLayer(l)); err != nil {
				return err
			}
			if err := w.putExperts(l); err != nil {
				return err
			}
			if on[i] { // by the layer's own weights, of which l may be a copy
				if _, err := w.convolution(&p.Layers[i].Recurrent); err != nil {
					return err
				}
			}
		}
	}
	if on[len(on)-1] {
		if err := w.put(behind(p)); err != nil {
			return err
		}
	}
	return w.r.submit()
}

// put uploads weights.
func (w *weights) put(linears []*model.Linear, norms []model.NormParams) error {
	for _, l := range linears {
		if !l.Absent() {
			if _, err := w.matrix(l); err != nil {
				return err
			}
		}
	}
	for _, n := range norms {
		for _, v := range []*model.Vector{n.W, n.B} {
			if _, err := w.vector(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// form is a weight as it lies on the device, without its place.
func form(l *model.Linear) *matrix {
	m := &matrix{typ: l.Tensor.Type, rows: l.Rows, cols: l.Cols}
	if !slices.Contains(onDevice, m.typ) {
		m.typ = quant.F32
	}
	per := m.typ.BlockLen()
	if per == 1 {
		per = 8 // kernels read eight at a time
	}
	m.stride = (m.typ.RowBytes((l.Cols+per-1)/per*per) + 3) / 4
	return m
}

// bytesOf is what weights take on the device; norms and biases are small beside them.
func bytesOf(linears []*model.Linear, _ []model.NormParams) (n int64) {
	for _, l := range linears {
		if !l.Absent() {
			m := form(l)
			n += 4 * int64(m.stride) * int64(m.rows)
		}
	}
	return n
}

// matrix returns a weight and its bias.
func (w *weights) matrix(l *model.Linear) (*matrix, error) {
	if got := w.matrices[l]; got != nil {
		return got, nil
	}
	m := form(l)
	if err := m.reachable(l); err != nil {
		return nil, err
	}
	key := source{l.Tensor, l.From, l.Rows, l.Run}
	var err error
	if m.on = w.shared[key]; m.on.absent() {
		if m.on, err = w.rows(l, m); err != nil {
			return nil, err
		}
		w.shared[key] = m.on
	}
	bias, err := l.BiasValues()
	if err == nil && bias != nil {
		m.bias, err = w.upload(vulkan.Bytes(bias), l.Tensor.Name)
	}
	if err != nil {
		return nil, err
	}
	w.matrices[l] = m
	return m, nil
}

// reachable refuses weights that are too large for the kernels.
func (m *matrix) reachable(l *model.Linear) error {
	if words := int64(m.stride) * int64(m.rows); words > math.MaxUint32 {
		return fmt.Errorf("vulkan: tensor %q has %d bytes, kernels reach 16 GiB of one: %w", l.Tensor.Name, 4*words, model.ErrUnsupported)
	}
	return nil
}

// rows uploads the rows of a weight.
func (w *weights) rows(l *model.Linear, m *matrix) (span, error) {
	data, err := even(l, m)
	if err != nil {
		return span{}, err
	}
	return w.upload(data, l.Tensor.Name)
}

// even are the rows of a weight as they lie on the device, each from a whole word on.
func even(l *model.Linear, m *matrix) ([]byte, error) {
	data, err := l.Bytes()
	if err != nil {
		return nil, err
	}
	size := l.Tensor.Type.RowBytes(l.Cols)
	if m.typ == l.Tensor.Type && size == 4*m.stride {
		return data, nil
	}
	even := make([]byte, 4*m.stride*m.rows)
	for i := range m.rows {
		row, from := even[4*m.stride*i:4*m.stride*(i+1)], data[i*size:(i+1)*size]
		if m.typ == l.Tensor.Type {
			copy(row, from)
		} else {
			quant.Dequantize(l.Tensor.Type, vulkan.Floats(row)[:l.Cols], from)
		}
	}
	return even, nil
}

// vector returns a norm's weight or bias; absent where there is none.
func (w *weights) vector(v *model.Vector) (span, error) {
	if v.Absent() {
		return span{}, nil
	}
	if got, ok := w.vectors[v]; ok {
		return got, nil
	}
	x, err := v.Values()
	if err != nil {
		return span{}, err
	}
	s, err := w.upload(vulkan.Bytes(x), v.Tensor.Name)
	if err == nil {
		w.vectors[v] = s
	}
	return s, err
}

func (w *weights) upload(data []byte, name string) (span, error) {
	s, err := w.room(int64(len(data)), name)
	if err == nil {
		err = deviceError(w.r.upload(s, data))
	}
	return s, err
}

// room is where weights go.
func (w *weights) room(bytes int64, name string) (span, error) {
	s, err := w.r.heap.alloc(bytes)
	if err != nil {
		return span{}, fmt.Errorf("vulkan: tensor %q of %d bytes, behind %d bytes of weights: %w", name, bytes, w.bytes, deviceError(err))
	}
	w.bytes += bytes
	return s, nil
}
