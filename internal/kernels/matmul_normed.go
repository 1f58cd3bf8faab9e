package kernels

// RowNorm is an RMSNorm of the rows of a product's input.
type RowNorm struct {
	W   []float32 // [cols]
	Eps float32
}

// MatMulNormed is MatMul of the normalised rows of x and says whether it could: only where all products are of integer
// arithmetic in this phase; if not, nothing is written. Results are those of RMSNorm and MatMul, bit for bit. The
// normalised rows never leave the core that quantises them; where a row's columns are shared out, each core takes the sum
// of squares of the whole row, which costs less than handing it over.
func (p *Pool) MatMulNormed(ph Phase, x []float32, n int, norm *RowNorm, products ...Product) bool {
	if n <= 0 || len(products) == 0 || !integers(ph, products...) {
		return false
	}
	wantLen("MatMulNormed", products[0].W.cols, len(norm.W))
	p.matMul(ph, x, n, norm, products)
	return true
}

// integers says whether all products are of integer arithmetic.
func integers(ph Phase, products ...Product) bool {
	for _, q := range products {
		if classOf(ph, q.W) != classInteger {
			return false
		}
	}
	return true
}

// quantizeTask quantises records [from, to) of a group, after the norm where there is one.
func (j *matmulJob) quantizeTask(worker int, g actGroup, from, to int) {
	if g.rows < maxGroup {
		ownBytes(j.acts.span(g, from, to))
	}
	if j.norm == nil {
		j.acts.quantizeGroup(simd, g, j.x[g.first*j.cols+from*recordCols:], j.cols, from, to)
		return
	}
	s, low, high := &j.scratch[worker], from*recordCols, to*recordCols
	width := high - low
	if len(s.rows) < g.rows*width {
		s.rows = make([]float32, g.rows*width)
	}
	for r := range g.rows {
		row := j.x[(g.first+r)*j.cols:][:j.cols]
		elem.mulScale(s.rows[r*width:(r+1)*width], row[low:high], j.norm.W[low:high], elem.rmsScale(row, j.norm.Eps))
	}
	j.acts.quantizeGroup(simd, g, s.rows, width, from, to)
}
