package keyindex

import (
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Product is a product-quantised copy of one layer and KV head's keys (PQCache): each key is cut into parts, and of each part
// the number of the nearest of 2^bits centroids is kept, a byte. Centroids are those of the keys that the prompt ends with;
// later keys take the nearest. Codes lie in tiles [parts][16] of bytes, or, of at most 4 bits and an even number of
// parts, [parts/2][16]: the code of part 2m in the low half, that of part 2m+1 in the high one. Values can be coded the same way.
type Product struct {
	dim, parts, bits, iters int
	packed                  bool // two codes a byte
	first                   int  // tokens at the start whose vectors are kept as they are, for scores
	kept                    []float32
	codebook                codebook
	tokens                  int
	data                    [][]byte // tiles in memory: those behind the ones in below
	below                   Stream   // takes every tile but the last; nil = all stay
	at                      []int32  // where those begin
	table                   []float32
	sums                    []float32 // of weights, by code
}

// storedCodeTiles is how many tiles of codes are read from the lower tier at a time.
const storedCodeTiles = storedTiles

// NewProduct returns an empty one for keys of dim numbers, parts a divisor of dim.
func NewProduct(dim, parts, bits, iters int) *Product {
	return &Product{dim: dim, parts: parts, bits: bits, iters: iters, packed: codesPacked(parts, bits)}
}

// codesPacked says whether two codes share a byte.
func codesPacked(parts, bits int) bool { return bits <= 4 && parts%2 == 0 }

// codeBytes is the size of a token's codes.
func codeBytes(parts, bits int) int {
	if codesPacked(parts, bits) {
		return parts / 2
	}
	return parts
}

// Train finds the centroids of keys [n, dim]; with no more keys than centroids there are none.
func (p *Product) Train(keys []float32, n int) {
	p.codebook = codebook{}
	if n > 1<<p.bits {
		p.codebook = trainCodebook(keys, n, p.dim, p.parts, 1<<p.bits, p.iters)
	}
}

// Trained reports whether there are centroids.
func (p *Product) Trained() bool { return len(p.codebook.round) > 0 }

// Tokens is the number of tokens.
func (p *Product) Tokens() int { return p.tokens }

// Bytes is the memory of codes and centroids.
func (p *Product) Bytes() int64 {
	return int64(len(p.data)*p.tileBytes()) + 4*int64(cap(p.at)+len(p.kept)) + p.codebook.bytes()
}

func (p *Product) tileBytes() int { return codeBytes(p.parts, p.bits) * kvpage.Tile }

// KeepBelow has an empty one hand its full tiles to a stream.
func (p *Product) KeepBelow(t Stream) { p.below = t }

// Reset forgets every token and the centroids.
func (p *Product) Reset() {
	p.tokens, p.data, p.at, p.codebook, p.kept = 0, p.data[:0], p.at[:0], codebook{}, p.kept[:0]
}

// Put adds keys [n, dim] behind the others.
func (p *Product) Put(keys []float32, n int) {
	var codes []byte
	if p.Trained() {
		codes = p.codebook.encode(keys, n)
	} else {
		codes = make([]byte, n*p.parts)
	}
	for i := range n {
		tile, at := p.tile(p.tokens)
		for m := range p.parts {
			switch code := codes[i*p.parts+m]; {
			case !p.packed:
				tile[m*kvpage.Tile+at] = code
			case m%2 == 0:
				tile[m/2*kvpage.Tile+at] = code
			default:
				tile[m/2*kvpage.Tile+at] |= code << 4
			}
		}
		if p.tokens < p.first {
			p.kept = append(p.kept, keys[i*p.dim:(i+1)*p.dim]...)
		}
		p.tokens++
	}
}

// tile makes place for token i, one past the last.
func (p *Product) tile(i int) (tile []byte, at int) {
	if len(p.at)+len(p.data) <= i/kvpage.Tile {
		if p.below != nil && len(p.data) > 0 {
			p.at = append(p.at, p.below.Append(p.data[0]))
			p.data = p.data[:0]
		}
		p.data = append(p.data, make([]byte, p.tileBytes()))
	}
	return p.data[i/kvpage.Tile-len(p.at)], i % kvpage.Tile
}

// Score writes the sum over the parts of q·centroid to dst [rows][tokens] for q [rows, dim]. Tokens with equal codes have
// equal scores, bit for bit.
func (p *Product) Score(dst, q []float32, rows int) {
	if len(p.at) > 0 && !p.below.Ready() || !p.Trained() {
		clear(dst[:rows*p.tokens])
		return
	}
	p.table = p.codebook.tables(p.table, q, rows)
	if p.packed {
		p.table = p.pairs(p.table, rows)
	}
	for first := 0; first < len(p.at); first += storedCodeTiles {
		last := min(first+storedCodeTiles, len(p.at))
		p.scoreTiles(dst, rows, first, p.below.Tiles(p.at[first:last], p.tileBytes(), p.tileBytes()))
	}
	p.scoreTiles(dst, rows, len(p.at), p.data)
	for r := range rows {
		for i := range min(len(p.kept)/p.dim, p.tokens) {
			dst[r*p.tokens+i] = kernels.Dot(q[r*p.dim:(r+1)*p.dim], p.kept[i*p.dim:(i+1)*p.dim])
		}
	}
}

// pairs are tables [rows][parts/2][256] of the sums of two parts' products, by the byte that holds both codes.
func (p *Product) pairs(tables []float32, rows int) []float32 {
	size := 1 << p.bits
	p.sums = sized(p.sums, rows*p.parts/2*256)
	for i := range rows * p.parts / 2 {
		low, high, out := tables[2*i*size:(2*i+1)*size], tables[(2*i+1)*size:(2*i+2)*size], p.sums[i*256:(i+1)*256]
		for b, y := range high {
			for a, x := range low {
				out[b<<4|a] = x + y
			}
		}
	}
	p.sums, tables = tables, p.sums
	return tables
}

// lanes are the bytes of a token, and how many values each may have.
func (p *Product) lanes() (n, values int) {
	if p.packed {
		return p.parts / 2, 256
	}
	return p.parts, 1 << p.bits
}

// Sum writes the sums over all tokens of weight times the vector that its codes stand for to dst [rows, dim]; weights [rows]
// [tokens]. Weights are summed by code first, in the tokens' order.
func (p *Product) Sum(dst, weights []float32, rows int) {
	lanes, values := p.lanes()
	size, w := 1<<p.bits, p.dim/p.parts
	for r := range rows {
		p.sums = sized(p.sums, lanes*values)
		clear(p.sums)
		for t, tile := range p.data {
			from := t * kvpage.Tile
			if from >= p.tokens {
				break
			}
			row := weights[r*p.tokens+from : r*p.tokens+min(from+kvpage.Tile, p.tokens)]
			for m := range lanes {
				sums := p.sums[m*values : (m+1)*values]
				for i, c := range tile[m*kvpage.Tile:][:len(row)] {
					sums[c] += row[i]
				}
			}
		}
		out := dst[r*p.dim : (r+1)*p.dim]
		clear(out)
		for m := range p.parts {
			part := out[m*w : (m+1)*w]
			for j := range size {
				if x := p.codeSum(m, j, values); x != 0 {
					for d, c := range p.codebook.round[(m*size+j)*w:][:w] {
						part[d] += x * c
					}
				}
			}
		}
	}
}

// codeSum is the weight of one code of a part.
func (p *Product) codeSum(m, code, values int) (sum float32) {
	switch {
	case !p.packed:
		return p.sums[m*values+code]
	case m%2 == 0:
		for high := range 1 << p.bits {
			sum += p.sums[m/2*values+(high<<4|code)]
		}
	default:
		for low := range 1 << p.bits {
			sum += p.sums[m/2*values+(code<<4|low)]
		}
	}
	return sum
}

// scoreTiles is Score of the tiles from number first on.
func (p *Product) scoreTiles(dst []float32, rows, first int, tiles [][]byte) {
	lanes, size := p.lanes()
	for r := range rows {
		table := p.table[r*lanes*size:]
		for t, tile := range tiles {
			from := (first + t) * kvpage.Tile
			if from >= p.tokens {
				break
			}
			out := dst[r*p.tokens+from : r*p.tokens+min(from+kvpage.Tile, p.tokens)]
			for i, c := range tile[:len(out)] {
				out[i] = table[c]
			}
			for m := 1; m < lanes; m++ {
				part := table[m*size : (m+1)*size]
				for i, c := range tile[m*kvpage.Tile:][:len(out)] {
					out[i] += part[c]
				}
			}
		}
	}
}

// codebook holds the centroids of the parts of keys.
type codebook struct {
	dim, parts, size int
	round            []float32 // [parts][size][dim/parts]
	exact            []float64 // the same while they are found; nil afterwards
	half             []float32 // [parts][size] ‖c‖²/2
	scratch          codeScratch
}

type codeScratch struct {
	panel, dots []float32
	nearest     []int32
}

func (b *codebook) bytes() int64 { return 4 * int64(len(b.round)+len(b.half)) }

// width is the length of a part.
func (b *codebook) width() int { return b.dim / b.parts }

// trainCodebook runs Lloyd's k-means on each part of keys [n, dim]: first centroid j is key ⌊(2j+1)·n/(2·size)⌋; iters rounds
// of assignment and means; a centroid without keys stays.
func trainCodebook(keys []float32, n, dim, parts, size, iters int) codebook {
	b := codebook{dim: dim, parts: parts, size: size, exact: make([]float64, size*dim), round: make([]float32, size*dim), half: make([]float32, size*parts)}
	w := b.width()
	sums, counts := make([]float64, size*w), make([]int, size)
	nearest := make([]int32, n)
	for m := range parts {
		exact := b.exact[m*size*w : (m+1)*size*w]
		for j := range size {
			for d, x := range keys[(2*j+1)*n/(2*size)*dim+m*w:][:w] {
				exact[j*w+d] = float64(x)
			}
		}
		b.settle(m)
		for range iters {
			b.assign(m, keys, n, nearest)
			clear(sums)
			clear(counts)
			for i, j := range nearest {
				counts[j]++
				sum := sums[int(j)*w:][:w]
				for d, x := range keys[i*dim+m*w:][:w] {
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
	b.exact = nil
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

// assign writes the number of the nearest centroid of part m of each key, the lowest where several are. Products in float32
// leave out all but the near; those are compared in float64 by Σ(x-c)².
func (b *codebook) assign(m int, keys []float32, n int, nearest []int32) {
	w, s := b.width(), &b.scratch
	s.panel, s.dots = sized(s.panel, w*kernels.PanelCols), sized(s.dots, b.size*kernels.PanelCols)
	most := float32(0)
	for _, h := range b.half[m*b.size : (m+1)*b.size] {
		most = max(most, h)
	}
	for from := 0; from < n; from += kernels.PanelCols {
		cols := min(kernels.PanelCols, n-from)
		clear(s.panel)
		for i := range cols {
			for d, x := range keys[(from+i)*b.dim+m*w:][:w] {
				s.panel[d*kernels.PanelCols+i] = x
			}
		}
		kernels.Gemm(s.dots, kernels.PanelCols, b.round[m*b.size*w:], w, s.panel, w, b.size, nil)
		for i := range cols {
			nearest[from+i] = b.nearest(m, keys[(from+i)*b.dim+m*w:][:w], s.dots[i:], most)
		}
	}
}

// nearest is the number of the centroid nearest to x, whose products with them lie at every 64th of dots.
func (b *codebook) nearest(m int, x, dots []float32, most float32) int32 {
	half := b.half[m*b.size : (m+1)*b.size]
	best, at := dots[0]-half[0], 0
	for j := 1; j < len(half); j++ {
		if v := dots[j*kernels.PanelCols] - half[j]; v > best {
			best, at = v, j
		}
	}
	near := best - 2e-5*(kernels.Dot(x, x)+2*most) // what rounding may hide
	least, w := -1.0, b.width()
	for j := range half {
		if !(dots[j*kernels.PanelCols]-half[j] >= near) {
			continue
		}
		sum := b.distance((m*b.size+j)*w, x)
		if least < 0 || sum < least {
			least, at = sum, j
		}
	}
	return int32(at)
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
		b.assign(m, keys, n, nearest)
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
