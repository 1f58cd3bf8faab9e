package grammar

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"
)

// Bounds of what a Machine keeps.
const (
	maxConfigs = 20000
	maxRows    = 6000 // of transitions, 2 KiB each
	maxMasks   = 512
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
	accepts bool // the text may end here
	next    *[256]*config
	made    int     // the round of the machine that made it
	free    int32   // characters of a JSON string that any thread takes; -1: none does
	rest    *config // the other threads
	split   bool    // free and rest are known
}

var dead = &config{}

// Machine runs a grammar over a vocabulary. It is shared by all texts under the grammar.
type Machine struct {
	mu     sync.Mutex
	g      *Grammar
	v      *Vocabulary
	ids    uint64
	round  int
	rows   int
	stacks *table
	known  map[string]*config
	start  *config
	masks  masks
	work   closure
	key    []byte
	seeds  []seed
}

// NewMachine is a machine that knows nothing yet.
func NewMachine(g *Grammar, v *Vocabulary) *Machine {
	m := &Machine{g: g, v: v}
	m.reset()
	return m
}

// reset forgets all states and masks; those that texts still hold go on working.
func (m *Machine) reset() {
	m.round++
	m.rows = 0
	bottom := &stacks{}
	if m.stacks != nil {
		bottom = m.stacks.bottom
	}
	m.stacks = newTable(&m.ids, bottom)
	m.known = map[string]*config{}
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
	if len(m.known) > maxConfigs || m.rows > maxRows {
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
	slices.SortFunc(threads, func(a, b thread) int {
		return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.x, b.x), cmp.Compare(a.n, b.n), cmp.Compare(a.p, b.p), cmp.Compare(a.up.id, b.up.id))
	})
	out := threads[:0]
	for _, t := range threads {
		if k := len(out); k > 0 && out[k-1].pc == t.pc && out[k-1].x == t.x && out[k-1].n == t.n && out[k-1].p == t.p {
			out[k-1].up = m.stacks.union(out[k-1].up, t.up)
			continue
		}
		out = append(out, t)
	}
	key := m.key[:0]
	if accepts {
		key = append(key, 1)
	}
	for _, t := range out {
		for _, v := range [...]uint32{uint32(t.pc), uint32(t.x), uint32(t.n), uint32(t.p)} {
			key = binary.LittleEndian.AppendUint32(key, v)
		}
		key = binary.LittleEndian.AppendUint64(key, t.up.id)
	}
	m.key = key
	if c, ok := m.known[string(key)]; ok {
		return c
	}
	c := &config{threads: slices.Clone(out), accepts: accepts, made: m.round}
	m.known[string(key)] = c
	return c
}

// step is the state after one more byte.
func (m *Machine) step(c *config, b byte) *config {
	if c.next != nil {
		if to := c.next[b]; to != nil {
			return to
		}
	} else if m.rows < 2*maxRows && c != dead {
		c.next = new([256]*config)
		m.rows++
	}
	seeds := m.seeds[:0]
	for i := range c.threads {
		seeds = m.read(seeds, &c.threads[i], b)
	}
	m.seeds = seeds
	to := dead
	if len(seeds) > 0 {
		to = m.close(seeds)
	}
	if c.next != nil {
		c.next[b] = to
	}
	return to
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
