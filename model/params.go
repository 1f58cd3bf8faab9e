package model

import (
	"fmt"
	"sync"

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
	Bias   *weights.Tensor // [Rows from BiasFrom], nil = none
	BFrom  int

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

// read is the first use.
func (l *Linear) read() error {
	data, err := l.Bytes()
	if err != nil {
		return err
	}
	if l.matrix, err = kernels.NewMatrix(l.Tensor.Type, l.Rows, l.Cols, data); err != nil {
		return fmt.Errorf("model: tensor %q: %w", l.Tensor.Name, err)
	}
	// Kernels that pack the rows into tiles need the mapped bytes no longer: their pages leave resident memory.
	l.matrix.OnPacked(mapped.Forget)
	l.bias, err = l.BiasValues()
	return err
}

// Bytes returns the quantised rows.
func (l *Linear) Bytes() ([]byte, error) {
	data, err := l.Tensor.Bytes()
	if err != nil {
		return nil, err
	}
	row := l.Tensor.Type.RowBytes(l.Cols)
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

// BiasValues returns the bias as float32 [Rows], nil where there is none.
func (l *Linear) BiasValues() ([]float32, error) {
	if l.Bias == nil {
		return nil, nil
	}
	all, err := tensorValues(l.Bias)
	if err != nil {
		return nil, err
	}
	return all[l.BFrom : l.BFrom+l.Rows], nil
}

// Vector is a small float32 tensor (norm weights), read and checked at the first use.
type Vector struct {
	Tensor *weights.Tensor
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
	v.once.Do(func() { v.values, v.err = tensorValues(v.Tensor) })
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

// NormParams is the weight of one normalisation, with a bias for LayerNorm; absent = no such norm in this model.
type NormParams struct{ W, B *Vector }

// LayerParams are the weights of one decoder layer. What a model does not have is nil.
type LayerParams struct {
	AttnNorm, PostAttnNorm NormParams
	Q, K, V, O             *Linear
	QNorm, KNorm           NormParams // per-head norm of q and k, [dk] or [H·dk]
	FFNNorm, PostFFNNorm   NormParams
	Gate, Up, Down         *Linear
	Router                 *Linear // [experts, D]
	ExpertGate, ExpertUp   []*Linear
	ExpertDown             []*Linear
}

// Params are all weights of a model.
type Params struct {
	Embed     *Linear // [V, D]
	Positions *Linear // learned positions [context, D], nil with rotary ones
	EmbedIn   *Linear // projections around the decoder (OPT-350m), nil = none
	EmbedOut  *Linear
	EmbedNorm NormParams // norm right after the embedding, absent in most
	FinalNorm NormParams
	Output    *Linear // [V, D]; the embedding's tensor where the two are tied
	Layers    []LayerParams
}
