package engine

import (
	"sync/atomic"

	"terrace/policy"
)

// scan is a question to a low-bit sketch: the query in 8 bits and the scores, chunk by chunk, so that threads share one KV
// head's sketch.
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
func (h *headScorer) ask(q []float32, rows int) {
	s := &h.scan
	s.of, s.rows = &q[0], rows
	if n := len(h.scale); n > 0 { // the prompt's scales are multiplied into the query
		s.scaled = append(s.scaled[:0], q[:rows*h.dim]...)
		for i := range s.scaled {
			s.scaled[i] *= h.scale[i%n]
		}
		q = s.scaled
	}
	if need := rows * h.low.QuestionDim(); cap(s.q) < need {
		s.q = make([]int8, need)
	}
	s.q, s.unit = s.q[:rows*h.low.QuestionDim()], sized(s.unit, rows)
	h.low.Question(s.q, s.unit, q)
	s.scores = sized(s.scores, rows*h.low.Stride())
}

// scanChunk scores one chunk.
func (h *headScorer) scanChunk(chunk int) { h.low.Score(h.scan.scores, h.scan.q, h.scan.unit, chunk) }

// scanned writes the scores of queries [rows, dim] to dst [rows][tokens]: those that were computed ahead, or new ones.
func (h *headScorer) scanned(q []float32, rows int, dst []float32) {
	s := &h.scan
	if s.of != &q[0] || s.rows != rows {
		h.ask(q, rows)
		for c := range h.low.Chunks() {
			h.scanChunk(c)
		}
	}
	n, stride := h.low.Tokens(), h.low.Stride()
	for r := range rows {
		copy(dst[r*n:(r+1)*n], s.scores[r*stride:])
	}
}

// scanTask is one chunk of a KV head's sketch; the head's last chunk decides.
type scanTask struct{ head, chunk int }

// scanTasks lists the chunks to scan before the heads decide; none where a head does not ask for a scan.
func (r *policyRun) scanTasks() int {
	r.scans = r.scans[:0]
	for g := range r.byHead {
		c := &r.byHead[g]
		scanner, ok := c.selector.(policy.Scanner)
		if !ok || !scanner.Scans(&c.layer) {
			return 0
		}
		h := &r.task.st.scorer.heads[g]
		h.ask(c.layer.Queries, c.layer.Heads)
		h.scan.left.Store(int32(h.low.Chunks()))
		for chunk := range h.low.Chunks() {
			r.scans = append(r.scans, scanTask{g, chunk})
		}
	}
	return len(r.scans)
}

func (r *policyRun) scanOne(worker, i int) {
	t := r.scans[i]
	h := &r.task.st.scorer.heads[t.head]
	h.scanChunk(t.chunk)
	if h.scan.left.Add(-1) == 0 {
		r.selectOne(worker, t.head)
	}
}
