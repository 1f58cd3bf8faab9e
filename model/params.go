package model

import (
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/mapped"
)

// Linear is y = W·x (+ b): rows [From, From+Rows) of a weight tensor, so that fused tensors (q|k|v, gate|up, stacked
// experts) are used where they lie. Its bytes are read and checked for NaN and Inf at the first use.
type Linear struct {
	Tensor *weights.Tensor
	From   int // first row in the tensor (leading dimensions flattened)
	Rows   int
	Cols   int
	Bias   *Vector // [Rows from BFrom], shared by the parts of its tensor; nil = none
	BFrom  int
	// Run and Step take rows apart that lie interleaved: runs of Run rows, one every Step rows of the tensor from From on. 0 = all lie
	// together.
	Run, Step int

	// placed is the matrix where its memory is the owner's of a stream (Model.Stream): vacant while it is not there.
	placed *kernels.Matrix
	rows   func(dst []float32, row int) error // reads one row from the file, or of what is computed; nil = Matrix has it
	// computed says that the bytes lie in no file: the matrix lets them go once it is packed.
	computed bool

	unpacked
}

// unpacked is the matrix in the layout of the kernels, made when it is first wanted.
type unpacked struct {
	once   sync.Once
	matrix *kernels.Matrix
	bias   []float32
	err    error
}

// Absent reports whether the model has no such weight.
func (l *Linear) Absent() bool { return l == nil || l.Tensor == nil }

// Matrix returns the weight for the native kernels and the bias ([Rows] or nil), reading and checking them once.
func (l *Linear) Matrix() (*kernels.Matrix, []float32, error) {
	l.once.Do(func() { l.err = mapped.Guard(l.read) })
	return l.matrix, l.bias, l.err
}

// Row dequantises one row to dst [Cols].
func (l *Linear) Row(dst []float32, row int) error {
	m, _, err := l.Matrix()
	if err != nil {
		return err
	}
	if l.rows != nil && (l.computed || !m.HasRows()) {
		return l.rows(dst, row)
	}
	m.Row(dst, row)
	return nil
}

// rowsAtOnce is how many rows are read from a file at the same time.
const rowsAtOnce = 16

// Gather dequantises rows, one behind another, to dst [len(rows), Cols].
func (l *Linear) Gather(dst []float32, rows []int32) error {
	m, _, err := l.Matrix()
	if err != nil {
		return err
	}
	if l.rows == nil || m.HasRows() || len(rows) == 1 {
		for i, row := range rows {
			if err := l.Row(dst[i*l.Cols:(i+1)*l.Cols], int(row)); err != nil {
				return err
			}
		}
		return nil
	}
	first := map[int32]int{} // place of each row
	var group errgroup.Group
	group.SetLimit(rowsAtOnce)
	for i, row := range rows {
		if _, dup := first[row]; !dup {
			first[row] = i
			group.Go(func() error { return l.rows(dst[i*l.Cols:(i+1)*l.Cols], int(row)) })
		}
	}
	err = group.Wait()
	for i, row := range rows {
		if at := first[row]; at != i {
			copy(dst[i*l.Cols:(i+1)*l.Cols], dst[at*l.Cols:(at+1)*l.Cols])
		}
	}
	return err
}

// read is the first use.
func (l *Linear) read() (err error) {
	if l.placed != nil {
		l.matrix = l.placed
		l.bias, err = l.BiasValues()
		return err
	}
	data, err := l.Bytes()
	if err != nil {
		return err
	}
	if l.matrix, err = kernels.NewMatrix(l.Tensor.Type, l.Rows, l.Cols, data); err != nil {
		return fmt.Errorf("model: tensor %q: %w", l.Tensor.Name, err)
	}
	// Kernels that pack the rows into tiles need the mapped bytes no longer: their pages leave resident memory.
	l.matrix.OnPacked(mapped.Forget)
	if whole := l.From == 0 && l.Run == 0 && l.Rows == l.Tensor.Rows(); whole && !mapped.Holds(data) {
		l.computed, l.rows = true, l.computedRow // the tiles are the only copy then
		l.matrix.Transient(l.Tensor.Drop, l.Bytes)
	}
	l.bias, err = l.BiasValues()
	return err
}

// computedRow dequantises a row of a tensor whose bytes are computed, again where they were let go.
func (l *Linear) computedRow(dst []float32, row int) error {
	data, err := l.Bytes()
	if err != nil {
		return err
	}
	n := l.Tensor.Type.RowBytes(l.Cols)
	quant.Dequantize(l.Tensor.Type, dst[:l.Cols], data[row*n:(row+1)*n])
	return nil
}

// Bytes returns the quantised rows: where they lie, or together where they do not.
func (l *Linear) Bytes() ([]byte, error) {
	data, err := l.Tensor.Bytes()
	if err != nil {
		return nil, err
	}
	row := l.Tensor.Type.RowBytes(l.Cols)
	if l.Run > 0 {
		out := make([]byte, 0, l.Rows*row)
		for at := l.From; len(out) < l.Rows*row; at += l.Step {
			out = append(out, data[at*row:(at+l.Run)*row]...)
		}
		return out, nil
	}
	return data[l.From*row : (l.From+l.Rows)*row : (l.From+l.Rows)*row], nil
}

// Values dequantises the whole weight to float32 [Rows, Cols] (for backends that compute in float32).
func (l *Linear) Values() ([]float32, error) {
	data, err := l.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float32, l.Rows*l.Cols)
	quant.Dequantize(l.Tensor.Type, out, data)
	return out, nil
}

// BiasValues returns the bias as float32 [Rows], which is not to be changed; nil where there is none.
func (l *Linear) BiasValues() ([]float32, error) {
	if l.Bias == nil {
		return nil, nil
	}
	all, err := l.Bias.Values()
	if err != nil {
		return nil, err
	}
	if l.Run > 0 {
		var out []float32
		for at := l.BFrom; len(out) < l.Rows; at += l.Step {
			out = append(out, all[at:at+l.Run]...)
		}
		return out, nil
	}
	return all[l.BFrom : l.BFrom+l.Rows], nil
}

// Vector is a small float32 tensor (norm weights), read and checked at the first use.
type Vector struct {
	Tensor *weights.Tensor
	Factor float32 // multiplies the values; 0 = 1
	once   sync.Once
	values []float32
	err    error
}

// Absent reports whether the model has no such vector.
func (v *Vector) Absent() bool { return v == nil || v.Tensor == nil }

// Values returns the vector as float32; nil where it is absent.
func (v *Vector) Values() ([]float32, error) {
	if v.Absent() {
		return nil, nil
	}
	v.once.Do(func() {
		if v.values, v.err = tensorValues(v.Tensor); v.Factor != 0 {
			kernels.Scale(v.values, v.Factor)
		}
	})
	return v.values, v.err
}

func tensorValues(t *weights.Tensor) ([]float32, error) {
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	out := make([]float32, n)
	quant.Dequantize(t.Type, out, data)
	return out, nil
}

// onesVector is n ones: the weight of a norm that has none.
func onesVector(n int) *Vector {
	v := &Vector{Tensor: &weights.Tensor{Name: "ones", Shape: []int{n}}, values: slices.Repeat([]float32{1}, n)}
	v.once.Do(func() {})
	return v
}

// NormParams is the weight of one normalisation, with a bias for LayerNorm; absent = no such norm in this model.
type NormParams struct{ W, B *Vector }

// LayerParams are the weights of one decoder layer. What a model does not have is nil.
type LayerParams struct {
	AttnNorm, PostAttnNorm NormParams
	Q, K, V, O             *Linear    // V nil = values are what K gives, before norm and rotation
	QNorm, KNorm           NormParams // per-head norm of q and k, [dk], or [H·dk] of all heads at once or of each its own (HeadNorms)
	VNorm                  NormParams // per-head norm of v, [dv]
	Sinks                  *Vector    // [H] a score without value that joins each head's softmax
	OutGate                *Linear    // [H] or [H·dv]: what Attention.Gate is of
	QueryDown, KeyDown     *Linear    // latent attention: to q's latent (nil = none) and to [latent | rotating key]
	QueryNorm, KeyNorm     NormParams // of the two latents
	KeyUp, ValueUp         []*Linear  // a query head: [Rank, Nope] and [Value, Rank]
	Index                  IndexParams
	AttnHyper, FFNHyper    HyperParams // of the mixer and of the feed-forward network, on several copies of the residual
	NGrams                 NGramParams
	Recurrent              RecurrentParams
	FFNNorm, PostFFNNorm   NormParams
	Gate, Up, Down         *Linear
	Router                 *Linear // [experts, D]
	RouterBias             *Vector // [experts] added to scores to choose by (Router.Bias)
	SharedGate, SharedUp   *Linear // the network that every token uses beside the experts
	SharedDown             *Linear
	SharedRouter           *Linear // [1, D]: its output times the sigmoid of this; nil = times 1
	ExpertIn, ExpertOut    *Linear // [MoELatent, D] and [D, MoELatent]: to what experts work on, and back; nil = they work on the row
	ExpertGate, ExpertUp   []*Linear
	ExpertDown             []*Linear
	ExpertScale            *Vector       // [experts] multiplies what each gives
	Beside                 *BesideParams // Gate, Up and Down stand beside the experts; nil = instead of them
	PerLayer               *PerLayerParams
	Streams                *StreamParams
	Laurel                 *LaurelParams
	OutScale               *Vector // [1] multiplies the layer's output
}

// linears are the layer's weights but for the experts', in the order of a pass.
func (l *LayerParams) linears() []*Linear {
	all := append([]*Linear{l.QueryDown, l.KeyDown, l.Q, l.K, l.V, l.OutGate}, l.Recurrent.In...)
	all = append(all, l.Recurrent.ZDown, l.Recurrent.Z, l.Recurrent.ADown, l.Recurrent.A, l.Recurrent.B, l.Recurrent.Out)
	all = append(append(all, l.KeyUp...), l.ValueUp...)
	for _, h := range []*HyperParams{&l.AttnHyper, &l.FFNHyper} {
		all = append(all, h.Down, h.Up, h.Inject)
	}
	all = append(all, l.NGrams.Key, l.NGrams.Value, l.ExpertIn, l.ExpertOut, l.Index.Q, l.Index.K, l.Index.Weights, l.O, l.Gate, l.Up, l.Down)
	return append(all, l.rowLinears()...)
}

// Params are all weights of a model.
type Params struct {
	Embed     *Linear // [V, D]
	Positions *Linear // learned positions [context, D], nil with rotary ones
	EmbedIn   *Linear // projections around the decoder (OPT-350m), nil = none
	EmbedOut  *Linear
	EmbedNorm NormParams // norm right after the embedding, absent in most
	// PerLayerTable [V', layers·P] has a row for each token, of which a pass reads what it needs (Tensor.Row); PerLayerNorm [P] is the norm of what its embedding adds (PerLayerParams).
	PerLayerTable *Linear
	PerLayerNorm  NormParams
	// StreamIn and StreamOut [D, D] make streams of an embedding, all but the first, and take them back.
	StreamIn, StreamOut []*Linear
	FinalNorm           NormParams
	Final               HyperParams // what the head reads of several copies of the residual
	Output              *Linear     // [V, D]; the embedding's tensor where the two are tied
	Layers              []LayerParams
}
