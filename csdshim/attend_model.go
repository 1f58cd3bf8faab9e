package csdshim

import (
	"slices"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/nand"
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

// top reserves the argtopk unit for a list of n numbers.
func (m *model) top(at time.Duration, n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, end := m.units.argTopK.reserve(at, crossing(n, m.p.Engine.ArgTopKPerS))
	return end
}

// filter reserves the filters of the channels that pages come from.
func (m *model) filter(at time.Duration, pages []uint32) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end = at
	for _, p := range pages {
		_, over := m.units.filters[m.place(p).Channel].reserve(at, crossing(m.p.NAND.PageBytes, m.p.Engine.FilterBytesPerS))
		end = max(end, over)
	}
	return end
}

// kernel reserves the attention kernel that is free first for bytes of keys, and then, not before the values are there, of values.
func (m *model) kernel(keysAt time.Duration, keys int, valuesAt time.Duration, values int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &m.units.kernels[0]
	for i := range m.units.kernels {
		if m.units.kernels[i].free < k.free {
			k = &m.units.kernels[i]
		}
	}
	_, end := k.reserve(keysAt, crossing(keys, m.p.Engine.KernelBytesPerS))
	if values > 0 {
		_, end = k.reserve(max(end, valuesAt), crossing(values, m.p.Engine.KernelBytesPerS))
	}
	return end
}

// stages charges what a layer's heads read and computed, stage after stage: argtopk, NFC reads, filters, kernel, argtopk, NFC reads of keys and then of values,
// which load while the kernel multiplies the keys. It returns when the last head is done.
func (t *task) stages(r *HeadReader) (done time.Duration) {
	m, shape := t.d.model, &r.q.shape
	scored := make([]time.Duration, len(r.heads))
	busy := m.engineBusy()
	var alone [readStages][]uint32
	for h := range r.heads {
		w := &r.heads[h]
		at := t.ready
		if w.products[ReadToScore] > 0 {
			at = m.top(at, shape.KeyDim)
			pages := slices.Concat(w.pages[ReadToScore][flash.KVEmbeddings], w.pages[ReadToScore][flash.KVKeys])
			alone[ReadToScore] = append(alone[ReadToScore], pages...)
			at = m.filter(m.read(at, pages), pages)
			at = m.kernel(at, w.products[ReadToScore]*shape.ElemBytes, 0, 0)
			at = m.top(at, r.n)
		}
		scored[h] = at
	}
	for h := range r.heads {
		w := &r.heads[h]
		keys, values := w.pages[ReadToAttend][flash.KVKeys], w.pages[ReadToAttend][flash.KVValues]
		alone[ReadToAttend] = slices.Concat(alone[ReadToAttend], keys, values)
		keysAt := m.filter(m.read(scored[h], keys), keys)
		valuesAt := m.filter(m.read(scored[h], values), values)
		half := w.products[ReadToAttend] * shape.ElemBytes / 2
		done = max(done, m.kernel(keysAt, half, valuesAt, half))
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
