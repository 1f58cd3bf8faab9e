package keyindex

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kvpage"
	"terrace/policy"
)

// someColumns draws the columns of a SketchHashes.
type someColumns struct{ policy.Projector }

func (someColumns) Project(_ *policy.Layer, _ int, dst []float32) {
	r := rand.New(rand.NewPCG(8, 9))
	for i := range dst {
		dst[i] = float32(r.NormFloat64())
	}
}

// TestHashesAgainstPlainLoops: tokens collide that have a query's signs in two tables, while the cache grows, is cut and grows again, and what
// is read is counted.
func TestHashesAgainstPlainLoops(t *testing.T) {
	need := policy.Sketch{Kind: policy.SketchHashes, Bits: 3, Rank: 3 * 30, Sinks: 4, Recent: 20}
	const prompt = 150
	k := newKeyed(t, kvpage.F16, 16, false)
	x := New(need, 1, k.dim)
	h := x.Head(0)
	columns := make([]float32, need.Rank*k.dim)
	someColumns{}.Project(nil, 0, columns)
	refresh := func() {
		v, pos := k.s.Views(0)[0], k.s.PositionList(0, 0)
		h.Refresh(&v, pos, math.MaxInt, &policy.Layer{Prompt: prompt, Pos: [][]int32{pos}}, 0, someColumns{})
		if most, got := MostSize(need, k.dim, v.Tokens(), false, kvpage.F16).Bytes, x.Bytes(); got > most || most > 2*got {
			t.Errorf("%d tokens take %d bytes, at most %d were expected", v.Tokens(), got, most)
		}
	}
	check := func() {
		t.Helper()
		keys := k.rows()
		mean := make([]float64, k.dim)
		for _, key := range keys[4 : prompt-20] {
			for d, v := range key {
				mean[d] += float64(v) / (prompt - 24)
			}
		}
		signs := func(row []float64) (out []bool) {
			for c := range need.Rank {
				sum := 0.0
				for d, v := range row {
					sum += v * float64(columns[c*k.dim+d])
				}
				out = append(out, sum > 0)
			}
			return out
		}
		q, dst := make([]float32, 2*k.dim), make([]policy.Collisions, 2)
		for i := range q {
			q[i] = float32(k.rng.NormFloat64())
		}
		read := x.Scanned()
		h.Colliding(0, q, dst)
		read = x.Scanned() - read
		for r := range dst {
			row, product := make([]float64, k.dim), 0.0
			for d := range row {
				row[d] = float64(q[r*k.dim+d])
				product += row[d] * mean[d]
			}
			asked := signs(row)
			var want []int32
			for i, key := range keys {
				less, squares, tables := make([]float64, k.dim), 0.0, 0
				for d, v := range key {
					less[d] = float64(v) - mean[d]
					squares += less[d] * less[d]
				}
				own := signs(less)
				for c := 0; c < need.Rank; c += need.Bits {
					if slices.Equal(own[c:c+need.Bits], asked[c:c+need.Bits]) {
						tables++
						read -= 4
					}
				}
				if tables >= 2 {
					want = append(want, int32(i))
					read -= 4
				}
				if math.Abs(float64(dst[r].Norms[i])-math.Sqrt(squares)) > 1e-4 {
					t.Fatalf("key %d has the norm %g, want %g", i, dst[r].Norms[i], math.Sqrt(squares))
				}
			}
			read -= 4 * 30
			if !slices.Equal(dst[r].Tokens, want) || len(want) == 0 || len(want) == len(keys) {
				t.Errorf("%d tokens: query %d draws %v, want %v", len(keys), r, dst[r].Tokens, want)
			}
			if math.Abs(float64(dst[r].Mean)-product) > 1e-4 {
				t.Errorf("query %d times the mean is %g, want %g", r, dst[r].Mean, product)
			}
		}
		if read != 0 {
			t.Errorf("%d bytes too many were counted", read)
		}
	}
	for _, n := range []int{prompt, 1, 30, 1} {
		k.add(n)
		refresh()
		check()
	}
	for _, left := range []int{170, 151} {
		pos := k.s.PositionList(0, 0)[:left]
		h.Cut(pos)
		if err := k.s.Keep(0, 0, counted(left)); err != nil {
			t.Fatal(err)
		}
		check()
		k.add(12)
		refresh()
		check()
	}
	x.Reset()
	refresh()
	check()
}

// counted are the numbers below n.
func counted(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

// TestHashesOfAShortPrompt: without a token between the first and the newest there is no mean, and nothing is hashed.
func TestHashesOfAShortPrompt(t *testing.T) {
	k := newKeyed(t, kvpage.F16, 16, false)
	for prompt, trained := range map[int]bool{24: false, 25: true} {
		h := New(policy.Sketch{Kind: policy.SketchHashes, Bits: 3, Rank: 30, Sinks: 4, Recent: 20}, 1, k.dim).Head(0)
		if k.s.Tokens(0, 0) == 0 {
			k.add(40)
		}
		v, pos := k.s.Views(0)[0], k.s.PositionList(0, 0)
		h.Refresh(&v, pos, math.MaxInt, &policy.Layer{Prompt: prompt, Pos: [][]int32{pos}}, 0, someColumns{})
		if h.Trained(0) != trained {
			t.Errorf("a prompt of %d tokens: there are hashes: %t", prompt, !trained)
		}
	}
}
