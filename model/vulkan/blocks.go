package vulkan

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
	"terrace/internal/vulkan"
	"terrace/model"
)

// Flags of the kernels.
const (
	withBias = 1 // of products
	addTo    = 2

	normWeight, normBias, normAdd, normMean = 1, 2, 4, 8

	softCap = 100 // beside model.Activation
)

// steps are the kernels of one call while they are recorded: the first fault is kept, after which every step is a no-op.
type steps struct {
	*backend
	p      *model.Pass
	err    error
	angles span // [n, 2, pairs] of the layer's rotary embedding
}

func (b *backend) steps(p *model.Pass) *steps { return &steps{backend: b, p: p} }

// keep keeps the first fault.
func (s *steps) keep(err error) {
	if s.err == nil && err != nil {
		s.err = deviceError(err)
	}
}

func (s *steps) run(name string, p push, x, y, z int, constants ...uint32) {
	if s.err == nil {
		s.keep(s.recorder.run(name, p, x, y, z, constants...))
	}
}

// besides records a kernel that needs nothing of the one before.
func (s *steps) besides(record func()) {
	s.recorder.beside = true
	record()
	s.recorder.beside = false
}

func (s *steps) room(at *slot, numbers int) span {
	if s.err != nil {
		return span{}
	}
	on, err := at.room(s.recorder, numbers)
	s.keep(err)
	return on
}

func (s *steps) on(at *slot) span { return at.on }

func (s *steps) input(t *tensor.Dense, at *slot) span {
	if s.err != nil {
		return span{}
	}
	on, err := s.backend.input(t, at)
	s.keep(err)
	return on
}

// result is a slot as the tensor of a call; soon says that the host will read it.
func (s *steps) result(at *slot, n, cols int, soon bool) (*tensor.Dense, error) {
	if s.err != nil {
		return nil, s.err
	}
	t := at.tensor(s.recorder, n, cols)
	if soon {
		s.keep(at.h.bring())
	}
	return t, s.err
}

func (s *steps) copyRows(to, from span, numbers int) {
	if s.err == nil {
		from.size = int64(4 * numbers)
		s.keep(s.copy(to, from))
	}
}

func (s *steps) matrix(l *model.Linear) *matrix {
	m, err := s.weights.matrix(l)
	if s.keep(err); s.err != nil {
		return &matrix{}
	}
	return m
}

// lookup is y = rows of a weight times scale, added to y with addTo.
func (s *steps) lookup(l *model.Linear, rows []int32, y span, scale float32, plain bool, flags int) {
	w := s.matrix(l)
	if plain {
		scale = 1
	}
	if s.err != nil {
		return
	}
	ids, err := s.recorder.give(vulkan.Bytes(rows))
	s.keep(err)
	s.run("lookup", w.push(ids, y, len(rows), scale, flags), groupsOf(groupsOf(w.cols, 8), 64), len(rows), 1, uint32(w.typ))
}

func (m *matrix) push(x, y span, n int, scale float32, flags int) push {
	return push{}.at(m.on).at(x).at(y).at(m.bias).int(m.rows).int(m.cols).int(n).int(m.stride).float(scale).int(flags)
}

// product is y [n, rows] = (W·x + bias)·scale of x [n, cols], added to y with addTo.
func (s *steps) product(l *model.Linear, x, y span, n int, scale float32, flags int) {
	w := s.matrix(l)
	if s.err != nil {
		return
	}
	if !w.bias.absent() {
		flags |= withBias
	}
	p := w.push(x, y, n, scale, flags)
	if s.p.Phase == kernels.Decode {
		at := 1
		for at < n && at < 8 {
			at *= 2
		}
		gx, gy := s.grid(groupsOf(w.rows, 4))
		s.run("steps", p, gx, gy, groupsOf(n, at), uint32(w.typ), uint32(at))
		return
	}
	wide := 1
	if n > 16 {
		wide = 4
	}
	s.run("tiles", p, groupsOf(w.rows, 64), groupsOf(n, 16*wide), 1, uint32(w.typ), uint32(wide))
}

func (s *steps) vector(v *model.Vector) span {
	at, err := s.weights.vector(v)
	s.keep(err)
	return at
}

// norm is y = norm(x) of n rows of a width; y may be x.
func (s *steps) norm(n model.NormParams, x, y span, rows, width int) {
	s.normInto(n, x, y, rows, width, 1, 0)
}

func (s *steps) normInto(p model.NormParams, x, y span, rows, width int, scale float32, flags int) {
	w, bias := s.vector(p.W), s.vector(p.B)
	if !w.absent() {
		flags |= normWeight
	}
	if !bias.absent() {
		flags |= normBias
	}
	if s.m.Norm == model.LayerNorm {
		flags |= normMean
	}
	gx, gy := s.grid(rows)
	s.run("norm", push{}.at(x).at(y).at(w).at(bias).int(rows).int(width).float(s.m.NormEps).float(scale).int(flags), gx, gy, 1)
}

// normed is norm(x) in scratch, or x where there is no norm.
func (s *steps) normed(p model.NormParams, x span, n, width int) span {
	if p.W.Absent() {
		return x
	}
	y := s.room(&s.scratch.normed, n*width)
	s.norm(p, x, y, n, width)
	return y
}

// attentionInput is hidden as the layer's projections see it.
func (s *steps) attentionInput(l *model.LayerParams, hidden span, n int) span {
	if s.m.PostNorm {
		return hidden
	}
	return s.normed(l.AttnNorm, hidden, n, s.m.Hidden)
}

// give uploads the angles of a layer's rotary embedding.
func (s *steps) give(layer int) {
	rope := s.rotary.Layer(layer)
	if rope == nil || s.err != nil {
		return
	}
	angles := make([]float32, 0, len(s.p.Pos)*rope.Dim)
	for r := range s.p.Pos {
		cos, sin := s.rotary.Row(s.p, layer, r)
		angles = append(append(angles, cos...), sin...)
	}
	var err error
	s.angles, err = s.recorder.give(vulkan.Bytes(angles))
	s.keep(err)
}

// turn norms the heads of queries or keys, and rotates them.
func (s *steps) turn(layer int, x span, heads, dim int, norm model.NormParams) {
	n := len(s.p.Pos)
	if !norm.W.Absent() {
		w, err := norm.W.Values()
		s.keep(err)
		if len(w) == heads*dim {
			s.norm(norm, x, x, n, heads*dim)
		} else {
			s.norm(norm, x, x, n*heads, dim)
		}
	}
	rope := s.rotary.Layer(layer)
	if rope == nil {
		return
	}
	interlaced := 0
	if rope.Interlaced {
		interlaced = 1
	}
	gx, gy := s.grid(groupsOf(n*heads*rope.Dim/2, 64))
	s.run("rope", push{}.at(x).at(s.angles).int(n).int(heads).int(dim).int(rope.Dim/2).int(interlaced), gx, gy, 1)
}

// addBlock adds W·in to the residual x, after its own norm where the model has one.
func (s *steps) addBlock(w *model.Linear, post model.NormParams, in, x span, n int) {
	if post.W.Absent() {
		s.product(w, in, x, n, orOne(s.m.ResidualScale), addTo)
		return
	}
	y := s.room(&s.scratch.up, n*s.m.Hidden)
	s.product(w, in, y, n, 1, 0)
	s.normInto(post, y, x, n, s.m.Hidden, orOne(s.m.ResidualScale), normAdd)
}

// network adds the output of the layer's network, or its experts, to the residual x, which is the result.
func (s *steps) network(layer int, x span, n int) (*tensor.Dense, error) {
	m, f, in := s.m, s.feed(layer, n), x
	if !m.Layer[layer].NoFFN {
		if !m.PostNorm {
			in = s.normed(f.l.FFNNorm, x, n, m.Hidden)
		}
		f.forward(in, x)
		if m.PostNorm {
			s.norm(f.l.FFNNorm, x, x, n, m.Hidden)
		}
	}
	f.scale(x)
	return s.result(&s.backend.hidden, n, m.Hidden, false)
}

func (s *steps) activate(act uint32, x, up, y span, count int, limit float32) {
	gated := 0
	if !up.absent() {
		gated = 1
	}
	gx, gy := s.grid(groupsOf(count, 128))
	s.run("activate", push{}.at(x).at(up).at(y).int(count).int(gated).float(limit).float(s.m.Clamp.Alpha), gx, gy, 1, act)
}

// outside is the error of sequences that do not fit a pass.
func outside(rows, n int) error {
	return fmt.Errorf("vulkan: sequences hold %d rows, the pass has %d", rows, n)
}
