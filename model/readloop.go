package model

import "terrace/internal/kernels"

// ReadWeights reads the weights that one decode step of the native backend reads, with the pool's threads and without
// computing, and returns how many bytes that were; 0 without a pool, whose backend keeps weights of its own, and where a step
// reads some of them only (experts), or from storage (Stream).
func (m *Model) ReadWeights(pool *kernels.Pool) (bytes int64, err error) {
	if m.Experts > 0 || pool == nil || m.streamed != nil {
		return 0, nil
	}
	var list []*kernels.Matrix
	add := func(linears ...*Linear) {
		for _, l := range linears {
			if l.Absent() || err != nil {
				continue
			}
			var w *kernels.Matrix
			if w, _, err = l.Matrix(); err == nil {
				list = append(list, w)
			}
		}
	}
	for i := range m.Params.Layers {
		l := &m.Params.Layers[i]
		add(l.linears()...)
	}
	add(m.Params.EmbedIn, m.Params.EmbedOut, m.Params.Output)
	if err != nil {
		return 0, err
	}
	return pool.ReadOnce(list), nil
}
