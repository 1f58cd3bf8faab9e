package retrieval

import "terrace/policy"

func init() {
	RegisterObserver(policy.QueryStatistics{}.Key(), func(t *Sequence, o policy.Observation) Observer {
		return &queryStatistics{t: t, from: o.(policy.QueryStatistics).From, layers: make([]*policy.QueryStats, len(t.f.o.Shape.Layers))}
	})
}

// queryStatistics adds the queries, rotated back, to their mean and covariance (policy.QueryStatistics).
type queryStatistics struct {
	t         *Sequence
	from      int
	layers    []*policy.QueryStats
	unrotated []float32
}

// statRows is how many queries are rotated back at a time.
const statRows = 64

// Rows implements Observer.
func (s *queryStatistics) Rows(layer int, q []float32, pos []int32) {
	shape := &s.t.f.o.Shape
	heads, dim := shape.Layers[layer].Heads, shape.kv(layer).KeyDim
	if s.layers[layer] == nil {
		s.layers[layer] = policy.NewQueryStats(heads, dim)
	}
	stats, width, rope := s.layers[layer], shape.queryWidth(layer), s.t.f.rope(layer, s.t.long)
	s.unrotated = sized(s.unrotated, statRows*width)
	n := 0
	for i, p := range pos {
		if int(p) < s.from {
			continue
		}
		row := s.unrotated[n*width : (n+1)*width]
		copy(row, q[i*width:(i+1)*width])
		for h := range heads {
			rope.Unrotate(row[h*dim:(h+1)*dim], int(p))
		}
		if n++; n == statRows {
			stats.Add(s.unrotated, n)
			n = 0
		}
	}
	stats.Add(s.unrotated, n)
}

// Value implements Observer.
func (s *queryStatistics) Value(layer int) (any, error) { return s.layers[layer], nil }

// Forget implements Observer.
func (s *queryStatistics) Forget(layer int) { s.layers[layer] = nil }
