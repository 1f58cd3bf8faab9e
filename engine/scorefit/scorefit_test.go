package scorefit

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"terrace/policy"
)

// planted are tokens whose scores a function of their rows makes, with some noise.
func planted(seed uint64, n, in int, noise float64, score func(x []float32) []float64) *Data {
	r, d := rand.New(rand.NewPCG(seed, 4)), &Data{In: in}
	for range n {
		x := make([]float32, in)
		for j := range x {
			x[j] = float32(r.NormFloat64() + 0.5)
		}
		y := score(x)
		d.Heads, d.X = len(y), append(d.X, x...)
		for _, v := range y {
			d.Y = append(d.Y, float32(v+noise*r.NormFloat64()))
		}
	}
	return d
}

func flat(x []float32) []float64 {
	return []float64{3 + 0.5*float64(x[0]) - 2*float64(x[3]), float64(x[1]) + float64(x[2])}
}

func bent(x []float32) []float64 {
	return []float64{math.Abs(float64(x[0])-0.5) + 0.1*float64(x[1]), math.Max(float64(x[2]), 0)}
}

// TestLinearIsRidge: weights and constant are those of ridge regression, worked out by descent on its own loss.
func TestLinearIsRidge(t *testing.T) {
	d := planted(1, 60, 4, 0.3, flat)
	for _, ridge := range []float64{1e-6, 1, 40} {
		s, err := Fit(d, Options{Ridge: ridge})
		if err != nil {
			t.Fatal(err)
		}
		for h := range d.Heads {
			w, b := make([]float64, d.In), 0.0
			for range 20000 {
				grad, off := make([]float64, d.In), 0.0
				for i := range d.Tokens() {
					e := b - float64(d.Y[i*d.Heads+h])
					for j, x := range d.X[i*d.In : (i+1)*d.In] {
						e += w[j] * float64(x)
					}
					for j, x := range d.X[i*d.In : (i+1)*d.In] {
						grad[j] += e * float64(x)
					}
					off += e
				}
				for j := range w {
					w[j] -= 2e-3 * (grad[j] + ridge*w[j])
				}
				b -= 2e-3 * off
			}
			for j, want := range w {
				if got := float64(s.Out[h*d.In+j]); math.Abs(got-want) > 1e-4 {
					t.Errorf("ridge %g, head %d, weight %d: %g, want %g", ridge, h, j, got, want)
				}
			}
			if got := float64(s.OutBias[h]); math.Abs(got-b) > 1e-4 {
				t.Errorf("ridge %g, head %d: constant %g, want %g", ridge, h, got, b)
			}
		}
	}
}

// TestFitForetells: a matrix foretells a flat function and not a bent one, two foretell both, on tokens that they have not seen.
func TestFitForetells(t *testing.T) {
	for _, c := range []struct {
		score       func([]float32) []float64
		width       int
		least, most float64
	}{{flat, 0, 0.98, 1}, {bent, 0, 0.1, 0.65}, {bent, 24, 0.9, 1}, {flat, 24, 0.95, 1}} {
		s, err := Fit(planted(2, 3000, 6, 0.1, c.score), Options{Width: c.width, Batch: 64, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if got := R2(&s, planted(3, 500, 6, 0.1, c.score)); got < c.least || got > c.most {
			t.Errorf("width %d: R² %.3f, want %g to %g", c.width, got, c.least, c.most)
		}
	}
}

// TestGradients: a step's gradients are the loss's slopes, by differences.
func TestGradients(t *testing.T) {
	d := planted(4, 7, 4, 0, flat)
	s := mlp(d, Options{Width: 5, Epochs: 1, Batch: 7, Rate: 1e-9})
	tr := trainer{layer: &s, weights: [][]float32{s.Hidden, s.HiddenBias, s.Out, s.OutBias}}
	for _, w := range tr.weights {
		tr.grads = append(tr.grads, make([]float32, len(w)))
		tr.first, tr.second = append(tr.first, make([]float32, len(w))), append(tr.second, make([]float32, len(w)))
	}
	loss := func() (sum float64) {
		got := make([]float32, d.Heads)
		var scratch []float32
		for i := range d.Tokens() {
			s.Score(d.X[i*d.In:(i+1)*d.In], got, &scratch)
			for h, y := range d.Y[i*d.Heads : (i+1)*d.Heads] {
				sum += math.Pow(float64(got[h]-y), 2) / float64(len(d.Y))
			}
		}
		return sum
	}
	tr.step(d, []int{0, 1, 2, 3, 4, 5, 6}, 0)
	for k, w := range tr.weights {
		for i := range w {
			const by = 1e-2
			old := w[i]
			w[i] = old + by
			up := loss()
			w[i] = old - by
			down := loss()
			w[i] = old
			if want := (up - down) / (2 * by); math.Abs(float64(tr.grads[k][i])-want) > 2e-3*(1+math.Abs(want)) {
				t.Errorf("weights %d, number %d: slope %g, want %g", k, i, tr.grads[k][i], want)
			}
		}
	}
}

// TestFitRepeats: the same data and seed give the same map, another seed another.
func TestFitRepeats(t *testing.T) {
	d := planted(6, 200, 4, 0.1, bent)
	fit := func(seed uint64) policy.ScoreLayer {
		s, err := Fit(d, Options{Width: 4, Epochs: 2, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b, c := fit(1), fit(1), fit(2)
	if a.Hidden[0] != b.Hidden[0] || a.Out[3] != b.Out[3] || a.Hidden[0] == c.Hidden[0] {
		t.Errorf("%v, %v, %v", a.Hidden[0], b.Hidden[0], c.Hidden[0])
	}
}

func TestFitRefuses(t *testing.T) {
	bad := planted(6, 20, 4, 0.1, bent)
	bad.X[7] = float32(math.NaN())
	for _, d := range []*Data{{}, planted(6, 1, 4, 0, flat), bad} {
		if _, err := Fit(d, Options{}); !errors.Is(err, ErrData) {
			t.Errorf("%d tokens: %v", d.Tokens(), err)
		}
	}
}
