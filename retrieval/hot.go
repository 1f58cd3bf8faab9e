package retrieval

import "slices"

// hotTokens says which tokens of a text the host scores itself (hot), the same in every layer: all others are the drive's
// (cold). Each hot token has a slot, under which every layer's sketch holds its key. Slots of tokens that turned cold are
// used again.
type hotTokens struct {
	index   []int32 // [slots] token, or -1
	of      []int32 // [tokens] slot, or -1: cold
	free    []int32
	held    int
	coldEnd int // every token from here on is hot
}

// Slot is a token's, or -1.
func (h *hotTokens) Slot(i int) int32 {
	if i >= len(h.of) {
		return -1
	}
	return h.of[i]
}

// hold makes a token hot.
func (h *hotTokens) hold(i int) {
	for len(h.of) <= i {
		h.of = append(h.of, -1)
	}
	if h.of[i] >= 0 {
		return
	}
	if n := len(h.free); n > 0 {
		h.of[i] = h.free[n-1]
		h.free = h.free[:n-1]
	} else {
		h.of[i] = int32(len(h.index))
		h.index = append(h.index, -1)
	}
	h.index[h.of[i]] = int32(i)
	h.held++
	h.lowerColdEnd()
}

// lowerColdEnd brings coldEnd to just behind the last cold token.
func (h *hotTokens) lowerColdEnd() {
	for h.coldEnd > 0 && h.of[h.coldEnd-1] >= 0 {
		h.coldEnd--
	}
}

// extend takes note of the tokens before n that were not known: they are cold, but from index hot on.
func (h *hotTokens) extend(n, hot int) {
	for i := len(h.of); i < n; i++ {
		if i >= hot {
			h.hold(i)
			continue
		}
		h.of = append(h.of, -1)
		h.coldEnd = i + 1
	}
}

// release makes a token cold.
func (h *hotTokens) release(i int) {
	s := h.Slot(i)
	if s < 0 {
		return
	}
	h.of[i], h.index[s] = -1, -1
	h.free = append(h.free, s)
	h.held--
	h.coldEnd = max(h.coldEnd, i+1)
}

// rename has the tokens whose positions were was be those whose positions are pos: they keep their slots, who was not there has none.
// What is held of tokens behind them stays behind them.
func (h *hotTokens) rename(pos, was []int32) {
	of, behind := make([]int32, 0, len(pos)+1), h.of[min(len(was), len(h.of)):]
	at := 0
	for i, p := range was[:min(len(was), len(h.of))] {
		for ; at < len(pos) && pos[at] < p; at++ {
			of = append(of, -1)
		}
		switch s := h.of[i]; {
		case at < len(pos) && pos[at] == p:
			of = append(of, s)
			at++
		case s >= 0:
			h.free = append(h.free, s)
			h.held--
		}
	}
	for ; at < len(pos); at++ {
		of = append(of, -1)
	}
	h.of = append(of, behind...)
	for s := range h.index {
		h.index[s] = -1
	}
	h.coldEnd = 0
	for i, s := range h.of {
		if s >= 0 {
			h.index[s] = int32(i)
			continue
		}
		h.coldEnd = i + 1
	}
}

// cut forgets the tokens from n on.
func (h *hotTokens) cut(n int) {
	for i := n; i < len(h.of); i++ {
		h.release(i)
	}
	h.of = slices.Clip(h.of[:min(n, len(h.of))])
	h.coldEnd = min(h.coldEnd, len(h.of))
	h.lowerColdEnd()
}
