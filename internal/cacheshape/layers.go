package cacheshape

// Keeps reports whether a layer keeps keys and values of its own.
func (m Model) Keeps(layer int) bool { return m[layer].KV.Heads > 0 }

// Reads reports whether a layer reads keys and values, its own or an earlier layer's.
func (m Model) Reads(layer int) bool { return m[layer].Heads > 0 }

// Owner is the layer whose keys and values a layer reads: itself, an earlier one, or -1 where it reads none.
func (m Model) Owner(layer int) int {
	if m[layer].Heads == 0 {
		return -1
	}
	return m[layer].Owner
}

// KV is the keys and values that a layer reads, the owner's where they are shared; zero where it reads none.
func (m Model) KV(layer int) KV {
	if owner := m.Owner(layer); owner >= 0 {
		return m[owner].KV
	}
	return KV{}
}

// Group is how many query heads of a layer share a KV head; 0 where it reads none.
func (m Model) Group(layer int) int {
	if kv := m.KV(layer); kv.Heads > 0 {
		return m[layer].Heads / kv.Heads
	}
	return 0
}

// Keepers counts the layers that keep keys and values.
func (m Model) Keepers() int {
	n := 0
	for i := range m {
		if m.Keeps(i) {
			n++
		}
	}
	return n
}

// Next is the first layer behind one that keeps keys and values; -1 where there is none. Next(-1) is the first of all.
func (m Model) Next(layer int) int {
	for i := layer + 1; i < len(m); i++ {
		if m.Keeps(i) {
			return i
		}
	}
	return -1
}

// LastReader is the last layer that reads what a layer keeps.
func (m Model) LastReader(owner int) int {
	last := owner
	for i := owner + 1; i < len(m); i++ {
		if m.Owner(i) == owner {
			last = i
		}
	}
	return last
}

// KVHeads is the KV heads of all layers together: how many lists of tokens a text has.
func (m Model) KVHeads() int {
	n := 0
	for i := range m {
		n += m[i].KV.Heads
	}
	return n
}

// HeadsRead is the KV heads that all layers together read, a shared one as often as it is read.
func (m Model) HeadsRead() int {
	n := 0
	for i := range m {
		n += m.KV(i).Heads
	}
	return n
}

// HeadsBefore is the KV heads that the layers before each one keep, and of all at the end: where a layer's lists begin among
// those of all layers, [len+1].
func (m Model) HeadsBefore() []int {
	before := make([]int, len(m)+1)
	for i := range m {
		before[i+1] = before[i] + m[i].KV.Heads
	}
	return before
}

// Numbers is how many numbers one token's keys and values are over all layers; a value in its key counts once.
func (m Model) Numbers() int {
	n := 0
	for i := range m {
		n += m[i].KV.Numbers()
	}
	return n
}

// Numbers is how many numbers are kept of one token.
func (kv KV) Numbers() int {
	if kv.ValueInKey {
		return kv.Heads * kv.KeyDim
	}
	return kv.Heads * (kv.KeyDim + kv.ValueDim)
}

// StateBytes is the state of all layers together.
func (m Model) StateBytes() int64 {
	n := int64(0)
	for i := range m {
		n += int64(m[i].State.Bytes)
	}
	return n
}

// Recurrent is the first layer that keeps state; -1 where none does.
func (m Model) Recurrent() int {
	for i := range m {
		if m[i].State.Bytes > 0 {
			return i
		}
	}
	return -1
}

// Same is the query heads and KV that all layers have, if all are alike but for their windows and types and own what they read.
func (m Model) Same() (heads int, kv KV, ok bool) {
	if len(m) == 0 {
		return 0, KV{}, false
	}
	for i := range m {
		l := m[i]
		l.KV.Window, l.KV.Type, l.Owner = 0, 0, 0
		first := m[0]
		first.KV.Window, first.KV.Type, first.Owner = 0, 0, 0
		if l != first || !m.Keeps(i) {
			return 0, KV{}, false
		}
	}
	kv = m[0].KV
	kv.Window, kv.Type = 0, 0
	return m[0].Heads, kv, true
}
