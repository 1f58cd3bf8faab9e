package retrieval

import (
	"fmt"
	"math"
	"testing"

	"terrace/policy"
)

// TestChunkAttention: what tokens get from the queries of their own chunk is that of a slow reference, whatever passes the prompt comes in;
// of a second prompt the tokens before it have 1.
func TestChunkAttention(t *testing.T) {
	ask := policy.ChunkAttention{Chunk: 32, First: 8, Last: 4}
	for _, pass := range []int{7, 40, 64, 300} {
		for _, n := range []int{150, 140, 137, 12, 9, 44} { // a short last chunk, none, one that the last rows reach into, none at all, no row, one chunk
			bubble(t, fmt.Sprintf("%d tokens, %d a pass", n, pass), func(t *testing.T) {
				spec := parsed(t, "full")
				s := openScenario(t, spec, setup{})
				defer s.close(t)
				p := &testKeeper{needs: policy.Needs{Observations: []policy.Observation{ask}}}
				x, seen, begun := s.under(t, "a", p.set(), spec), 0, 0
				p.seen = func(l *policy.Layer) {
					seen++
					got, ok := policy.Seen[[][]float32](l.Observed, ask)
					if !ok || len(got) != 2 {
						t.Fatalf("nothing was seen: %v", got)
					}
					for g, row := range got {
						want := slowly(x, l.Index).inChunks(g, begun, l.N, ask)
						if len(row) != len(want) {
							t.Fatalf("%d tokens, want %d", len(row), len(want))
						}
						for i, w := range want {
							if math.Abs(float64(row[i])-w) > 1e-4*(1+w) {
								t.Fatalf("layer %d, head %d, token %d of %d: %g, want %g", l.Index, g, i, l.N, row[i], w)
							}
						}
					}
				}
				for _, tokens := range []int{n, 50} {
					if err := s.prompt(x, tokens, pass); err != nil {
						t.Fatal(err)
					}
					begun += tokens
					for range 3 {
						if err := s.step(x); err != nil {
							t.Fatal(err)
						}
						begun++
					}
				}
				if seen != 2*3 {
					t.Errorf("%d layers seen", seen)
				}
				if l := x.obs.each[0].(*chunkAttention).layers[0]; l.q != nil || l.sums != nil {
					t.Error("what only the prompt's end needs is still there")
				}
			})
		}
	}
}

// inChunks is policy.ChunkAttention of a KV head where the prompt begins at a position and ends before end.
func (s *slow) inChunks(g, begins, end int, ask policy.ChunkAttention) []float64 {
	out, group := make([]float64, end), s.shape.Layers.Group(s.layer)
	first := max(begins, ask.First)
	for i := ask.First; i < first; i++ {
		out[i] = 1
	}
	for from := first; from < end-ask.Last; from += ask.Chunk {
		to := min(from+ask.Chunk, end-ask.Last)
		for h := g * group; h < (g+1)*group; h++ {
			for t := from; t < from+ask.Chunk; t++ {
				sum, weights := 0.0, make([]float64, ask.Chunk)
				for i := range weights {
					weights[i] = 1
					if t < to && from+i < to {
						var dot float64
						q, k := s.query(h, int32(t)), s.key(g, int32(from+i))
						for d := range q {
							dot += q[d] * k[d]
						}
						weights[i] = math.Exp(dot)
					}
					sum += weights[i]
				}
				for i := from; i < to; i++ {
					out[i] += weights[i-from] / sum / float64(group)
				}
			}
		}
	}
	return out
}
