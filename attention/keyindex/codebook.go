package keyindex

import (
	"cmp"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// codebook holds the centroids of the parts of keys.
type codebook struct {
	dim, parts, size int
	order            []int32   // [dim] of the numbers of a vector; nil = as they are
	round            []float32 // [parts][size][dim/parts]
	exact            []float64 // the same while they are found; nil afterwards
	half             []float32 // [parts][size] ‖c‖²/2
	scratch          codeScratch
}

type codeScratch struct {
	parts   []float32 // [n][width+1]: one part of each key, and 1
	norms   []float32 // [n] ‖x‖²
	panel   []float32 // [size/64][width+1][64]: centroids, and -‖c‖²/2
	dots    []float32 // [size/64][codeRows][64]
	near    [256 + kernels.Room]int32
	nearest []int32
}

// codeRows is how many keys are compared with the centroids at a time.
const codeRows = 16

func (b *codebook) bytes() int64 { return 4 * int64(len(b.round)+len(b.half)+len(b.order)) }

// width is the length of a part.
func (b *codebook) width() int { return b.dim / b.parts }

// trainCodebook runs Lloyd's k-means on each part of keys [n, dim]: first centroid j is key ⌊(2j+1)·n/(2·size)⌋; iters rounds
// of assignment and means; a centroid without keys stays.
func trainCodebook(keys []float32, n, dim, parts, size, iters int, order []int32) codebook {
	b := codebook{order: order, dim: dim, parts: parts, size: size, exact: make([]float64, size*dim), round: make([]float32, size*dim), half: make([]float32, size*parts)}
	w := b.width()
	sums, counts := make([]float64, size*w), make([]int, size)
	nearest := make([]int32, n)
	for m := range parts {
		b.part(m, keys, n)
		exact, rows := b.exact[m*size*w:(m+1)*size*w], b.scratch.parts
		for j := range size {
			for d, x := range rows[(2*j+1)*n/(2*size)*(w+1):][:w] {
				exact[j*w+d] = float64(x)
			}
		}
		b.settle(m)
		for range iters {
			b.assign(m, nearest)
			clear(sums)
			clear(counts)
			for i, j := range nearest {
				counts[j]++
				sum := sums[int(j)*w:][:w]
				for d, x := range rows[i*(w+1):][:w] {
					sum[d] += float64(x)
				}
			}
			for j, c := range counts {
				for d := 0; c > 0 && d < w; d++ {
					exact[j*w+d] = sums[j*w+d] / float64(c)
				}
			}
			b.settle(m)
		}
	}
	b.exact, b.scratch = nil, codeScratch{} // that of all keys at once
	return b
}

// settle rounds the centroids of a part.
func (b *codebook) settle(m int) {
	w := b.width()
	for j := range b.size {
		var sum float64
		for d := range w {
			x := b.exact[(m*b.size+j)*w+d]
			b.round[(m*b.size+j)*w+d] = float32(x)
			sum += x * x
		}
		b.half[m*b.size+j] = float32(sum / 2)
	}
}

// part lays one part of keys [n, dim] out for assign.
func (b *codebook) part(m int, keys []float32, n int) {
	w, s := b.width(), &b.scratch
	s.parts, s.norms = sized(s.parts, n*(w+1)), sized(s.norms, n)
	for i := range n {
		row := s.parts[i*(w+1):][: w+1 : w+1]
		if b.order == nil {
			copy(row, keys[i*b.dim+m*w:][:w])
		} else {
			for d, from := range b.order[m*w : (m+1)*w] {
				row[d] = keys[i*b.dim+int(from)]
			}
		}
		row[w] = 1
		var sum float32
		for _, v := range row[:w] {
			sum += v * v
		}
		s.norms[i] = sum
	}
}

// assign writes the number of the nearest centroid of part m of each key of part, the lowest where several are. Products in
// float32 leave out all but the near; where those are several, they are compared in float64 by Σ(x-c)².
func (b *codebook) assign(m int, nearest []int32) {
	w, s, n := b.width(), &b.scratch, len(nearest)
	if n < fewKeys {
		for i := range nearest {
			nearest[i] = b.plainNearest(m, s.parts[i*(w+1):][:w])
		}
		return
	}
	panels := (b.size + kernels.PanelCols - 1) / kernels.PanelCols
	each, block := (w+1)*kernels.PanelCols, codeRows*kernels.PanelCols
	s.panel, s.dots = sized(s.panel, panels*each), sized(s.dots, panels*block)
	most := float32(0)
	for j := range panels * kernels.PanelCols {
		col := s.panel[j/kernels.PanelCols*each+j%kernels.PanelCols:]
		if j >= b.size {
			for d := range w {
				col[d*kernels.PanelCols] = 0
			}
			col[w*kernels.PanelCols] = -math.MaxFloat32
			continue
		}
		for d, c := range b.round[(m*b.size+j)*w:][:w] {
			col[d*kernels.PanelCols] = c
		}
		half := b.half[m*b.size+j]
		col[w*kernels.PanelCols] = -half
		most = max(most, half)
	}
	cols := min(b.size, kernels.PanelCols)
	for from := 0; from < n; from += codeRows {
		rows := min(codeRows, n-from)
		for t := range panels {
			kernels.Gemm(s.dots[t*block:], kernels.PanelCols, s.parts[from*(w+1):], w+1, s.panel[t*each:], w+1, rows, nil)
		}
		for i := range rows {
			nearest[from+i] = b.nearest(m, from+i, panels, s.dots[i*kernels.PanelCols:], block, cols, most)
		}
	}
}

// nearest is the number of the centroid nearest to a key of part. dots begin with what decides of the first cols centroids: the
// product, less half the centroid's square; those of the next panel lie a block further on.
func (b *codebook) nearest(m, key, panels int, dots []float32, block, cols int, most float32) int32 {
	s, best := &b.scratch, float32(-math.MaxFloat32)
	for t := range panels {
		best = max(best, kernels.Max(dots[t*block:][:cols]))
	}
	bound := best - 2e-5*(s.norms[key]+2*most) // what rounding may hide
	near := 0
	for t := range panels {
		near += kernels.Reaching(s.near[near:], dots[t*block:][:cols], bound, int32(t*kernels.PanelCols))
	}
	if near == 1 {
		return s.near[0]
	}
	w, least, at := b.width(), -1.0, int32(0)
	x := s.parts[key*(w+1):][:w]
	for _, j := range s.near[:near] {
		if sum := b.distance((m*b.size+int(j))*w, x); least < 0 || sum < least {
			least, at = sum, j
		}
	}
	return at
}

// fewKeys is the number below which laying the centroids out takes longer than comparing with each.
const fewKeys = 5

// plainNearest is nearest by its definition.
func (b *codebook) plainNearest(m int, x []float32) (at int32) {
	least := math.Inf(1)
	for j := range b.size {
		if sum := b.distance((m*b.size+j)*len(x), x); sum < least {
			least, at = sum, int32(j)
		}
	}
	return at
}

// distance is Σ(x-c)² for the centroid that begins at a number.
func (b *codebook) distance(from int, x []float32) (sum float64) {
	if b.exact == nil {
		for d, c := range b.round[from:][:len(x)] {
			e := float64(x[d]) - float64(c)
			sum += e * e
		}
		return sum
	}
	for d, c := range b.exact[from:][:len(x)] {
		e := float64(x[d]) - c
		sum += e * e
	}
	return sum
}

// encode returns the codes [n, parts] of keys [n, dim].
func (b *codebook) encode(keys []float32, n int) []byte {
	codes := make([]byte, n*b.parts)
	if cap(b.scratch.nearest) < n {
		b.scratch.nearest = make([]int32, n)
	}
	nearest := b.scratch.nearest[:n]
	for m := range b.parts {
		b.part(m, keys, n)
		b.assign(m, nearest)
		for i, j := range nearest {
			codes[i*b.parts+m] = byte(j)
		}
	}
	return codes
}

// tables are the products of queries [rows, dim] with all centroids: [rows][parts][size].
func (b *codebook) tables(dst, q []float32, rows int) []float32 {
	w := b.width()
	dst = sized(dst, rows*b.parts*b.size)
	for r := range rows {
		for m := range b.parts {
			part := q[r*b.dim+m*w:][:w]
			for j := range b.size {
				dst[(r*b.parts+m)*b.size+j] = kernels.Dot(part, b.round[(m*b.size+j)*w:][:w])
			}
		}
	}
	return dst
}

// balanced is an order of the numbers of keys [n, dim] in which each part has about the same product of variances: a part's
// centroids then go to its numbers that vary, as many as they need.
func balanced(keys []float32, n, dim, parts int) []int32 {
	size := make([]float64, dim) // logarithms of variances
	for d := range dim {
		var sum, squares float64
		for i := range n {
			x := float64(keys[i*dim+d])
			sum, squares = sum+x, squares+x*x
		}
		mean := sum / float64(n)
		size[d] = math.Log(max(squares/float64(n)-mean*mean, 1e-12))
	}
	least := slices.Min(size)
	falling := make([]int32, dim)
	for d := range falling {
		falling[d] = int32(d)
	}
	slices.SortStableFunc(falling, func(a, b int32) int { return cmp.Compare(size[b], size[a]) })
	w, order, filled, load := dim/parts, make([]int32, dim), make([]int, parts), make([]float64, parts)
	for _, d := range falling {
		to := -1
		for m := range parts {
			if filled[m] < w && (to < 0 || load[m] < load[to]) {
				to = m
			}
		}
		order[to*w+filled[to]] = d
		filled[to]++
		load[to] += size[d] - least
	}
	return order
}
