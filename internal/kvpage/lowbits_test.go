package kvpage

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/x448/float16"
)

// What codes of keys and of values stand for, as the format says.
var (
	keySteps    = map[Elem][]float64{I3: {0, 1, 2, 3, 4, 5, 6, 7}, I2: {0, 1, 2, 3}}
	valueLevels = map[Elem][]float64{I3: {0, 24, 41, 56, 71, 86, 103, 127}, I2: {0, 44, 83, 127}}
)

// bestLine is the smallest sum of squared errors that a scale and a minimum reach with some levels, looked for on a grid; fixed minima are those
// of values.
func bestLine(levels, x []float64, fixed bool) float64 {
	lo, hi, top := slices.Min(x), slices.Max(x), levels[len(levels)-1]
	best := math.Inf(1)
	for i := range 30 {
		scale := (hi - lo) / top * (0.3 + float64(i)*0.03)
		lows := []float64{-63.5 * scale}
		if fixed {
			scale = max(hi, -lo) / 63.5 * (0.3 + float64(i)*0.03)
			lows[0] = -63.5 * scale
		} else {
			lows = lows[:0]
			for j := range 30 {
				lows = append(lows, lo+(hi-lo)*(float64(j)/40-0.2))
			}
		}
		for _, low := range lows {
			sum := 0.0
			for _, v := range x {
				near := math.Inf(1)
				for _, l := range levels {
					near = min(near, math.Abs(low+scale*l-v))
				}
				sum += near * near
			}
			best = min(best, sum)
		}
	}
	return best
}

// TestLowBitsAreNearTheBest: scales and minima leave at most two fifths more squared error than the best of a grid for keys (whose extremes are hardly cut off) that are normal numbers,
// far from zero, uniform, lopsided and with a token far from all others, which is exact; and a fifth for normal values.
func TestLowBitsAreNearTheBest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	shapes := map[string]func() float64{
		"normal":   rnd.NormFloat64,
		"far":      func() float64 { return 40 + rnd.NormFloat64() },
		"uniform":  rnd.Float64,
		"lopsided": rnd.ExpFloat64,
		"sink":     rnd.NormFloat64,
	}
	for _, e := range []Elem{I3, I2} {
		l := Layout{K: e, V: e, KeyDim: 1, ValueDim: 64, Tokens: 128}
		for name, next := range shapes {
			got, want := [2]float64{}, [2]float64{}
			for range 6 {
				k, v := make([]float32, 128), make([]float32, 64)
				for i := range k {
					k[i] = float32(next())
				}
				if name == "sink" {
					k[77] = 300
				}
				for i := range v {
					v[i] = float32(rnd.NormFloat64())
				}
				page := make([]byte, l.PageBytes())
				PutGroupK(l, page, 0, 128, k, 1, Farthest)
				PutV(l, page, 3, v)
				keys, values := make([]float32, 128), make([]float32, 64)
				for i := range keys {
					ReadK(l, page, i, keys[i:i+1])
				}
				ReadV(l, page, 3, values)
				lone := int(binary.LittleEndian.Uint16(page[6:]))
				if name == "sink" && lone != 77 || math.Abs(float64(keys[lone]-k[lone])) > 0.02 {
					t.Fatalf("%v: key %d of %v reads as %v, which is not exact", e, lone, k[lone], keys[lone])
				}
				k[lone], keys[lone] = k[(lone+1)%128], keys[(lone+1)%128]
				got[0] += squaredError(keys, k)
				want[0] += bestLine(keySteps[e], wide(k), false)
				got[1] += squaredError(values, v)
				want[1] += bestLine(valueLevels[e], wide(v), true)
			}
			for i, what := range []string{"keys", "values"} {
				if got[i] > want[i]*[]float64{1.4, 1.2}[i] {
					t.Errorf("%v %s, %s: squared error %.4g, the best of a grid has %.4g", e, what, name, got[i], want[i])
				}
			}
		}
	}
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, f := range x {
		out[i] = float64(f)
	}
	return out
}

func squaredError(got, want []float32) (sum float64) {
	for i := range got {
		d := float64(got[i] - want[i])
		sum += d * d
	}
	return sum
}

// TestLowBitPlaces reads pages of int3 and int2 bit by bit, as the package comment describes them, and finds the nearest levels there.
func TestLowBitPlaces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 1))
	half := func(b []byte) float64 { return float64(float16.Frombits(binary.LittleEndian.Uint16(b)).Float32()) }
	for _, e := range []Elem{I3, I2} {
		for _, dim := range []int{64, 40, 80, 7, 256, 96} {
			l := Layout{K: e, V: e, KeyDim: dim, ValueDim: dim, Tokens: 256}
			k, v := randomFloats(rnd, 256*dim), randomFloats(rnd, 256*dim)
			page := make([]byte, l.PageBytes())
			for i := range page {
				page[i] = byte(rnd.Uint32())
			}
			Append(l, page, 0, 256, k, dim, v, dim)
			blocks := (dim + 15) / 16
			tile, group := blocks*32*e.Bits(), 6*dim+2+8*blocks*32*e.Bits()
			for token := range 256 {
				b := page[token/128*group:]
				codes, lone := b[6*dim+2+token%128/16*tile:], int(binary.LittleEndian.Uint16(b[6*dim:])) == token%128
				for d := range dim {
					if lone {
						if x := half(b[4*dim+2*d:]); math.Abs(x-float64(k[token*dim+d])) > math.Abs(x)/2000 {
							t.Fatalf("the lone key has %v, want %v", x, k[token*dim+d])
						}
						continue
					}
					block, at := codes[d/16*32*e.Bits():], token%8*4+d%2*2+token%16/8
					code := block[d%16/8*32+at] >> (d % 8 / 2 * 2) & 3
					if e == I3 {
						code |= block[64+at] >> (d % 16 / 2) & 1 << 2
					}
					checkNearest(t, keySteps[e], float64(k[token*dim+d]), half(b[2*d:]), half(b[2*dim+2*d:]), int(code))
				}
				row := page[2*group+token*l.VRowBytes():]
				for d := range dim {
					if d > 0 && d%64 == 0 {
						row = row[2+8*e.Bits():]
					}
					m, i := min(64, dim-d/64*64), d%64
					words := (m + 7) / 8
					word, byteOf, turn, third := i%words, i/words%2, i/words/2, (words+1)/2
					code := row[2+2*word+byteOf] >> (2 * turn) & 3
					if e == I3 {
						code |= row[2+2*words+word%third*2+byteOf] >> (turn + word/third*4) & 1 << 2
					}
					s := half(row)
					checkNearest(t, valueLevels[e], float64(v[token*dim+d]), s, -63.5*s, int(code))
				}
			}
		}
	}
}

func checkNearest(t *testing.T, levels []float64, x, scale, minimum float64, code int) {
	t.Helper()
	got := math.Abs(minimum + scale*levels[code] - x)
	for _, l := range levels {
		if d := math.Abs(minimum + scale*l - x); d < got-1e-4 {
			t.Fatalf("%v has code %d, off by %v; another is off by %v", x, code, got, d)
		}
	}
}

// TestLowKeysShareScales: a tile is given with its group's scales before it and its codes last, and only pages of whole groups are laid out.
func TestLowKeysShareScales(t *testing.T) {
	l := Layout{K: I3, V: I2, KeyDim: 32, ValueDim: 32, Tokens: 256}
	page := make([]byte, l.PageBytes())
	for i := range page {
		page[i] = byte(i % 251)
	}
	scales, codes := 6*32+2, 2*96
	group := scales + 8*codes
	for i := range l.Tiles() {
		tile := l.KTile(page, i)
		from := i / 8 * group
		if len(tile) != scales+(i%8+1)*codes || &tile[0] != &page[from] || cap(tile) != len(tile) {
			t.Errorf("tile %d: %d bytes of room %d, want %d from byte %d on", i, len(tile), cap(tile), scales+(i%8+1)*codes, from)
		}
	}
	if got := fmt.Sprint(l.KBytes(), l.KTileBytes(), l.PageBytes()); got != fmt.Sprint(2*group, scales+codes, 2*group+256*10) {
		t.Error("sizes", got)
	}
}
