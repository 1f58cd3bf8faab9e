package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"terrace/internal/kernels/quant"
)

// fused is one network and its input for the tests of jobs that do several steps in one.
type fused struct {
	gate, up, down *Matrix
	norm           RowNorm
	x              []float32
	n, cols, width int
}

func newFused(t *testing.T, types [3]quant.Type, cols, width, n int) *fused {
	rnd := rand.New(rand.NewPCG(uint64(n), uint64(cols)))
	f := &fused{x: randomRows(rnd, n, cols), n: n, cols: cols, width: width, norm: RowNorm{W: randomRows(rnd, 1, cols), Eps: 1e-5}}
	f.gate = newMatrix(t, types[0], width, cols, randomWeights(rnd, types[0], width, cols))
	f.up = newMatrix(t, types[1], width, cols, randomWeights(rnd, types[1], width, cols))
	f.down = newMatrix(t, types[2], cols, width, randomWeights(rnd, types[2], cols, width))
	return f
}

// inSteps is the network by RMSNorm, MatMul and SiluMul; sums is what its output is added to.
func (f *fused) inSteps(p *Pool, ph Phase, norm bool, sums []float32) []float32 {
	x := slices.Clone(f.x)
	for r := 0; norm && r < f.n; r++ {
		row := x[r*f.cols : (r+1)*f.cols]
		RMSNorm(row, row, f.norm.W, f.norm.Eps)
	}
	g, u, out := make([]float32, f.n*f.width), make([]float32, f.n*f.width), make([]float32, f.n*f.cols)
	p.MatMul(ph, x, f.n, Product{W: f.gate, Dst: g})
	p.MatMul(ph, x, f.n, Product{W: f.up, Dst: u})
	SiluMul(g, g, u)
	p.MatMul(ph, g, f.n, Product{W: f.down, Dst: out})
	for i, v := range sums {
		out[i] += v
	}
	return out
}

// TestFusedEqualsSteps: networks and norms computed in one job are those of the steps, bit for bit, at any row count,
// number of threads and column split; where the arithmetic is another, nothing is written.
func TestFusedEqualsSteps(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, types := range [][3]quant.Type{{quant.Q4_1, quant.Q4_1, quant.Q8_0}, {quant.Q4_K, quant.Q6_K, quant.Q4_0}} {
			for _, n := range []int{1, 2, 3, 8, 15, 16, 37} {
				f := newFused(t, types, 512, 288, n)
				for _, threads := range []int{1, 3} {
					p := NewPool(threads)
					f.check(t, p, fmt.Sprintf("%v, %d rows, %d threads", types, n, threads))
					p.Close()
				}
			}
		}
	})
}

func (f *fused) check(t *testing.T, p *Pool, name string) {
	sums := randomRows(rand.New(rand.NewPCG(9, 9)), f.n, f.cols)
	for _, ph := range []Phase{Prefill, Decode, Exact} {
		for i, norm := range []*RowNorm{nil, &f.norm} {
			got := slices.Clone(sums)
			done := p.MatMulGated(ph, f.x, f.n, &Gated{Gate: f.gate, Up: f.up, Act: SiluMul, Down: Product{W: f.down, Dst: got, Add: true}, Norm: norm})
			if want := integers(ph, Product{W: f.gate}, Product{W: f.up}, Product{W: f.down}); done != want {
				t.Fatalf("%s, %s: done %v, want %v", name, phaseNames[ph], done, want)
			}
			want := sums
			if done {
				want = f.inSteps(p, ph, i == 1, sums)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s, %s, norm %v: differs from the steps", name, phaseNames[ph], i == 1)
			}
		}
		f.checkNormed(t, p, ph, name)
	}
}

func (f *fused) checkNormed(t *testing.T, p *Pool, ph Phase, name string) {
	got, want := make([]float32, f.n*f.width), make([]float32, f.n*f.width)
	x := slices.Clone(f.x)
	for r := range f.n {
		RMSNorm(x[r*f.cols:(r+1)*f.cols], x[r*f.cols:(r+1)*f.cols], f.norm.W, f.norm.Eps)
	}
	if p.MatMulNormed(ph, f.x, f.n, &f.norm, Product{W: f.up, Dst: got}) {
		p.MatMul(ph, x, f.n, Product{W: f.up, Dst: want})
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s, %s: normed product differs from the steps", name, phaseNames[ph])
	}
}

// TestAddedProducts: a product that is added gives the sum of what was there and the product alone, in every arithmetic.
func TestAddedProducts(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	eachPath(t, func(t *testing.T) {
		for _, typ := range []quant.Type{quant.Q4_1, quant.F16, quant.F32, quant.Q6_K} {
			for _, n := range []int{1, 7, 33} {
				rnd := rand.New(rand.NewPCG(uint64(n), uint64(typ)))
				m := newMatrix(t, typ, 40, 256, randomWeights(rnd, typ, 40, 256))
				x, sums := randomRows(rnd, n, 256), randomRows(rnd, n, 40)
				for ph, name := range phaseNames {
					got, want := slices.Clone(sums), make([]float32, n*40)
					p.MatMul(ph, x, n, Product{W: m, Dst: got, Add: true})
					p.MatMul(ph, x, n, Product{W: m, Dst: want})
					Add(want, sums)
					if !slices.Equal(got, want) {
						t.Fatalf("%v, %d rows, %s: the sum differs", typ, n, name)
					}
				}
			}
		}
	})
}

// TestRunBy: every task runs once whatever the grain, also after one of a claim panicked.
func TestRunBy(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	for _, grain := range []int{-1, 0, 1, 3, 7, 100, 1000} {
		var ran [100]atomic.Int32
		func() {
			defer func() { _ = recover() }()
			p.RunBy(grain, len(ran), func(_, i int) {
				ran[i].Add(1)
				if i%10 == 3 {
					panic("task")
				}
			})
		}()
		for i := range ran {
			if n := ran[i].Load(); n != 1 {
				t.Fatalf("grain %d: task %d ran %d times", grain, i, n)
			}
		}
	}
}
