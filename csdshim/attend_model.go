package csdshim

import (
	"slices"
	"time"

	"terrace/csdshim/flash"
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
	idle := &model{p: m.p, array: nand.New(m.p.flashTiming())}
	return idle.pages(0, kind, pages)
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

// top reserves the argtopk unit for a list of n numbers.
func (m *model) top(at time.Duration, n int, log *stageLog) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	start, end := m.units.argTopK.reserve(at, crossing(n, m.p.Engine.ArgTopKPerS))
	log.note(wire.UnitArgTopK, 0, start, end)
	return end
}

// sense reads pages, as read, and notes when the last of each channel's is there.
func (m *model) sense(at time.Duration, pages []uint32, log *stageLog) (end time.Duration) {
	if log == nil || len(pages) == 0 {
		return m.read(at, pages)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	ops, last := make([]nand.Op, len(pages)), make([]time.Duration, m.p.NAND.Channels)
	for i, p := range pages {
		ops[i] = nand.Op{At: at, Kind: nand.Read, Place: m.place(p)}
	}
	end = at
	for i, done := range m.array.Run(ops) {
		c := ops[i].Place.Channel
		last[c], end = max(last[c], done), max(end, done)
	}
	for c, done := range last {
		log.note(wire.UnitNAND, c, at, done)
	}
	_, over := m.bus.reserve(at, crossing(len(pages)*m.p.NAND.PageBytes, m.p.NAND.BusBytesPerS))
	return max(end, over)
}

// filter reserves the filters of the channels that pages come from.
func (m *model) filter(at time.Duration, pages []uint32, log *stageLog) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end = at
	for _, p := range pages {
		c := m.place(p).Channel
		start, over := m.units.filters[c].reserve(at, crossing(m.p.NAND.PageBytes, m.p.Engine.FilterBytesPerS))
		log.note(wire.UnitFilter, c, start, over)
		end = max(end, over)
	}
	return end
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
	start, end := k.reserve(keysAt, crossing(keys, m.p.Engine.KernelBytesPerS))
	log.note(wire.UnitKernel, lane, start, end)
	if values > 0 {
		start, end = k.reserve(max(end, valuesAt), crossing(values, m.p.Engine.KernelBytesPerS))
		log.note(wire.UnitKernel, lane, start, end)
	}
	return end
}

// stages charges what a layer's heads read and computed, stage after stage: argtopk, NFC reads, filters, kernel, argtopk, NFC reads of keys and then of values,
// which load while the kernel multiplies the keys. It returns when the last head is done.
func (t *task) stages(r *HeadReader, log *stageLog) (done time.Duration) {
	m, shape := t.d.model, &r.q.shape
	scored := make([]time.Duration, len(r.heads))
	busy := m.engineBusy()
	var alone [readStages][]uint32
	for h := range r.heads {
		w := &r.heads[h]
		at := t.ready
		if w.products[ReadToScore] > 0 {
			at = m.top(at, shape.KeyDim, log)
			pages := slices.Concat(w.pages[ReadToScore][flash.KVEmbeddings], w.pages[ReadToScore][flash.KVKeys])
			alone[ReadToScore] = append(alone[ReadToScore], pages...)
			at = m.filter(m.sense(at, pages, log), pages, log)
			at = m.kernel(at, w.products[ReadToScore]*shape.ElemBytes, 0, 0, log)
			at = m.top(at, r.n, log)
		}
		scored[h] = at
	}
	for h := range r.heads {
		w := &r.heads[h]
		keys, values := w.pages[ReadToAttend][flash.KVKeys], w.pages[ReadToAttend][flash.KVValues]
		alone[ReadToAttend] = slices.Concat(alone[ReadToAttend], keys, values)
		keysAt := m.filter(m.sense(scored[h], keys, log), keys, log)
		valuesAt := m.filter(m.sense(scored[h], values, log), values, log)
		half := w.products[ReadToAttend] * shape.ElemBytes / 2
		done = max(done, m.kernel(keysAt, half, valuesAt, half, log))
	}
	t.EngineNs += uint64(m.engineBusy() - busy)
	for _, pages := range alone {
		if len(pages) > 0 {
			t.NANDNs += uint64(m.alone(nand.Read, pages))
			t.NANDBytes += uint64(len(pages) * t.d.opts.Profile.NAND.PageBytes)
		}
	}
	return max(done, t.ready)
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
