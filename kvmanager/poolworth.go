package kvmanager

// What a slot is worth to its lane decides who gives way. Where the selection was made from one score a token, its worth is a
// moving average of how far the token's score lies above the worst that was picked, in units of that one's distance from the
// mean: tokens just below the cut are likely to be picked next, and neighbours fall together, so that they are read together.
// Otherwise it is the step of the last use. Replayed picks of SmolLM2 at 8,000 tokens (wikitext-2, a quarter in memory), reads
// a step: oldest of 16 428, least recently used 369, by decayed hits (the paper's table) 362, by scores 295; were the
// future known, 230.

// worthDecay is how much of a slot's worth a step leaves.
const worthDecay = 0.8

// weighing is how scores of a layer's tokens become worth.
type weighing struct {
	scores     []float32 // nil = there are none
	cut, scale float32   // the worst score that was picked, 1 over its distance from the mean
}

// weigh looks at the scores that picks were made from: [tokens], nil where there are none or they don't tell tokens apart.
func weigh(scores []float32, picks []int32) weighing {
	const every = 16 // tokens, for the mean
	if len(scores) == 0 || len(picks) == 0 {
		return weighing{}
	}
	w, sum, n := weighing{scores: scores, cut: scores[0]}, float32(0), 0
	for i := 0; i < len(scores); i += every {
		sum += scores[i]
		n++
	}
	first := true
	for _, i := range picks {
		if int(i) < len(scores) && (first || scores[i] < w.cut) {
			w.cut, first = scores[i], false
		}
	}
	distance := w.cut - sum/float32(n)
	if first || !(distance > 0) || distance > 1e30 {
		return weighing{}
	}
	w.scale = 1 / distance
	return w
}

// of is a token's worth by its score alone, -2 to 1.
func (w *weighing) of(token int32) float32 {
	if int(token) >= len(w.scores) {
		return 0
	}
	return max(-2, min(1, (w.scores[token]-w.cut)*w.scale))
}

// age moves the worth of a lane's slots towards what the tokens score now.
func (ln *lane) age(w *weighing) {
	if w.scores == nil {
		return
	}
	for i, unit := range ln.owner {
		if unit >= 0 {
			ln.worth[i] += (1 - worthDecay) * (w.of(unit) - ln.worth[i])
		}
	}
}

// giveWay lists the n slots of a lane that are worth least and were not used in this step, least first.
func (p *Pool) giveWay(ln *lane, n int) {
	heap := ln.leaving[:0] // the most worth on top
	for i, unit := range ln.owner {
		switch {
		case unit < 0 || ln.stamp[i] >= p.step:
		case len(heap) < n:
			heap = append(heap, int32(i))
			ln.up(heap)
		case ln.worth[i] < ln.worth[heap[0]]:
			heap[0] = int32(i)
			ln.down(heap)
		}
	}
	for rest := heap; len(rest) > 1; { // in order, as heap sort does
		last := len(rest) - 1
		rest[0], rest[last] = rest[last], rest[0]
		rest = rest[:last]
		ln.down(rest)
	}
	ln.leaving, ln.next = heap, 0
}

func (ln *lane) up(heap []int32) {
	for i := len(heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if ln.worth[heap[i]] <= ln.worth[heap[parent]] {
			return
		}
		heap[i], heap[parent] = heap[parent], heap[i]
		i = parent
	}
}

func (ln *lane) down(heap []int32) {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && ln.worth[heap[child+1]] > ln.worth[heap[child]] {
			child++
		}
		if ln.worth[heap[child]] <= ln.worth[heap[i]] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// forgetLeaving drops the list of who gives way: the lane's slots have changed.
func (ln *lane) forgetLeaving() { ln.leaving, ln.next = ln.leaving[:0], 0 }
