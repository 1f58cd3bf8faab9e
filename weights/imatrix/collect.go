package imatrix

import "fmt"

// Collector sums squares of inputs.
type Collector struct {
	sums map[string]*sums
}

type sums struct {
	squares [][]float64 // [experts][columns]
	counts  []float64   // rows of each expert
}

// NewCollector returns one without entries.
func NewCollector() *Collector { return &Collector{sums: map[string]*sums{}} }

// Add takes rows of inputs x [rows, cols] of the matrix of one expert (0 of 1 where a tensor is one matrix).
func (c *Collector) Add(tensor string, expert, experts, cols int, x []float32) error {
	s := c.sums[tensor]
	if s == nil {
		s = &sums{squares: make([][]float64, experts), counts: make([]float64, experts)}
		for e := range s.squares {
			s.squares[e] = make([]float64, cols)
		}
		c.sums[tensor] = s
	}
	if expert >= len(s.squares) || len(s.squares[expert]) != cols || len(x)%cols != 0 {
		return fmt.Errorf("imatrix: tensor %q: expert %d with %d values in rows of %d, want one of %d with rows of %d: %w",
			tensor, expert, len(x), cols, len(s.squares), len(s.squares[0]), ErrShape)
	}
	squares := s.squares[expert]
	for ; len(x) > 0; x = x[cols:] {
		for i, v := range x[:cols] {
			squares[i] += float64(v) * float64(v)
		}
		s.counts[expert]++
	}
	return nil
}

// Matrix are the sums so far; datasets, chunks and the tokens of a chunk are kept in the file for who looks at it.
func (c *Collector) Matrix(datasets []string, chunks, chunkTokens int) (*Matrix, error) {
	m := &Matrix{Datasets: datasets, Chunks: chunks, ChunkTokens: chunkTokens, entries: map[string]*entry{}}
	for name, s := range c.sums {
		e := &entry{cols: len(s.squares[0])}
		for i, squares := range s.squares {
			e.counts = append(e.counts, float32(s.counts[i]))
			for _, v := range squares {
				e.squares = append(e.squares, float32(v))
			}
		}
		m.entries[name] = e
	}
	return m, m.validate()
}
