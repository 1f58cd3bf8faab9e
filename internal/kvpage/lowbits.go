package kvpage

import (
	"encoding/binary"
	"math"
)

// lowGroup is how many tokens share a scale and a minimum a channel in keys of I3 and I2.
const lowGroup = 128

// Of I3 and I2 a block of keys is 16 dimensions of a tile: a plane of two bits a code, of I3 also one of the third bits.
const (
	lowBlock   = 16
	planeBytes = 32 // of two bits of 8 dimensions, or of one bit of 16, of 16 tokens
)

// levels are what codes of I3 and I2 stand for in values, in units of the scale: Lloyd and Max's levels of a normal distribution (Max, 1960) in whole
// numbers of 0 to 127, so that a byte holds one.
var levels = [...][]float32{I3: {0, 24, 41, 56, 71, 86, 103, 127}, I2: {0, 44, 83, 127}}

// levelMean is the middle of the levels: a value's zero.
const levelMean = 63.5

// borders are the middles between levels that follow each other: a number's code is how many it reaches.
var borders = [...][]float32{I3: middles(levels[I3]), I2: middles(levels[I2])}

func middles(l []float32) []float32 {
	var m []float32
	for i := 1; i < len(l); i++ {
		m = append(m, (l[i-1]+l[i])/2)
	}
	return m
}

// low says that codes are levels of I3 or I2.
func (e Elem) low() bool { return e == I3 || e == I2 }

// keyPlace is where the code of dimension d of token j lies among a tile's codes: its two low bits in byte two from bit shift on, its third
// one in byte one, bit.
func (e Elem) keyPlace(d, j int) (two, shift, one, bit int) {
	block := d / lowBlock * lowBlock * Tile * e.Bits() / 8
	in := 4*(j%8) + 2*(d%2) + j/8
	return block + d%lowBlock/8*planeBytes + in, d % 8 / 2 * 2, block + 2*planeBytes + in, d % lowBlock / 2
}

// valuePlace is the same of dimension d of a group of m dimensions of a value.
func valuePlace(m, d int) (two, shift, one, bit int) {
	w := lowWords(m)
	k, half, i := d%w, d/w%2, d/(2*w)
	quarter := (w + 1) / 2
	return 2*k + half, 2 * i, 2*w + 2*(k%quarter) + half, i + 4*(k/quarter)
}

// lowWords is how many 16-bit words hold two bits of each of m codes of a value.
func lowWords(m int) int { return (m + 7) / 8 }

// lowKeyCodes is the size of a tile's codes.
func (e Elem) lowKeyCodes(dim int) int {
	return (dim + lowBlock - 1) / lowBlock * lowBlock * Tile * e.Bits() / 8
}

// lowValueCodes is the size of the codes of a group of m dimensions of a value.
func (e Elem) lowValueCodes(m int) int {
	w := lowWords(m)
	if e == I3 {
		return 2*w + (w+1)/2*2
	}
	return 2 * w
}

// lowRow is the size of a value.
func (e Elem) lowRow(dim int) int {
	n := dim / valueGroup * (2 + e.lowValueCodes(valueGroup))
	if rest := dim % valueGroup; rest > 0 {
		n += 2 + e.lowValueCodes(rest)
	}
	return n
}

// putLow writes a code whose bits are clear.
func (e Elem) putLow(b []byte, code byte, two, shift, one, bit int) {
	b[two] |= code & 3 << shift
	if e == I3 {
		b[one] |= code >> 2 << bit
	}
}

// lowCode is the code at a place.
func (e Elem) lowCode(b []byte, two, shift, one, bit int) byte {
	code := b[two] >> shift & 3
	if e == I3 {
		code |= b[one] >> bit & 1 << 2
	}
	return code
}

// fits is how often scales are fitted to the levels that numbers were rounded to.
const fits = 2

// unitDeviation is the deviation of the normal distribution that the levels belong to, in their units.
var unitDeviation = [...]float32{I3: levelMean / 2.152, I2: levelMean / 1.510}

// maxF16 is the largest float16.
const maxF16 = 65504

// levelled is the code of a number in units of the scale: how many borders, less base, it reaches.
func levelled(e Elem, x, base float32) (code byte) {
	for _, at := range borders[e] {
		if x >= at-base {
			code++
		}
	}
	return code
}

// usable says that levels can be so far apart.
func usable(s float32) bool { return s > 0 && s <= math.MaxFloat32 }

// inverseOf is 1 over a float16 scale; 0 where that is none.
func inverseOf(scale uint16) float32 {
	if s := fromF16(scale); s > 0 {
		return 1 / s
	}
	return 0
}

// within is x between the largest float16 and its opposite; NaN is that.
func within(x float32) float32 {
	if !(x > -maxF16) {
		x = -maxF16
	}
	if !(x < maxF16) {
		x = maxF16
	}
	if x == 0 {
		x = 0 // not a negative zero
	}
	return x
}

// topCode is the largest code of keys of I3 or I2.
func (e Elem) topCode() float32 { return float32(int(1)<<e.Bits() - 1) }

// stepped is the code of a number in units of the scale, as a float32 and with the integer in its low bits.
func stepped(x, top float32) (code, bits float32) {
	if x > top {
		x = top
	}
	if x < 0 {
		x = 0
	}
	bits = x + rounder
	return bits - rounder, bits
}

// affine rounds a channel's keys to minimum + scale·code. They start as the range of the numbers; then, in turns, each number gets
// the nearest code, and the least squares line through numbers over codes gives scale and middle. Sums are in the order of the tokens, and no
// product is fused with a sum, so that kernels write the same bytes.
func affine(e Elem, x []float32, codes []byte) (scale, minimum uint16) {
	n, top := float32(len(x)), e.topCode()
	lo, hi := x[0], x[0]
	for _, f := range x[1:] {
		lo, hi = widen(lo, hi, f)
	}
	s, centre, middle := (hi-lo)/top, (lo+hi)*0.5, float32(0) // middle is from the centre on
	for range fits {
		inverse := 1 / s
		var sum, l, ll, xl float32
		for _, f := range x {
			d := f - centre
			c, _ := stepped(float32((d-middle)*inverse)+top*0.5, top)
			c -= top * 0.5
			sum, l, ll, xl = sum+d, l+c, ll+float32(c*c), xl+float32(d*c)
		}
		if det := float32(n*ll) - float32(l*l); usable(s) && det > 0 {
			s = (float32(n*xl) - float32(l*sum)) / det
			middle = (sum - float32(s*l)) / n
		}
	}
	if !usable(s) {
		s, middle = 0, 0
	}
	scale = toF16(min(s, maxF16))
	minimum = toF16(within(centre + middle - float32(s*(top*0.5))))
	low, inverse := fromF16(minimum), inverseOf(scale)
	for i, f := range x {
		_, bits := stepped(float32((f-low)*inverse), top)
		codes[i] = byte(math.Float32bits(bits)) & byte(top)
	}
	return scale, minimum
}

// Farthest has the lone key of a group be the one that lies farthest from the others.
const Farthest = -1

// SplitKeys copies the keys of n tokens, row r at k[r*stride:], to rows [n, dim], but for the lone one, whose place in a group is its own, so
// that it stretches no channel's range; it returns which that is.
func SplitKeys(rows, k []float32, stride, n, dim, lone int) int {
	if lone == Farthest {
		lone = farthest(k, stride, n, dim)
	}
	for r := range n {
		copy(rows[r*dim:(r+1)*dim], k[r*stride:])
	}
	if n > 1 { // a neighbour twice instead
		copy(rows[lone*dim:(lone+1)*dim], k[(lone+1)%n*stride:])
	}
	return lone
}

// farthest is the token whose key has the largest sum of squared distances from the channels' means, in units of their variances.
func farthest(k []float32, stride, n, dim int) (lone int) {
	var far [lowGroup]float32
	for d := range dim {
		var sum, squares float32
		for r := range n {
			sum += k[r*stride+d]
		}
		mean := sum / float32(n)
		for r := range n {
			x := k[r*stride+d] - mean
			squares += float32(x * x)
		}
		if squares == 0 {
			continue
		}
		for r := range n {
			x := k[r*stride+d] - mean
			far[r] += float32(x*x) / squares
		}
	}
	for r := range n {
		if far[r] > far[lone] {
			lone = r
		}
	}
	return lone
}

// PutLone writes the key of a group's lone token, and which token that is.
func PutLone(l Layout, group []byte, lone int, key []float32) {
	for d, f := range key[:l.KeyDim] {
		binary.LittleEndian.PutUint16(group[4*l.KeyDim+2*d:], toF16(max(-maxF16, min(maxF16, f))))
	}
	binary.LittleEndian.PutUint16(group[6*l.KeyDim:], uint16(lone))
}

// lanes are sums of every eighth number.
type lanes [8]float32

// sum is that of all, as registers are folded.
func (a *lanes) sum() float32 {
	return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
}

// linear rounds a group of a value to scale·(level - levelMean), as affine without a middle: turned values have hardly a mean.
func linear(e Elem, x []float32, codes []byte) (scale uint16) {
	var squares lanes
	for i, f := range x {
		squares[i%8] += float32(f * f)
	}
	s := float32(math.Sqrt(float64(squares.sum()/float32(len(x))))) / unitDeviation[e]
	for range fits {
		inverse := 1 / s
		var ll, xl lanes
		for i, f := range x {
			v := levels[e][levelled(e, float32(f*inverse), levelMean)] - levelMean
			ll[i%8] += float32(v * v)
			xl[i%8] += float32(f * v)
		}
		if usable(s) {
			s = xl.sum() / ll.sum() // no level is the middle
		}
	}
	if !usable(s) {
		s = 0
	}
	scale = toF16(min(s, maxF16))
	inverse := inverseOf(scale)
	for i, f := range x {
		codes[i] = levelled(e, float32(f*inverse), levelMean)
	}
	return scale
}

// putLowKeys writes the keys of n tokens to a group, whose place is b: scales, minima, the lone key and its number, then the codes of its tiles.
func putLowKeys(l Layout, b []byte, n int, k []float32, stride, lone int) {
	rows := make([]float32, n*l.KeyDim)
	lone = SplitKeys(rows, k, stride, n, l.KeyDim, lone)
	PutLone(l, b, lone, k[lone*stride:])
	var column [lowGroup]float32
	var code [lowGroup]byte
	tile := l.K.lowKeyCodes(l.KeyDim)
	codes := b[l.keyScales():]
	clear(codes)
	for d := range l.KeyDim {
		for r := range n {
			column[r] = rows[r*l.KeyDim+d]
		}
		scale, minimum := affine(l.K, column[:n], code[:])
		binary.LittleEndian.PutUint16(b[2*d:], scale)
		binary.LittleEndian.PutUint16(b[2*l.KeyDim+2*d:], minimum)
		for r := range n {
			two, shift, one, bit := l.K.keyPlace(d, r%Tile)
			l.K.putLow(codes[r/Tile*tile:], code[r], two, shift, one, bit)
		}
	}
}

// readLowKey reads token j of a tile (Layout.KTile).
func readLowKey(l Layout, tile []byte, j int, dst []float32) {
	size := l.K.lowKeyCodes(l.KeyDim)
	codes := tile[len(tile)-size:]
	if first := (len(tile) - l.keyScales() - size) / size * Tile; int(binary.LittleEndian.Uint16(tile[6*l.KeyDim:])) == first+j {
		for d := range dst {
			dst[d] = fromF16(binary.LittleEndian.Uint16(tile[4*l.KeyDim+2*d:]))
		}
		return
	}
	for d := range l.KeyDim {
		s := fromF16(binary.LittleEndian.Uint16(tile[2*d:]))
		m := fromF16(binary.LittleEndian.Uint16(tile[2*l.KeyDim+2*d:]))
		two, shift, one, bit := l.K.keyPlace(d, j)
		dst[d] = m + float32(s*float32(l.K.lowCode(codes, two, shift, one, bit)))
	}
}

// putLowRow writes a value: groups of 64 dimensions, each a scale and its codes.
func putLowRow(l Layout, row []byte, v []float32) {
	clear(row)
	var code [valueGroup]byte
	for len(v) > 0 {
		m := min(len(v), valueGroup)
		binary.LittleEndian.PutUint16(row, linear(l.V, v[:m], code[:]))
		for d := range m {
			two, shift, one, bit := valuePlace(m, d)
			l.V.putLow(row[2:], code[d], two, shift, one, bit)
		}
		row, v = row[2+l.V.lowValueCodes(m):], v[m:]
	}
}

func readLowRow(l Layout, row []byte, dst []float32) {
	for len(dst) > 0 {
		m := min(len(dst), valueGroup)
		s := fromF16(binary.LittleEndian.Uint16(row))
		for d := range m {
			two, shift, one, bit := valuePlace(m, d)
			dst[d] = float32(s * (levels[l.V][l.V.lowCode(row[2:], two, shift, one, bit)] - levelMean))
		}
		row, dst = row[2+l.V.lowValueCodes(m):], dst[m:]
	}
}
