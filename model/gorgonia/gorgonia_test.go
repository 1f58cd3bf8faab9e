package gorgonia

import (
	"math"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
)

// TestErf compares the operation that gorgonia lacks with the definition, and its use in GELU with x/2·(1+erf(x/√2)).
func TestErf(t *testing.T) {
	b := &backend{m: &model.Model{Config: model.Config{Act: model.GELU}}, weights: newWeights()}
	x := []float32{-6, -1.5, -0.25, 0, 0.25, 1.5, 6, 30}
	s := b.sheet()
	y, err := s.run1(s.activate(s.in(matrix(2, 4, x))))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range floats(y) {
		want := float64(x[i]) / 2 * (1 + math.Erf(float64(x[i])/math.Sqrt2))
		if math.Abs(float64(v)-want) > 1e-6*math.Max(1, math.Abs(want)) {
			t.Errorf("gelu(%g) = %g, want %g", x[i], v, want)
		}
	}
}

// TestSoftmax compares the rows' softmax with the definition, at scores whose exponentials float32 cannot hold and at rows
// whose last key is hidden.
func TestSoftmax(t *testing.T) {
	b := &backend{m: &model.Model{}, weights: newWeights()}
	x := []float32{1, 2, 3, 400, 399, 100, -400, -401, hiddenScore, 87, 89, 88}
	s := b.sheet()
	y, err := s.run1(s.softmax(s.in(matrix(4, 3, x))))
	if err != nil {
		t.Fatal(err)
	}
	for r := range 4 {
		row, sum := x[3*r:3*r+3], 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - float64(slices.Max(row)))
		}
		for i, v := range row {
			want := math.Exp(float64(v)-float64(slices.Max(row))) / sum
			if got := float64(floats(y)[3*r+i]); !(math.Abs(got-want) <= 1e-6) {
				t.Errorf("row %d: weight of %g is %g, want %g", r, v, got, want)
			}
		}
	}
}

// TestAttendLargeScores attends with scores of several hundreds, as models with large keys have them.
func TestAttendLargeScores(t *testing.T) {
	m := &model.Model{Config: model.Config{Layer: []model.LayerConfig{{Attention: model.Attention{Heads: 1, KVHeads: 1, KeyDim: 2, ValDim: 1}}}}, Params: model.Params{Layers: make([]model.LayerParams, 1)}}
	b := &backend{m: m, weights: newWeights()}
	l := kvpage.Layout{KeyDim: 2, ValueDim: 1, Tokens: 16}
	page := attention.Page{Data: make([]byte, l.PageBytes()), Pos: []int32{0, 1}, N: 2}
	for i, k := range [][]float32{{30, 0}, {31, 0}} {
		kvpage.PutK(l, page.Data, i, k)
		kvpage.PutV(l, page.Data, i, []float32{float32(i)})
	}
	out, err := b.Attend(&model.Pass{}, 0, matrix(1, 2, []float32{20, 0}), []attention.Seq{{Pos: []int32{1}, Views: []attention.View{{Layout: l, Pages: []attention.Page{page}}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := 1 / (1 + math.Exp(-20/math.Sqrt2))
	if got := float64(floats(out)[0]); !(math.Abs(got-want) <= 1e-6) {
		t.Errorf("attended %g, want %g", got, want)
	}
}

// TestInputsAreNotChanged runs every kind of node over a weight and an input and compares them afterwards: gorgonia's
// machine may compute in place.
func TestInputsAreNotChanged(t *testing.T) {
	b := &backend{m: &model.Model{Config: model.Config{Norms: model.Norms{Norm: model.LayerNorm, NormEps: 1e-5}}}, weights: newWeights()}
	x, w := matrix(2, 4, []float32{1, 2, 3, 4, 5, 6, 7, 9}), matrix(4, 4, []float32{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 1, 1, 1, 1})
	before := append(slices.Clone(floats(x)), floats(w)...)
	for range 2 {
		s := b.sheet()
		h := s.in(x)
		n := s.norm(h, model.NormParams{})
		y := s.softmax(s.reshape(s.matmul(s.reshape(n, 2, 4), s.in(w)), 4, 2))
		if _, err := s.run(y, s.softcap(s.reshape(h, 4, 2), 3), s.add(h, n), s.softcap(h, 2), s.activate(h)); err != nil {
			t.Fatal(err)
		}
	}
	if after := append(slices.Clone(floats(x)), floats(w)...); !slices.Equal(before, after) || !slices.Equal(x.Shape(), []int{2, 4}) {
		t.Errorf("inputs were %v, now %v of shape %v", before, after, x.Shape())
	}
}

func TestRoute(t *testing.T) {
	rows, weights := route([]float32{0.1, 0.5, 0.4, 0.3, 0.3, 0.4}, 2, 3, 2, true)
	if want := [][]int{{1}, {0}, {0, 1}}; !slices.EqualFunc(rows, want, slices.Equal[[]int]) {
		t.Errorf("rows %v, want %v (the first of equals)", rows, want)
	}
	for r, want := range map[int][2]float32{0: {0.5 / 0.9, 0.4 / 0.9}, 1: {0.3 / 0.7, 0.4 / 0.7}} {
		first := weights[1]
		if r == 1 {
			first = weights[0]
		}
		if math.Abs(float64(first[0]-want[0])) > 1e-6 || math.Abs(float64(weights[2][r]-want[1])) > 1e-6 {
			t.Errorf("row %d: weights %v and %v, want %v", r, first, weights[2], want)
		}
	}
}

// TestLogN checks that queries of a model with LogN grow with the logarithm of the position beyond the trained length, and
// keys do not.
func TestLogN(t *testing.T) {
	m := &model.Model{Config: model.Config{Layer: []model.LayerConfig{{Attention: model.Attention{KeyDim: 2, Rope: -1}}}, Positions: model.Positions{LogN: true, LogNAt: 8}}}
	b := &backend{m: m, weights: newWeights(), rotary: model.NewRotaryRows(&m.Config)}
	p := &model.Pass{Pos: []int32{3, 63}}
	for _, query := range []bool{true, false} {
		s := b.sheet()
		y, err := s.run1(s.turn(p, 0, s.in(matrix(2, 2, []float32{1, 2, 1, 2})), 1, model.NormParams{}, query))
		if err != nil {
			t.Fatal(err)
		}
		want := []float32{1, 2, 1, 2}
		if query {
			want = []float32{1, 2, 2, 4} // log 64 / log 8 = 2
		}
		for i, v := range floats(y) {
			if math.Abs(float64(v-want[i])) > 1e-6 {
				t.Errorf("query %v: %v, want %v", query, floats(y), want)
				break
			}
		}
	}
}

// TestVisible checks the prefill masks: blocks, columns and diagonals.
func TestVisible(t *testing.T) {
	p := &attention.Params{Window: 40}
	s := &attention.Seq{Pos: []int32{32, 33}, Sparse: &attention.Sparse{Heads: []attention.HeadMask{
		{Vertical: []int32{0, 5}, Slash: []int32{0, 2}},
		{Block: 16, Start: []int32{0, 2}, Cols: []int32{0, 2}},
		{Dense: true},
	}}}
	for _, c := range []struct {
		head, row int
		key       int32
		want      bool
	}{{0, 0, 5, true}, {0, 0, 30, true}, {0, 0, 31, false}, {0, 1, 31, true}, {1, 0, 15, true}, {1, 0, 16, false}, {1, 1, 32, true},
		{2, 0, 17, true}, {2, 0, 33, false}, {2, 1, -8, false}} {
		if got := visible(p, s, c.head, c.row, c.key); got != c.want {
			t.Errorf("head %d, row %d, key %d: %v, want %v", c.head, c.row, c.key, got, c.want)
		}
	}
}
