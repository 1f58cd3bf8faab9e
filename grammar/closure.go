package grammar

import "slices"

// closure follows empty moves: splits, calls, returns, ends of texts. A rule that is called in several places at once is read
// once, with all of them as its callers.
type closure struct {
	m       *Machine
	todo    []move
	seen    map[move]bool
	fixed   map[*stacks]*callers
	called  map[int32]*callers // by the start of the rule
	threads []thread
	waiting []move
	accepts bool
}

// callers is where a rule goes on: stacks from before, or calls of this closure.
type callers struct {
	from     *stacks
	frames   []callFrame
	returned bool // the empty text of the rule has gone back to the callers so far
	made     *stacks
}

type callFrame struct {
	pc, n int32
	up    *callers
}

type move struct {
	pc, x, n int32
	p        part
	up       *callers
}

func (m *Machine) close(seeds []seed) *config {
	w := &m.work
	if w.m == nil {
		*w = closure{m: m, seen: map[move]bool{}, fixed: map[*stacks]*callers{}, called: map[int32]*callers{}}
	}
	clear(w.seen)
	clear(w.fixed)
	clear(w.called)
	w.todo, w.waiting, w.threads, w.accepts = w.todo[:0], w.waiting[:0], w.threads[:0], false
	for _, s := range seeds {
		w.todo = append(w.todo, move{s.pc, s.x, s.n, s.p, w.before(s.up)})
	}
	for len(w.todo) > 0 {
		v := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if !w.seen[v] {
			w.seen[v] = true
			w.follow(v)
		}
	}
	for _, v := range w.waiting {
		w.threads = append(w.threads, thread{v.pc, v.x, v.n, v.p, w.stacks(v.up)})
	}
	return m.config(w.threads, w.accepts)
}

func (w *closure) before(s *stacks) *callers {
	c, ok := w.fixed[s]
	if !ok {
		c = &callers{from: s, made: s}
		w.fixed[s] = c
	}
	return c
}

func (w *closure) follow(v move) {
	in := &w.m.g.code[v.pc]
	switch in.op {
	case opBytes:
		w.waiting = append(w.waiting, v)
	case opText:
		if v.p == partWhole && in.e.dfa.Accepts(v.x) && int(v.n) >= in.e.min {
			w.todo = append(w.todo, move{pc: in.next, up: v.up})
		}
		if v.p != partWhole || !in.e.dfa.Ends(v.x) && (in.e.max < 0 || int(v.n) < in.e.max) {
			w.waiting = append(w.waiting, v)
		}
	case opChars:
		if v.p == partWhole && int(v.n) >= in.e.min && (in.e.names == nil || !in.e.names.forbids(v.x)) {
			w.todo = append(w.todo, move{pc: in.next, up: v.up})
		}
		if v.p != partWhole || in.e.max < 0 || int(v.n) < in.e.max {
			w.waiting = append(w.waiting, v)
		}
	case opSplit:
		for _, alt := range in.alts {
			w.todo = append(w.todo, move{pc: alt, up: v.up})
		}
	case opCall:
		if in.next == endPC { // nothing is left to do here: the callers are the rule's
			w.todo = append(w.todo, move{pc: in.to, up: v.up})
			return
		}
		w.call(in.to, callFrame{in.next, 0, v.up})
	case opRepeat:
		if int(v.n) >= in.e.min {
			w.todo = append(w.todo, move{pc: in.next, up: v.up})
		}
		if in.e.max < 0 || int(v.n) < in.e.max {
			w.call(in.to, callFrame{v.pc, min(v.n+1, in.counted()), v.up})
		}
	case opReturn:
		w.goBack(v.up)
	}
}

// call reads the rule that starts at an instruction, and goes on at a frame.
func (w *closure) call(start int32, f callFrame) {
	c, ok := w.called[start]
	if !ok {
		c = &callers{}
		w.called[start] = c
		w.todo = append(w.todo, move{pc: start, up: c})
	}
	if slices.Contains(c.frames, f) {
		return
	}
	c.frames = append(c.frames, f)
	if c.returned {
		w.back(f)
	}
}

// goBack ends a rule.
func (w *closure) goBack(c *callers) {
	if c.from == nil {
		c.returned = true
		for _, f := range c.frames {
			w.back(f)
		}
		return
	}
	w.accepts = w.accepts || c.from == w.m.stacks.bottom
	for _, f := range c.from.frames {
		w.todo = append(w.todo, move{pc: f.pc, n: f.n, up: w.before(f.up)})
	}
}

// back goes on at a frame after an empty text. A repetition does not count it: it could have gone on without.
func (w *closure) back(f callFrame) {
	if w.m.g.code[f.pc].op != opRepeat {
		w.todo = append(w.todo, move{pc: f.pc, n: f.n, up: f.up})
	}
}

// stacks are the callers as a set that outlives the closure. Left recursion, which the compiler refuses, would not end here.
func (w *closure) stacks(c *callers) *stacks {
	if c.made == nil {
		frames := make([]frame, 0, len(c.frames))
		for _, f := range c.frames {
			frames = append(frames, frame{f.pc, f.n, w.stacks(f.up)})
		}
		c.made = w.m.stacks.set(frames)
	}
	return c.made
}
