package retrieval

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"terrace/csdshim"
	"terrace/internal/kernels"
	"terrace/policy"
)

// reads is what the reference says of a step at a position in one layer: the tokens that each KV head reads, the scores they were
// chosen by with as many places as there are candidates, which of these were chosen, and the share of the attention that they hold.
type reads struct {
	heads  [][]int32
	scores [][]float64
	chosen [][]int
	share  []float64
}

// references are policies with their choice by the formulas of their papers.
var references = []struct {
	policy string
	layers []int // that select
	places []setup
	reads  func(s *slow, at int32, prompt int) reads
}{
	{"quest:budget=64", []int{2}, []setup{{}, {blocks: 200}}, questReads},
	{"quest:budget=96,dense_layers=0", []int{0, 1, 2}, []setup{{}, {blocks: 200}}, questReads},
	{"oracle:budget=30", []int{0, 1, 2}, []setup{{}}, oracleReads},
	{"sparq:budget=40,rank=8,local=10", []int{0, 1, 2}, []setup{{}, {blocks: 300}}, sparqReads},
	{"hillinfer:alpha=0.2,query=exact", []int{0, 1, 2}, []setup{{}, {blocks: 200}, {blocks: 200, codes: csdshim.CodesInt8}}, hillReads},
	{"hillinfer:alpha=0.1,query=prev_step", []int{0, 1, 2}, []setup{{}, {blocks: 200}, {blocks: 200, codes: csdshim.CodesInt8}}, hillReads},
	{"hillinfer:alpha=0.1,query=guess,guess_from=0", []int{0, 1, 2}, []setup{{}, {blocks: 200}, {blocks: 200, codes: csdshim.CodesInt8}}, hillReads},
}

// TestSelectionIsTheFormulas: what a step reads of a layer is what a plain sort over all scores in float64 gives, and its output is the
// attention over that, wherever the tokens lie and whoever scores.
func TestSelectionIsTheFormulas(t *testing.T) {
	const prompt, steps = 210, 4
	for _, r := range references {
		for _, with := range r.places {
			bubble(t, fmt.Sprintf("%s, %d blocks, %v", r.policy, with.blocks, with.codes), func(t *testing.T) {
				spec := parsed(t, r.policy)
				s := openScenario(t, spec, with)
				defer s.close(t)
				x := s.text(t, "a", spec)
				if err := s.prompt(x, prompt, 64); err != nil {
					t.Fatal(err)
				}
				for range steps {
					at := x.Read()
					if err := s.step(x); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					for layer := range s.shared.o.Shape.Layers {
						ref := slowly(x, layer)
						if !slices.Contains(r.layers, layer) {
							all := [][]int32{upTo(at + 1), upTo(at + 1)}
							ref.expect(t, at, reads{heads: all})
							continue
						}
						ref.expect(t, at, r.reads(ref, at, prompt))
					}
				}
			})
		}
	}
}

// expect holds a step against the reference.
func (s *slow) expect(t *testing.T, at int32, want reads) {
	t.Helper()
	for g := range want.heads {
		got := s.x.picks[s.layer][g]
		if slices.Equal(got, want.heads[g]) {
			continue
		}
		if want.scores == nil || !same(placesOf(got, upTo(at+1))[:len(want.chosen[g])], want.chosen[g], want.scores[g]) {
			t.Fatalf("position %d, layer %d, KV head %d reads %v, want %v", at, s.layer, g, got, want.heads[g])
		}
	}
	s.compareOutput(t, s.x.layerOut(s.layer), at, s.x.picks[s.layer], want.share)
}

// questReads: pages of 16 by Σ max(q·min, q·max) over the group's heads; the newest page is one of them.
func questReads(s *slow, at int32, _ int) (r reads) {
	n, budget := int(at)+1, 64
	if s.x.set.String() != "quest:budget=64" {
		budget = 96
	}
	for g := range s.shape.kv(s.layer).Heads {
		pages := (n + 15) / 16
		scores := make([]float64, pages-1)
		for page := range scores {
			low, high := s.key(g, int32(page*16)), s.key(g, int32(page*16))
			for pos := page * 16; pos < page*16+16; pos++ {
				for d, k := range s.key(g, int32(pos)) {
					low[d], high[d] = min(low[d], k), max(high[d], k)
				}
			}
			for h := g * s.group(); h < (g+1)*s.group(); h++ {
				for d, q := range s.query(h, at) {
					scores[page] += max(q*low[d], q*high[d])
				}
			}
		}
		var head []int32
		for _, page := range append(best(scores, budget/16-1), pages-1) {
			for pos := page * 16; pos < min(page*16+16, n); pos++ {
				head = append(head, int32(pos))
			}
		}
		r.heads = append(r.heads, head)
	}
	return r
}

// oracleReads: the tokens with the largest sum of softmax weights over the group, the newest in any case.
func oracleReads(s *slow, at int32, _ int) (r reads) {
	for g := range s.shape.kv(s.layer).Heads {
		sum := make([]float64, at)
		for h := g * s.group(); h < (g+1)*s.group(); h++ {
			for i, w := range s.weights(h, at, upTo(at+1))[:at] {
				sum[i] += w
			}
		}
		r.add(sum, best(sum, 30-1), at)
	}
	return r
}

// add is a KV head's choice among the first tokens, with all from one on.
func (r *reads) add(scores []float64, chosen []int, newest int32) {
	var head []int32
	for _, i := range chosen {
		head = append(head, int32(i))
	}
	for i := len(scores); i <= int(newest); i++ {
		head = append(head, int32(i))
	}
	r.heads, r.scores, r.chosen = append(r.heads, head), append(r.scores, scores), append(r.chosen, chosen)
}

// sparqReads: Algorithm 1 of arXiv 2312.04985 for each KV head, with 8 dimensions, 40 tokens, 10 of them the newest.
func sparqReads(s *slow, at int32, _ int) (r reads) {
	n, dim, group := int(at)+1, s.shape.kv(s.layer).KeyDim, s.group()
	for g := range s.shape.kv(s.layer).Heads {
		size := make([]float64, dim)
		for h := g * group; h < (g+1)*group; h++ {
			for d, q := range s.query(h, at) {
				size[d] += math.Abs(q)
			}
		}
		dims, sum, each := best(size, 8), make([]float64, n), make([][]float64, group)
		for h := range group {
			q, part, whole := s.query(g*group+h, at), 0.0, 0.0
			for _, x := range q {
				whole += math.Abs(x)
			}
			for _, d := range dims {
				part += math.Abs(q[d])
			}
			scores := make([]float64, n)
			for i := range scores {
				key := s.key(g, int32(i))
				for _, d := range dims {
					scores[i] += q[d] * key[d]
				}
				scores[i] /= math.Sqrt(float64(dim) * part / whole)
			}
			each[h] = softmax(scores)
			for i, w := range each[h] {
				sum[i] += w
			}
		}
		r.add(sum[:n-10], best(sum[:n-10], 30), at)
		for h := range group {
			share := 0.0
			for _, pos := range r.heads[g] {
				share += each[h][pos]
			}
			r.share = append(r.share, share)
		}
	}
	return r
}

// hillReads: an 8-bit query times 8-bit keys, summed over all heads, in half precision: the best fifth (a tenth, with guesses) of the
// tokens before the newest. Integers are exact, so the choice is too; the lower position wins ties.
func hillReads(s *slow, at int32, prompt int) (r reads) {
	kv, alpha := s.shape.kv(s.layer), 0.2
	if s.x.obs.needs.Query > 0 {
		alpha = 0.1
	}
	asked := at // whose query it is scored with
	if s.x.obs.needs.Query == policy.QueryPrevious && int(at) > prompt {
		asked--
	}
	var query []float32 // the sum of a group's queries times the scale of its keys
	scales := make([]float32, kv.Heads)
	for g := range kv.Heads {
		for pos := range int32(prompt) {
			for _, k := range s.key(g, pos) {
				scales[g] = max(scales[g], float32(math.Abs(k)))
			}
		}
		scales[g] /= 127
		sum := make([]float32, kv.KeyDim)
		for h := g * s.group(); h < (g+1)*s.group(); h++ {
			for d, q := range s.query(h, asked) {
				sum[d] += float32(q)
			}
		}
		for _, x := range sum {
			query = append(query, x*scales[g])
		}
	}
	top := float32(0)
	for _, x := range query {
		top = max(top, float32(math.Abs(float64(x))))
	}
	shift := 0
	for ; 127*127*kv.Heads*kv.KeyDim>>shift > 65504; shift++ {
	}
	scores := make([]float64, at)
	for i := range scores {
		sum := 0.0
		for g := range kv.Heads {
			for d, k := range s.key(g, int32(i)) {
				code := max(-127, min(127, math.RoundToEven(float64(float32(k)/scales[g]))))
				sum += code * math.RoundToEven(float64(query[g*kv.KeyDim+d]*(127/top)))
			}
		}
		scores[i] = float64(kernels.RoundHalf(float32(math.Ldexp(sum, -shift))))
	}
	k := int(math.Ceil(alpha*float64(at) - 1e-9))
	for range kv.Heads {
		r.add(scores, best(scores, k), at)
	}
	return r
}
