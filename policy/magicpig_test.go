package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// Colliding implements Scorer, token by token and table by table.
func (x *projected) Colliding(g int, q []float32, dst []Collisions) {
	n, tables := len(x.pos[g]), x.need.Rank/x.need.Bits
	mean := x.meanKey(g)
	less := func(key []float32) []float32 {
		out := slices.Clone(key)
		for d := range out {
			out[d] -= float32(mean[d])
		}
		return out
	}
	sign := func(row []float32, column int) bool {
		return dot64(row, x.matrix[g][column*x.dim:(column+1)*x.dim]) > 0
	}
	for r := range dst {
		row := q[r*x.dim : (r+1)*x.dim]
		c := Collisions{Norms: make([]float32, n)}
		for d, m := range mean {
			c.Mean += row[d] * float32(m)
		}
		for i, p := range x.pos[g] {
			key, equal := less(x.key(g, int(p))), 0
			c.Norms[i] = float32(math.Sqrt(dot64(key, key)))
			for t := range tables {
				same := true
				for b := range x.need.Bits {
					same = same && sign(row, t*x.need.Bits+b) == sign(key, t*x.need.Bits+b)
				}
				if same {
					equal++
				}
			}
			if equal >= 2 {
				c.Tokens = append(c.Tokens, int32(i))
			}
		}
		dst[r] = c
	}
}

// meanKey is the mean of the prompt's keys between its first and its newest.
func (x *projected) meanKey(g int) []float64 {
	mean, count := make([]float64, x.dim), 0.0
	for p := x.need.Sinks; p < x.prompt-x.need.Recent; p++ {
		for d, k := range x.key(g, p) {
			mean[d] += float64(k)
		}
		count++
	}
	for d := range mean {
		mean[d] /= count
	}
	return mean
}

// likelyDrawn is how likely a token collides in two of L tables of K signs, summed over the numbers of tables from two on.
func likelyDrawn(cosine float64, k, l int) (sum float64) {
	one := 1.0
	for range k {
		one *= 1 - math.Acos(cosine)/math.Pi
	}
	for tables := 2; tables <= l; tables++ {
		ways := 1.0
		for i := range tables {
			ways *= float64(l-i) / float64(i+1)
		}
		sum += ways * math.Pow(one, float64(tables)) * math.Pow(1-one, float64(l-tables))
	}
	return sum
}

// TestMagicPIGEstimates: what stands for the tokens that are not read has each drawn token's value and weight, by query head; a head that has
// drawn nothing adds nothing.
func TestMagicPIGEstimates(t *testing.T) {
	const n, bits, tables, sinks, recent = 140, 4, 9, 3, 10
	drawn, none := 0, 0
	for seed := range uint64(6) {
		s := randomScene(seed, n, 4, 2, 16)
		spec := fmt.Sprintf("magicpig:bits=%d,tables=%d,n_sink=%d,recent=%d,full_layers=7,seed=%d", bits+int(seed), tables, sinks, recent, seed)
		set := mustSet(t, spec, s)
		s.fill()
		x := project(s, set.Projector)
		l := s.layer(0, 1)
		l.Scores = x
		var read Selection
		set.Selector.Select(l, &read)
		scanned, union := int64(0), map[int32]bool{}
		for h := range s.heads {
			if h%2 == 0 {
				clear(union)
			}
			g, q := h/2, s.query(h, n-1)
			steady := append(span(nil, 0, sinks), span(nil, s.prompt-recent, n)...)
			equalIndices(t, read.Heads[g], steady, "tokens that are read")
			found := make([]Collisions, 1)
			x.Colliding(g, q, found)
			var sum float64
			values, mean := make([]float64, s.dim), x.meanKey(g)
			for _, i := range found[0].Tokens {
				if slices.Contains(steady, i) {
					continue
				}
				drawn++
				union[i] = true
				var product, size, length float64
				for d, k := range s.key(g, int(i)) {
					k := float64(k) - mean[d]
					product, size, length = product+float64(q[d])*k, size+k*k, length+float64(q[d])*float64(q[d])
				}
				w := math.Exp(dot64(q, s.key(g, int(i)))/math.Sqrt(float64(s.dim))) / (likelyDrawn(product/math.Sqrt(size*length), bits+int(seed), tables) + 1e-4)
				sum += w
				for d, v := range s.value(g, int(i)) {
					values[d] += w * float64(v)
				}
			}
			if h%2 == 1 { // half of a token's bytes of a layer and KV head is its value
				scanned += int64(float64(len(union)*l.KVBytes) / float64(2*s.layers*s.kvHeads))
			}
			got := read.Estimates.Values[h*s.dim : (h+1)*s.dim]
			if sum == 0 {
				none++
				if !math.IsInf(float64(read.Estimates.LogSum[h]), -1) || slices.Max(got) != 0 || slices.Min(got) != 0 {
					t.Errorf("%s: head %d has drawn nothing and adds %v with e^%g", spec, h, got, read.Estimates.LogSum[h])
				}
				continue
			}
			if d := math.Abs(float64(read.Estimates.LogSum[h]) - math.Log(sum)); d > 1e-4 {
				t.Errorf("%s: head %d: the logarithm of the sum is %g, want %g", spec, h, read.Estimates.LogSum[h], math.Log(sum))
			}
			for d := range got {
				if math.Abs(float64(got[d])-values[d]/sum) > 1e-4 {
					t.Fatalf("%s: head %d: value %d is %g, want %g", spec, h, d, got[d], values[d]/sum)
				}
			}
		}
		if read.Scanned != scanned || scanned == 0 {
			t.Errorf("%s: %d bytes of values were counted, want %d", spec, read.Scanned, scanned)
		}
	}
	if drawn < 100 || none == 0 {
		t.Errorf("%d tokens were drawn, %d heads drew none: the scenes show too little", drawn, none)
	}
}

// TestMagicPIGError: over many seeds the softmax's denominator is right on average, and as far off as the variance of its docs says.
func TestMagicPIGError(t *testing.T) {
	const n, bits, tables, seeds = 120, 3, 12, 150
	s := randomScene(3, n, 2, 1, 16)
	var off, squares, want [2]float64
	for seed := range seeds {
		set := mustSet(t, fmt.Sprintf("magicpig:bits=%d,tables=%d,n_sink=2,recent=8,full_layers=7,seed=%d", bits, tables, seed), s)
		s.fill()
		x := project(s, set.Projector)
		l := s.layer(0, 1)
		l.Scores = x
		var read Selection
		set.Selector.Select(l, &read)
		mean := x.meanKey(0)
		for h := range 2 {
			q, hashed, variance := s.query(h, n-1), 0.0, 0.0
			for i := 2; i < s.prompt-8; i++ {
				var product, size, length float64
				for d, k := range s.key(0, i) {
					k := float64(k) - mean[d]
					product, size, length = product+float64(q[d])*k, size+k*k, length+float64(q[d])*float64(q[d])
				}
				w, e := likelyDrawn(product/math.Sqrt(size*length), bits, tables), math.Exp(dot64(q, s.key(0, i))/math.Sqrt(float64(s.dim)))
				hashed, variance = hashed+e, variance+e*e*(1-w)/w
			}
			d := math.Exp(float64(read.Estimates.LogSum[h]))/hashed - 1
			off[h], squares[h], want[h] = off[h]+d/seeds, squares[h]+d*d/seeds, variance/hashed/hashed
		}
	}
	for h := range 2 {
		if limit := 4 * math.Sqrt(squares[h]/seeds); math.Abs(off[h]) > limit {
			t.Errorf("head %d: denominators are off by %.3g on average, more than chance (%.3g)", h, off[h], limit)
		}
		if ratio := math.Sqrt(squares[h] / want[h]); ratio < 0.7 || ratio > 1.6 {
			t.Errorf("head %d: the error is %.3g, %.2f times what the variance says", h, math.Sqrt(squares[h]), ratio)
		}
	}
}

// TestMagicPIGReadsAll where nothing is hashed.
func TestMagicPIGReadsAll(t *testing.T) {
	s := randomScene(3, 80, 4, 2, 16)
	for spec, all := range map[string]bool{"magicpig": true, "magicpig:recent=8": true, "magicpig:recent=8,full_layers=1": false, "magicpig:recent=76,full_layers=1": true, "magicpig:recent=75,full_layers=1": false} {
		set := mustSet(t, spec, s)
		s.fill()
		l := s.layer(0, 1)
		l.Scores = project(s, set.Projector)
		var read Selection
		set.Selector.Select(l, &read)
		most, _ := set.Selector.(Reader).Most(l)
		if read.All != all || all != (most == l.N) || !all && len(read.Heads[1]) != most {
			t.Errorf("%s: reads all: %t, %d tokens at most, %d read", spec, read.All, most, len(read.Heads[1]))
		}
	}
	for _, spec := range []string{"magicpig:bits=0", "magicpig:K=13", "magicpig:tables=1", "magicpig:full_layers=x", "topp:magicpig", "vattention:magicpig"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
