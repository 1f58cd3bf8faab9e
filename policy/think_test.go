package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// refThinK is kvpress's ThinKPress on a scene: the channels that become 0, per KV head.
func refThinK(s *scene, ratio float64, window int) (zero [][]int32) {
	n, group := len(s.q), s.heads/s.kvHeads
	for g := range s.kvHeads {
		scores := make([]float64, s.dim)
		for d := range scores {
			var queries, keys float64
			for h := g * group; h < (g+1)*group; h++ {
				var sum float64
				rows := s.q[max(0, n-window):]
				for _, q := range rows {
					sum += math.Pow(float64(q[h*s.dim+d]), 2)
				}
				queries += sum / float64(len(rows)) / float64(group)
			}
			for _, p := range s.pos[g] {
				keys += math.Pow(float64(s.key(g, int(p))[d]), 2) / float64(len(s.pos[g]))
			}
			scores[d] = -queries * keys
		}
		zero = append(zero, topOf(scores, int(float64(s.dim)*ratio)))
	}
	return zero
}

func TestThinKAgainstReference(t *testing.T) {
	for _, n := range []int{20, 283} {
		for _, ratio := range []float64{0, 0.1, 0.5, 0.99} {
			for _, window := range []int{1, 32} {
				s := randomScene(uint64(n), n, 4, 2, 16)
				s.fill()
				spec := fmt.Sprintf("knorm:ratio=0.4+ThinKPress:key_channel_compression_ratio=%g,window_size=%d", ratio, window)
				set := mustSet(t, spec, s)
				var keep, zero Selection
				set.Keeper.KeepPrompt(s.shown(set.Keeper), &keep)
				s.keep(&keep)
				set.Channels.ZeroChannels(s.shown(set.Channels), &zero)
				want := refThinK(s, ratio, window)
				for g := range want {
					if !slices.Equal(zero.Heads[g], want[g]) {
						t.Errorf("%s, %d tokens, head %d: channels %v, want %v", spec, n, g, zero.Heads[g], want[g])
					}
				}
			}
		}
	}
}

// TestThinKClashes: what chooses by keys, or brings them back, and a second think.
func TestThinKClashes(t *testing.T) {
	for _, spec := range []string{"think+quest", "sliminfer+think", "minference+think", "think+think", "hillinfer+think"} {
		if _, err := Parse(spec); !errors.Is(err, ErrClash) {
			t.Errorf("%s: %v, want a clash", spec, err)
		}
	}
	if _, err := Parse("think:channels=1"); !errors.Is(err, ErrParam) {
		t.Errorf("all channels gone: %v", err)
	}
	if s, err := Parse("h2o+think"); err != nil || s.Lossless() {
		t.Errorf("h2o+think: %v", err)
	}
	if s, err := Parse("think"); err != nil || s.Lossless() {
		t.Errorf("think counts as full: %v", err)
	}
}
