package keyindex

import (
	"encoding/binary"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// Rounded is a 4-bit copy of one layer and KV head's keys from which single tokens are read (Twilight): 16 steps between the
// smallest and the largest number of each key. A token's record is its step, its smallest number, and dim nibbles.
type Rounded struct {
	dim    int
	data   []byte // [tokens][recordBytes]
	key    []float32
	totals []float32 // sums of the queries' numbers
}

// recordBytes is the size of a token's record.
func (r *Rounded) recordBytes() int { return 8 + (r.dim+1)/2 }

// Bytes is the memory of the copy.
func (r *Rounded) Bytes() int64 { return int64(cap(r.data)) }

// Reset forgets every token.
func (r *Rounded) Reset() { r.data = r.data[:0] }

// Put adds keys [n, dim] behind the others.
func (r *Rounded) Put(keys []float32, n int) {
	for i := range n {
		key := keys[i*r.dim : (i+1)*r.dim]
		low, high := float64(slices.Min(key)), float64(slices.Max(key))
		step := max(high-low, 1e-9) / 15
		r.data = binary.LittleEndian.AppendUint32(r.data, math.Float32bits(float32(step)))
		r.data = binary.LittleEndian.AppendUint32(r.data, math.Float32bits(float32(low)))
		for d := 0; d < r.dim; d += 2 {
			b := nibble(key[d], low, step)
			if d+1 < r.dim {
				b |= nibble(key[d+1], low, step) << 4
			}
			r.data = append(r.data, b)
		}
	}
}

func nibble(x float32, low, step float64) byte {
	return byte(max(0, min(15, math.RoundToEven((float64(x)-low)/step))))
}

// nibbles are both numbers of a byte, as float32.
var nibbles = func() (t [256][2]float32) {
	for b := range t {
		t[b] = [2]float32{float32(b & 15), float32(b >> 4)}
	}
	return t
}()

// Score writes q·key of the tokens listed to dst [rows][len(tokens)] for q [rows, dim].
func (r *Rounded) Score(dst []float32, tokens []int32, q []float32, rows int) {
	size := r.recordBytes()
	r.key, r.totals = sized(r.key, r.dim+1), sized(r.totals, rows)
	for h := range rows {
		r.totals[h] = 0
		for _, x := range q[h*r.dim : (h+1)*r.dim] {
			r.totals[h] += x
		}
	}
	for i, t := range tokens {
		record := r.data[int(t)*size:][:size]
		step, low := math.Float32frombits(binary.LittleEndian.Uint32(record)), math.Float32frombits(binary.LittleEndian.Uint32(record[4:]))
		for j, b := range record[8:] {
			*(*[2]float32)(r.key[2*j:]) = nibbles[b]
		}
		for h := range rows {
			dst[h*len(tokens)+i] = step*kernels.Dot(q[h*r.dim:(h+1)*r.dim], r.key[:r.dim]) + low*r.totals[h]
		}
	}
}
