package vulkan

import (
	"encoding/binary"
	"fmt"

	"terrace/internal/cacheshape"
	"terrace/internal/vulkan"
	"terrace/model"
)

// kept is a layer's state of a sequence on the device (cacheshape.StateCopy).
type kept struct {
	b       *backend
	on      span
	numbers int
	down    *vulkan.Memory // staging that its numbers come down to, between Bring and Fetch
	batch   int64          // in which that copy was recorded
}

// Bring implements cacheshape.StateCopy.
func (k *kept) Bring() error {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	return k.bring()
}

func (k *kept) bring() (err error) {
	bytes := int64(4 * k.numbers)
	if k.down == nil {
		if k.down, err = k.b.landing.take(k.b.recorder, bytes); err != nil {
			return err
		}
	}
	k.b.use.DownBytes += bytes
	k.batch = k.b.batch
	return k.b.copy(span{k.down, 0, bytes}, span{k.on.m, k.on.at, bytes})
}

// Fetch implements cacheshape.StateCopy.
func (k *kept) Fetch(dst []float32) error {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	return k.fetch(dst)
}

func (k *kept) fetch(dst []float32) error {
	if k.down == nil {
		if err := k.bring(); err != nil {
			return err
		}
	}
	if k.batch == k.b.batch {
		if err := k.b.submit(); err != nil {
			return err
		}
	}
	copy(dst[:k.numbers], vulkan.Floats(k.down.Bytes))
	k.land()
	return nil
}

// land gives back the staging memory.
func (k *kept) land() {
	if k.down != nil {
		k.b.landing.give(int64(4*k.numbers), k.down)
		k.down = nil
	}
}

// Drop implements cacheshape.StateCopy.
func (k *kept) Drop() {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	k.drop()
}

func (k *kept) drop() {
	k.land()
	k.b.heap.release(k.on)
	k.on = span{}
}

// landing is staging memory that states come down to, by size, for the next that do.
type landing map[int64][]*vulkan.Memory

func (l landing) take(r *recorder, bytes int64) (*vulkan.Memory, error) {
	if list := l[bytes]; len(list) > 0 {
		m := list[len(list)-1]
		l[bytes] = list[:len(list)-1]
		return m, nil
	}
	m, err := r.d.Staging(bytes)
	return m, deviceError(err)
}

func (l *landing) give(bytes int64, m *vulkan.Memory) {
	if *l == nil {
		*l = landing{}
	}
	(*l)[bytes] = append((*l)[bytes], m)
}

// texts are the texts of a pass at a recurrent layer, with their states on the device.
type texts struct {
	many     int
	from, to []*kept
	states   []model.StateRows
	table    span // [texts, 6]: where the state before and after lies, first row, rows
	of       span // [n] each row's text
	moves    bool // no state is written where it is read
}

// texts brings states to the device, where they are not there, and makes room for those behind the pass.
func (b *backend) texts(layer, n int, states []model.StateRows) (*texts, error) {
	numbers, rows := b.m.Cache()[layer].State.Bytes/4, 0
	for i := range states {
		rows += states[i].Rows
		if len(states[i].From) != numbers || len(states[i].State) != numbers {
			return nil, fmt.Errorf("vulkan: states of %d and %d numbers for layer %d, want %d", len(states[i].From), len(states[i].State), layer, numbers)
		}
	}
	if rows != n {
		return nil, outside(rows, n)
	}
	t := &texts{many: len(states), states: states, moves: true}
	for i := range states {
		from, to, err := b.text(&states[i], numbers)
		if err != nil {
			t.abandon()
			return nil, err
		}
		t.from, t.to, t.moves = append(t.from, from), append(t.to, to), t.moves && from != to
	}
	var table, of []byte
	first := 0
	for i := range states {
		table = binary.LittleEndian.AppendUint64(table, t.from[i].on.address())
		table = binary.LittleEndian.AppendUint64(table, t.to[i].on.address())
		table = binary.LittleEndian.AppendUint32(table, uint32(first))
		table = binary.LittleEndian.AppendUint32(table, uint32(states[i].Rows))
		for range states[i].Rows {
			of = binary.LittleEndian.AppendUint32(of, uint32(i))
		}
		first += states[i].Rows
	}
	err := b.reserve(len(table) + len(of) + 1<<10)
	if err == nil {
		t.table, err = b.give(table)
	}
	if err == nil {
		t.of, err = b.give(of)
	}
	if err != nil {
		t.abandon()
		return nil, err
	}
	return t, nil
}

// abandon gives back the room that was made for states which nobody was given.
func (t *texts) abandon() {
	for i, k := range t.to {
		if k != t.states[i].Copy && !k.on.absent() {
			k.drop()
		}
	}
}

// text is where a state lies on the device before a pass and behind it: the same place where that before must go up first.
func (b *backend) text(r *model.StateRows, numbers int) (from, to *kept, err error) {
	to = b.mine(r.Copy, numbers)
	if from = b.mine(r.FromCopy, numbers); to == nil {
		to = &kept{b: b, numbers: numbers}
		if to.on, err = b.heap.alloc(int64(4 * numbers)); err != nil {
			return nil, nil, deviceError(err)
		}
	}
	if from != nil {
		return from, to, nil
	}
	b.use.UpBytes += int64(4 * numbers)
	if err := b.upload(to.on, vulkan.Bytes(r.From)); err != nil {
		if to != r.Copy {
			to.drop()
		}
		return nil, nil, err
	}
	return to, to, nil
}

// mine is a copy of this backend's of so many numbers, else nil.
func (b *backend) mine(c cacheshape.StateCopy, numbers int) *kept {
	if k, ok := c.(*kept); ok && k.b == b && k.numbers == numbers && !k.on.absent() {
		return k
	}
	return nil
}

// hand gives the states behind the pass to their owners: the device's copy to those that take it, numbers to the others.
func (t *texts) hand() error {
	for i := range t.states {
		if r := &t.states[i]; r.Keeps {
			r.Copy = t.to[i]
		} else if err := t.to[i].bring(); err != nil {
			return err
		}
	}
	for i := range t.states {
		if r := &t.states[i]; !r.Keeps {
			if err := t.to[i].fetch(r.State); err != nil {
				return err
			}
			t.to[i].drop()
		}
	}
	return nil
}
