package retrieval

import "terrace/policy"

func init() {
	RegisterObserver(policy.QueryStatistics{}.Key(), func(t *Sequence, o policy.Observation) Observer {
		return &queryStatistics{t: t, from: o.(policy.QueryStatistics).From, layers: make([]*policy.QueryStats, len(t.f.o.Shape.Layers))}
	})
	RegisterObserver(policy.QueryCenters{}.Key(), func(t *Sequence, _ policy.Observation) Observer {
		n := len(t.f.o.Shape.Layers)
		return &queryCenters{t: t, layers: make([]*policy.Centers, n), planes: make([][][2]int, n)}
	})
}

// queryCenters adds the queries, rotated back, to where they stand in each plane (policy.QueryCenters).
type queryCenters struct {
	t         *Sequence
	layers    []*policy.Centers
	planes    [][][2]int
	unrotated []float32
}

// Rows implements Observer.
func (c *queryCenters) Rows(layer int, q []float32, pos []int32) {
	shape := &c.t.f.o.Shape
	heads, dim, width := shape.Layers[layer].Heads, shape.kv(layer).KeyDim, shape.queryWidth(layer)
	rope := c.t.f.rope(layer, c.t.long)
	if c.planes[layer] == nil {
		c.planes[layer] = policy.Planes(rope, dim)
	}
	if c.layers[layer] == nil {
		c.layers[layer] = policy.NewCenters(heads, dim/2)
	}
	for i, p := range pos {
		c.unrotated = append(c.unrotated[:0], q[i*width:(i+1)*width]...)
		for h := range heads {
			rope.Unrotate(c.unrotated[h*dim:(h+1)*dim], int(p))
		}
		c.layers[layer].Add(c.unrotated, 1, c.planes[layer])
	}
}

// Value implements Observer.
func (c *queryCenters) Value(layer int) (any, error) { return c.layers[layer], nil }

// Forget implements Observer.
func (c *queryCenters) Forget(layer int) { c.layers[layer] = nil }

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
