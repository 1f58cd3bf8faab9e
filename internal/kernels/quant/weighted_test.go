package quant

import (
	"bytes"
	"errors"
	"math"
	"os"
	"testing"
)

// weightedRows are three rows of 512 values, a super-block of them zero, and 512 weights; testdata/ggml_weighted.bin was made of the
// same numbers (the recipe is in Python as short as here).
func weightedRows() (x, w []float32) {
	hash := func(i int) uint32 {
		h := uint32(i)*2654435761 + 12345
		h ^= h >> 15
		h *= 2246822519
		return h ^ h>>13
	}
	u := func(i int) float64 { return float64(hash(i)>>8) / (1 << 24) }
	for i := range 3 * 512 {
		size := 0.1
		if hash(i)%50 == 0 {
			size = 0.4
		}
		if i >= 768 && i < 1024 {
			size = 0
		}
		x = append(x, float32((u(i)+u(i+100000)-1)*size))
	}
	for i := range 512 {
		w = append(w, float32(0.001+8*math.Pow(u(i+200000), 4)))
	}
	return x, w
}

// weightedSquares is the squared error with each column's weight.
func weightedSquares(x, y, w []float32) (sum float64) {
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += float64(w[i%len(w)]) * d * d
	}
	return sum
}

// What ggml 0.13.1 makes of the same rows (ggml_quantize_chunk of the library in the wheel pywhispercpp 1.5.1, called through ctypes;
// ten types with weights, then the three without that no other golden has). On amd64 the blocks are the same to the bit; where the
// compiler fuses multiplications and additions a close decision may fall otherwise.
func TestWeightedAsGGML(t *testing.T) {
	golden, err := os.ReadFile("testdata/ggml_weighted.bin")
	if err != nil {
		t.Fatal(err)
	}
	x, w := weightedRows()
	cases := []struct {
		kind    Type
		weights []float32
	}{{Q4_0, w}, {Q4_1, w}, {Q5_0, w}, {Q5_1, w}, {Q3_K, w}, {Q4_K, w}, {Q5_K, w}, {Q6_K, w}, {IQ4_NL, w}, {IQ4_XS, w}, {Q3_K, nil}, {IQ4_NL, nil}, {IQ4_XS, nil}}
	for _, c := range cases {
		row := c.kind.RowBytes(512)
		theirs, ours := golden[:3*row], make([]byte, 3*row)
		golden = golden[3*row:]
		for r := range 3 {
			if err := QuantizeWeighted(c.kind, ours[r*row:(r+1)*row], x[r*512:(r+1)*512], c.weights); err != nil {
				t.Fatal(err)
			}
		}
		a, b := make([]float32, len(x)), make([]float32, len(x))
		Dequantize(c.kind, a, ours)
		Dequantize(c.kind, b, theirs)
		equal := 0
		for i := range a {
			if math.Float32bits(a[i]) == math.Float32bits(b[i]) || a[i] == 0 && b[i] == 0 {
				equal++
			}
		}
		ours2, theirs2 := weightedSquares(x, a, w), weightedSquares(x, b, w)
		t.Logf("%s, weights %t: %d of %d values equal, bytes equal: %t", c.kind, c.weights != nil, equal, len(a), bytes.Equal(ours, theirs))
		if float64(equal) < 0.999*float64(len(a)) || ours2 > 1.001*theirs2 {
			t.Errorf("%s, weights %t: %d of %d values equal, weighted error %g, ggml's %g", c.kind, c.weights != nil, equal, len(a), ours2, theirs2)
		}
	}
	if len(golden) != 0 {
		t.Errorf("%d bytes of the golden left over", len(golden))
	}
}

// The purpose of the weights: a smaller weighted error than without, for every type that takes them.
func TestWeightsHelp(t *testing.T) {
	x, w := weightedRows()
	for kind, f := range formats {
		if f.weighted == nil {
			continue
		}
		kind := Type(kind)
		var misses [2]float64
		for i, weights := range [][]float32{nil, w} {
			got, row := make([]float32, len(x)), kind.RowBytes(512)
			for r := range 3 {
				b := make([]byte, row)
				if err := QuantizeWeighted(kind, b, x[r*512:(r+1)*512], weights); err != nil {
					t.Fatal(err)
				}
				Dequantize(kind, got[r*512:(r+1)*512], b)
			}
			misses[i] = weightedSquares(x, got, w)
		}
		if !(misses[1] < misses[0]) {
			t.Errorf("%s: weighted error %g with weights, %g without", kind, misses[1], misses[0])
		}
	}
}

// The level of every float between the table's ends, and beyond, against a walk through the table (best_index_int8's rule).
func TestNearestInTable(t *testing.T) {
	for i := -140 * 64; i <= 130*64; i++ {
		for _, x := range []float32{float32(i) / 64, math.Nextafter32(float32(i)/64, -1000), math.Nextafter32(float32(i)/64, 1000)} {
			want := 0
			for l := 1; l < len(iq4Values); l++ {
				if !(x-iq4Values[l-1] < iq4Values[l]-x) && x > iq4Values[0] {
					want = l
				}
			}
			if got := nearestInTable(x); int(got) != want {
				t.Fatalf("%g: level %d, want %d", x, got, want)
			}
		}
	}
}

func TestQuantizeWeightedRefusals(t *testing.T) {
	x, w := weightedRows()
	if err := QuantizeWeighted(Q4_K, make([]byte, 288), x[:512], w[:511]); !errors.Is(err, ErrLength) {
		t.Errorf("a weight too few: %v", err)
	}
	if err := QuantizeWeighted(Q2_K, make([]byte, 168), x[:512], w); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Q2_K: %v", err)
	}
	a, b := make([]byte, Q8_0.RowBytes(512)), make([]byte, Q8_0.RowBytes(512))
	if err := errors.Join(QuantizeWeighted(Q8_0, a, x[:512], w), Quantize(Q8_0, b, x[:512])); err != nil || !bytes.Equal(a, b) {
		t.Errorf("Q8_0 has no use for weights: %v", err)
	}
	bad := append([]float32(nil), x[:512]...)
	bad[300] = float32(math.Inf(1))
	for kind, f := range formats {
		if f.weighted == nil {
			continue
		}
		dst := make([]byte, Type(kind).RowBytes(512))
		if err := QuantizeWeighted(Type(kind), dst, bad, w); err != nil || CheckFinite(Type(kind), dst) < 0 {
			t.Errorf("%s takes infinity: %v", Type(kind), err)
		}
	}
}
