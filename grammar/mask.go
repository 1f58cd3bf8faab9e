package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"

	"terrace/grammar/automaton"
)

const (
	automatonDead = automaton.Dead
	unlimited     = automaton.Unlimited
)

// State is one text under a machine's grammar.
type State struct {
	m *Machine
	c *config
}

// Start is the state of the empty text.
func (m *Machine) Start() *State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &State{m: m, c: m.start}
}

// Fork is a state of the same text that goes its own way.
func (s *State) Fork() *State { return &State{m: s.m, c: s.c} }

// CanEnd says whether the text is one of the language.
func (s *State) CanEnd() bool { return s.c.accepts }

// Ended says that the text is one of the language and that nothing can follow.
func (s *State) Ended() bool { return s.c.accepts && len(s.c.threads) == 0 }

// Accept adds a token to the text; ErrForbidden where it may not come next, and the text is as before.
func (s *State) Accept(id int) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	v := s.m.v
	if id < 0 || id >= v.size || len(v.tokens[id]) == 0 {
		return fmt.Errorf("grammar: token %d: %w", id, ErrForbidden)
	}
	return s.read(v.tokens[id])
}

// AcceptText adds bytes to the text; ErrForbidden where they may not come next, and the text is as before.
func (s *State) AcceptText(text []byte) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.read(text)
}

func (s *State) read(text []byte) (err error) {
	if over := s.m.bounded(func() {
		c := s.m.current(s.c)
		for i, b := range text {
			if c = s.m.step(c, b); c == dead {
				err = fmt.Errorf("grammar: byte %d of %.40q: %w", i, text, ErrForbidden)
				return
			}
		}
		s.c = c
	}); over != nil {
		return over
	}
	return err
}

// Mask is which tokens may come next, a bit an id; tokens that end a text where it may end. It is shared: do not change it. ErrTooLarge
// where finding it takes more than the bounds.
func (s *State) Mask() (mask []uint64, err error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	err = s.m.bounded(func() {
		s.c = s.m.current(s.c)
		mask = s.m.mask(s.c)
	})
	return mask, err
}

// masks are kept by what a state can do within one token.
type masks struct {
	known map[string][]uint64
	ids   map[string]uint64 // of stacks that one token cannot tell apart
	of    map[*stacks]uint64
	key   []byte
	path  []*config
}

func (k *masks) reset() {
	k.known, k.ids, k.of = map[string][]uint64{}, map[string]uint64{}, map[*stacks]uint64{}
}

func (m *Machine) mask(c *config) []uint64 {
	key := m.maskKey(c)
	if mask, ok := m.masks.known[string(key)]; ok {
		return mask
	}
	if len(m.masks.known) >= maxMasks {
		m.masks.reset()
		key = m.maskKey(c)
	}
	id := string(key)
	mask := m.v.empty()
	if c.accepts {
		for _, end := range m.v.ends {
			mask[end>>6] |= 1 << (end & 63)
		}
	}
	m.walk(&m.v.other, c, mask)
	m.walkPlain(c, mask)
	m.masks.known[id] = mask
	return mask
}

// maskKey writes a state with its counters replaced by the least that acts alike for as many bytes as the longest token has.
func (m *Machine) maskKey(c *config) []byte {
	key := m.masks.key[:0]
	if c.accepts {
		key = append(key, 1)
	}
	for i := range c.threads {
		t := &c.threads[i]
		n := t.n
		switch in := &m.g.code[t.pc]; {
		case in.op == opChars:
			n = m.alike(n, in.e, 0)
		case in.op == opText && in.e.near != nil:
			n = m.alike(n, in.e, int(slices.Max(in.e.near)))
		}
		up := m.alikeStacks(t.up)
		for _, v := range [...]uint32{uint32(t.pc), uint32(t.x), uint32(n), uint32(t.p)} {
			key = binary.LittleEndian.AppendUint32(key, v)
		}
		key = binary.LittleEndian.AppendUint64(key, up)
	}
	m.masks.key = key
	return key
}

// alike is the least count from which no token reaches a bound that n would not reach, and the other way
// round; end is how many characters a text may need to end.
func (m *Machine) alike(n int32, e *Expr, end int) int32 {
	reach := m.v.longest + 1 + end
	switch {
	case int(n)+reach < e.min:
		return 0
	case int(n) >= e.min && (e.max < 0 || int(n)+reach < e.max):
		return int32(e.min)
	}
	return n
}

// alikeStacks numbers stacks; those whose counters act alike for one token have one number.
func (m *Machine) alikeStacks(s *stacks) uint64 {
	if id, ok := m.masks.of[s]; ok {
		return id
	}
	key := make([]byte, 0, 16*len(s.frames))
	for _, f := range s.frames {
		n := f.n
		if in := &m.g.code[f.pc]; in.op == opRepeat {
			n = m.alike(n, in.e, 0)
		}
		key = binary.LittleEndian.AppendUint32(key, uint32(f.pc))
		key = binary.LittleEndian.AppendUint32(key, uint32(n))
		key = binary.LittleEndian.AppendUint64(key, m.alikeStacks(f.up))
	}
	id, ok := m.masks.ids[string(key)]
	if !ok {
		id = uint64(len(m.masks.ids))
		m.masks.ids[string(key)] = id
	}
	m.masks.of[s] = id
	return id
}

// walk sets the bits of the tokens of a trie that c can read.
func (m *Machine) walk(t *trie, c *config, mask []uint64) {
	path := m.path(c)
	for i := int32(0); int(i) < len(t.nodes)-1; {
		n := &t.nodes[i]
		to := m.step(path[n.depth-1], n.b)
		if to == dead {
			i = n.end
			continue
		}
		path[n.depth] = to
		t.allow(n, mask)
		i++
	}
}

func (m *Machine) path(c *config) []*config {
	for len(m.masks.path) <= m.v.longest+1 {
		m.masks.path = append(m.masks.path, nil)
	}
	m.masks.path[0] = c
	return m.masks.path
}

// walkPlain is walk for plain tokens: where a thread takes any characters of a string, those below are allowed at once, and
// only the other threads go on.
func (m *Machine) walkPlain(c *config, mask []uint64) {
	t := &m.v.plain
	if free := m.divide(c); free >= 0 {
		if bits, ok := m.v.plainUpTo(free); ok {
			for i, b := range bits {
				mask[i] |= b
			}
		} else {
			t.allowUpTo(0, int32(len(t.nodes)-1), free, mask)
		}
		c = c.rest
	}
	if len(c.threads) == 0 {
		return
	}
	path := m.path(c)
	for i := int32(0); int(i) < len(t.nodes)-1; {
		n := &t.nodes[i]
		to := m.step(path[n.depth-1], n.b)
		if to == dead {
			i = n.end
			continue
		}
		t.allow(n, mask)
		if free := m.divide(to); free >= 0 {
			most := unlimited
			if free < unlimited-n.runes {
				most = free + n.runes
			}
			t.allowBelow(i, most, mask)
			if to = to.rest; len(to.threads) == 0 {
				i = n.end
				continue
			}
		}
		path[n.depth] = to
		i++
	}
}

// allowUpTo sets the bits of the tokens of some nodes that have at most so many characters.
func (t *trie) allowUpTo(from, to, runes int32, mask []uint64) {
	lo, hi := t.nodes[from].token, t.nodes[to].token
	if runes == unlimited {
		for _, id := range t.ids[lo:hi] {
			mask[id>>6] |= 1 << (id & 63)
		}
		return
	}
	for i := lo; i < hi; i++ {
		if id := t.ids[i]; t.runes[i] <= runes {
			mask[id>>6] |= 1 << (id & 63)
		}
	}
}

// allowBelow is allowUpTo of all nodes below one.
func (t *trie) allowBelow(i, runes int32, mask []uint64) {
	n := &t.nodes[i]
	if n.bits < 0 || runes < t.longest {
		t.allowUpTo(i+1, n.end, runes, mask)
		return
	}
	for k, b := range t.bits[n.bits] {
		mask[k] |= b
	}
}

// divide finds the threads that take any character of a string, how many of them, and the state without these threads.
func (m *Machine) divide(c *config) int32 {
	if c.split || c == dead {
		if c == dead {
			return -1
		}
		return c.free
	}
	c.split, c.free, c.rest = true, -1, c
	var rest []thread
	for _, t := range c.threads {
		if n := m.takes(&t); n >= 0 {
			c.free = max(c.free, n)
		} else {
			rest = append(rest, t)
		}
	}
	if c.free >= 0 {
		c.rest = m.config(rest, false)
	}
	return c.free
}

// takes is how many characters of a string a thread takes whatever they are; -1: not any.
func (m *Machine) takes(t *thread) int32 {
	in := &m.g.code[t.pc]
	if t.p != partWhole || in.op != opChars && (in.op != opText || !in.e.json) {
		return -1
	}
	switch {
	case in.e.max < 0 && (in.op == opChars || in.e.dfa.Open(t.x) >= m.v.plain.longest): // names that are forbidden only may not end
		return unlimited
	case in.e.max >= 0 && (in.op == opText && in.e.dfa.Free(t.x) || in.op == opChars && (in.e.names == nil || t.x == offNames)):
		return int32(in.e.max) - t.n
	}
	return -1
}
