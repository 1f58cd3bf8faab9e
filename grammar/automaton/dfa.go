package automaton

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Bounds of one automaton.
const (
	MaxStates = 20000
	maxCells  = 4 << 20 // states × classes
	MaxRune   = 0x10FFFF
	Dead      = int32(-1)
	Unlimited = int32(math.MaxInt32)
)

// DFA is a deterministic automaton; one without states accepts nothing.
type DFA struct {
	cuts   []rune  // class i is [cuts[i], cuts[i+1]); cuts[0] = 0
	next   []int32 // [state × class], Dead where nothing can follow
	accept []bool  // [state]
	free   []bool  // [state]: it accepts, and every code point leads back to it
	open   []int32 // [state]: how many plain code points can follow whatever they are; Unlimited
	ends   []bool  // [state]: nothing can follow
	ascii  [128]int16
}

// States is the number of states.
func (d *DFA) States() int { return len(d.accept) }

// Empty says that no text is accepted.
func (d *DFA) Empty() bool { return len(d.accept) == 0 }

// Accepts says whether the text that led to a state is accepted.
func (d *DFA) Accepts(q int32) bool { return d.accept[q] }

// Free says whether every text is accepted from a state.
func (d *DFA) Free(q int32) bool { return d.free[q] }

// class is the class of a code point.
func (d *DFA) class(r rune) int {
	if r < 128 {
		return int(d.ascii[r])
	}
	return sort.Search(len(d.cuts), func(i int) bool { return d.cuts[i] > r }) - 1
}

// Step is the state after one more code point.
func (d *DFA) Step(q int32, r rune) int32 { return d.next[int(q)*len(d.cuts)+d.class(r)] }

// Any says whether a code point in lo to hi leads on from a state.
func (d *DFA) Any(q int32, lo, hi rune) bool {
	row := d.next[int(q)*len(d.cuts):]
	for c := d.class(lo); c < len(d.cuts) && d.cuts[c] <= hi; c++ {
		if row[c] != Dead {
			return true
		}
	}
	return false
}

// AnyNear is Any where the state that follows must be at most so far from a text that is accepted (Distances).
func (d *DFA) AnyNear(q int32, lo, hi rune, distances []int32, most int32) bool {
	row := d.next[int(q)*len(d.cuts):]
	for c := d.class(lo); c < len(d.cuts) && d.cuts[c] <= hi; c++ {
		if row[c] != Dead && distances[row[c]] <= most {
			return true
		}
	}
	return false
}

// Ends says whether nothing can follow a state.
func (d *DFA) Ends(q int32) bool { return d.ends[q] }

// Open is the most code points for which every text of so many plain ones (IsPlain) can go on to one that is accepted.
func (d *DFA) Open(q int32) int32 { return d.open[q] }

// IsPlain says whether a code point stands for itself in a JSON string and is no end of a line.
func IsPlain(r rune) bool {
	for _, x := range plainRunes {
		if r >= x.Lo && r <= x.Hi {
			return true
		}
	}
	return false
}

var plainRunes = []Range{{' ', '!'}, {'#', '['}, {']', 0x2027}, {0x202A, 0xD7FF}, {0xE000, MaxRune}}

// Match says whether a text is accepted.
func (d *DFA) Match(text string) bool {
	if d.Empty() {
		return false
	}
	q := int32(0)
	for _, r := range text {
		if q = d.Step(q, r); q == Dead {
			return false
		}
	}
	return d.accept[q]
}

// builder collects states whose transitions are by class.
type builder struct {
	cuts   []rune
	next   []int32
	accept []bool
}

// add appends a state without transitions.
func (b *builder) add(accept bool) (int32, error) {
	if len(b.accept) >= MaxStates || len(b.next) > maxCells {
		return 0, fmt.Errorf("more than %d states: %w", len(b.accept), ErrTooLarge)
	}
	b.accept = append(b.accept, accept)
	for range b.cuts {
		b.next = append(b.next, Dead)
	}
	return int32(len(b.accept) - 1), nil
}

func (b *builder) row(q int32) []int32 { return b.next[int(q)*len(b.cuts) : (int(q)+1)*len(b.cuts)] }

// finish removes states that lead nowhere (invariant 1) or are never reached, and unites equal ones.
func (b *builder) finish() *DFA {
	d := &DFA{cuts: b.cuts}
	n := len(b.accept)
	keep := b.useful()
	if n == 0 || !keep[0] {
		d.index()
		return d
	}
	part := b.partition(keep)
	k := len(b.cuts)
	for q := range n {
		if keep[q] && int(part[q]) == len(d.accept) {
			d.accept = append(d.accept, b.accept[q])
			for _, to := range b.row(int32(q)) {
				if to != Dead && !keep[to] {
					to = Dead
				}
				if to != Dead {
					to = part[to]
				}
				d.next = append(d.next, to)
			}
		}
	}
	d.mergeClasses(k)
	d.index()
	return d
}

// useful marks the states that are reached and reach an accepting one.
func (b *builder) useful() []bool {
	n, k := len(b.accept), len(b.cuts)
	from := make([][]int32, n)
	reached, live := make([]bool, n), make([]bool, n)
	var todo []int32
	visit := func(mark []bool, q int32) {
		if !mark[q] {
			mark[q] = true
			todo = append(todo, q)
		}
	}
	if n > 0 {
		visit(reached, 0)
	}
	for len(todo) > 0 {
		q := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		last := Dead
		for _, to := range b.next[int(q)*k : (int(q)+1)*k] {
			if to != Dead && to != last {
				last = to
				from[to] = append(from[to], q)
				visit(reached, to)
			}
		}
	}
	for q := range n {
		if reached[q] && b.accept[q] {
			visit(live, int32(q))
		}
	}
	for len(todo) > 0 {
		q := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range from[q] {
			visit(live, p)
		}
	}
	return live
}

func appendInt(b []byte, v int32) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
}

// mergeClasses unites neighbouring classes that no state tells apart.
func (d *DFA) mergeClasses(k int) {
	n := len(d.accept)
	var keep []int
	for c := range k {
		differs := c == 0
		for q := 0; q < n && !differs; q++ {
			differs = d.next[q*k+c] != d.next[q*k+c-1]
		}
		if differs {
			keep = append(keep, c)
		}
	}
	cuts, next := make([]rune, len(keep)), make([]int32, 0, n*len(keep))
	for i, c := range keep {
		cuts[i] = d.cuts[c]
	}
	for q := range n {
		for _, c := range keep {
			next = append(next, d.next[q*k+c])
		}
	}
	d.cuts, d.next = cuts, next
}

// index fills what is derived from the table.
func (d *DFA) index() {
	if len(d.cuts) == 0 {
		d.cuts = []rune{0}
	}
	c := 0
	for r := range d.ascii {
		for c+1 < len(d.cuts) && d.cuts[c+1] <= rune(r) {
			c++
		}
		d.ascii[r] = int16(c)
	}
	k := len(d.cuts)
	d.free = make([]bool, len(d.accept))
	for q := range d.accept {
		d.free[q] = d.accept[q] && d.loops(int32(q), d.next[q*k:(q+1)*k])
	}
	d.indexOpen()
}

// indexOpen fills open, the distances to Dead over plain code points, and ends.
func (d *DFA) indexOpen() {
	k, n := len(d.cuts), len(d.accept)
	isPlain := make([]bool, k)
	for c := range k {
		hi := rune(MaxRune)
		if c+1 < k {
			hi = d.cuts[c+1] - 1
		}
		isPlain[c] = slices.ContainsFunc(plainRunes, func(x Range) bool { return d.cuts[c] <= x.Hi && hi >= x.Lo })
	}
	d.open, d.ends = make([]int32, n), make([]bool, n)
	from := make([][]int32, n)
	var shut []int32
	for q := range n {
		d.open[q], d.ends[q] = Unlimited, true
		last := Dead
		for c, to := range d.next[q*k : (q+1)*k] {
			switch {
			case to == Dead && isPlain[c] && d.open[q] > 0:
				d.open[q] = 0
				shut = append(shut, int32(q))
			case to != Dead && to != last && isPlain[c]:
				from[to] = append(from[to], int32(q))
				last = to
			}
			d.ends[q] = d.ends[q] && to == Dead
		}
	}
	for len(shut) > 0 { // nearest first
		q := shut[0]
		shut = shut[1:]
		for _, p := range from[q] {
			if d.open[p] == Unlimited {
				d.open[p] = d.open[q] + 1
				shut = append(shut, p)
			}
		}
	}
}

// loops says whether every code point leads from q to q; surrogates are none.
func (d *DFA) loops(q int32, row []int32) bool {
	for c, to := range row {
		if to != q && !(d.cuts[c] >= 0xD800 && c+1 < len(d.cuts) && d.cuts[c+1] <= 0xE000) {
			return false
		}
	}
	return true
}

// mergeCuts is the common refinement of two sets of classes, and the class of each part in both.
func mergeCuts(a, b []rune) (cuts []rune, ina, inb []int) {
	cuts = append(append([]rune{}, a...), b...)
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	i, j := 0, 0
	for _, c := range cuts {
		for i+1 < len(a) && a[i+1] <= c {
			i++
		}
		for j+1 < len(b) && b[j+1] <= c {
			j++
		}
		ina, inb = append(ina, i), append(inb, j)
	}
	return cuts, ina, inb
}
