package kernels

import (
	"math/rand/v2"
	"testing"

	"terrace/internal/kernels/quant"
)

// TestReadOnce: the bytes read are those of the packed form once there is one, in pieces of any length, and every byte counts.
func TestReadOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	p := NewPool(2)
	defer p.Close()
	list := []*Matrix{newMatrix(t, quant.Q4_K, 48, 512, randomWeights(rng, quant.Q4_K, 48, 512)), newMatrix(t, quant.F32, 300, 257, make([]byte, 300*257*4))}
	if got, want := p.ReadOnce(list), int64(48*512/256*144+300*257*4); got != want {
		t.Errorf("before packing: %d bytes, want %d", got, want)
	}
	for _, m := range list {
		p.MatMul(Decode, make([]float32, m.cols), 1, Product{W: m, Dst: make([]float32, m.rows)})
	}
	want := int64(48*512/256*144 + 300*257*4)
	if simd != nil {
		want = int64(list[0].packedBytes() + list[1].packedBytes())
	}
	if got := p.ReadOnce(list); got != want {
		t.Errorf("after the first product: %d bytes, want %d", got, want)
	}
	b := make([]byte, 200)
	for i := range b {
		b[i] = 1
		if readWords(b) == 0 {
			t.Errorf("byte %d of 200 was not read", i)
		}
		b[i] = 0
	}
}
