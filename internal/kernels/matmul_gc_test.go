package kernels

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"terrace/internal/kernels/quant"
)

// TestProductsBesideGC: the garbage collector, which walks the arguments of products in flight, finds no pointer past the end of what
// it points to.
func TestProductsBesideGC(t *testing.T) {
	const rows, cols, n = 64, 1024, 64
	pool := NewPool(2)
	defer pool.Close()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []quant.Type{quant.BF16, quant.Q8_0} {
		m := newMatrix(t, typ, rows, cols, randomWeights(rnd, typ, rows, cols))
		x := randomRows(rnd, n, cols)
		for range 100 {
			dst := make([]float32, n*rows) // of a size class without room behind it
			for _, ph := range []Phase{Prefill, Decode} {
				pool.MatMul(ph, x, n, Product{W: m, Dst: dst})
			}
		}
	}
	close(stop)
	<-done
}
