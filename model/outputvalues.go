package model

import "terrace/internal/kernels"

// OutputOfValues is what the layer's output makes of its values as they are cached: [Hidden, Heads·StoredValue]. Of latent ones the values'
// projections are multiplied in, 2·Hidden·Heads·Value·Rank operations.
func (m *Model) OutputOfValues(pool *kernels.Pool, layer int) ([]float32, error) {
	a, l := &m.Layer[layer].Attention, &m.Params.Layers[layer]
	out, err := l.O.Values()
	if err != nil || a.Latent == nil {
		return out, err
	}
	rank, value, stored, hidden := a.Latent.Rank, a.Latent.Value, a.StoredValue(), m.Hidden
	up := make([][]float32, a.Heads)
	for h := range up {
		if up[h], err = l.ValueUp[h].Values(); err != nil {
			return nil, err
		}
	}
	folded := make([]float32, hidden*a.Heads*stored)
	pool.Run(hidden, func(_, d int) {
		for h := range a.Heads {
			row := folded[(d*a.Heads+h)*stored:][:rank]
			for j, w := range out[(d*a.Heads+h)*value:][:value] {
				kernels.Axpy(row, w, up[h][j*rank:(j+1)*rank])
			}
		}
	})
	return folded, nil
}
