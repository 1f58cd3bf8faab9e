package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// stripInputs are operands of a strip of n rows: the strip before and after, what is of a row's width, what has a number a row.
type stripInputs struct {
	from, to    Strip
	out, dots   []float32
	k, q, next  []float32
	v, g        []float32
	decay, beta float32
}

func newStrip(n, fromStride, toStride int, alloc func(n int) []float32, rnd *rand.Rand) *stripInputs {
	fill := func(n int, size float64) []float32 {
		x := alloc(n)
		for i := range x {
			x[i] = float32(rnd.NormFloat64() * size)
		}
		return x
	}
	lanes, even := StateLanes(), 1/math.Sqrt(float64(n))
	strip := func(stride int) Strip { return Strip{fill((n-1)*stride+lanes, 1), stride} }
	in := &stripInputs{from: strip(fromStride), to: strip(toStride), out: fill(lanes, 1), dots: fill(lanes, 1),
		k: fill(n, even), q: fill(n, even), next: fill(n, even), v: fill(lanes, 1), g: fill(n, 1), decay: 0.9, beta: 0.7}
	for i := range in.g {
		in.g[i] = 1 / (1 + in.g[i]*in.g[i])
	}
	return in
}

func (in *stripInputs) clone() *stripInputs {
	c := *in
	for _, x := range []*[]float32{&c.from.Data, &c.to.Data, &c.out, &c.dots} {
		*x = slices.Clone(*x)
	}
	return &c
}

// stripKernel is a kernel of the path and plain Go's.
type stripKernel struct {
	name      string
	run, want func(in *stripInputs)
	dots      bool // it leaves the sums of the next step
}

var stripKernels = []stripKernel{
	{"StateDot", func(in *stripInputs) { StateDot(in.out, in.from, in.k) },
		func(in *stripInputs) { ref.StateDot(in.out, in.from.Data, in.from.Stride, in.k) }, false},
	{"DeltaStep", func(in *stripInputs) {
		DeltaStep(in.out, in.dots, in.to, in.from, in.k, in.q, in.next, in.v, in.decay, in.beta)
	}, func(in *stripInputs) {
		ref.DeltaStep(in.out, in.dots, in.to.Data, in.from.Data, in.to.Stride, in.from.Stride, in.k, in.q, in.next, in.v, in.decay, in.beta)
	}, true},
	{"DeltaStepEach", func(in *stripInputs) {
		DeltaStepEach(in.out, in.dots, in.to, in.from, in.k, in.q, in.next, in.v, in.g, in.beta)
	}, func(in *stripInputs) {
		ref.DeltaStepEach(in.out, in.dots, in.to.Data, in.from.Data, in.to.Stride, in.from.Stride, in.k, in.q, in.next, in.v, in.g, in.beta)
	}, true},
	{"SSMStep", func(in *stripInputs) {
		SSMStep(in.out, in.to, in.from, in.k, in.q, in.v, in.decay, in.beta, 0.3)
	}, func(in *stripInputs) {
		ref.SSMStep(in.out, in.to.Data, in.from.Data, in.to.Stride, in.from.Stride, in.k, in.q, in.v, in.decay, in.beta, 0.3)
	}, false},
}

// TestState compares the kernels with plain Go; what lies between the rows of a strip stays.
func TestState(t *testing.T) {
	for _, k := range stripKernels {
		t.Run(k.name, func(t *testing.T) {
			eachPath(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for _, n := range []int{1, 2, 4, 6, 8, 60, 64, 128, 256} {
					for _, stride := range []int{StateLanes(), StateLanes() + 3, 128} {
						in := newStrip(n, stride, 200-stride, heap, rnd)
						want := in.clone()
						k.run(in)
						k.want(want)
						for _, two := range [][2][]float32{{in.out, want.out}, {in.dots, want.dots}, {in.to.Data, want.to.Data}, {in.from.Data, want.from.Data}} {
							for i, got := range two[0] {
								if d := math.Abs(float64(got - two[1][i])); !(d <= 2e-6*(1+math.Abs(float64(got)))) {
									t.Fatalf("%d rows, stride %d: [%d] %v, want %v", n, stride, i, got, two[1][i])
								}
							}
						}
					}
				}
			})
		})
	}
}

// TestStateInPasses: dots that a step leaves are StateDot's, to the bit, wherever the strips lie, one on the other too: a token's result
// does not depend on where a pass begins, nor on how the state is held.
func TestStateInPasses(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		for _, n := range []int{3, 8, 128} {
			lanes := StateLanes()
			in := newStrip(n, lanes, lanes, heap, rand.New(rand.NewPCG(3, 4)))
			for _, k := range stripKernels {
				a, b, dots := in.clone(), in.clone(), make([]float32, lanes)
				b.from = Strip{make([]float32, (n-1)*128+lanes), 128}
				for i := range n {
					copy(b.from.Data[i*128:][:lanes], in.from.Data[i*lanes:])
				}
				b.to = b.from
				k.run(a)
				k.run(b)
				if !slices.Equal(a.out, b.out) || !slices.Equal(a.dots, b.dots) {
					t.Errorf("%s of %d rows: the strip's place changes the result", k.name, n)
				}
				if StateDot(dots, a.to, a.next); k.dots && !slices.Equal(dots, a.dots) {
					t.Errorf("%s of %d rows leaves %v, StateDot says %v", k.name, n, a.dots, dots)
				}
			}
		}
	})
}

// TestConvolve compares with plain Go, in place too, at widths within a vector and over it, with more taps than the assembly takes.
func TestConvolve(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(5, 6))
		for _, n := range []int{0, 1, 15, 16, 17, 48, 70} {
			for _, k := range []int{1, 2, 3, 4, MaxTaps, MaxTaps + 1} {
				taps, w, bias := make([][]float32, k), normals(rnd, heap(k*(n+5))), normals(rnd, heap(n))
				for j := range taps {
					taps[j] = normals(rnd, heap(n+j))
				}
				for _, bias := range [][]float32{bias, nil} {
					want := heap(n)
					ref.Convolve(want, taps, w, n+5, bias)
					in := slices.Clone(taps)
					in[k-1] = slices.Clone(taps[k-1])
					Convolve(in[k-1][:n], in, w, n+5, bias)
					for i, x := range want {
						if d := math.Abs(float64(in[k-1][i] - x)); !(d <= 4*ulp*(4+math.Abs(float64(x)))) {
							t.Fatalf("%d channels, %d taps: [%d] %v, want %v", n, k, i, in[k-1][i], x)
						}
					}
				}
			}
		}
	})
}

func BenchmarkState(b *testing.B) {
	for _, k := range stripKernels {
		for _, stride := range []int{StateLanes(), 128} {
			b.Run(fmt.Sprintf("%s/stride=%d", k.name, stride), func(b *testing.B) {
				in := newStrip(128, stride, stride, func(n int) []float32 { return make([]float32, n) }, rand.New(rand.NewPCG(1, 1)))
				in.to = in.from
				for b.Loop() {
					k.run(in)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)*128/float64(StateLanes()), "ns/head")
			})
		}
	}
}
