package automaton

import "sort"

// Distances are, for each state, how many code points at least lead to a text that is accepted. extends says that every
// accepted text goes on, by any number of code points, to another: then there is one of every length from the distance on.
func (d *DFA) Distances() (to []int32, extends bool) {
	k := len(d.cuts)
	to = make([]int32, d.States())
	from := make([][]int32, d.States())
	var todo []int32
	extends = true
	for q := range to {
		to[q] = -1
		if d.accept[q] {
			to[q] = 0
			todo = append(todo, int32(q))
		}
		goesOn := false
		for _, next := range d.next[q*k : (q+1)*k] {
			if next != Dead {
				from[next] = append(from[next], int32(q))
				goesOn = goesOn || d.accept[next]
			}
		}
		extends = extends && (goesOn || !d.accept[q])
	}
	for i := 0; i < len(todo); i++ {
		for _, q := range from[todo[i]] {
			if to[q] < 0 {
				to[q] = to[todo[i]] + 1
				todo = append(todo, q)
			}
		}
	}
	return to, extends
}

// product walks two automata together; accept says when a pair accepts, and whether a side may have died.
func product(a, b *DFA, accept func(a, b bool) bool, orDead bool) (*DFA, error) {
	cuts, ina, inb := mergeCuts(a.cuts, b.cuts)
	bl := &builder{cuts: cuts}
	type pair struct{ p, q int32 }
	ids := map[pair]int32{}
	var todo []pair
	state := func(x pair) (int32, error) {
		if x.p == Dead && x.q == Dead || !orDead && (x.p == Dead || x.q == Dead) {
			return Dead, nil
		}
		if id, ok := ids[x]; ok {
			return id, nil
		}
		id, err := bl.add(accept(x.p != Dead && a.accept[x.p], x.q != Dead && b.accept[x.q]))
		ids[x] = id
		todo = append(todo, x)
		return id, err
	}
	start := pair{Dead, Dead}
	if !a.Empty() {
		start.p = 0
	}
	if !b.Empty() {
		start.q = 0
	}
	if _, err := state(start); err != nil {
		return nil, err
	}
	for i := 0; i < len(todo); i++ {
		x := todo[i]
		for c := range cuts {
			to := pair{Dead, Dead}
			if x.p != Dead {
				to.p = a.next[int(x.p)*len(a.cuts)+ina[c]]
			}
			if x.q != Dead {
				to.q = b.next[int(x.q)*len(b.cuts)+inb[c]]
			}
			id, err := state(to)
			if err != nil {
				return nil, err
			}
			bl.row(int32(i))[c] = id
		}
	}
	return bl.finish(), nil
}

// Intersect accepts what both accept.
func Intersect(a, b *DFA) (*DFA, error) {
	return product(a, b, func(a, b bool) bool { return a && b }, false)
}

// Union accepts what one of both accepts.
func Union(a, b *DFA) (*DFA, error) {
	return product(a, b, func(a, b bool) bool { return a || b }, true)
}

// Minus accepts what a accepts and b does not.
func Minus(a, b *DFA) (*DFA, error) {
	return product(a, b, func(a, b bool) bool { return a && !b }, true)
}

// Complement accepts what d does not.
func Complement(d *DFA) (*DFA, error) { return Minus(All(), d) }

// All accepts every text.
func All() *DFA {
	b := &builder{cuts: []rune{0, 0xD800, 0xE000}}
	_, _ = b.add(true)
	b.next[0], b.next[2] = 0, 0
	return b.finish()
}

// Lengths accepts texts of min to max code points; max < 0 is no limit.
func Lengths(min, max int) (*DFA, error) {
	b := &builder{cuts: []rune{0, 0xD800, 0xE000}}
	last := max
	if max < 0 {
		last = min
	}
	for n := 0; n <= last; n++ {
		q, err := b.add(n >= min)
		if err != nil {
			return nil, err
		}
		to := q + 1
		if n == last {
			if to = Dead; max < 0 {
				to = q
			}
		}
		row := b.row(q)
		row[0], row[2] = to, to
	}
	return b.finish(), nil
}

// Texts accepts the given texts and no others.
func Texts(texts []string) (*DFA, error) {
	var runes [][]rune
	set := map[rune]bool{0: true}
	for _, t := range texts {
		rs := []rune(t)
		runes = append(runes, rs)
		for _, r := range rs {
			set[r], set[r+1] = true, true
		}
	}
	b := &builder{}
	for r := range set {
		if r <= MaxRune {
			b.cuts = append(b.cuts, r)
		}
	}
	sort.Slice(b.cuts, func(i, j int) bool { return b.cuts[i] < b.cuts[j] })
	at := map[rune]int{}
	for i, c := range b.cuts {
		at[c] = i
	}
	if _, err := b.add(false); err != nil {
		return nil, err
	}
	for _, rs := range runes {
		q := int32(0)
		for _, r := range rs {
			to := b.row(q)[at[r]]
			if to == Dead {
				var err error
				if to, err = b.add(false); err != nil {
					return nil, err
				}
				b.row(q)[at[r]] = to
			}
			q = to
		}
		b.accept[q] = true
	}
	return b.finish(), nil
}

// Finite says whether the language is finite, and how many texts it has where they are fewer than limit.
func (d *DFA) Finite(limit int) (count int, finite bool) {
	const open, done = 1, 2
	mark, n := make([]uint8, d.States()), make([]int, d.States())
	var visit func(q int32) bool
	visit = func(q int32) bool {
		if mark[q] == open {
			return false
		}
		if mark[q] == done {
			return true
		}
		mark[q] = open
		if d.accept[q] {
			n[q] = 1
		}
		for c := range d.cuts {
			to := d.next[int(q)*len(d.cuts)+c]
			if to == Dead {
				continue
			}
			hi := rune(MaxRune)
			if c+1 < len(d.cuts) {
				hi = d.cuts[c+1] - 1
			}
			if !visit(to) {
				return false
			}
			n[q] = min(limit, n[q]+min(limit, int(hi-d.cuts[c])+1)*n[to])
		}
		mark[q] = done
		return true
	}
	if d.Empty() {
		return 0, true
	}
	if !visit(0) {
		return limit, false
	}
	return n[0], true
}

// Decimal accepts decimal texts by the remainder of their digits, read as one integer, modulo mod: after behind digits behind
// the point (at most point; any that follow are 0) accept says which remainders do.
func Decimal(mod, point int, accept func(remainder, behind int) bool) (*DFA, error) {
	b := &builder{cuts: []rune{0, '-', '.', '.' + 1}}
	for c := rune('0'); c <= '9'+1; c++ {
		b.cuts = append(b.cuts, c)
	}
	const minus, dot, zero = 1, 2, 4
	if _, err := b.add(false); err != nil { // 0: the start; then [behind][remainder], and a state after a point
		return nil, err
	}
	for behind := 0; behind <= point+1; behind++ {
		for r := range mod {
			ok := accept(r, min(behind, point))
			if _, err := b.add(ok); err != nil {
				return nil, err
			}
		}
	}
	at := func(behind, r int) int32 { return int32(1 + behind*mod + r) }
	row := b.row(0)
	row[minus] = 0
	for d := range 10 {
		row[zero+d] = at(0, d%mod)
	}
	for r := range mod {
		row := b.row(at(0, r))
		for d := range 10 {
			row[zero+d] = at(0, (r*10+d)%mod)
		}
	}
	// Behind the point: a state of its own for "no digit yet" is not needed, for the texts it is met with have one.
	for r := range mod {
		b.row(at(0, r))[dot] = at(point+1, r)
		for d := range 10 {
			to := Dead
			switch {
			case point > 0:
				to = at(1, (r*10+d)%mod)
			case d == 0 && accept(r, 0):
				to = at(point+1, r)
			}
			b.row(at(point+1, r))[zero+d] = to
		}
		for behind := 1; behind <= point; behind++ {
			for d := range 10 {
				to := Dead
				switch {
				case behind < point:
					to = at(behind+1, (r*10+d)%mod)
				case d == 0:
					to = at(point, r)
				}
				b.row(at(behind, r))[zero+d] = to
			}
		}
	}
	return b.finish(), nil
}
