package attend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
	"terrace/internal/cputime"
	"terrace/internal/kvpage"
)

// BenchmarkStages prints what a layer's attention in InstInfer's drive takes by its profile, and which stage each microsecond of it belongs
// to: of the units that work then, the first in the order flash, filter, kernel, argtopk; link is what the link takes, and rest is the command,
// the link's latency and gaps. No clock of this machine is in it. Shapes: SmolLM2 at 8,000 tokens, OPT-13B at the paper's 2,048.
func BenchmarkStages(b *testing.B) {
	for _, x := range []struct{ kvHeads, heads, dim, tokens int }{{3, 9, 64, 8000}, {40, 40, 128, 2048}} {
		d, s, row, at := benchText(b, x.kvHeads, x.dim, x.tokens)
		r := rand.New(rand.NewPCG(1, 2))
		for _, sparse := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/%d/%s", x.kvHeads, x.dim, x.tokens, map[bool]string{false: "dense", true: "eighth"}[sparse]), func(b *testing.B) {
				var parts map[string]time.Duration
				var whole time.Duration
				for b.Loop() {
					m := csdshim.AttendQuery{Traced: true, Scale: 0.1, Tail: csdshim.Tail{Seq: 1, At: at, Tokens: 1, Keys: noise(r, row), Values: noise(r, row)}}
					for range x.heads * x.dim {
						m.Q = append(m.Q, float32(r.NormFloat64()))
					}
					if sparse {
						m.Dims, m.Best, m.Local = x.dim/8, x.tokens/16, x.tokens/64
					}
					timing, got, err := s.Attend(context.Background(), &m)
					if err != nil {
						b.Fatal(err)
					}
					at++
					whole = time.Duration(timing.TotalNs)
					parts = ByStage(got.Stages, whole)
				}
				b.ReportMetric(float64(whole)/1e3, "total-us")
				for name, d := range parts {
					b.ReportMetric(float64(d)/1e3, name+"-us")
				}
			})
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProcess is what the drive's process computes for a layer's attention, beside what the profile gives the drive for it: as long as
// cpu-us is the smaller, a drive on a core of its own is as fast as its profile.
func BenchmarkProcess(b *testing.B) {
	for _, x := range []struct{ kvHeads, heads, dim, tokens int }{{3, 9, 64, 2000}, {3, 9, 64, 8000}, {8, 32, 128, 8000}} {
		d, s, row, at := benchText(b, x.kvHeads, x.dim, x.tokens)
		r := rand.New(rand.NewPCG(1, 2))
		keys, values := noise(r, row), noise(r, row)
		for _, sparse := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d/%d/%s", x.kvHeads, x.dim, x.tokens, map[bool]string{false: "dense", true: "eighth"}[sparse]), func(b *testing.B) {
				m := csdshim.AttendQuery{Scale: 0.1}
				for range x.heads * x.dim {
					m.Q = append(m.Q, float32(r.NormFloat64()))
				}
				if sparse {
					m.Dims, m.Best, m.Local = x.dim/8, x.tokens/16, x.tokens/64
				}
				var modelled uint64
				used := cputime.Used()
				for b.Loop() {
					m.Tail = csdshim.Tail{Seq: 1, At: at, Tokens: 1, Keys: keys, Values: values}
					timing, _, err := s.Attend(context.Background(), &m)
					if err != nil {
						b.Fatal(err)
					}
					at, modelled = at+1, modelled+timing.TotalNs
				}
				b.ReportMetric(float64(cputime.Used()-used)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(modelled)/float64(b.N)/1e3, "modelled-us")
			})
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// benchText is a drive that holds one layer of random keys and values; row is the numbers of a token.
func benchText(b *testing.B, heads, dim, tokens int) (d *csdshim.Drive, s *csdshim.Session, row, at int) {
	d, s = openBench(b)
	shape := csdshim.AttendShape{Layers: 1, Heads: heads, KeyDim: dim, ValueDim: dim, ElemBytes: 2, TokenGroup: 4096 / (4 * dim), EmbeddingGroup: 2, Paired: true, Elem: kvpage.F16}
	if err := s.OpenAttended(1, shape); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for row = heads * dim; at < tokens; {
		n := min(512, tokens-at)
		if _, _, err := s.Append(context.Background(), &csdshim.Tail{Seq: 1, At: at, Tokens: n, Keys: noise(r, n*row), Values: noise(r, n*row)}); err != nil {
			b.Fatal(err)
		}
		at += n
	}
	return d, s, row, at
}

// noise is n random numbers as float16.
func noise(r *rand.Rand, n int) []byte {
	wide, out := make([]float32, n), make([]byte, 2*n)
	for i := range wide {
		wide[i] = float32(r.NormFloat64())
	}
	kvpage.PutRow(kvpage.F16, out, wide)
	return out
}

func openBench(b *testing.B) (*csdshim.Drive, *csdshim.Session) {
	p, err := profiles.Load("instcsd")
	if err != nil {
		b.Fatal(err)
	}
	d, err := csdshim.OpenDrive(b.TempDir(), csdshim.Options{Profile: p, CapacityBytes: 512 << 20, NoSync: true, Attention: New()})
	if err != nil {
		b.Fatal(err)
	}
	return d, d.Connect([16]byte{1}, 0)
}

// TestByStage: each moment has one stage, and nothing is lost.
func TestByStage(t *testing.T) {
	d, s := openSession(t, t.TempDir(), "instcsd")
	defer d.Close()
	x := newText(kvpage.F16, 4, 16, 600, 3)
	if err := s.OpenAttended(1, x.shape); err != nil {
		t.Fatal(err)
	}
	tail := x.tail(0, 0, 599)
	if _, _, err := s.Append(context.Background(), &tail); err != nil {
		t.Fatal(err)
	}
	m := csdshim.AttendQuery{Traced: true, Scale: 0.1, Tail: x.tail(0, 599, 600), Dims: 8, Best: 40, Local: 10, Q: slices.Repeat([]float32{1, -2}, 6*16)}
	timing, got, err := s.Attend(context.Background(), &m)
	if err != nil {
		t.Fatal(err)
	}
	sum := time.Duration(0)
	parts := ByStage(got.Stages, time.Duration(timing.TotalNs))
	for name, d := range parts {
		if !slices.Contains(StageNames, name) || d <= 0 {
			t.Errorf("%v of %q", d, name)
		}
		sum += d
	}
	if sum != time.Duration(timing.TotalNs) || parts["flash"] < 35760 || parts["rest"] < 31500 {
		t.Errorf("%v of %d ns: want the whole, no less flash than a page takes, and the command and two latencies", parts, timing.TotalNs)
	}
}
