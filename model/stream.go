package model

import (
	"fmt"
	"slices"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/vfs"
	"terrace/offload"
	"terrace/weights"
	"terrace/weights/stream"
)

// StreamOptions say how much of the weights may be in memory.
type StreamOptions struct {
	BudgetBytes int64
	Notice      func(line string) // is told what a user should know; nil = nobody is
	FS          vfs.FS            // that the files are read by; nil = the system's
	Bias        stream.Bias       // trades the text for fewer reads; the zero value leaves it as it is
}

// Stream has at most o.BudgetBytes of the weights in memory from now on and the rest read from the model's files as it is needed; the
// files are mapped no longer. It comes before any weight was used, and once. Only the native backend computes so. What is computed
// does not depend on the budget, unless o.Bias is on. Errors wrap stream.ErrBudget, stream.ErrBias, ErrUnsupported, weights.ErrFileChanged.
func (m *Model) Stream(o StreamOptions) error {
	if err := m.CheckBias(o.Bias); err != nil {
		return err
	}
	own := m.TopK
	if o.Bias.Experts > 0 {
		m.TopK = o.Bias.Experts
	}
	m.bias = bias{o.Bias, own}
	if err := m.stream(o); err != nil {
		m.TopK, m.bias = own, bias{}
		return err
	}
	return nil
}

func (m *Model) stream(o StreamOptions) error {
	l, err := m.layOut()
	if err != nil {
		return err
	}
	l.plan.BudgetBytes = o.BudgetBytes
	if err := l.plan.Check(); err != nil { // before anything is changed
		return fmt.Errorf("model: %s: %w", m.File.Path(), err)
	}
	files := stream.NewFiles(stream.Options{FS: o.FS, Again: offload.Again, Notice: o.Notice, Check: m.File.CheckUnchanged})
	for linear, w := range l.placed {
		linear.placed = w
	}
	if l.tied != nil {
		l.tied.rows = rowReader(l.tied, files)
	}
	if err := m.File.ReadThrough(files.ReadAt); err != nil {
		return err
	}
	store, err := stream.Open(l.plan, files)
	if err != nil {
		return fmt.Errorf("model: %s: %w", m.File.Path(), err)
	}
	m.streamed = store
	m.File.Owns(store)
	return nil
}

// StreamPlan is what Stream would do, with no budget set.
func (m *Model) StreamPlan() (stream.Plan, error) {
	l, err := m.layOut()
	if err != nil {
		return stream.Plan{}, err
	}
	return l.plan, nil
}

// Streamed is the store of a model whose weights are not all in memory; nil otherwise.
func (m *Model) Streamed() *stream.Store { return m.streamed }

// layout is a plan, and the matrices of its parts.
type layout struct {
	plan   stream.Plan
	placed map[*Linear]*kernels.Matrix
	tied   *Linear // the embedding, where it is the head's too
	seen   map[*weights.Tensor]bool
	err    error
}

// layOut says what stays, and what comes and goes.
func (m *Model) layOut() (*layout, error) {
	l := &layout{placed: map[*Linear]*kernels.Matrix{}, seen: map[*weights.Tensor]bool{}}
	p := &m.Params
	l.pin(false, p.Output, p.EmbedIn, p.EmbedOut, p.Final.Down, p.Final.Up)
	l.pin(false, slices.Concat(p.StreamIn, p.StreamOut)...)
	l.embed(p)
	l.pin(true, p.Positions)
	l.pin(false, append(append([]*Linear{}, p.StreamIn...), p.StreamOut...)...)
	if p.PerLayerTable != nil { // its rows are read from the file as tokens come
		l.seen[p.PerLayerTable.Tensor] = true
	}
	for i := range p.Layers {
		layer := &p.Layers[i]
		l.pin(false, layer.Router, layer.SharedGate, layer.SharedUp, layer.SharedDown, layer.SharedRouter)
		if m.Experts > 0 {
			l.pin(false, layer.linears()...)
			l.plan.Experts = append(l.plan.Experts, l.experts(layer))
		} else {
			l.plan.Layers = append(l.plan.Layers, l.unit(false, layer.linears()...))
		}
	}
	l.plan.Used = m.TopK
	for _, t := range m.File.Tensors() {
		if !l.seen[t] && t.Rows()*t.Cols() <= smallNumbers {
			l.plan.OtherBytes += 4 * int64(t.Rows()*t.Cols())
		}
	}
	return l, l.err
}

// smallNumbers is how large a tensor is at most that is kept as float32: norms and biases. Larger ones that no matrix is made of are
// not used at all (guesses of further tokens).
const smallNumbers = 1 << 20

// unit makes one of matrices; those whose rows are computed rather than read stay in memory beside it.
func (l *layout) unit(byRow bool, linears ...*Linear) (u stream.Unit) {
	for _, w := range linears {
		if w.Absent() || l.placed[w] != nil {
			continue
		}
		l.seen[w.Tensor] = true
		path, offset, ok := w.Tensor.Where(w.From, w.Rows)
		if !ok || w.Run > 0 {
			l.plan.OtherBytes += 2 * int64(w.Rows) * int64(w.Tensor.Type.RowBytes(w.Cols)) // as computed, and packed
			continue
		}
		matrix, err := kernels.NewVacant(w.Tensor.Type, w.Rows, w.Cols)
		if err != nil {
			l.err = fmt.Errorf("model: tensor %q: %w", w.Tensor.Name, err)
			return nil
		}
		l.placed[w] = matrix
		u = append(u, stream.Part{W: matrix, ByRow: byRow, Path: path, Offset: offset})
	}
	return u
}

// pin adds matrices that stay, each a unit of its own.
func (l *layout) pin(byRow bool, linears ...*Linear) {
	for _, w := range linears {
		if u := l.unit(byRow, w); len(u) > 0 {
			l.plan.Pinned = append(l.plan.Pinned, u)
		}
	}
}

// experts are a layer's, nil where it has none.
func (l *layout) experts(layer *LayerParams) (list []stream.Unit) {
	for e := range layer.ExpertUp {
		var gate *Linear
		if len(layer.ExpertGate) > 0 {
			gate = layer.ExpertGate[e]
		}
		list = append(list, l.unit(false, gate, layer.ExpertUp[e], layer.ExpertDown[e]))
	}
	return list
}

// embed adds the embedding. One that is the head's too is there once, as the head needs it: its rows are read from the file as tokens
// come, as those of a table of per-layer inputs are.
func (l *layout) embed(p *Params) {
	if p.PerLayerTable != nil {
		l.seen[p.PerLayerTable.Tensor] = true
	}
	in, out := p.Embed, p.Output
	if in.Absent() || out.Absent() || in.Tensor != out.Tensor || l.placed[out] == nil {
		l.pin(true, in)
		return
	}
	l.placed[in] = l.placed[out]
	l.tied = in
}

// rowReader reads single rows of a weight from the file.
func rowReader(l *Linear, files *stream.Files) func(dst []float32, row int) error {
	return func(dst []float32, row int) error {
		raw := make([]byte, l.Tensor.Type.RowBytes(l.Cols))
		path, offset, _ := l.Tensor.Where(l.From+row, 1)
		if err := files.ReadAt(path, raw, offset); err != nil {
			return err
		}
		if quant.CheckFinite(l.Tensor.Type, raw) >= 0 {
			return fmt.Errorf("model: tensor %q: row %d: %w", l.Tensor.Name, row, weights.ErrNotFinite)
		}
		quant.Dequantize(l.Tensor.Type, dst[:l.Cols], raw)
		return nil
	}
}
