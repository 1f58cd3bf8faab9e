package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"terrace/internal/kernels/ref"
)

// elemKernel runs one elementwise kernel on copies of inputs; the first returned slice is compared with ref's.
type elemKernel struct {
	name string
	// limit is the error allowed relative to |want| + floor.
	limit, floor float64
	run, want    func(in [][]float32) []float32
	even         bool // lengths are rounded down to a multiple of 2
}

func inPlace(f func(x []float32)) func(in [][]float32) []float32 {
	return func(in [][]float32) []float32 { f(in[0]); return in[0] }
}

func two2(f func(dst, x []float32)) func(in [][]float32) []float32 {
	return func(in [][]float32) []float32 { f(in[0], in[1]); return in[0] }
}

func gatedOf(f func(dst, gate, up []float32)) func(in [][]float32) []float32 {
	return func(in [][]float32) []float32 { f(in[2], in[0], in[1]); return in[2] }
}

func scalarOf(f func(x []float32) float32) func(in [][]float32) []float32 {
	return func(in [][]float32) []float32 { return []float32{f(in[0])} }
}

func ropeOf(f func(x []float32, heads, d, rot int, cos, sin []float32)) func(in [][]float32) []float32 {
	return func(in [][]float32) []float32 {
		n := len(in[0])
		for i, angle := range in[1][:n/2] { // a rotation: the limit is of products no larger than the numbers
			sin, cos := math.Sincos(float64(angle))
			in[1][i], in[2][i] = float32(cos), float32(sin)
		}
		f(in[0], 1, n, n, in[1][:n/2], in[2][:n/2])
		return in[0]
	}
}

// clamped is a kernel with bounds within which half the operands lie.
func clamped(f func(dst, gate, up []float32, alpha, limit float32)) func(dst, gate, up []float32) {
	return func(dst, gate, up []float32) { f(dst, gate, up, 1.702, 2.5) }
}

const ulp = 1.0 / (1 << 23)

// softmaxOfRounded is ref.Softmax of x - max in float32, which is what kernels raise: 8 to 16 apart the rounding alone is 4 ulp of the result.
func softmaxOfRounded(x []float32) {
	top := ref.Max(x)
	for i := range x {
		x[i] -= top
	}
	ref.Softmax(x)
}

// exp replaces x by e^x.
func exp(x []float32) { ExpSum(x, 0) }

var elemKernels = []elemKernel{
	{name: "RMSNorm", limit: 3 * ulp, floor: 1e-37,
		run:  func(in [][]float32) []float32 { RMSNorm(in[2], in[0], in[1], 1e-5); return in[2] },
		want: func(in [][]float32) []float32 { ref.RMSNorm(in[2], in[0], in[1], 1e-5); return in[2] }},
	{name: "LayerNorm", limit: 4 * ulp, floor: 10,
		run:  func(in [][]float32) []float32 { LayerNorm(in[2], in[0], in[1], in[3], 1e-5); return in[2] },
		want: func(in [][]float32) []float32 { ref.LayerNorm(in[2], in[0], in[1], in[3], 1e-5); return in[2] }},
	{name: "Add", run: two2(Add), want: two2(ref.Add)},
	{name: "Mul", run: two2(Mul), want: two2(ref.Mul)},
	{name: "Scale", run: inPlace(func(x []float32) { Scale(x, 0.3) }), want: inPlace(func(x []float32) { ref.Scale(x, 0.3) })},
	{name: "Axpy", limit: ulp, floor: 10,
		run:  two2(func(dst, x []float32) { Axpy(dst, 0.7, x) }),
		want: two2(func(dst, x []float32) { ref.Axpy(dst, 0.7, x) })},
	{name: "SiluMul", limit: 6 * ulp, floor: 1e-35, run: gatedOf(SiluMul), want: gatedOf(ref.SiluMul)},
	{name: "SigmoidMul", limit: 6 * ulp, floor: 1e-35, run: gatedOf(SigmoidMul), want: gatedOf(ref.SigmoidMul)},
	{name: "ClampedMul", limit: 8 * ulp, floor: 1e-35, run: gatedOf(clamped(ClampedMul)), want: gatedOf(clamped(ref.ClampedMul))},
	{name: "GeluMul", limit: 12 * ulp, floor: 1e-2, run: gatedOf(GeluMul), want: gatedOf(ref.GeluMul)},
	{name: "GeluErfMul", run: gatedOf(GeluErfMul), want: gatedOf(ref.GeluErfMul)},
	{name: "Gelu", limit: 12 * ulp, floor: 1e-2, run: inPlace(Gelu), want: inPlace(ref.Gelu)},
	{name: "GeluErf", run: inPlace(GeluErf), want: inPlace(ref.GeluErf)},
	{name: "ReLU", run: inPlace(ReLU), want: inPlace(ref.ReLU)},
	{name: "Softcap", limit: 8 * ulp, floor: 1e-37, run: inPlace(func(x []float32) { Softcap(x, 5) }), want: inPlace(func(x []float32) { ref.Softcap(x, 5) })},
	{name: "ExpSum", limit: 2 * ulp, floor: 1e-38, run: inPlace(exp), want: inPlace(func(x []float32) { ref.ExpSum(x, 0) })},
	{name: "Softmax", limit: 8 * ulp, floor: 1e-6, run: inPlace(Softmax), want: inPlace(softmaxOfRounded)},
	{name: "Max", run: scalarOf(Max), want: scalarOf(ref.Max)},
	{name: "MaxAbs", run: scalarOf(MaxAbs), want: scalarOf(ref.MaxAbs)},
	{name: "RopeNeox", limit: 2 * ulp, floor: 10, even: true, run: ropeOf(RopeNeox), want: ropeOf(ref.RopeNeox)},
	{name: "RopeNorm", limit: 2 * ulp, floor: 10, even: true, run: ropeOf(RopeNorm), want: ropeOf(ref.RopeNorm)},
}

// elemInputs makes four operands of n numbers that start off alignment.
func elemInputs(rnd *rand.Rand, n int) [][]float32 {
	in := make([][]float32, 4)
	for i := range in {
		in[i] = make([]float32, n+3)[3:]
		for j := range in[i] {
			in[i][j] = float32(rnd.NormFloat64() * 4)
		}
	}
	return in
}

func clones(in [][]float32) [][]float32 {
	out := make([][]float32, len(in))
	for i, x := range in {
		out[i] = append(make([]float32, 1, len(x)+1), x...)[1:]
	}
	return out
}

func (k elemKernel) check(in [][]float32) error {
	want, got := k.want(clones(in)), k.run(clones(in))
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if d := math.Abs(g - w); !(d <= k.limit*(math.Abs(w)+k.floor)) {
			return fmt.Errorf("%s of %d: [%d] got %v, want %v (error %.3g of |want|+%g, limit %.3g; inputs %v %v)",
				k.name, len(in[0]), i, g, w, d/(math.Abs(w)+k.floor), k.floor, k.limit, in[0][min(i, len(in[0])-1)], in[1][min(i, len(in[1])-1)])
		}
	}
	return nil
}

// TestElementwise compares every kernel on every path with ref, at all lengths from 0 to four vectors and one.
func TestElementwise(t *testing.T) {
	for _, k := range elemKernels {
		t.Run(k.name, func(t *testing.T) {
			eachPath(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(1, 2))
				for _, n := range append(upTo(66), 576, 1000, 1536, 1<<17) {
					if k.even {
						n &^= 1
					}
					if err := k.check(elemInputs(rnd, n)); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestElementwiseSpecials puts NaN, infinities, zeros, denormals and huge numbers into every lane in turn.
func TestElementwiseSpecials(t *testing.T) {
	inf := float32(math.Inf(1))
	specials := []float32{float32(math.NaN()), inf, -inf, 0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -1e-40, 1e30, -1e30, 88.8, -103, -104, 1e-3}
	for _, k := range elemKernels {
		t.Run(k.name, func(t *testing.T) {
			eachPath(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(3, 4))
				for _, s := range specials {
					for lane := range 18 {
						in := elemInputs(rnd, 34)
						in[0][lane] = s
						if err := k.check(in); err != nil {
							t.Fatalf("%v in lane %d: %v", s, lane, err)
						}
					}
				}
			})
		})
	}
}

// TestPlaceDoesNotMatter computes numbers one by one, in short runs and as part of a long one: each must come out the same,
// bit for bit, since the rows of a call may be any part of a prompt and their width need not be whole vectors.
func TestPlaceDoesNotMatter(t *testing.T) {
	kernels := map[string]func(in [][]float32) []float32{
		"Add": two2(Add), "Mul": two2(Mul), "SiluMul": gatedOf(SiluMul), "SigmoidMul": gatedOf(SigmoidMul), "ClampedMul": gatedOf(clamped(ClampedMul)), "GeluMul": gatedOf(GeluMul), "GeluErfMul": gatedOf(GeluErfMul),
		"Gelu": inPlace(Gelu), "GeluErf": inPlace(GeluErf), "ReLU": inPlace(ReLU),
		"Scale": inPlace(func(x []float32) { Scale(x, 0.3) }), "Softcap": inPlace(func(x []float32) { Softcap(x, 5) }),
	}
	for name, run := range kernels {
		t.Run(name, func(t *testing.T) {
			eachPath(t, func(t *testing.T) {
				in := elemInputs(rand.New(rand.NewPCG(7, 8)), 96)
				copy(in[0][40:], []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), 89, -104, 1e-40})
				want := append([]float32(nil), run(clones(in))...)
				for _, width := range []int{1, 3, 7, 15, 17, 31, 33, 50} {
					for from := 0; from < 96; from += width {
						part := clones(in)
						for i := range part {
							part[i] = part[i][from:min(from+width, 96)]
						}
						for i, got := range run(part) {
							if w := want[from+i]; math.Float32bits(got) != math.Float32bits(w) && (got == got || w == w) {
								t.Fatalf("number %d in runs of %d: %v, in one of 96: %v (input %v)", from+i, width, got, w, in[0][from+i])
							}
						}
					}
				}
			})
		})
	}
}

// TestExpIsExact walks over the whole range: within 2 ulp of the true power, exactly 1 at 0, 0 and Inf at the ends.
func TestExpIsExact(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		const n = 1 << 16
		x := make([]float32, n)
		for i := range x {
			x[i] = -87 + 175.5*float32(i)/n
		}
		got := append([]float32(nil), x...)
		exp(got)
		for i := range x {
			want := math.Exp(float64(x[i]))
			if e := math.Abs(float64(got[i])-want) / want; e > 2*ulp {
				t.Fatalf("e^%v = %v, want %v: error %.2f ulp", x[i], got[i], want, e/ulp)
			}
		}
		ends := make([]float32, 16)
		ends[1], ends[2], ends[3] = float32(math.Inf(-1)), float32(math.Inf(1)), 100
		exp(ends)
		if ends[0] != 1 || ends[1] != 0 || !math.IsInf(float64(ends[2]), 1) || !math.IsInf(float64(ends[3]), 1) {
			t.Fatalf("e^(0, -Inf, Inf, 100) = %v, want 1, 0, Inf, Inf", ends[:4])
		}
	})
}

// TestHalves widens all 65536 codes.
func TestHalves(t *testing.T) {
	eachPath(t, func(t *testing.T) {
		codes := make([]uint16, 1<<16)
		for i := range codes {
			codes[i] = uint16(i)
		}
		for _, c := range []struct {
			name   string
			widen  func(dst []float32, src []uint16)
			narrow func(dst []uint16, src []float32)
		}{{"f16", F16ToF32, ref.F32ToF16}, {"bf16", BF16ToF32, ref.F32ToBF16}} {
			wide, back := make([]float32, len(codes)), make([]uint16, len(codes))
			c.widen(wide, codes)
			c.narrow(back, wide)
			for i, f := range wide {
				if f == f && back[i] != codes[i] {
					t.Fatalf("%s: code %#04x is %v and rounds to %#04x", c.name, codes[i], f, back[i])
				}
			}
		}
	})
}

// FuzzElementwise compares kernels with ref on inputs and lengths of the fuzzer's choice.
func FuzzElementwise(f *testing.F) {
	f.Add(uint8(0), uint16(100), uint64(1))
	f.Fuzz(func(t *testing.T, which uint8, n uint16, seed uint64) {
		k := elemKernels[int(which)%len(elemKernels)]
		size := int(n % 3000)
		if k.even {
			size &^= 1
		}
		for _, path := range Available() {
			if err := Select(path); err != nil {
				t.Fatal(err)
			}
			if err := k.check(elemInputs(rand.New(rand.NewPCG(seed, 1)), size)); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		_ = Select("")
	})
}

func BenchmarkElementwise(b *testing.B) {
	for _, k := range elemKernels {
		b.Run(k.name, func(b *testing.B) {
			in := elemInputs(rand.New(rand.NewPCG(1, 2)), 1536)
			b.SetBytes(4 * 1536)
			b.ReportAllocs()
			for b.Loop() {
				k.run(in)
			}
		})
	}
}

// BenchmarkActivation measures a row of a width that is whole vectors and one that is not.
func BenchmarkActivation(b *testing.B) {
	for _, n := range []int{1536, 1543, 24} {
		in := elemInputs(rand.New(rand.NewPCG(1, 1)), n)
		for name, run := range map[string]func(dst, gate, up []float32){"silu": SiluMul, "gelu": GeluMul} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(12 * n))
				for b.Loop() {
					run(in[2], in[0], in[1])
				}
			})
		}
	}
}

func TestFinite(t *testing.T) {
	for n := range 12 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(math.Pow(-10, float64(i*3)))
		}
		if !Finite(x) {
			t.Errorf("%v is finite", x)
		}
		for i := range x {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				have := x[i]
				if x[i] = float32(v); Finite(x) {
					t.Errorf("%v is not finite", x)
				}
				x[i] = have
			}
		}
	}
}
