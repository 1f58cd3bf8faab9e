package retrieval

import "terrace/attention"

// valueMeans keeps the mean of all values of each layer and KV head, which SparQ mixes into what it reads (algorithms.md 5.5).
type valueMeans struct {
	shape  *Shape
	layers [][]valueMean // [Layers][KVHeads]; nil = the policy does not ask
}

// valueMean is one KV head's.
type valueMean struct {
	sum    []float32 // [ValueDim]
	tokens int
	reader attention.Reader
	row    []float32
}

func (v *valueMeans) init(shape *Shape) {
	v.shape, v.layers = shape, make([][]valueMean, len(shape.Layers))
	for i := range v.layers {
		v.layers[i] = make([]valueMean, shape.Layers[i].KV.Heads)
		for g := range v.layers[i] {
			v.layers[i][g].sum, v.layers[i][g].row = make([]float32, shape.Layers[i].KV.ValueDim), make([]float32, shape.Layers[i].KV.ValueDim)
		}
	}
}

// follow brings a head's sum in line with the cache.
func (v *valueMeans) follow(layer, g int, view *attention.View) {
	m, n := &v.layers[layer][g], view.Tokens()
	if n < m.tokens {
		m.tokens = 0
		clear(m.sum)
	}
	for i := m.tokens; i < n; i++ {
		m.reader.Values(view, i, i+1, m.row)
		for d, x := range m.row {
			m.sum[d] += x
		}
	}
	m.tokens = n
}

// add makes a step's attention output [Heads·ValueDim] of a layer a·out + (1-a)·mean of all values, where the policy gave
// shares a.
func (v *valueMeans) add(layer int, share, out []float32) {
	dv, group := v.shape.kv(layer).ValueDim, v.shape.Layers.Group(layer)
	for h, a := range share {
		m := &v.layers[layer][h/group]
		attention.MixMean(out[h*dv:(h+1)*dv], a, m.sum, m.tokens)
	}
}
