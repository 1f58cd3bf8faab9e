package retrieval

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// slowHot is hotTokens as a set of positions, whose slots do not matter: a token's key moves with its position.
type slowHot struct {
	pos []int32         // of the tokens that are known
	hot map[int32]int32 // by position, the slot that it was given
}

// TestHotTokensFollowASet runs random operations against a plain set: the same tokens are hot, those that stay keep their slots, and no two
// share one.
func TestHotTokensFollowASet(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var h hotTokens
		ref := slowHot{hot: map[int32]int32{}}
		for op := range 80 {
			switch rng.IntN(6) {
			case 0:
				n := len(ref.pos) + rng.IntN(6)
				hot := len(ref.pos) + rng.IntN(6)
				ref.extend(&h, n, hot)
			case 1, 2:
				if len(ref.pos) > 0 {
					ref.hold(&h, rng.IntN(len(ref.pos)))
				}
			case 3:
				if len(ref.pos) > 0 {
					i := rng.IntN(len(ref.pos))
					h.release(i)
					delete(ref.hot, ref.pos[i])
				}
			case 4:
				ref.rename(&h, rng)
			case 5:
				if n := rng.IntN(len(ref.pos) + 1); rng.IntN(4) == 0 {
					h.cut(n)
					for _, p := range ref.pos[n:] {
						delete(ref.hot, p)
					}
					ref.pos = ref.pos[:n]
				}
			}
			h.check(t)
			ref.compare(t, &h, seed, op)
		}
	}
}

// extend adds tokens behind the last, those from hot on hot.
func (r *slowHot) extend(h *hotTokens, n, hot int) {
	h.extend(n, hot)
	for i := len(r.pos); i < n; i++ {
		last := int32(-1)
		if i > 0 {
			last = r.pos[i-1]
		}
		r.pos = append(r.pos, last+2)
		if i >= hot {
			r.hot[r.pos[i]] = h.Slot(i)
		}
	}
}

func (r *slowHot) hold(h *hotTokens, i int) {
	h.hold(i)
	if _, had := r.hot[r.pos[i]]; !had {
		r.hot[r.pos[i]] = h.Slot(i)
	}
}

// rename has some tokens in the middle leave and others come, as blocks do.
func (r *slowHot) rename(h *hotTokens, rng *rand.Rand) {
	var pos []int32
	for _, p := range r.pos {
		if rng.IntN(5) > 0 {
			pos = append(pos, p)
		} else {
			delete(r.hot, p)
		}
		if rng.IntN(6) == 0 && !slices.Contains(r.pos, p+1) {
			pos = append(pos, p+1) // it comes cold
		}
	}
	h.rename(pos, r.pos)
	r.pos = pos
}

func (r *slowHot) compare(t *testing.T, h *hotTokens, seed uint64, op int) {
	t.Helper()
	if h.held != len(r.hot) {
		t.Fatalf("seed %d, operation %d: %d held, want %d", seed, op, h.held, len(r.hot))
	}
	for i, p := range r.pos {
		slot, hot := r.hot[p]
		if !hot {
			slot = -1
		}
		if got := h.Slot(i); got != slot {
			t.Fatalf("seed %d, operation %d: token %d at position %d has slot %d, want %d", seed, op, i, p, got, slot)
		}
	}
	if slots := slices.Sorted(maps.Values(r.hot)); len(slices.Compact(slots)) != len(r.hot) {
		t.Fatalf("seed %d, operation %d: two tokens share a slot: %v", seed, op, slots)
	}
	if h.Slot(len(r.pos)) >= 0 {
		t.Fatalf("seed %d, operation %d: a token past the end is hot", seed, op)
	}
}
