package automaton

import (
	"fmt"
	"slices"
)

// nfa is Thompson's construction: each state has one labelled edge or some empty ones.
type nfa struct {
	states []nstate
	budget int
	mark   []int // [state]: the round in which closure saw it
	round  int
	todo   []int32
}

type nstate struct {
	set        []Range // labelled edge to `to`
	to         int32
	eps        []int32
	begin, end int32 // empty edges that hold at the start, at the end; 0 = none (state 0 is nobody's target)
	free       bool  // accepts whatever follows
}

const (
	maxNFA     = 60000
	stepBudget = 20 << 20
)

func (a *nfa) add() (int32, error) {
	if len(a.states) >= maxNFA {
		return 0, fmt.Errorf("more than %d parts: %w", maxNFA, ErrTooLarge)
	}
	a.states = append(a.states, nstate{to: Dead})
	return int32(len(a.states) - 1), nil
}

// Whole is the automaton of the texts that the expression matches from start to end; Search of those in which it matches
// somewhere.
func Whole(n *Node) (*DFA, error) { return compile(n, false, false, true) }

// Search is the automaton of the texts in which the expression matches somewhere.
func Search(n *Node) (*DFA, error) { return compile(n, true, true, true) }

// compile: head and tail say that anything may stand before and after; atBegin that the text starts here.
func compile(n *Node, head, tail, atBegin bool) (*DFA, error) {
	n, err := resolveLooks(n, tail, atBegin && !head)
	if err != nil {
		return nil, err
	}
	a := &nfa{budget: stepBudget}
	for range 3 { // 0: nobody, 1: start, 2: final
		if _, err := a.add(); err != nil {
			return nil, err
		}
	}
	const start, final = 1, 2
	if tail {
		a.states[final].free = true
	}
	from := int32(start)
	if head {
		loop, err := a.add()
		if err != nil {
			return nil, err
		}
		a.states[loop].set, a.states[loop].to = anyRune, start
		body, err := a.add()
		if err != nil {
			return nil, err
		}
		a.states[start].eps = []int32{loop, body}
		from = body
	}
	last, err := a.build(n, from)
	if err != nil {
		return nil, err
	}
	a.states[last].eps = append(a.states[last].eps, final)
	return a.determinise(start, final, atBegin)
}

// build appends n after state from and returns the state at its end.
func (a *nfa) build(n *Node, from int32) (int32, error) {
	to, err := a.add()
	if err != nil {
		return 0, err
	}
	switch n.op {
	case opEmpty:
		a.states[from].eps = append(a.states[from].eps, to)
	case opSet:
		mid, err := a.add()
		if err != nil {
			return 0, err
		}
		a.states[from].eps = append(a.states[from].eps, mid)
		a.states[mid].set, a.states[mid].to = n.set, to
	case opBegin, opEnd:
		mid, err := a.add()
		if err != nil {
			return 0, err
		}
		a.states[from].eps = append(a.states[from].eps, mid)
		if n.op == opBegin {
			a.states[mid].begin = to
		} else {
			a.states[mid].end = to
		}
	case opCat:
		at := from
		for _, s := range n.sub {
			if at, err = a.build(s, at); err != nil {
				return 0, err
			}
		}
		a.states[at].eps = append(a.states[at].eps, to)
	case opAlt:
		for _, s := range n.sub {
			at, err := a.branch(s, from)
			if err != nil {
				return 0, err
			}
			a.states[at].eps = append(a.states[at].eps, to)
		}
	case opRepeat:
		return to, a.repeat(n, from, to)
	case opRest:
		return to, a.embed(n.rest, from, to)
	default:
		return 0, fmt.Errorf("a look-ahead in this place: %w", ErrUnsupported)
	}
	return to, nil
}

// branch builds n behind a state of its own, so that loops back to it stay inside.
func (a *nfa) branch(n *Node, from int32) (int32, error) {
	own, err := a.add()
	if err != nil {
		return 0, err
	}
	a.states[from].eps = append(a.states[from].eps, own)
	return a.build(n, own)
}

func (a *nfa) repeat(n *Node, from, to int32) (err error) {
	at := from
	for range n.min {
		if at, err = a.branch(n.sub[0], at); err != nil {
			return err
		}
	}
	if n.max < 0 {
		loop, err := a.add()
		if err != nil {
			return err
		}
		a.states[at].eps = append(a.states[at].eps, loop)
		back, err := a.branch(n.sub[0], loop)
		if err != nil {
			return err
		}
		a.states[back].eps = append(a.states[back].eps, loop)
		a.states[loop].eps = append(a.states[loop].eps, to)
		return nil
	}
	for range n.max - n.min {
		a.states[at].eps = append(a.states[at].eps, to)
		if at, err = a.branch(n.sub[0], at); err != nil {
			return err
		}
	}
	a.states[at].eps = append(a.states[at].eps, to)
	return nil
}

// embed puts an automaton of the rest of the text between two states: it accepts at the end only.
func (a *nfa) embed(d *DFA, from, to int32) error {
	ids := make([]int32, d.States())
	for q := range ids {
		id, err := a.add()
		if err != nil {
			return err
		}
		ids[q] = id
	}
	k := len(d.cuts)
	for q, id := range ids {
		if d.accept[q] {
			a.states[id].end = to
		}
		for c := range k {
			next := d.next[q*k+c]
			if next == Dead {
				continue
			}
			hi := rune(MaxRune)
			if c+1 < k {
				hi = d.cuts[c+1] - 1
			}
			edge, err := a.add()
			if err != nil {
				return err
			}
			a.states[edge].set, a.states[edge].to = []Range{{d.cuts[c], hi}}, ids[next]
			a.states[id].eps = append(a.states[id].eps, edge)
		}
	}
	if !d.Empty() {
		a.states[from].eps = append(a.states[from].eps, ids[0])
	}
	return nil
}

// closure follows empty edges; the result is sorted and holds what matters only: labelled and final states, and those with
// an edge at the end.
func (a *nfa) closure(seeds []int32, begin, end bool, final int32) (set []int32, accepts bool, err error) {
	a.round++
	for len(a.mark) < len(a.states) {
		a.mark = append(a.mark, 0)
	}
	todo := append(a.todo[:0], seeds...)
	defer func() { a.todo = todo }()
	for len(todo) > 0 {
		if a.budget--; a.budget < 0 {
			return nil, false, ErrTooLarge
		}
		q := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if a.mark[q] == a.round {
			continue
		}
		a.mark[q] = a.round
		s := &a.states[q]
		todo = append(todo, s.eps...)
		if begin && s.begin != 0 {
			todo = append(todo, s.begin)
		}
		if end && s.end != 0 {
			todo = append(todo, s.end)
		}
		if q == final {
			accepts = true
			if s.free {
				return []int32{final}, true, nil
			}
		}
		if s.to != Dead || s.end != 0 {
			set = append(set, q)
		}
	}
	slices.Sort(set)
	return set, accepts, nil
}

// determinise is the subset construction.
func (a *nfa) determinise(start, final int32, atBegin bool) (*DFA, error) {
	b := &builder{cuts: a.cuts()}
	ids := map[string]int32{}
	var sets [][]int32
	state := func(seeds []int32, begin bool) (int32, error) {
		set, accepts, err := a.closure(seeds, begin, false, final)
		if err != nil {
			return 0, err
		}
		if len(set) == 0 && !accepts {
			return Dead, nil
		}
		free := accepts && a.states[final].free
		if !accepts {
			if _, accepts, err = a.closure(seeds, begin, true, final); err != nil {
				return 0, err
			}
		}
		key := make([]byte, 0, 4*len(set)+1)
		for _, q := range set {
			key = appendInt(key, q)
		}
		if accepts {
			key = append(key, 1) // the start may accept by an edge that holds at the start only
		}
		if id, ok := ids[string(key)]; ok {
			return id, nil
		}
		id, err := b.add(accepts)
		ids[string(key)] = id
		if free {
			for c := range b.cuts {
				b.row(id)[c] = id
			}
			set = nil
		}
		sets = append(sets, set)
		return id, err
	}
	if _, err := state([]int32{start}, atBegin); err != nil {
		return nil, err
	}
	var seeds []int32
	for i := 0; i < len(sets); i++ {
		if sets[i] == nil {
			continue
		}
		for c, lo := range b.cuts {
			seeds = seeds[:0]
			for _, q := range sets[i] {
				if a.budget--; a.budget < 0 {
					return nil, ErrTooLarge
				}
				if s := &a.states[q]; s.to != Dead && inSet(s.set, lo) {
					seeds = append(seeds, s.to)
				}
			}
			if len(seeds) == 0 {
				continue
			}
			to, err := state(seeds, false)
			if err != nil {
				return nil, err
			}
			b.row(int32(i))[c] = to
		}
	}
	return b.finish(), nil
}

func inSet(set []Range, r rune) bool {
	for _, x := range set {
		if r >= x.Lo && r <= x.Hi {
			return true
		}
	}
	return false
}

// cuts are the starts of the classes of all labels.
func (a *nfa) cuts() []rune {
	cuts := []rune{0}
	for i := range a.states {
		for _, x := range a.states[i].set {
			cuts = append(cuts, x.Lo)
			if x.Hi < MaxRune {
				cuts = append(cuts, x.Hi+1)
			}
		}
		if len(cuts) > 4096 {
			slices.Sort(cuts)
			cuts = slices.Compact(cuts)
		}
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// resolveLooks replaces assertions about what follows: Cat(A, (?=X), B) is A and then the rest of the text, in an automaton
// of its own that accepts what both X and B do. They may stand wherever the rest of the expression is known: in the
// sequence at the top, or in a group of it that is not repeated.
func resolveLooks(n *Node, tail, atBegin bool) (*Node, error) {
	if !n.looks() {
		return n, nil
	}
	switch n.op {
	case opAlt:
		out := Alt()
		for _, s := range n.sub {
			r, err := resolveLooks(s, tail, atBegin)
			if err != nil {
				return nil, err
			}
			out.sub = append(out.sub, r)
		}
		return out, nil
	case opCat:
		return resolveSequence(n.sub, tail, atBegin)
	case opAhead, opNotAhead:
		return resolveSequence([]*Node{n}, tail, atBegin)
	}
	return nil, fmt.Errorf("a look-ahead inside a repetition: %w", ErrUnsupported)
}

func resolveSequence(seq []*Node, tail, atBegin bool) (*Node, error) {
	i := slices.IndexFunc(seq, (*Node).looks)
	if i < 0 {
		return Cat(seq...), nil
	}
	here := allBegin(seq[:i]) && (i > 0 || atBegin)
	if !here && (Cat(seq[i:]...).begins()) {
		return nil, fmt.Errorf("^ beside a look-ahead that stands before it: %w", ErrUnsupported)
	}
	switch look, after := seq[i], seq[i+1:]; look.op {
	case opCat:
		return resolveSequence(slices.Concat(seq[:i], look.sub, after), tail, atBegin)
	case opAlt:
		out := Alt()
		for _, s := range look.sub {
			r, err := resolveSequence(slices.Concat(seq[:i], []*Node{s}, after), tail, atBegin)
			if err != nil {
				return nil, err
			}
			out.sub = append(out.sub, r)
		}
		return out, nil
	case opAhead, opNotAhead:
		rest, err := compile(Cat(after...), false, tail, here)
		if err != nil {
			return nil, err
		}
		ahead, err := compile(look.sub[0], false, true, here)
		if err != nil {
			return nil, err
		}
		combine := Intersect
		if look.op == opNotAhead {
			combine = Minus
		}
		if rest, err = combine(rest, ahead); err != nil {
			return nil, err
		}
		return Cat(slices.Concat(seq[:i], []*Node{{op: opRest, rest: rest}})...), nil
	}
	return nil, fmt.Errorf("a look-ahead inside a repetition: %w", ErrUnsupported)
}

func allBegin(seq []*Node) bool {
	return !slices.ContainsFunc(seq, func(s *Node) bool { return s.op != opBegin })
}
