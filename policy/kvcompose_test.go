package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// composing is how kvcompose is asked, for the reference.
type composing struct {
	ratio                          float64
	loose, mean, groupMax, headMax bool // not structured; agg_task=mean; agg_group=max; agg_head=max
	norms, alone                   bool // add_v_norm; no mean across heads
	least                          int
}

func (c composing) String() string {
	agg := func(on bool) string { return map[bool]string{true: "max", false: "mean"}[on] }
	return fmt.Sprintf("kvcompose:ratio=%g,structured=%t,agg_task=%s,agg_group=%s,agg_head=%s,add_v_norm=%t,add_mean_across_heads=%t,keep_token_lower_bound=%d",
		c.ratio, !c.loose, agg(!c.mean), agg(c.groupMax), agg(c.headMax), c.norms, !c.alone, c.least)
}

// combine is the mean or the largest.
func combine(x []float64, most bool) float64 {
	if most {
		return slices.Max(x)
	}
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// refKVCompose follows the paper: attention [layers][heads][rows][tokens] of the second pass, norms of values [layers][KV heads][tokens];
// what stays of each layer and KV head. One list of all candidates is sorted, and taken from until the budget is used up.
func refKVCompose(c composing, attention [][][][]float64, norms [][][]float64) [][][]int32 {
	layers, heads, kvHeads, n := len(attention), len(attention[0]), len(norms[0]), len(norms[0][0])
	group := heads / kvHeads
	scores := make([][][]float64, layers)
	for l := range scores {
		scores[l] = make([][]float64, kvHeads)
		for g := range kvHeads {
			scores[l][g] = make([]float64, n)
			for i := range n {
				var of []float64
				for h := range group {
					var column []float64
					for _, row := range attention[l][g*group+h] {
						column = append(column, row[i])
					}
					of = append(of, combine(column, !c.mean))
				}
				scores[l][g][i] = combine(of, c.groupMax)
				if c.norms {
					scores[l][g][i] *= norms[l][g][i]
				}
			}
		}
		for i := 0; i < n && !c.alone; i++ {
			mean := 0.0
			for g := range kvHeads {
				mean += scores[l][g][i] / float64(kvHeads)
			}
			for g := range kvHeads {
				scores[l][g][i] += mean
			}
		}
	}
	order := func(l, g int) []int { // of a head's tokens, the best first
		idx := make([]int, n)
		for i := range idx {
			idx[i] = i
		}
		sort.SliceStable(idx, func(a, b int) bool { return scores[l][g][idx[a]] > scores[l][g][idx[b]] })
		return idx
	}
	type candidate struct {
		layer, head, rank int
		score             float64
	}
	var all []candidate
	for l := range layers {
		for j := range n {
			var of []float64
			for g := range kvHeads {
				s := scores[l][g][order(l, g)[j]]
				of = append(of, s)
				if c.loose {
					all = append(all, candidate{l, g, j, s})
				}
			}
			if !c.loose {
				all = append(all, candidate{l, 0, j, combine(of, c.headMax)})
			}
		}
	}
	for i := range all { // the first layer is never the smallest
		for _, other := range all {
			if !c.loose && all[i].layer == 0 && other.rank == all[i].rank {
				all[i].score = max(all[i].score, other.score)
			}
		}
	}
	sort.SliceStable(all, func(a, b int) bool {
		if x, y := all[a].rank < c.least, all[b].rank < c.least; x != y {
			return x
		}
		return all[a].score > all[b].score
	})
	kept := make([][][]int32, layers)
	for l := range kept {
		kept[l] = make([][]int32, kvHeads)
	}
	for _, x := range all[:int(float64(len(all))*(1-c.ratio))] {
		for g := range kvHeads {
			if !c.loose || g == x.head {
				kept[x.layer][g] = append(kept[x.layer][g], int32(order(x.layer, g)[x.rank]))
			}
		}
	}
	for _, layer := range kept {
		for _, head := range layer {
			slices.Sort(head)
		}
	}
	return kept
}

// TestKVComposeAgainstReference: three layers under every parameter, the attention of a second pass as random rows.
func TestKVComposeAgainstReference(t *testing.T) {
	const n, rows, layers = 60, 9, 3
	for i, c := range []composing{{ratio: 0.5}, {ratio: 0.3, loose: true}, {ratio: 0.8, mean: true}, {ratio: 0.5, groupMax: true}, {ratio: 0.45, headMax: true}, {ratio: 0.8, headMax: true}, {ratio: 0.2, headMax: true},
		{ratio: 0.6, norms: true}, {ratio: 0.55, alone: true}, {ratio: 0.7, least: 16}, {ratio: 0.3, least: 20}, {ratio: 0.7, loose: true, least: 14, alone: true, norms: true, mean: true}} {
		r := rand.New(rand.NewPCG(uint64(i), 3))
		s := randomScene(uint64(i), n, 4, 2, 8)
		p := mustSet(t, c.String(), s).Keeper.(Reconstructor)
		ask := p.Repeats(n, 1)
		if want := (Repeats{Plain: true, ChunkTokens: n, Summed: c.mean, ValueNorms: c.norms}); ask != want {
			t.Fatalf("%s: asks for %+v, want %+v", c, ask, want)
		}
		attention, norms := make([][][][]float64, layers), make([][][]float64, layers)
		p.BeginRepeats()
		for l := range layers {
			rep := &Repeat{From: []int{0, 0}, To: []int{n, n}}
			attention[l], norms[l] = make([][][]float64, s.heads), make([][]float64, s.kvHeads)
			for h := range s.heads {
				out := make([]float32, n)
				for range rows {
					row := make([]float64, n)
					for i := range row {
						row[i] = r.Float64() * r.Float64() * float64([]int{2, 1, 4}[l]+h*[]int{1, 2, 0}[l])
						if c.mean {
							out[i] += float32(row[i])
						} else {
							out[i] = max(out[i], float32(row[i]))
						}
					}
					attention[l][h] = append(attention[l][h], row)
				}
				rep.Weights = append(rep.Weights, out)
			}
			for h := range s.heads {
				g := h / 2
				if h%2 == 0 {
					for range n {
						norms[l][g] = append(norms[l][g], 0.5+r.Float64())
					}
				}
				row := make([]float32, n)
				for i, x := range norms[l][g] {
					row[i] = float32(x)
				}
				rep.Norms = append(rep.Norms, row)
			}
			layer := *s.shown(p)
			layer.Index, layer.Layers = l, layers
			p.ObserveRepeat(&layer, rep)
		}
		want := refKVCompose(c, attention, norms)
		for l := range layers {
			layer := *s.shown(p)
			layer.Index, layer.Layers = l, layers
			var keep Selection
			p.KeepPrompt(&layer, &keep)
			for g, got := range keep.Heads {
				equalIndices(t, got, want[l][g], fmt.Sprintf("%s: layer %d, head %d", c, l, g))
			}
		}
	}
}

// TestKVComposeMeansByPosition: where an earlier prompt has left a head other tokens, the mean across heads is that of a position.
func TestKVComposeMeansByPosition(t *testing.T) {
	s := randomScene(5, 6, 2, 2, 8)
	s.pos = [][]int32{{0, 1, 4, 5}, {1, 2, 3, 5}}
	p := mustSet(t, "kvcompose:ratio=0.5,structured=false", s).Keeper.(Reconstructor)
	p.BeginRepeats()
	p.ObserveRepeat(s.shown(p), &Repeat{From: []int{0, 0}, To: []int{4, 4}, Weights: [][]float32{{0.3, 0.1, 0.35, 0.2}, {0.28, 0.31, 0.2, 0.2}}})
	var keep Selection
	p.KeepPrompt(s.shown(p), &keep)
	// Position 1: 0.1 + 0.19 and 0.28 + 0.19; 5: 0.4 each; others half as much again as their own. By index the third of head 1 would have 0.475.
	equalIndices(t, keep.Heads[0], []int32{0, 2, 3}, "head 0")
	equalIndices(t, keep.Heads[1], []int32{0, 1, 3}, "head 1")
}

// TestKVComposeRefuses what it cannot do; it needs no words that ask.
func TestKVComposeRefuses(t *testing.T) {
	for spec, words := range map[string]bool{"kvcompose": false, "kvzip": true, "snapkv": false} {
		if p, err := Parse(spec); err != nil || p.Rereads() != words {
			t.Errorf("%s: %v, asks in words: %t", spec, err, !words)
		}
	}
	for _, spec := range []string{"kvcompose:agg_task=sum", "kvcompose:structured=2", "kvcompose:keep_token_lower_bound=-1", "kvcompose+h2o"} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) && !errors.Is(err, ErrClash) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
