package policy

// QueryStats accumulates, per query head, the mean and covariance of queries before RoPE. The engine adds the rows of the
// prompt as they pass (chunks in any size; the sums run in order, in float64), policies read.
type QueryStats struct {
	Heads, Dim int
	Count      int

	sum   []float64 // [Heads*Dim]
	outer []float64 // [Heads][Dim, Dim], lower triangle: Σ q qᵀ
}

// NewQueryStats makes an empty accumulator for one layer.
func NewQueryStats(heads, dim int) *QueryStats {
	return &QueryStats{Heads: heads, Dim: dim, sum: make([]float64, heads*dim), outer: make([]float64, heads*dim*dim)}
}

// Add takes rows of queries [rows, Heads*Dim] before RoPE. It costs rows·Heads·Dim²/2 multiply-adds.
func (s *QueryStats) Add(queries []float32, rows int) {
	width := s.Heads * s.Dim
	for h := range s.Heads {
		outer := s.outer[h*s.Dim*s.Dim : (h+1)*s.Dim*s.Dim]
		sum := s.sum[h*s.Dim : (h+1)*s.Dim]
		for r := range rows {
			q := queries[r*width+h*s.Dim : r*width+(h+1)*s.Dim]
			for i, x := range q {
				v := float64(x)
				sum[i] += v
				row := outer[i*s.Dim : i*s.Dim+i+1]
				for j := range row {
					row[j] += v * float64(q[j])
				}
			}
		}
	}
	s.Count += rows
}

// Mean fills dst [Dim] with a head's mean query.
func (s *QueryStats) Mean(head int, dst []float64) {
	for i := range dst {
		dst[i] = s.sum[head*s.Dim+i] / float64(max(s.Count, 1))
	}
}

// Covariance fills dst [Dim, Dim] with a head's covariance (divided by the count, not by count-1).
func (s *QueryStats) Covariance(head int, dst []float64) {
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
