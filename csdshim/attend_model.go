package csdshim

import (
	"cmp"
	"slices"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/nand"
	"terrace/csdshim/wire"
)

// engineLines are the units of the attention engine (InstInfer, Sec. IV-B): one argtopk unit, a filter behind each channel's NAND
// flash controller, and identical kernels, any of which takes either stage.
type engineLines struct {
	argTopK line
	filters []line // by channel
	kernels []line
}

func newEngineLines(p Profile) engineLines {
	n := p.Engine.Kernels
	if n == 0 {
		n = 2
	}
	return engineLines{filters: make([]line, p.NAND.Channels), kernels: make([]line, n)}
}

// alone is how long the flash takes for pages when nobody else uses it.
func (m *model) alone(kind nand.Kind, pages []uint32) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.idle == nil {
		m.idle = &model{p: m.p, array: nand.New(m.p.FlashTiming())}
	}
	m.idle.array.Reset()
	m.idle.bus = line{}
	return m.idle.pages(0, kind, pages)
}

// stageLog notes what the units of the drive do for one request; nil notes nothing.
type stageLog struct {
	arrived time.Duration
	list    []wire.Stage
}

func (l *stageLog) note(unit wire.Unit, lane int, from, to time.Duration) {
	if l != nil && to > from {
		l.list = append(l.list, wire.Stage{Unit: unit, Lane: uint8(lane), From: uint64(max(0, from-l.arrived)), To: uint64(max(0, to-l.arrived))})
	}
}

// period notes that a channel had pages to bring. A head may ask for what it chose while others' columns still cross: that is one period.
func (l *stageLog) period(channel int, from, to time.Duration) {
	at, until := uint64(max(0, from-l.arrived)), uint64(max(0, to-l.arrived))
	for i := range l.list {
		if s := &l.list[i]; s.Unit == wire.UnitNAND && s.Lane == uint8(channel) && at <= s.To && s.From <= until && to > from {
			s.From, s.To = min(s.From, at), max(s.To, until)
			return
		}
	}
	l.note(wire.UnitNAND, channel, from, to)
}

// top reserves the argtopk unit for a list of n numbers.
func (m *model) top(at time.Duration, n int, log *stageLog) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	start, end := m.units.argTopK.reserve(at, hardware.Crossing(n, m.p.Engine.ArgTopKPerS))
	log.note(wire.UnitArgTopK, 0, start, end)
	return end
}

// reading is the pages that one head asks for at a time, and when the last of them has come and is filtered.
type reading struct {
	at, done time.Duration
	pages    []uint32
}

// sense reads what the heads of a layer ask for. All of it waits in the queues of the dies together, as their flash controllers have it; a page
// that has crossed its channel goes through the channel's filter while others cross.
func (m *model) sense(heads []reading, log *stageLog) {
	order := make([]int, len(heads))
	for i := range heads {
		order[i], heads[i].done = i, heads[i].at
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(heads[a].at, heads[b].at) })
	m.mu.Lock()
	defer m.mu.Unlock()
	ops, head := m.ops[:0], m.head[:0]
	for _, i := range order {
		r := &heads[i]
		for _, p := range r.pages {
			ops, head = append(ops, nand.Op{At: r.at, Kind: nand.Read, Place: m.place(p)}), append(head, int32(i))
		}
		if len(r.pages) > 0 {
			_, r.done = m.bus.reserve(r.at, hardware.Crossing(len(r.pages)*m.p.NAND.PageBytes, m.p.NAND.BusBytesPerS))
		}
	}
	m.ops, m.head = ops, head
	done := m.array.Run(ops)
	m.noteChannels(ops, done, log)
	m.come = slices.Grow(m.come[:0], len(ops))[:len(ops)]
	for i := range m.come {
		m.come[i] = int32(i)
	}
	slices.SortFunc(m.come, func(a, b int32) int {
		return cmp.Or(cmp.Compare(done[a], done[b]), cmp.Compare(a, b))
	})
	each := hardware.Crossing(m.p.NAND.PageBytes, m.p.Engine.FilterBytesPerS)
	for _, i := range m.come {
		c := ops[i].Place.Channel
		start, end := m.units.filters[c].reserve(done[i], each)
		log.note(wire.UnitFilter, c, start, end)
		heads[head[i]].done = max(heads[head[i]].done, end)
	}
}

// noteChannels notes from when to when each channel had pages to bring.
func (m *model) noteChannels(ops []nand.Op, done []time.Duration, log *stageLog) {
	if log == nil {
		return
	}
	first, last := make([]time.Duration, m.p.NAND.Channels), make([]time.Duration, m.p.NAND.Channels)
	for i, o := range ops {
		c := o.Place.Channel
		if last[c] == 0 {
			first[c] = o.At
		}
		last[c] = max(last[c], done[i])
	}
	for c := range last {
		log.period(c, first[c], last[c])
	}
}

// byTime are the numbers of readings in the order in which they are done.
func byTime(heads []reading) []int {
	order := make([]int, len(heads))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(heads[a].done, heads[b].done) })
	return order
}

// kernel reserves the attention kernel that is free first for bytes of keys, and then, not before the values are there, of values.
func (m *model) kernel(keysAt time.Duration, keys int, valuesAt time.Duration, values int, log *stageLog) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, lane := &m.units.kernels[0], 0
	for i := range m.units.kernels {
		if m.units.kernels[i].free < k.free {
			k, lane = &m.units.kernels[i], i
		}
	}
	start, end := k.reserve(keysAt, hardware.Crossing(keys, m.p.Engine.KernelBytesPerS))
	log.note(wire.UnitKernel, lane, start, end)
	if values > 0 {
		start, end = k.reserve(max(end, valuesAt), hardware.Crossing(values, m.p.Engine.KernelBytesPerS))
		log.note(wire.UnitKernel, lane, start, end)
	}
	return end
}

// stages charges what a layer's heads read and computed, stage after stage: argtopk, NFC reads, filters, kernel, argtopk, NFC reads of keys and
// of values, which load while the kernel multiplies the keys. It returns when the last head is done.
func (t *task) stages(r *HeadReader, log *stageLog) (done time.Duration) {
	m := t.d.model
	busy := m.engineBusy()
	scored := m.score(t.ready, r, log)
	chosen := make([]reading, 0, 2*len(r.heads)) // keys, then values of each head
	for h := range r.heads {
		pages := &r.heads[h].pages[ReadToAttend]
		chosen = append(chosen, reading{at: scored[h], pages: pages[flash.KVKeys]}, reading{at: scored[h], pages: pages[flash.KVValues]})
	}
	m.sense(chosen, log)
	for _, i := range byTime(chosen) {
		if i%2 == 1 {
			continue // a head begins with its keys
		}
		half := r.heads[i/2].products[ReadToAttend] * r.q.shape.ElemBytes / 2
		done = max(done, m.kernel(chosen[i].done, half, chosen[i+1].done, half, log))
	}
	t.EngineNs += uint64(m.engineBusy() - busy)
	t.alone(r)
	return max(done, t.ready)
}

// score is the first stage of heads that score: argtopk of the query, columns, kernel, argtopk of the scores. It returns when each head
// knows its tokens.
func (m *model) score(ready time.Duration, r *HeadReader, log *stageLog) []time.Duration {
	scored, columns := make([]time.Duration, len(r.heads)), make([]reading, len(r.heads))
	for h := range r.heads {
		scored[h] = ready
		columns[h].at = ready
		if w := &r.heads[h]; w.products[ReadToScore] > 0 {
			columns[h] = reading{at: m.top(ready, r.q.shape.KeyDim, log), pages: slices.Concat(w.pages[ReadToScore][flash.KVEmbeddings], w.pages[ReadToScore][flash.KVKeys])}
		}
	}
	m.sense(columns, log)
	for _, h := range byTime(columns) {
		if n := r.heads[h].products[ReadToScore]; n > 0 {
			scored[h] = m.top(m.kernel(columns[h].done, n*r.q.shape.ElemBytes, 0, 0, log), r.n, log)
		}
	}
	return scored
}

// alone charges the flash's time for each of the two reads as if nobody else used it.
func (t *task) alone(r *HeadReader) {
	for stage := range readStages {
		var pages []uint32
		for h := range r.heads {
			for _, part := range r.heads[h].pages[stage] {
				pages = append(pages, part...)
			}
		}
		if len(pages) > 0 {
			t.NANDNs += uint64(t.d.model.alone(nand.Read, pages))
			t.NANDBytes += uint64(len(pages) * t.d.opts.Profile.NAND.PageBytes)
		}
	}
}

// engineBusy is how long the units of the engine have worked, together.
func (m *model) engineBusy() (d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d = m.units.argTopK.busy
	for _, lines := range [][]line{m.units.filters, m.units.kernels} {
		for i := range lines {
			d += lines[i].busy
		}
	}
	return d
}
