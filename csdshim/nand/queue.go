package nand

// queue is a die's waiting operations of one kind, oldest first.
type queue struct {
	all  []int32
	head int
}

// any says whether something waits; operations that went with an older one are skipped.
func (q *queue) any(gone []bool) bool {
	for q.head < len(q.all) && gone[q.all[q.head]] {
		q.head++
	}
	return q.head < len(q.all)
}

// add has an operation wait.
func (r *run) add(op int32) {
	p, kind := r.ops[op].Place, r.ops[op].Kind
	q := &r.dies[p.Die].waiting[kind]
	q.all = append(q.all, op)
	if r.t.Planes > 1 {
		r.rows.push(rowKey{int64(p.Row), int32(p.Die), int16(p.Plane), kind}, op)
	}
}

// mate is the oldest operation that waits for an operation's row in another plane of its die; negative where none does.
func (r *run) mate(op int32, plane int) int32 {
	p := r.ops[op].Place
	if plane == p.Plane {
		return -1
	}
	return r.rows.oldest(rowKey{int64(p.Row), int32(p.Die), int16(plane), r.ops[op].Kind})
}

// width is how many operations take would return.
func (r *run) width(q *queue) int {
	n := 1
	for plane := range r.t.Planes {
		if r.mate(q.all[q.head], plane) >= 0 {
			n++
		}
	}
	return n
}

// take removes the oldest operation, and with it the oldest of its row in each other plane, and adds them to a list; any was true.
func (r *run) take(q *queue, taken []int32) []int32 {
	first := q.all[q.head]
	q.head++
	taken = append(taken, first)
	if r.t.Planes < 2 {
		return taken
	}
	for plane := range r.t.Planes {
		if op := r.mate(first, plane); op >= 0 {
			taken = append(taken, op)
			r.gone[op] = true
			r.rows.pop(rowKey{int64(r.ops[op].Place.Row), int32(r.ops[op].Place.Die), int16(plane), r.ops[op].Kind})
		}
	}
	p := r.ops[first].Place
	r.rows.pop(rowKey{int64(p.Row), int32(p.Die), int16(p.Plane), r.ops[first].Kind})
	return taken
}

// rowKey is what is sensed, programmed or erased at a time, plane by plane.
type rowKey struct {
	row   int64
	die   int32
	plane int16
	kind  Kind
}

// rowLists are lists of operations by rowKey, oldest first: an open table, emptied by a stamp, and links by operation.
type rowLists struct {
	slots []rowSlot
	stamp uint32
	next  []int32
}

type rowSlot struct {
	key         rowKey
	stamp       uint32
	first, last int32 // first is negative where the list is empty
}

// reset empties the lists and makes room for operations 0 to n-1.
func (l *rowLists) reset(n int) {
	if need := 2 * n; len(l.slots) < need {
		size := 64
		for size < need {
			size *= 2
		}
		l.slots, l.stamp = make([]rowSlot, size), 0
	}
	if l.stamp++; l.stamp == 0 {
		clear(l.slots)
		l.stamp = 1
	}
	if cap(l.next) < n {
		l.next = make([]int32, n)
	}
	l.next = l.next[:n]
}

// slot is where a key's list is or may be put.
func (l *rowLists) slot(k rowKey) *rowSlot {
	mask := uint64(len(l.slots) - 1)
	h := (uint64(k.row)<<20 ^ uint64(k.die)<<8 ^ uint64(k.plane)<<2 ^ uint64(k.kind)) * 0x9e3779b97f4a7c15
	for i := h >> 32; ; i++ {
		if s := &l.slots[i&mask]; s.stamp != l.stamp || s.key == k {
			return s
		}
	}
}

func (l *rowLists) push(k rowKey, op int32) {
	l.next[op] = -1
	s := l.slot(k)
	if s.stamp != l.stamp || s.first < 0 {
		*s = rowSlot{key: k, stamp: l.stamp, first: op, last: op}
		return
	}
	l.next[s.last] = op
	s.last = op
}

func (l *rowLists) oldest(k rowKey) int32 {
	if s := l.slot(k); s.stamp == l.stamp {
		return s.first
	}
	return -1
}

// pop removes the oldest of a list that is not empty.
func (l *rowLists) pop(k rowKey) {
	s := l.slot(k)
	s.first = l.next[s.first]
}
