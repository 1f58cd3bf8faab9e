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
	kept     []float32
	codebook codebook
	tokens   int
	data     [][]byte // tiles in memory: those behind the ones in below
	below    Stream   // takes every tile but the last; nil = all stay
	at       []int32  // where those begin
	order    []int32  // [dim]: which number of a vector stands at a place of the parts; nil = the same

	productForm
	productScratch
}

// productForm is how vectors are coded.
type productForm struct {
	dim, parts, bits, iters int
	packed                  bool // two codes a byte
	first                   int  // tokens at the start whose vectors are kept as they are, for scores
	always                  bool // fewer keys than centroids have some too
	arrange                 bool // numbers that vary much share a part with ones that vary little
}

// productScratch is what a step works in.
type productScratch struct {
	turned []float32
	table  []float32
	sums   []float32 // of weights, by code
}

// storedCodeTiles is how many tiles of codes are read from the lower tier at a time.
const storedCodeTiles = storedTiles

// NewProduct returns an empty one for keys of dim numbers, parts a divisor of dim.
func NewProduct(dim, parts, bits, iters int) *Product {
	return &Product{productForm: productForm{dim: dim, parts: parts, bits: bits, iters: iters, packed: codesPacked(parts, bits)}}
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
	p.codebook, p.order = codebook{}, nil
	if n <= 1<<p.bits && !p.always || n == 0 {
		return
	}
	if p.arrange {
		p.order = balanced(keys, n, p.dim, p.parts)
	}
	p.codebook = trainCodebook(keys, n, p.dim, p.parts, 1<<p.bits, p.iters, p.order)
}

// arranged are queries [rows, dim] in the order of the parts.
func (p *Product) arranged(q []float32, rows int) []float32 {
	if p.order == nil {
		return q
	}
	p.turned = sized(p.turned, rows*p.dim)
	for i := range rows {
		row := q[i*p.dim : (i+1)*p.dim]
		for at, d := range p.order {
			p.turned[i*p.dim+at] = row[d]
		}
	}
	return p.turned
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
		p.putCode(p.tokens, codes[i*p.parts:(i+1)*p.parts])
		if p.tokens < p.first {
			p.kept = append(p.kept, keys[i*p.dim:(i+1)*p.dim]...)
		}
		p.tokens++
	}
}

// PutAt makes keys [n, dim] the tokens at[i], in place of what was there; those between that have no key yet have code 0.
func (p *Product) PutAt(at []int32, keys []float32) {
	codes := p.codebook.encode(keys, len(at))
	for i, token := range at {
		for ; p.tokens <= int(token); p.tokens++ {
			p.tile(p.tokens)
		}
		p.putCode(int(token), codes[i*p.parts:(i+1)*p.parts])
	}
}

// putCode writes the codes [parts] of token i, at most one past the last.
func (p *Product) putCode(i int, codes []byte) {
	tile, at := p.tile(i)
	for m, code := range codes {
		switch {
		case !p.packed:
			tile[m*kvpage.Tile+at] = code
		case m%2 == 0:
			tile[m/2*kvpage.Tile+at] = code
		default:
			tile[m/2*kvpage.Tile+at] |= code << 4
		}
	}
}

// Centroids are [parts][2^bits][dim/parts]; none before Train.
func (p *Product) Centroids() []float32 { return p.codebook.round }

// tile makes place for token i, one past the last at most.
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
	p.table = p.codebook.tables(p.table, p.arranged(q, rows), rows)
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
