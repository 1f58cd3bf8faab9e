package grammar

import "slices"

// closure follows empty moves: splits, calls, returns, ends of texts. A rule that is called in several places at once is read
// once, with all of them as its callers.
type closure struct {
	m       *Machine
	todo    []move
	seen    moves
	round   uint64
	called  []*callers // [start of a rule]
	starts  []int32    // of called
	callers []*callers // to be used again; those of this closure first
	used    int
	waiting []move
	accepts bool
}

// callers is where a rule goes on: stacks from before, or calls of this closure.
type callers struct {
	from     *stacks
	frames   []callFrame
	returned bool // the empty text of the rule has gone back to the callers so far
	made     *stacks
	id       uint32
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

// entry is what empty moves lead to from an instruction with some stacks.
type entry struct {
	threads []thread
	accepts bool
}

type entryKey struct {
	pc int32
	up uint64
}

// apart is how many seeds have their entries looked up one by one; more are followed together, since the rules that they are about to
// read are mostly the same.
const apart = 8

// close is the state of what seeds lead to: the union of their entries.
func (m *Machine) close(seeds []seed) *config {
	threads, accepts := m.threads[:0], false
	w, together := &m.work, false
	if len(seeds) > apart {
		together = true
		w.open(m)
	}
	enter := func(pc int32, up *stacks) {
		switch {
		case m.g.code[pc].op == opBytes:
			threads = append(threads, thread{pc: pc, up: up})
		case together:
			w.todo = append(w.todo, move{pc: pc, up: w.before(up)})
		default:
			e := m.entry(pc, up)
			threads, accepts = append(threads, e.threads...), accepts || e.accepts
		}
	}
	for i := range seeds {
		s := &seeds[i]
		in := &m.g.code[s.pc]
		if in.op != opText && in.op != opChars {
			enter(s.pc, s.up)
			continue
		}
		if s.p == partWhole && in.mayEnd(s.x, s.n) {
			enter(in.next, s.up)
		}
		if s.p != partWhole || in.mayGoOn(s.x, s.n) {
			threads = append(threads, thread{s.pc, s.x, s.n, s.p, s.up})
		}
	}
	if together {
		threads, accepts = w.run(threads)
	}
	m.threads = threads
	return m.config(threads, accepts)
}

// entry follows all empty moves from an instruction, once for each pair.
func (m *Machine) entry(pc int32, up *stacks) *entry {
	key := entryKey{pc, up.id}
	if e, ok := m.entries[key]; ok {
		return e
	}
	w := &m.work
	w.open(m)
	w.todo = append(w.todo, move{pc: pc, up: w.before(up)})
	e := &entry{}
	e.threads, e.accepts = w.run(nil)
	m.spend(0, configBytes+threadBytes*len(e.threads))
	m.entries[key] = e
	return e
}

// open begins a closure.
func (w *closure) open(m *Machine) {
	if w.m == nil {
		*w = closure{m: m, called: make([]*callers, len(m.g.code))}
	}
	for _, start := range w.starts {
		w.called[start] = nil
	}
	w.round++
	w.starts, w.used = w.starts[:0], 0
	w.seen.reset()
	w.todo, w.waiting, w.accepts = w.todo[:0], w.waiting[:0], false
}

// run follows what there is to follow, and adds the threads that wait for bytes then.
func (w *closure) run(threads []thread) ([]thread, bool) {
	for len(w.todo) > 0 {
		v := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if w.seen.add(v) {
			w.m.spend(1, 0)
			w.follow(v)
		}
	}
	for _, v := range w.waiting {
		threads = append(threads, thread{v.pc, v.x, v.n, v.p, w.stacks(v.up)})
	}
	return threads, w.accepts
}

// mayEnd says whether a text, or characters, may end after a whole one.
func (in *instr) mayEnd(x, n int32) bool {
	if in.op == opText {
		return in.e.dfa.Accepts(x) && int(n) >= in.e.min
	}
	return int(n) >= in.e.min && (in.e.names == nil || !in.e.names.forbids(x))
}

// mayGoOn says whether a further character may begin.
func (in *instr) mayGoOn(x, n int32) bool {
	return (in.op == opChars || !in.e.dfa.Ends(x)) && (in.e.max < 0 || int(n) < in.e.max)
}

func (w *closure) before(s *stacks) *callers {
	if s.round != w.round {
		c := w.fresh()
		c.from, c.made = s, s
		s.round, s.callers = w.round, c
	}
	return s.callers
}

// fresh is empty callers.
func (w *closure) fresh() *callers {
	if w.used == len(w.callers) {
		w.callers = append(w.callers, &callers{id: uint32(w.used)})
	}
	c := w.callers[w.used]
	*c = callers{frames: c.frames[:0], id: c.id}
	w.used++
	return c
}

// moves is a set.
type moves struct {
	slots []moveSlot
	count int
	round uint32
}

type moveSlot struct {
	move
	round uint32
}

func (s *moves) reset() {
	if s.round++; s.round == 0 {
		clear(s.slots)
		s.round = 1
	}
	s.count = 0
}

// add says whether v is new.
func (s *moves) add(v move) bool {
	if 2*s.count >= len(s.slots) {
		s.grow()
	}
	at := s.slot(v)
	if at.round == s.round {
		return false
	}
	*at = moveSlot{v, s.round}
	s.count++
	return true
}

// slot is where v is, or would be.
func (s *moves) slot(v move) *moveSlot {
	h := mix(mix(uint64(uint32(v.pc))<<32|uint64(uint32(v.x)), uint64(uint32(v.n))<<32|uint64(v.p)), uint64(v.up.id))
	for i := h; ; i++ {
		if at := &s.slots[i&uint64(len(s.slots)-1)]; at.round != s.round || at.move == v {
			return at
		}
	}
}

func (s *moves) grow() {
	old := s.slots
	s.slots = make([]moveSlot, max(64, 2*len(old)))
	for i := range old {
		if old[i].round == s.round {
			*s.slot(old[i].move) = old[i]
		}
	}
}

func (w *closure) follow(v move) {
	in := &w.m.g.code[v.pc]
	switch in.op {
	case opBytes:
		w.waiting = append(w.waiting, v)
	case opText, opChars:
		if v.p == partWhole && in.mayEnd(v.x, v.n) {
			w.todo = append(w.todo, move{pc: in.next, up: v.up})
		}
		if v.p != partWhole || in.mayGoOn(v.x, v.n) {
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
	c := w.called[start]
	if c == nil {
		c = w.fresh()
		w.called[start] = c
		w.starts = append(w.starts, start)
		w.todo = append(w.todo, move{pc: start, up: c})
	}
	w.m.spend(1+len(c.frames)/8, 0)
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
