// Package scorefit trains the small maps by which kvzap scores tokens (policy.ScoreMap): from the rows that a layer's attention projects
// from to the logarithms of kvzip_plus's scores, as the authors of KVzap do (arXiv 2601.07891, kvpress's kvzap/train.py).
//
// It owns the two ways of fitting, and how well a map foretells tokens that it has not seen. It runs no model and knows no file.
//
// Shapes: rows are [tokens, In], scores [tokens, Heads], row-major. A fit depends on its data and its seed alone, not on threads.
package scorefit

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"terrace/internal/kernels"
	"terrace/policy"
)

// Data are the tokens of one layer.
type Data struct {
	In, Heads int
	X         []float32 // [tokens, In]
	Y         []float32 // [tokens, Heads] logarithms of scores
}

// Tokens is their number.
func (d *Data) Tokens() int { return len(d.Y) / max(d.Heads, 1) }

// Options say how a map is trained; zero values are the defaults.
type Options struct {
	Width  int     // of the layer between two matrices; 0 = one matrix, by ridge regression
	Ridge  float64 // its penalty on squared weights; 0 = 1
	Epochs int     // rounds over the tokens; 0 = 15
	Batch  int     // tokens a step; 0 = 512
	Rate   float64 // of AdamW, falling to 0 by a cosine over the rounds; 0 = 0.005
	Seed   uint64  // of the first weights and of the order of tokens
}

func (o *Options) setDefaults() {
	set := func(x *float64, to float64) {
		if *x == 0 {
			*x = to
		}
	}
	set(&o.Ridge, 1)
	set(&o.Rate, 0.005)
	if o.Epochs == 0 {
		o.Epochs = 15
	}
	if o.Batch == 0 {
		o.Batch = 512
	}
}

// ErrData is returned for too few tokens, or ones that are no numbers.
var ErrData = fmt.Errorf("scorefit: not enough to fit")

// Fit trains a layer's map. Errors wrap ErrData.
func Fit(d *Data, o Options) (policy.ScoreLayer, error) {
	o.setDefaults()
	switch {
	case d.Tokens() < 2:
		return policy.ScoreLayer{}, fmt.Errorf("%d tokens, want 2 at least: %w", d.Tokens(), ErrData)
	case !kernels.Finite(d.X) || !kernels.Finite(d.Y):
		return policy.ScoreLayer{}, fmt.Errorf("rows or scores are not finite: %w", ErrData)
	case o.Width == 0:
		return linear(d, o.Ridge)
	}
	return mlp(d, o), nil
}

// R2 is the part of the scores' variance that a map explains, the mean over KV heads; below 0 where it is worse than the mean score.
func R2(s *policy.ScoreLayer, d *Data) float64 {
	n, got, total := d.Tokens(), make([]float32, d.Heads), 0.0
	var scratch []float32
	left, mean, spread := make([]float64, d.Heads), make([]float64, d.Heads), make([]float64, d.Heads)
	for i, y := range d.Y {
		mean[i%d.Heads] += float64(y) / float64(n)
	}
	for i := range n {
		s.Score(d.X[i*d.In:(i+1)*d.In], got, &scratch)
		for h, y := range d.Y[i*d.Heads : (i+1)*d.Heads] {
			left[h] += (float64(y) - float64(got[h])) * (float64(y) - float64(got[h]))
			spread[h] += (float64(y) - mean[h]) * (float64(y) - mean[h])
		}
	}
	for h := range left {
		total += 1 - left[h]/math.Max(spread[h], math.SmallestNonzeroFloat64)
	}
	return total / float64(d.Heads)
}

// linear is ridge regression with a free constant: rows and scores less their means, (XᵀX + λ1)w = Xᵀy.
func linear(d *Data, ridge float64) (policy.ScoreLayer, error) {
	n, in := d.Tokens(), d.In
	mean, means := make([]float64, in), make([]float64, d.Heads)
	for i, x := range d.X {
		mean[i%in] += float64(x) / float64(n)
	}
	for i, y := range d.Y {
		means[i%d.Heads] += float64(y) / float64(n)
	}
	x, y := mat.NewDense(n, in, nil), mat.NewDense(n, d.Heads, nil)
	for i := range n {
		row := x.RawRowView(i)
		for j := range row {
			row[j] = float64(d.X[i*in+j]) - mean[j]
		}
		row = y.RawRowView(i)
		for j := range row {
			row[j] = float64(d.Y[i*d.Heads+j]) - means[j]
		}
	}
	gram := mat.NewSymDense(in, nil)
	gram.SymOuterK(1, x.T())
	for i := range in {
		gram.SetSym(i, i, gram.At(i, i)+ridge)
	}
	var right, w mat.Dense
	right.Mul(x.T(), y)
	var factor mat.Cholesky
	if !factor.Factorize(gram) {
		return policy.ScoreLayer{}, fmt.Errorf("the rows' products have no Cholesky factor: %w", ErrData)
	}
	if err := factor.SolveTo(&w, &right); err != nil {
		if _, ill := err.(mat.Condition); !ill {
			return policy.ScoreLayer{}, fmt.Errorf("scorefit: %w", err)
		}
	}
	s := policy.ScoreLayer{In: in, Heads: d.Heads, Out: make([]float32, d.Heads*in), OutBias: make([]float32, d.Heads)}
	for h := range d.Heads {
		bias := means[h]
		for j := range in {
			s.Out[h*in+j] = float32(w.At(j, h))
			bias -= w.At(j, h) * mean[j]
		}
		s.OutBias[h] = float32(bias)
	}
	return s, nil
}

// mlp is two matrices with GELU between them: mean squared error by AdamW (β 0.9, 0.999, decay 0.01), gradients of at most length 1, first
// weights and constants uniform within 1/√inputs.
func mlp(d *Data, o Options) policy.ScoreLayer {
	n, in, width, heads := d.Tokens(), d.In, o.Width, d.Heads
	r := rand.New(rand.NewPCG(o.Seed, 1))
	s := policy.ScoreLayer{In: in, Heads: heads, Hidden: make([]float32, width*in), HiddenBias: make([]float32, width), Out: make([]float32, heads*width), OutBias: make([]float32, heads)}
	draw := func(x []float32, inputs int) {
		for i := range x {
			x[i] = float32((2*r.Float64() - 1) / math.Sqrt(float64(inputs)))
		}
	}
	draw(s.Hidden, in)
	draw(s.HiddenBias, in)
	draw(s.Out, width)
	draw(s.OutBias, width)
	t := trainer{layer: &s, weights: [][]float32{s.Hidden, s.HiddenBias, s.Out, s.OutBias}}
	for _, w := range t.weights {
		t.grads = append(t.grads, make([]float32, len(w)))
		t.first, t.second = append(t.first, make([]float32, len(w))), append(t.second, make([]float32, len(w)))
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	for epoch := range o.Epochs {
		rate := o.Rate * (1 + math.Cos(math.Pi*float64(epoch)/float64(o.Epochs))) / 2
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
		for at := 0; at < n; at += o.Batch {
			t.step(d, order[at:min(at+o.Batch, n)], rate)
		}
	}
	return s
}

// trainer is AdamW on a map's weights.
type trainer struct {
	layer                         *policy.ScoreLayer
	weights, grads, first, second [][]float32
	steps                         int

	before, after, back, out []float32
}

// step takes one batch of tokens.
func (t *trainer) step(d *Data, batch []int, rate float64) {
	s, width := t.layer, len(t.layer.HiddenBias)
	for _, g := range t.grads {
		clear(g)
	}
	t.before, t.after, t.back, t.out = room(t.before, width), room(t.after, width), room(t.back, width), room(t.out, d.Heads)
	for _, i := range batch {
		x := d.X[i*d.In : (i+1)*d.In]
		for j := range width {
			t.before[j] = kernels.Dot(s.Hidden[j*d.In:(j+1)*d.In], x) + s.HiddenBias[j]
		}
		copy(t.after, t.before)
		kernels.GeluErf(t.after)
		clear(t.back)
		for h := range d.Heads {
			w := s.Out[h*width : (h+1)*width]
			off := kernels.Dot(w, t.after) + s.OutBias[h] - d.Y[i*d.Heads+h]
			grad := 2 * off / float32(len(batch)*d.Heads)
			kernels.Axpy(t.grads[2][h*width:(h+1)*width], grad, t.after)
			t.grads[3][h] += grad
			kernels.Axpy(t.back, grad, w)
		}
		for j, b := range t.before {
			grad := t.back[j] * slope(b)
			kernels.Axpy(t.grads[0][j*d.In:(j+1)*d.In], grad, x)
			t.grads[1][j] += grad
		}
	}
	var length float64
	for _, g := range t.grads {
		length += float64(kernels.Dot(g, g))
	}
	clip := float32(math.Min(1, 1/(math.Sqrt(length)+1e-6)))
	t.steps++
	fix1, fix2 := 1-math.Pow(0.9, float64(t.steps)), 1-math.Pow(0.999, float64(t.steps))
	for k, w := range t.weights {
		for i, g := range t.grads[k] {
			g *= clip
			t.first[k][i] = 0.9*t.first[k][i] + 0.1*g
			t.second[k][i] = 0.999*t.second[k][i] + 0.001*g*g
			move := float64(t.first[k][i]) / fix1 / (math.Sqrt(float64(t.second[k][i])/fix2) + 1e-8)
			w[i] -= float32(rate * (move + 0.01*float64(w[i])))
		}
	}
}

// slope is gelu's: Φ(x) + x·φ(x).
func slope(x float32) float32 {
	v := float64(x)
	return float32((1+math.Erf(v/math.Sqrt2))/2 + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi))
}

// room is x with length n, its memory reused.
func room(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n)
	}
	return x[:n]
}
