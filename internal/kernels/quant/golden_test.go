package quant

import (
	"math"
	"strings"
	"testing"
)

// TestGoldenRows compares Dequantize with gguf-py on rows that llama.cpp quantised, for every type of the goldens.
func TestGoldenRows(t *testing.T) {
	rows := goldenRows(t, shared(t, "data", "golden", "tiny_gguf", "golden.safetensors"))
	types := map[string]bool{}
	for key, want := range rows {
		name, tensor, ok := strings.Cut(key, "/rows/")
		if !ok {
			continue
		}
		kind, cols, data := blocks(t, shared(t, "data", "golden", "tiny_gguf", "tiny-"+name+".gguf"), tensor)
		got := make([]float32, len(want))
		Dequantize(kind, got, data[:kind.RowBytes(cols)*(len(want)/cols)])
		for i, w := range want {
			if math.Abs(float64(got[i]-w)) > 1e-6*math.Abs(float64(w)) {
				t.Errorf("%s: value %d is %g, want %g", key, i, got[i], w)
				break
			}
		}
		types[kind.String()] = true
	}
	if len(types) < 15 {
		t.Errorf("only %d types were seen, want 15: %v", len(types), types)
	}
}

// TestQuantizeAsLlama quantises the F32 golden and compares with what llama.cpp made of it. The search of the K types sums in
// another order there (SIMD, fused multiply-add), so that a close decision may fall otherwise: at least 99.9 % of the values
// must be bit-equal, and the squared error within 0.1 % of llama.cpp's.
func TestQuantizeAsLlama(t *testing.T) {
	folder := []string{"data", "golden", "tiny_gguf"}
	const tensor = "blk.0.ffn_down.weight"
	_, cols, raw := blocks(t, shared(t, append(folder, "tiny-F32.gguf")...), tensor)
	src := make([]float32, len(raw)/4)
	Dequantize(F32, src, raw)
	for _, kind := range []Type{F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS} {
		t.Run(kind.String(), func(t *testing.T) {
			got, _, theirs := blocks(t, shared(t, append(folder, "tiny-"+kind.String()+".gguf")...), tensor)
			if got != kind {
				t.Fatalf("golden has type %s", got)
			}
			ours := make([]byte, len(theirs))
			if err := Quantize(kind, ours, src); err != nil {
				t.Fatal(err)
			}
			a, b := make([]float32, len(src)), make([]float32, len(src))
			Dequantize(kind, a, ours)
			Dequantize(kind, b, theirs)
			equal := 0
			for i := range a {
				if a[i] == b[i] {
					equal++
				}
			}
			share, ours2, theirs2 := float64(equal)/float64(len(a)), squaredError(src, a), squaredError(src, b)
			t.Logf("%d columns: %.2f %% equal, squared error %.4f of llama.cpp's", cols, 100*share, ours2/theirs2)
			if share < 0.999 || ours2 > 1.001*theirs2 {
				t.Errorf("%.2f %% equal, squared error %g, llama.cpp's %g", 100*share, ours2, theirs2)
			}
		})
	}
}

func squaredError(x, y []float32) (sum float64) {
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return sum
}

// TestGoldenErrors bounds how far llama.cpp's blocks of each type are from the F32 model that they were made from, as we read
// them: a misread scale or level shows here even where no other reader is at hand.
func TestGoldenErrors(t *testing.T) {
	budget := map[Type]float64{
		F16: 3e-4, BF16: 2e-3, Q8_0: 0.006, Q6_K: 0.019, Q5_0: 0.05, Q5_1: 0.04, Q5_K: 0.037, Q4_0: 0.095, Q4_1: 0.08, Q4_K: 0.075,
		IQ4_NL: 0.08, IQ4_XS: 0.08, Q3_K: 0.16, Q2_K: 0.31,
	}
	const tensor = "blk.1.attn_q.weight"
	_, _, raw := blocks(t, shared(t, "data", "golden", "tiny_gguf", "tiny-F32.gguf"), tensor)
	want, got := make([]float32, len(raw)/4), make([]float32, len(raw)/4)
	Dequantize(F32, want, raw)
	zero := make([]float32, len(want))
	for kind, limit := range budget {
		_, _, data := blocks(t, shared(t, "data", "golden", "tiny_gguf", "tiny-"+kind.String()+".gguf"), tensor)
		Dequantize(kind, got, data)
		e := math.Sqrt(squaredError(want, got) / squaredError(want, zero))
		t.Logf("%-6s %.5f (budget %.5f)", kind, e, limit)
		if e > limit || e < limit/2 {
			t.Errorf("%s: relative error %.5f, budget %.5f", kind, e, limit)
		}
	}
}
