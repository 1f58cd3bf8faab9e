package retrieval

import (
	"fmt"

	"terrace/attention"
	"terrace/policy"
)

func init() {
	RegisterObserver(policy.OutputNorms{}.Key(), func(t *Sequence, _ policy.Observation) Observer { return outputNorms{t} })
}

// outputNorms works out what cached values bring to a layer's output (policy.OutputNorms).
type outputNorms struct{ t *Sequence }

// Rows implements Observer.
func (outputNorms) Rows(int, []float32, []int32) {}

// Value implements Observer.
func (n outputNorms) Value(layer int) (any, error) {
	t, shape := n.t, &n.t.f.o.Shape
	if shape.Output == nil {
		return nil, fmt.Errorf("retrieval: policy %s weighs values by the output projection, which is not known here: %w", t.set, policy.ErrModel)
	}
	w, err := shape.Output(layer)
	if err != nil {
		return nil, fmt.Errorf("retrieval: output projection of layer %d: %w", layer, err)
	}
	views, group, heads, dim := t.obs.reader.views, shape.Layers.Group(layer), shape.Layers[layer].Heads, shape.kv(layer).ValueDim
	return func(dst [][]float32) {
		t.f.o.Pool.Run(heads, func(_, h int) {
			attention.OutputSums(w[h*dim:], heads*dim, &views[h/group], dst[h])
		})
	}, nil
}

// Forget implements Observer.
func (outputNorms) Forget(int) {}
