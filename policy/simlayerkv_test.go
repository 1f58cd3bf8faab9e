package policy

import (
	"errors"
	"fmt"
	"math"
	"testing"
)

// refSimLayerKV follows kvpress's source: the weights of the last queries on what stands before them, mean over queries and heads, the
// first and the newest of those summed; the tokens that stay where the layer is lazy.
func refSimLayerKV(s *scene, initial, recent, last int) (share float64, kept []int32) {
	n := len(s.q)
	mean := make([]float64, n-last)
	for h := range s.heads {
		for t := n - last; t < n; t++ {
			w := s.weights(h, t)
			for i := range mean {
				mean[i] += w[i] / float64(s.heads*last)
			}
		}
	}
	for i, w := range mean {
		if i < initial || i >= len(mean)-recent {
			share += w
		}
	}
	for i := range n {
		if i < initial || i >= n-recent+last {
			kept = append(kept, int32(i))
		}
	}
	return share, kept
}

// TestSimLayerKV: just below a layer's share of weight it is cut, at it it is not.
func TestSimLayerKV(t *testing.T) {
	for _, c := range []struct{ n, initial, recent, last int }{{80, 4, 20, 1}, {80, 0, 30, 8}, {61, 9, 40, 3}, {50, 4, 44, 1}, {51, 5, 43, 2}} {
		s := randomScene(uint64(c.n), c.n, 4, 2, 16)
		share, kept := refSimLayerKV(s, c.initial, c.recent, c.last)
		all := span(nil, 0, c.n)
		for threshold, want := range map[float64][]int32{share - 1e-4: kept, share + 1e-4: all, 1: all, 0: kept} {
			spec := fmt.Sprintf("simlayerkv:lazy_threshold=%.6f,n_initial=%d,n_recent=%d,n_last=%d", threshold, c.initial, c.recent, c.last)
			p := mustSet(t, spec, s).Keeper
			var keep Selection
			p.KeepPrompt(s.shown(p), &keep)
			if keep.All {
				keep.Heads = [][]int32{all, all}
			}
			for g, got := range keep.Heads {
				equalIndices(t, got, want, fmt.Sprintf("%s of %d tokens, head %d", spec, c.n, g))
			}
		}
	}
}

// TestSimLayerKVLengths: a text of first, newest and last tokens stays whole, one token more is cut; heads with fewer tokens stay whole.
func TestSimLayerKVLengths(t *testing.T) {
	for n, want := range map[int]int{27: 27, 28: 4 + 20 - 3} {
		s := randomScene(5, n, 4, 2, 16)
		p := mustSet(t, "SimLayerKVPress:lazy_threshold=0,n_recent=20,n_last=3", s).Keeper
		var keep Selection
		p.KeepPrompt(s.shown(p), &keep)
		if got := n; keep.All && got != want || !keep.All && len(keep.Heads[0]) != want {
			t.Errorf("%d tokens: keeps %v, want %d", n, keep, want)
		}
	}
	s := randomScene(5, 60, 4, 2, 16)
	s.pos = [][]int32{span(nil, 45, 60), span(nil, 0, 60)}
	p := mustSet(t, "simlayerkv:lazy_threshold=0,n_recent=20", s).Keeper
	var keep Selection
	p.KeepPrompt(s.shown(p), &keep)
	equalIndices(t, keep.Heads[0], span(nil, 0, 15), "a head with few tokens")
	equalIndices(t, keep.Heads[1], span(span(nil, 0, 4), 41, 60), "the other")
}

func TestSimLayerKVRefuses(t *testing.T) {
	for _, spec := range []string{"simlayerkv:lazy_threshold=1.5", "simlayerkv:n_recent=8,n_last=8", "simlayerkv:n_last=0", fmt.Sprintf("simlayerkv:lazy_threshold=%g", math.NaN())} {
		if _, err := Parse(spec); !errors.Is(err, ErrParam) {
			t.Errorf("%s: %v, want a bad parameter", spec, err)
		}
	}
}
