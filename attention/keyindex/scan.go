package keyindex

import "sync/atomic"

// scan is a query to low-bit keys: the query in 8 bits and the scores, chunk by chunk, so that threads share one KV
// head's index.
type scan struct {
	of     *float32 // the query that scores are of; nil = none
	rows   int
	q      []int8
	scaled []float32
	unit   []float32
	scores []float32 // [rows][Stride]
	left   atomic.Int32
}

// ask prepares the scan for queries [rows, dim] of a head.
func (h *Head) ask(q []float32, rows int) {
	s := &h.scan
	s.of, s.rows = &q[0], rows
	if n := len(h.fixed.scale); n > 0 { // the prompt's scales are multiplied into the query
		s.scaled = append(s.scaled[:0], q[:rows*h.dim]...)
		for i := range s.scaled {
			s.scaled[i] *= h.fixed.scale[i%n]
		}
		q = s.scaled
	}
	if need := rows * h.codes.QueryDim(); cap(s.q) < need {
		s.q = make([]int8, need)
	}
	s.q, s.unit = s.q[:rows*h.codes.QueryDim()], sized(s.unit, rows)
	h.codes.Quantize(s.q, s.unit, q)
	s.scores = sized(s.scores, rows*h.codes.Stride())
}

// scanChunk scores one chunk.
func (h *Head) scanChunk(chunk int) { h.codes.Score(h.scan.scores, h.scan.q, h.scan.unit, chunk) }

// scanned writes the scores of queries [rows, dim] to dst [rows][tokens].
func (h *Head) scanned(q []float32, rows int, dst []float32) {
	scores, stride := h.scores(q, rows)
	n := h.codes.Tokens()
	for r := range rows {
		copy(dst[r*n:(r+1)*n], scores[r*stride:])
	}
}

// scores are those of queries [rows, dim], [rows][stride]: computed ahead, or new ones.
func (h *Head) scores(q []float32, rows int) (scores []float32, stride int) {
	s := &h.scan
	if s.of != &q[0] || s.rows != rows {
		h.ask(q, rows)
		for c := range h.codes.Chunks() {
			h.scanChunk(c)
		}
	}
	return s.scores, h.codes.Stride()
}

// Lend implements policy.Lender for codes.
func (h *Head) Lend(_ int, q []float32, rows int) (scores []float32, stride int) {
	if h.codes == nil || h.product != nil {
		return nil, 0
	}
	h.countApprox()
	scores, stride = h.scores(q, rows)
	h.scan.of = nil // no longer scores once the caller has changed them
	return scores, stride
}

// Begin prepares a scan for queries [rows, dim] that Approx will be asked with; its chunks may be scored by any threads, each
// once, before that.
func (h *Head) Begin(q []float32, rows int) (chunks int) {
	h.ask(q, rows)
	chunks = h.codes.Chunks()
	h.scan.left.Store(int32(chunks))
	return chunks
}

// Chunk scores one chunk of a scan; last says that all chunks are scored now.
func (h *Head) Chunk(chunk int) (last bool) {
	h.scanChunk(chunk)
	return h.scan.left.Add(-1) == 0
}
