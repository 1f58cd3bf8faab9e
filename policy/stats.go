package policy

import (
	"math"

	"terrace/internal/kernels"
)

// QueryStatistics is the [PromptObservation] of the mean and covariance of the prompt's queries before RoPE, from a position on: a *QueryStats.
type QueryStatistics struct{ From int }

// Key implements [Observation].
func (QueryStatistics) Key() string    { return "query_statistics" }
func (QueryStatistics) String() string { return "query mean and covariance" }

// OfPrompt implements [PromptObservation].
func (QueryStatistics) OfPrompt() {}

// QueryStats accumulates, per query head, the mean and covariance of queries before RoPE. The engine adds the rows of the
// prompt as they pass (chunks in any size; the sums run in order, in float64), policies read.
type QueryStats struct {
	Heads, Dim int
	Count      int

	sum   []float64 // [Heads*Dim]
	block []float32
	outer []float64 // [Heads][Dim, Dim], lower triangle: Σ q qᵀ
}

// NewQueryStats makes an empty accumulator for one layer.
func NewQueryStats(heads, dim int) *QueryStats {
	return &QueryStats{Heads: heads, Dim: dim, sum: make([]float64, heads*dim), outer: make([]float64, heads*dim*dim)}
}

// Add takes rows of queries [rows, Heads*Dim] before RoPE. It costs rows·Heads·Dim²/2 multiply-adds: float32 sums over up
// to 64 rows at a time, added up in float64.
func (s *QueryStats) Add(queries []float32, rows int) {
	for rows > 0 {
		n := min(rows, 64)
		s.addBlock(queries, n)
		queries, rows = queries[n*s.Heads*s.Dim:], rows-n
	}
}

func (s *QueryStats) addBlock(queries []float32, rows int) {
	d, width := s.Dim, s.Heads*s.Dim
	s.block = sized(s.block, d*d)
	for h := range s.Heads {
		clear(s.block)
		for r := range rows {
			q := queries[r*width+h*d : r*width+(h+1)*d]
			for i, x := range q {
				s.sum[h*d+i] += float64(x)
				kernels.Axpy(s.block[i*d:i*d+i+1], x, q[:i+1])
			}
		}
		outer := s.outer[h*d*d : (h+1)*d*d]
		for i := range d {
			for j, v := range s.block[i*d : i*d+i+1] {
				outer[i*d+j] += float64(v)
			}
		}
	}
	s.Count += rows
}

// mean fills dst [Dim] with a head's mean query.
func (s *QueryStats) mean(head int, dst []float64) {
	for i := range dst {
		dst[i] = s.sum[head*s.Dim+i] / float64(max(s.Count, 1))
	}
}

// covariance fills dst [Dim, Dim] with a head's covariance (divided by the count, not by count-1).
func (s *QueryStats) covariance(head int, dst []float64) {
	n := float64(max(s.Count, 1))
	sum := s.sum[head*s.Dim : (head+1)*s.Dim]
	outer := s.outer[head*s.Dim*s.Dim : (head+1)*s.Dim*s.Dim]
	for i := range s.Dim {
		for j := range i + 1 {
			c := outer[i*s.Dim+j]/n - sum[i]/n*(sum[j]/n)
			dst[i*s.Dim+j], dst[j*s.Dim+i] = c, c
		}
	}
}

// QueryCenters is the [PromptObservation] of where queries before RoPE stand in each plane that it turns, of the prompt and, where tokens
// are dropped while decoding, of what was generated so far: a *Centers.
type QueryCenters struct{}

// Key implements [Observation].
func (QueryCenters) Key() string    { return "query_centers" }
func (QueryCenters) String() string { return "query centers" }

// OfPrompt implements [PromptObservation].
func (QueryCenters) OfPrompt() {}

// Centers are, per query head and plane, sums over Count queries before RoPE, each a complex number: of its parts and of its length.
// [Planes] says which channels a plane has.
type Centers struct {
	Heads, Planes, Count int
	Real, Imag, Length   []float64 // [Heads·Planes]
}

// NewCenters makes an empty accumulator for one layer.
func NewCenters(heads, planes int) *Centers {
	x := make([]float64, 3*heads*planes)
	n := heads * planes
	return &Centers{Heads: heads, Planes: planes, Real: x[:n:n], Imag: x[n : 2*n : 2*n], Length: x[2*n:]}
}

// Add takes rows of queries [rows, Heads·KeyDim] before RoPE.
func (c *Centers) Add(queries []float32, rows int, planes [][2]int) {
	dim := 2 * c.Planes
	for r := range rows {
		for h := range c.Heads {
			q := queries[(r*c.Heads+h)*dim:][:dim]
			for i, at := range planes {
				a, b := float64(q[at[0]]), float64(q[at[1]])
				c.Real[h*c.Planes+i] += a
				c.Imag[h*c.Planes+i] += b
				c.Length[h*c.Planes+i] += math.Sqrt(a*a + b*b)
			}
		}
	}
	c.Count += rows
}

// Join adds the sums of other queries of the layer.
func (c *Centers) Join(o *Centers) {
	for i := range c.Real {
		c.Real[i] += o.Real[i]
		c.Imag[i] += o.Imag[i]
		c.Length[i] += o.Length[i]
	}
	c.Count += o.Count
}

// Concentration is the length of a head's mean query over the mean length, 0 to 1, mean over the planes (the paper's R).
func (c *Centers) Concentration(head int) float64 {
	sum := 0.0
	for i := head * c.Planes; i < (head+1)*c.Planes; i++ {
		if c.Length[i] > 0 {
			sum += math.Hypot(c.Real[i], c.Imag[i]) / c.Length[i]
		}
	}
	return sum / float64(c.Planes)
}

// Planes are the pairs of channels, the lower one first, that a position embedding turns together, ascending; then the others, two by two.
// dim is even.
func Planes(rope Rope, dim int) [][2]int {
	var turned, others [][2]int
	var single []int
	for c, other := range partners(rope, make([]int, dim), make([]float32, dim)) {
		switch {
		case other == c:
			single = append(single, c)
		case c < other:
			turned = append(turned, [2]int{c, other})
		}
	}
	for i := 0; i+1 < len(single); i += 2 {
		others = append(others, [2]int{single[i], single[i+1]})
	}
	return append(turned, others...)
}

// partners finds with which other channel each is turned, by rotating unit vectors; one that turns with none is its own. scratch is as long
// as partner.
func partners(rope Rope, partner []int, scratch []float32) []int {
	for c := range partner {
		clear(scratch)
		scratch[c] = 1
		rope.Rotate(scratch, 1)
		partner[c] = c
		for i, v := range scratch {
			if i != c && v != 0 {
				partner[c] = i
			}
		}
	}
	return partner
}
