package quant

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestErrorBudget bounds the relative root-mean-square error of each type on Gaussian values, about 10 % above what ggml's
// quantisers reach, so that a worse search does not pass.
func TestErrorBudget(t *testing.T) {
	budget := map[Type]float64{
		F32: 0, F16: 2.2e-4, BF16: 1.8e-3, Q8_0: 0.0062, Q4_0: 0.095, Q4_1: 0.079, Q5_0: 0.048, Q5_1: 0.039,
		Q3_K: 0.16, Q4_K: 0.073, Q5_K: 0.037, Q6_K: 0.019, IQ4_NL: 0.083, IQ4_XS: 0.083,
	}
	src := normals(1 << 16)
	for _, kind := range Types() {
		limit, ok := budget[kind]
		if ok != kind.Writable() {
			t.Errorf("%s: writable %v, but budget given %v", kind, kind.Writable(), ok)
		}
		if !ok {
			continue
		}
		dst, back := make([]byte, kind.RowBytes(len(src))), make([]float32, len(src))
		if err := Quantize(kind, dst, src); err != nil {
			t.Fatal(err)
		}
		Dequantize(kind, back, dst)
		zero := make([]float32, len(src))
		got := math.Sqrt(squaredError(src, back) / squaredError(src, zero))
		t.Logf("%-5s %.5f (budget %.5f)", kind, got, limit)
		if got > limit || limit > 0 && got < limit/2 {
			t.Errorf("%s: relative error %.5f, budget %.5f", kind, got, limit)
		}
	}
}

// TestOddBlocks quantises what searches stumble over: zeros, one value, equal values, tiny and large ones, outliers. The
// error of a value stays within what one step of its block's range explains.
func TestOddBlocks(t *testing.T) {
	blocks := map[string]func(i int) float32{
		"zero":      func(int) float32 { return 0 },
		"ones":      func(int) float32 { return 1 },
		"minus":     func(int) float32 { return -3 },
		"tiny":      func(i int) float32 { return float32(i%7-3) * 1e-12 },
		"large":     func(i int) float32 { return float32(i%7-3) * 1e4 },
		"outlier":   func(i int) float32 { return map[bool]float32{true: 100, false: 0.01}[i == 77] },
		"ramp":      func(i int) float32 { return float32(i) / 256 },
		"negatives": func(i int) float32 { return -float32(i) / 256 },
	}
	for name, value := range blocks {
		src := make([]float32, superBlock)
		low, high := float32(0), float32(0)
		for i := range src {
			src[i] = value(i)
			low, high = min(low, src[i]), max(high, src[i])
		}
		for _, kind := range Types() {
			if !kind.Writable() {
				continue
			}
			dst, back := make([]byte, kind.RowBytes(len(src))), make([]float32, len(src))
			if err := Quantize(kind, dst, src); err != nil {
				t.Fatal(err)
			}
			if CheckFinite(kind, dst) >= 0 {
				t.Errorf("%s %s: not finite", name, kind)
			}
			Dequantize(kind, back, dst)
			for i := range src {
				if d := math.Abs(float64(back[i] - src[i])); d > float64(high-low)/7+1e-7 {
					t.Errorf("%s %s: value %d is %g, want %g", name, kind, i, back[i], src[i])
					break
				}
			}
		}
	}
}

// TestCheckFinite plants NaN and both infinities at every place of a short tensor; largest finite values pass.
func TestCheckFinite(t *testing.T) {
	patterns := map[Type][]uint64{ // quiet and signalling NaN, ±Inf
		F32:  {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f800000, 0xff800000},
		F16:  {0x7e00, 0xfe00, 0x7c01, 0x7c00, 0xfc00},
		BF16: {0x7fc0, 0xffc0, 0x7f81, 0x7f80, 0xff80},
	}
	largest := map[Type]uint64{F32: 0xff7fffff, F16: 0xfbff, BF16: 0xff7f}
	for kind, bad := range patterns {
		size := kind.BlockBytes()
		put := func(b []byte, i int, bits uint64) {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], bits)
			copy(b[i*size:(i+1)*size], word[:])
		}
		for _, n := range []int{1, 3, 31, 32, 33, 100} {
			b := make([]byte, n*size)
			for i := range n {
				put(b, i, largest[kind])
			}
			if got := CheckFinite(kind, b); got != -1 {
				t.Errorf("%s: largest values: %d", kind, got)
			}
			for i := range n {
				for _, bits := range bad {
					put(b, i, bits)
					if got := CheckFinite(kind, b); got != i {
						t.Fatalf("%s: %#x at %d of %d: got %d", kind, bits, i, n, got)
					}
				}
				put(b, i, largest[kind])
			}
		}
	}
}

// TestCheckFiniteScales plants NaN and Inf in every scale of each block type and nowhere else finds any.
func TestCheckFiniteScales(t *testing.T) {
	scales := map[Type][]int{ // byte offsets of the f16 numbers in a block
		Q8_0: {0}, Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2}, Q5_K: {0, 2},
		Q6_K: {208}, IQ4_NL: {0}, IQ4_XS: {0}, IQ1_S: {0}, IQ2_XXS: {0}, IQ2_XS: {0}, IQ2_S: {0}, IQ3_XXS: {0}, IQ3_S: {0}, TQ1_0: {52}, TQ2_0: {64},
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for kind, offsets := range scales {
		b := make([]byte, 11*kind.BlockBytes())
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for block := range 11 {
			for _, at := range offsets {
				binary.LittleEndian.PutUint16(b[block*kind.BlockBytes()+at:], 0xfbff)
			}
		}
		if got := CheckFinite(kind, b); got != -1 {
			t.Errorf("%s: random levels with finite scales: %d", kind, got)
		}
		for block := range 11 {
			for _, at := range offsets {
				for _, bits := range []uint16{0x7c00, 0xfc00, 0x7e00, 0xffff} {
					p := b[block*kind.BlockBytes()+at:]
					binary.LittleEndian.PutUint16(p, bits)
					if got := CheckFinite(kind, b); got != block*kind.BlockLen() {
						t.Errorf("%s: %#x in block %d at %d: got %d", kind, bits, block, at, got)
					}
					binary.LittleEndian.PutUint16(p, 0x3c00)
				}
			}
		}
	}
}

// TestNotFiniteIsNotHidden: quantising NaN or Inf gives blocks that are refused.
func TestNotFiniteIsNotHidden(t *testing.T) {
	for _, kind := range Types() {
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, at := range []int{0, 300, 511} {
				src := normals(512)
				src[at] = float32(x)
				dst := make([]byte, kind.RowBytes(512))
				if !kind.Writable() {
					continue
				}
				if err := Quantize(kind, dst, src); err != nil {
					t.Fatal(err)
				}
				if got, block := CheckFinite(kind, dst), at/kind.BlockLen()*kind.BlockLen(); got != block {
					t.Errorf("%s: %g at %d is found at %d, want %d", kind, x, at, got, block)
				}
			}
		}
	}
}

// slowMXFP4 decodes a block by the text of the OCP Microscaling specification 1.0: scale 2^(e-127); elements sign, two bits of
// exponent with bias 1, one bit of mantissa, subnormal at exponent 0. It shares nothing with the package.
func slowMXFP4(block []byte) [32]float64 {
	var out [32]float64
	scale := math.Pow(2, float64(block[0])-127)
	for i := range out {
		code := block[1+i%16] >> (i / 16 * 4) & 15
		sign, exponent, mantissa := code>>3, code>>1&3, float64(code&1)
		value := (1 + mantissa/2) * math.Pow(2, float64(exponent)-1)
		if exponent == 0 {
			value = mantissa / 2
		}
		if sign == 1 {
			value = -value
		}
		out[i] = value * scale
	}
	return out
}

// TestMXFP4 compares with the slow reference (no golden exists): every scale, every code in every place.
func TestMXFP4(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for e := range 255 {
		block := make([]byte, 17)
		block[0] = byte(e)
		for i := range 16 {
			block[1+i] = byte(rng.Uint32())
		}
		got := make([]float32, 32)
		Dequantize(MXFP4, got, block)
		for i, want := range slowMXFP4(block) {
			if float64(got[i]) != want && math.Abs(want) <= math.MaxFloat32 {
				t.Fatalf("scale %d, value %d: %g, want %g", e, i, got[i], want)
			}
		}
		if at := CheckFinite(MXFP4, append(make([]byte, 17), block...)); at != -1 {
			t.Errorf("scale %d: not finite at %d", e, at)
		}
	}
	if at := CheckFinite(MXFP4, append(make([]byte, 17), append([]byte{255}, make([]byte, 16)...)...)); at != 32 {
		t.Errorf("NaN scale in block 1: %d, want 32", at)
	}
	if x := e8m0Half(255); x == x {
		t.Errorf("scale code 255 is %g, want NaN", x)
	}
}

func TestTypes(t *testing.T) {
	for _, kind := range Types() {
		got, err := ParseType(strings.ToLower(kind.String()))
		if err != nil || got != kind || kind.RowBytes(superBlock) != superBlock/kind.BlockLen()*kind.BlockBytes() {
			t.Errorf("%s: parsed as %s, %v", kind, got, err)
		}
	}
	if len(Types()) != 28 {
		t.Errorf("%d types, want 28", len(Types()))
	}
	if _, err := ParseType("Q9"); !errors.Is(err, ErrUnknownType) || !strings.Contains(err.Error(), "MXFP4") {
		t.Errorf("Q9: %v", err)
	}
	for _, kind := range []Type{4, 5, 9, 99, math.MaxUint32} {
		if kind.Known() || kind.Writable() || kind.BlockLen() != 0 || kind.BlockBytes() != 0 || !strings.HasPrefix(kind.String(), "type ") {
			t.Errorf("%s is known", kind)
		}
	}
}

func TestMisuse(t *testing.T) {
	if err := Quantize(Q2_K, make([]byte, 84), make([]float32, 256)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("Q2_K: %v", err)
	}
	for _, n := range []int{31, 64} {
		if err := Quantize(Q8_0, make([]byte, 34), make([]float32, n)); !errors.Is(err, ErrLength) {
			t.Errorf("%d values to one block: %v", n, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a source that is too short did not panic")
		}
	}()
	Dequantize(Q8_0, make([]float32, 64), make([]byte, 34))
}
