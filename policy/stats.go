package policy

import "terrace/internal/kernels"

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
