package automaton

// partition numbers the classes of equal states in the order of their first member. A large automaton stays as it is.
func (b *builder) partition(keep []bool) []int32 {
	n, k := len(b.accept), len(b.cuts)
	part, kept := make([]int32, n), make([]int32, 0, n)
	for q := range n {
		if keep[q] {
			part[q] = int32(len(kept))
			kept = append(kept, int32(q))
		}
	}
	if n*k > 1<<18 {
		return part
	}
	h := newHopcroft(len(kept)+1, k)
	for i, q := range kept {
		for c, to := range b.row(q) {
			if to != Dead && keep[to] {
				h.next[i*k+c] = part[to]
			}
		}
	}
	classes := h.classes(func(i int) bool { return b.accept[kept[i]] })
	ids, count := make([]int32, len(kept)+1), int32(0)
	for i, q := range kept {
		if ids[classes[i]] == 0 {
			count++
			ids[classes[i]] = count
		}
		part[q] = ids[classes[i]] - 1
	}
	return part
}

// hopcroft unites equal states of a complete automaton in time k·n·log n (J. Hopcroft, "An n log n algorithm for minimizing states in a
// finite automaton", 1971). Its last state is the one in which nothing can be accepted any more.
type hopcroft struct {
	n, k  int
	next  []int32 // [state, letter]
	heads []int32 // [letter, state + 1]: where the states that lead there by the letter begin in from
	from  []int32

	members []int32 // by block
	place   []int32 // [state]: in members
	block   []int32 // [state]
	first   []int32 // [block]: in members; marked members come first
	past    []int32
	marked  []int32 // [block]: how many
	waits   []bool  // [block]
	todo    []int32 // blocks that may split others
	touched []int32 // blocks with marked members
}

// newHopcroft is an automaton of n states and k letters, all of which lead to the last state.
func newHopcroft(n, k int) *hopcroft {
	h := &hopcroft{n: n, k: k, next: make([]int32, n*k)}
	for i := range h.next {
		h.next[i] = int32(n - 1)
	}
	return h
}

// classes is the class of each state; the last state accepts nothing.
func (h *hopcroft) classes(accepts func(state int) bool) []int32 {
	h.invert()
	h.members, h.place, h.block = make([]int32, 0, h.n), make([]int32, h.n), make([]int32, h.n)
	for _, side := range []bool{true, false} {
		begin := len(h.members)
		for q := range h.n {
			if (q < h.n-1 && accepts(q)) == side {
				h.place[q], h.block[q] = int32(len(h.members)), int32(len(h.first))
				h.members = append(h.members, int32(q))
			}
		}
		if len(h.members) > begin {
			h.add(int32(begin), int32(len(h.members)))
		}
	}
	h.wait(0) // one of both tells both apart
	var splitter []int32
	for len(h.todo) > 0 {
		at := h.todo[len(h.todo)-1]
		h.todo, h.waits[at] = h.todo[:len(h.todo)-1], false
		splitter = append(splitter[:0], h.members[h.first[at]:h.past[at]]...) // it may be split itself
		for c := range h.k {
			heads := h.heads[c*(h.n+1):]
			for _, q := range splitter {
				for _, p := range h.from[heads[q]:heads[q+1]] {
					h.mark(p)
				}
			}
			for _, b := range h.touched {
				h.split(b)
			}
			h.touched = h.touched[:0]
		}
	}
	return h.block
}

// invert fills heads and from.
func (h *hopcroft) invert() {
	h.heads, h.from = make([]int32, h.k*(h.n+1)), make([]int32, 0, h.n*h.k)
	fill := make([]int32, h.n)
	for c := range h.k {
		heads := h.heads[c*(h.n+1) : (c+1)*(h.n+1)]
		for q := range h.n {
			heads[h.next[q*h.k+c]+1]++
		}
		heads[0] = int32(len(h.from))
		for q := range h.n {
			heads[q+1] += heads[q]
			fill[q] = heads[q]
		}
		h.from = h.from[:len(h.from)+h.n]
		for q := range h.n {
			to := h.next[q*h.k+c]
			h.from[fill[to]] = int32(q)
			fill[to]++
		}
	}
}

func (h *hopcroft) add(first, past int32) int32 {
	h.first, h.past, h.marked, h.waits = append(h.first, first), append(h.past, past), append(h.marked, 0), append(h.waits, false)
	return int32(len(h.first) - 1)
}

func (h *hopcroft) wait(b int32) {
	if !h.waits[b] {
		h.waits[b] = true
		h.todo = append(h.todo, b)
	}
}

// mark moves a state to the front of its block.
func (h *hopcroft) mark(q int32) {
	b := h.block[q]
	at, front := h.place[q], h.first[b]+h.marked[b]
	if at < front {
		return
	}
	if h.marked[b] == 0 {
		h.touched = append(h.touched, b)
	}
	other := h.members[front]
	h.members[front], h.members[at] = q, other
	h.place[q], h.place[other] = front, at
	h.marked[b]++
}

// split makes the marked members of a block one of their own. The smaller part splits others later, or both where the whole was to.
func (h *hopcroft) split(b int32) {
	n, size := h.marked[b], h.past[b]-h.first[b]
	h.marked[b] = 0
	if n == size {
		return
	}
	var made int32
	if 2*n <= size {
		made = h.add(h.first[b], h.first[b]+n)
		h.first[b] += n
	} else {
		made = h.add(h.first[b]+n, h.past[b])
		h.past[b] = h.first[made]
	}
	for _, q := range h.members[h.first[made]:h.past[made]] {
		h.block[q] = made
	}
	h.wait(made)
}
