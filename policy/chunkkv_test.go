package policy

import (
	"fmt"
	"slices"
	"testing"
)

// refChunkKV is kvpress's ChunkKVPress on scores [heads][n], written line by line after it: what stays, the same in every head.
func refChunkKV(scores [][]float32, length int, ratio float64) []int32 {
	n := len(scores[0])
	whole, remaining := n/length, n%length
	mean := func(from, to int) float64 {
		sums := make([]float64, to-from) // over the heads
		for _, row := range scores {
			for i, s := range row[from:to] {
				sums[i] += float64(s)
			}
		}
		total := 0.0
		for _, s := range sums {
			total += s
		}
		return total / float64(to-from)
	}
	var chunks []float64
	for c := range whole {
		chunks = append(chunks, mean(c*length, (c+1)*length))
	}
	if remaining > 0 {
		chunks = append(chunks, mean(n-remaining, n))
	}
	var kept []int32
	for _, c := range topOf(chunks, max(1, int(float64(len(chunks))*(1-ratio)))) {
		for i := int(c) * length; i < n && i < (int(c)+1)*length; i++ {
			kept = append(kept, int32(i))
		}
	}
	return kept
}

// TestChunkKVAgainstReference: whole chunks and a rest, one chunk alone, prompts shorter than a chunk, around scorers of every kind.
func TestChunkKVAgainstReference(t *testing.T) {
	cut, all := 0, 0
	for _, n := range []int{97, 100, 283} {
		s := randomScene(uint64(n), n, 4, 2, 16)
		s.fill()
		for _, inner := range []string{"knorm", "snapkv", "streaming_llm", "lagkv", "expected_attention", "keydiff", "random", "pyramidkv"} {
			for _, length := range []int{1, 7, 20, 90, 300} {
				for _, ratio := range []float64{0.25, 0.5, 0.97} {
					spec := fmt.Sprintf("chunkkv:%s,chunk_length=%d,ratio=%g", inner, length, ratio)
					kept := checkChunkKV(t, s, spec, length, ratio)
					if all++; !slices.Equal(kept, span(nil, n-len(kept), n)) {
						cut++
					}
				}
			}
		}
	}
	if cut < all/2 {
		t.Errorf("only %d of %d cases keep more than the newest tokens", cut, all)
	}
}

// checkChunkKV compares what chunkkv keeps of a scene with the reference, which it returns for the first head.
func checkChunkKV(t *testing.T, s *scene, spec string, length int, ratio float64) []int32 {
	t.Helper()
	p, n := mustSet(t, spec, s).Keeper.(*chunkKV), len(s.q)
	l := s.shown(p)
	var got, want Selection
	p.KeepPrompt(l, &got)
	if length > n {
		p.inner.KeepPrompt(l, &want)
	} else {
		scores := heads(nil, l)
		p.inner.Score(l, int(float64(n)*(1-ratio)), scores)
		kept := refChunkKV(scores, length, ratio)
		want.Heads = [][]int32{kept, kept}
	}
	equalPositions(t, got.Heads, want.Heads, fmt.Sprintf("%s, %d tokens", spec, n))
	return want.Heads[0]
}

// TestChunkKVInWrappers: another wrapper's budget is the one that holds, in whole chunks.
func TestChunkKVInWrappers(t *testing.T) {
	s := randomScene(5, 200, 4, 2, 16)
	s.fill()
	s.layers = 2
	for layer, want := range []int{60, 20} {
		s.index = layer
		p := mustSet(t, "per_layer:chunkkv/knorm,budgets=79/30,ratio=0.5", s).Keeper
		var keep Selection
		p.KeepPrompt(s.shown(p), &keep)
		for g, idx := range keep.Heads {
			if len(idx) != want {
				t.Errorf("layer %d head %d keeps %d, want %d", layer, g, len(idx), want)
			}
		}
	}
}
