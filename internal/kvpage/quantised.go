package kvpage

import (
	"encoding/binary"
	"math"
)

// scaleI8 is the float16 scale of a group with the given largest magnitude, and the factor that turns numbers to codes.
// The scale is rounded up if rounding to float16 made the largest number's code exceed 127.
func scaleI8(maxAbs float32) (bits uint16, inverse float32) {
	bits = toF16(maxAbs / 127)
	s := fromF16(bits)
	if s == 0 || math.IsInf(float64(s), 0) {
		return bits, 0
	}
	return bits, 1 / s
}

// rounder is 1.5·2^23: adding it to a float32 below 2^22 in magnitude leaves the nearest integer, ties to even, in the
// sum's low bits.
const rounder = 12582912

func codeI8(f, inverse float32) byte {
	x := f * inverse
	if x > 127 {
		x = 127
	}
	if x < -127 {
		x = -127
	}
	return byte(math.Float32bits(x + rounder))
}

// scaleI4 is the float16 scale and minimum of a group, and what turns numbers to codes: (x - low)·inverse.
func scaleI4(lo, hi float32) (scale, minimum uint16, low, inverse float32) {
	if lo == 0 {
		lo = 0 // not a negative zero, whichever came first
	}
	minimum = toF16(lo)
	low = fromF16(minimum)
	scale = toF16((hi - low) / 15)
	s := fromF16(scale)
	if s <= 0 || math.IsInf(float64(s), 0) {
		return 0, minimum, low, 0
	}
	return scale, minimum, low, 1 / s
}

func codeI4(f, low, inverse float32) byte {
	x := (f - low) * inverse
	if x > 15 {
		x = 15
	}
	if x < 0 {
		x = 0
	}
	return byte(math.Float32bits(x+rounder)) & 15
}

func putTileI8(l Layout, tile []byte, n int, k []float32, stride int) {
	codes := tile[2*l.KeyDim:]
	clear(codes)
	for d := range l.KeyDim {
		var m float32
		for at := d; at < n*stride; at += stride {
			if a := magnitude(k[at]); a > m {
				m = a
			}
		}
		bits, inv := scaleI8(m)
		binary.LittleEndian.PutUint16(tile[2*d:], bits)
		for r := range n {
			codes[d*Tile+r] = codeI8(k[r*stride+d], inv)
		}
	}
}

// magnitude is |x| by its bits.
func magnitude(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func readTileI8(l Layout, tile []byte, j int, dst []float32) {
	for d := range l.KeyDim {
		s := fromF16(binary.LittleEndian.Uint16(tile[2*d:]))
		dst[d] = s * float32(int8(tile[2*l.KeyDim+d*Tile+j]))
	}
}

// widen is the range [lo, hi] with x in it.
func widen(lo, hi, x float32) (float32, float32) {
	if x < lo {
		return x, hi
	}
	if x > hi {
		return lo, x
	}
	return lo, hi
}

func putTileI4(l Layout, tile []byte, n int, k []float32, stride int) {
	codes := tile[4*l.KeyDim:]
	for d := range l.KeyDim {
		lo, hi := k[d], k[d]
		for r := 1; r < n; r++ {
			lo, hi = widen(lo, hi, k[r*stride+d])
		}
		scale, minimum, low, inv := scaleI4(lo, hi)
		binary.LittleEndian.PutUint16(tile[2*d:], scale)
		binary.LittleEndian.PutUint16(tile[2*l.KeyDim+2*d:], minimum)
		row := codes[d*Tile/2 : (d+1)*Tile/2]
		clear(row)
		for r := range n {
			row[r%8] |= codeI4(k[r*stride+d], low, inv) << (r / 8 * 4)
		}
	}
}

func readTileI4(l Layout, tile []byte, j int, dst []float32) {
	for d := range l.KeyDim {
		s := fromF16(binary.LittleEndian.Uint16(tile[2*d:]))
		m := fromF16(binary.LittleEndian.Uint16(tile[2*l.KeyDim+2*d:]))
		c := tile[4*l.KeyDim+d*Tile/2+j%8] >> (j / 8 * 4) & 15
		dst[d] = m + s*float32(c)
	}
}

func putRowI8(l Layout, row []byte, v []float32) {
	groups := l.valueGroups()
	for g := range groups {
		part := v[g*valueGroup : min(len(v), (g+1)*valueGroup)]
		var m float32
		for _, f := range part {
			if a := magnitude(f); a > m {
				m = a
			}
		}
		bits, inv := scaleI8(m)
		binary.LittleEndian.PutUint16(row[2*g:], bits)
		for i, f := range part {
			row[2*groups+g*valueGroup+i] = codeI8(f, inv)
		}
	}
}

func readRowI8(l Layout, row []byte, dst []float32) {
	groups := l.valueGroups()
	for d := range l.ValueDim {
		s := fromF16(binary.LittleEndian.Uint16(row[2*(d/valueGroup):]))
		dst[d] = s * float32(int8(row[2*groups+d]))
	}
}

func putRowI4(l Layout, row []byte, v []float32) {
	groups := l.valueGroups()
	codes := row[4*groups:]
	clear(codes)
	for g := range groups {
		part := v[g*valueGroup : min(len(v), (g+1)*valueGroup)]
		lo, hi := part[0], part[0]
		for _, f := range part[1:] {
			lo, hi = widen(lo, hi, f)
		}
		scale, minimum, low, inv := scaleI4(lo, hi)
		binary.LittleEndian.PutUint16(row[4*g:], scale)
		binary.LittleEndian.PutUint16(row[4*g+2:], minimum)
		for i, f := range part {
			at, shift := nibble(g*valueGroup + i)
			codes[at] |= codeI4(f, low, inv) << shift
		}
	}
}

func readRowI4(l Layout, row []byte, dst []float32) {
	groups := l.valueGroups()
	for d := range l.ValueDim {
		s := fromF16(binary.LittleEndian.Uint16(row[4*(d/valueGroup):]))
		m := fromF16(binary.LittleEndian.Uint16(row[4*(d/valueGroup)+2:]))
		at, shift := nibble(d)
		dst[d] = m + s*float32(row[4*groups+at]>>shift&15)
	}
}

// nibble is the byte and the shift of dimension d of an int4 value: 32 dimensions in 16 bytes, the first 16 in the low
// halves.
func nibble(d int) (at, shift int) { return d/32*16 + d%16, d % 32 / 16 * 4 }
