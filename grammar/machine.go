package grammar

import (
	"cmp"
	"slices"
	"sync"
)

// Bounds of what a Machine keeps.
const (
	maxConfigs = 20000
	maxRows    = 6000 // of transitions, 2 KiB each
	maxMasks   = 512
	maxFew     = 8 // transitions of a state that has no row
)

// thread is one way in which the text so far can be read: it waits at an instruction that reads bytes.
type thread struct {
	pc int32
	x  int32 // opText: state of the automaton; opChars: node of the names
	n  int32 // opChars: characters so far
	p  part
	up *stacks
}

// config is a state of the automaton: all threads of the text so far.
type config struct {
	threads []thread
	accepts bool          // the text may end here
	next    *[256]*config // nil: few has all that are known, but for those to dead
	few     []edge
	first   *[4]uint64 // of a state with many threads: bytes that any may read
	same    *config    // the next state of the same hash
	made    int        // the round of the machine that made it
	free    int32      // characters of a JSON string that any thread takes; -1: none does
	rest    *config    // the other threads
	split   bool       // free and rest are known
}

type edge struct {
	b  byte
	to *config
}

var dead = &config{}

// Machine runs a grammar over a vocabulary. It is shared by all texts under the grammar.
type Machine struct {
	mu    sync.Mutex
	g     *Grammar
	v     *Vocabulary
	ids   uint64
	round int
	rows  int
	masks masks
	work  closure
	seeds []seed

	entries map[entryKey]*entry
	threads []thread

	left  int  // work that the call in progress may take
	stale bool // a bound was reached in the midst of something

	states
}

// states are those that were reached.
type states struct {
	stacks *table
	known  map[uint64]*config // by hash
	count  int                // of known
	start  *config
	bytes  int // kept of states
}

// NewMachine is a machine that knows nothing yet but which tokens may come first: a grammar that is too large for the bounds is
// ErrTooLarge here already, in most cases.
func NewMachine(g *Grammar, v *Vocabulary) (*Machine, error) {
	m := &Machine{g: g, v: v}
	err := m.bounded(func() {
		m.reset()
		m.mask(m.start)
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// reset forgets all states and masks; those that texts still hold go on working.
func (m *Machine) reset() {
	m.round++
	m.rows, m.bytes = 0, 0
	bottom := &stacks{}
	if m.stacks != nil {
		bottom = m.stacks.bottom
	}
	m.stacks = newTable(&m.ids, bottom, m.spend)
	m.known, m.count = map[uint64]*config{}, 0
	m.entries = map[entryKey]*entry{}
	m.masks.reset()
	m.start = m.close(append(m.seeds[:0], seed{pc: m.g.start, up: bottom}))
}

// seed is a thread before empty moves have been followed.
type seed struct {
	pc, x, n int32
	p        part
	up       *stacks
}

// current is c, made again where the machine has been reset since.
func (m *Machine) current(c *config) *config {
	if m.count+len(m.entries) > maxConfigs || m.rows > maxRows || m.bytes > maxBytes {
		m.reset()
	}
	if c.made == m.round || c == dead {
		return c
	}
	return m.config(slices.Clone(c.threads), c.accepts)
}

// config is the one state with these threads, which it takes over: sorted, and united where they differ in their stacks only.
func (m *Machine) config(threads []thread, accepts bool) *config {
	if len(threads) == 0 && !accepts {
		return dead
	}
	if len(threads) > 1 {
		slices.SortFunc(threads, compareThreads)
	}
	out := threads[:0]
	for _, t := range threads {
		if k := len(out); k > 0 && out[k-1].pc == t.pc && out[k-1].x == t.x && out[k-1].n == t.n && out[k-1].p == t.p {
			out[k-1].up = m.stacks.union(out[k-1].up, t.up)
			continue
		}
		out = append(out, t)
	}
	hash := hashThreads(out, accepts)
	same := m.known[hash]
	for c := same; c != nil; c = c.same {
		if c.accepts == accepts && slices.Equal(c.threads, out) {
			return c
		}
	}
	m.spend(len(out), configBytes+threadBytes*len(out))
	c := &config{threads: slices.Clone(out), accepts: accepts, made: m.round, same: same}
	m.known[hash] = c
	m.count++
	return c
}

func compareThreads(a, b thread) int {
	switch {
	case a.pc != b.pc:
		return cmp.Compare(a.pc, b.pc)
	case a.x != b.x:
		return cmp.Compare(a.x, b.x)
	case a.n != b.n:
		return cmp.Compare(a.n, b.n)
	case a.p != b.p:
		return cmp.Compare(a.p, b.p)
	}
	return cmp.Compare(a.up.id, b.up.id)
}

func hashThreads(threads []thread, accepts bool) uint64 {
	h := uint64(len(threads))
	if accepts {
		h = ^h
	}
	for i := range threads {
		t := &threads[i]
		h = mix(h, uint64(uint32(t.pc))<<32|uint64(uint32(t.x)))
		h = mix(h, uint64(uint32(t.n))<<32|uint64(t.p))
		h = mix(h, t.up.id)
	}
	return h
}

func mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

// step is the state after one more byte.
func (m *Machine) step(c *config, b byte) *config {
	if c.next != nil {
		if to := c.next[b]; to != nil {
			return to
		}
	} else {
		for i := range c.few {
			if c.few[i].b == b {
				return c.few[i].to
			}
		}
	}
	if len(c.threads) > maxFew {
		if c.first == nil {
			c.first = m.firstBytes(c)
		}
		if c.first[b>>6]>>(b&63)&1 == 0 {
			return dead
		}
	}
	m.spend(1+len(c.threads), 0)
	seeds := m.seeds[:0]
	for i := range c.threads {
		seeds = m.read(seeds, &c.threads[i], b)
	}
	m.seeds = seeds
	to := dead
	if len(seeds) > 0 {
		to = m.close(seeds)
	}
	m.keep(c, b, to)
	return to
}

// keep notes a transition: in a row where there are many.
func (m *Machine) keep(c *config, b byte, to *config) {
	switch {
	case c.next != nil:
		c.next[b] = to
	case to == dead || c == dead:
	case len(c.few) < maxFew:
		c.few = append(c.few, edge{b, to})
	case m.rows < 2*maxRows:
		c.next = new([256]*config)
		m.rows++
		m.bytes += rowBytes
		for _, e := range c.few {
			c.next[e.b] = e.to
		}
		c.next[b], c.few = to, nil
	}
}

// firstBytes are the bytes that some thread may read, and perhaps others.
func (m *Machine) firstBytes(c *config) *[4]uint64 {
	var set [4]uint64
	for i := range c.threads {
		if in := &m.g.code[c.threads[i].pc]; in.op == opBytes {
			for k := range set {
				set[k] |= in.e.set[k]
			}
			continue
		}
		return &[4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	}
	return &set
}

// read appends what becomes of a thread that reads a byte.
func (m *Machine) read(seeds []seed, t *thread, b byte) []seed {
	in := &m.g.code[t.pc]
	if in.op == opBytes {
		if in.e.set[b>>6]>>(b&63)&1 != 0 {
			seeds = append(seeds, seed{pc: in.next, up: t.up})
		}
		return seeds
	}
	json := in.op == opChars || in.e.json
	p, r, done, escaped, ok := t.p.advance(b, json)
	if !ok {
		return seeds
	}
	to := seed{pc: t.pc, x: t.x, n: t.n, p: p, up: t.up}
	if in.op == opText {
		return in.readText(seeds, to, r, done, escaped)
	}
	if t.p == partWhole && in.e.max >= 0 && int(t.n) >= in.e.max {
		return seeds // no further character may begin
	}
	if done {
		to.n = min(t.n+1, in.counted())
		if in.e.names != nil {
			to.x = in.e.names.step(t.x, r)
			if in.e.names.forbids(to.x) && in.e.max >= 0 && int(to.n) >= in.e.max {
				return seeds // it could neither end nor go on
			}
		}
	}
	return append(seeds, to)
}

// readText appends to where a character, or a part of one, can be completed to a text.
func (in *instr) readText(seeds []seed, to seed, r rune, done, escaped bool) []seed {
	left := unlimited // characters after this one
	if in.e.max >= 0 {
		left = int32(in.e.max) - to.n - 1
	}
	if left < 0 || done && escaped && r < 0x10000 && !isEscapable(r) {
		return seeds
	}
	if !done {
		if to.p.viable(in.e, to.x, left) {
			seeds = append(seeds, to)
		}
		return seeds
	}
	to.x = in.e.dfa.Step(to.x, r)
	if to.x == automatonDead || in.e.near != nil && in.e.near[to.x] > left {
		return seeds
	}
	if in.e.near != nil {
		to.n = min(to.n+1, in.counted())
	}
	return append(seeds, to)
}

// counted is how far characters are counted: beyond it all states are alike.
func (in *instr) counted() int32 {
	if in.e.max >= 0 {
		return int32(min(in.e.max, 1<<30))
	}
	return int32(min(in.e.min, 1<<30))
}
