package kernels

import (
	"unsafe"

	"terrace/internal/kernels/quant"
)

func (j *matmulJob) computeTask(worker, i int) {
	t, s := &j.tasks[i], &j.scratch[worker]
	switch j.classes[t.product] {
	case classMatrix:
		j.matrixTask(t, s)
	case classSplit:
		j.splitTask(t, s)
	case classInteger:
		j.integerTask(t, s)
	case classFloat:
		j.floatTask(t, s)
	default:
		j.plainTask(t, s)
	}
}

// integerTask multiplies the packed tiles with the quantised activations.
func (j *matmulJob) integerTask(t *matmulTask, s *matmulScratch) {
	q := j.products[t.product]
	kernels := &simd.tiles[q.W.typ]
	for tile := t.first; tile < t.last; tile++ {
		w, row0 := q.W.tileAt(tile), tile*tileRows
		rows, from := min(tileRows, q.W.rows-row0), t.from
		for n := j.manyGroups(kernels, from, t.to); n > 0; n = j.manyGroups(kernels, from, t.to) {
			j.many(s, kernels, w, from, n, s.out[:], tileRows)
			s.scatter(q, j.acts.groups[from].first, n*manyRows, row0, rows)
			from += n
		}
		for _, g := range j.acts.groups[from:t.to] {
			run := kernelFor(kernels.dot, g.rows)
			if g.rows < maxGroup || q.Add {
				ownRows(q.Dst[g.first*q.W.rows+row0:], g.rows, q.W.rows, rows)
			}
			if rows == tileRows && !q.Add {
				run(&q.Dst[g.first*q.W.rows+row0], uintptr(q.W.rows)*4, w, j.acts.at(g), j.acts.records)
				continue
			}
			run(&s.out[0], tileRows*4, w, j.acts.at(g), j.acts.records)
			s.scatter(q, g.first, g.rows, row0, rows)
		}
	}
}

// kernelFor is the kernel that takes so many rows; there is one for every size of group.
func kernelFor(kernels []dotKernel, rows int) func(dst *float32, strideBytes uintptr, tile *byte, act *byte, records int) {
	k := 0
	for kernels[k].rows > rows {
		k++
	}
	return kernels[k].run
}

// scatter copies rows [n, 16] of the scratch to where they belong in the product's results, or adds them there.
func (s *matmulScratch) scatter(q Product, from, n, row0, rows int) {
	for r := range n {
		dst, src := q.Dst[(from+r)*q.W.rows+row0:][:rows], s.out[r*tileRows:][:rows]
		if q.Add {
			elem.add(dst, src)
		} else {
			copy(dst, src)
		}
	}
}

// floatTask multiplies float panels, the packed tile itself or unpacked from it, with the float activations.
func (j *matmulJob) floatTask(t *matmulTask, s *matmulScratch) {
	q, n := j.products[t.product], t.to-t.from
	kernels, unpack := simd.panels[q.W.typ], simd.tiles[q.W.typ].unpack
	if unpack != nil {
		kernels = simd.panels[quant.F32]
	}
	for tile := t.first; tile < t.last; tile++ {
		w, row0 := q.W.tileAt(tile), tile*tileRows
		clear(s.out[:n*tileRows])
		for c := 0; c < j.cols; c += panelCols {
			k := min(panelCols, j.cols-c)
			panel := (*byte)(unsafe.Add(unsafe.Pointer(w), c*tileRows*q.W.typ.BlockBytes()))
			if unpack != nil {
				panel = (*byte)(unsafe.Pointer(&s.panel[0]))
				unpack(&s.panel[0], w, c/recordCols, k/recordCols)
			}
			for r, v := 0, 0; r < n; {
				for kernels[v].rows > n-r {
					v++
				}
				kernels[v].run(&s.out[r*tileRows], panel, &j.x[(t.from+r)*j.cols+c], uintptr(j.cols)*4, k)
				r += kernels[v].rows
			}
		}
		s.scatter(q, t.from, n, row0, min(tileRows, q.W.rows-row0))
	}
}

// plainTask is floatTask in plain Go, on panels dequantised from the matrix's own bytes.
func (j *matmulJob) plainTask(t *matmulTask, s *matmulScratch) {
	q, n := j.products[t.product], t.to-t.from
	for tile := t.first; tile < t.last; tile++ {
		row0 := tile * tileRows
		clear(s.out[:n*tileRows])
		for c := 0; c < j.cols; c += panelCols {
			k := min(panelCols, j.cols-c)
			s.fill(q.W, row0, c, k)
			panelGo(s.out[:], j.x[t.from*j.cols+c:], j.cols, s.panel[:k*tileRows], n, k)
		}
		s.scatter(q, t.from, n, row0, min(tileRows, q.W.rows-row0))
	}
}

// fill dequantises columns [c, c+k) of the tile's rows into the panel; rows past the end are zero.
func (s *matmulScratch) fill(m *Matrix, row0, c, k int) {
	from, to := m.typ.RowBytes(c), m.typ.RowBytes(c+k)
	rows := min(tileRows, m.rows-row0)
	if rows < tileRows {
		clear(s.panel[:])
	}
	for r := range rows {
		quant.Dequantize(m.typ, s.row[:k], m.data[(row0+r)*m.rowBytes+from:(row0+r)*m.rowBytes+to])
		for i, v := range s.row[:k] {
			s.panel[i*tileRows+r] = v
		}
	}
}
