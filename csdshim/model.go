package csdshim

import (
	"sync"
	"time"
)

// model is the drive's hardware as time: each resource is a token bucket without burst, that is, a line on which requests
// reserve their share one after another. All times are of the drive's clock.
type model struct {
	p  Profile
	mu sync.Mutex

	channels              []line
	bus, dram, engine     line
	toHost, toDrive       line
	nandBusy, pagesErased time.Duration
}

// line is a resource that serves one after another.
type line struct{ free, busy time.Duration }

// reserve takes the line for a duration, not before at.
func (l *line) reserve(at, d time.Duration) (start, end time.Duration) {
	start = max(at, l.free)
	l.free = start + d
	l.busy += d
	return start, l.free
}

func newModel(p Profile) *model { return &model{p: p, channels: make([]line, p.NAND.Channels)} }

// arrive is when a command of n bytes that was sent at a time is ready to be worked on.
func (m *model) arrive(at time.Duration, n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, end := m.toDrive.reserve(at, crossing(n, m.p.Link.ToDriveBytesPerS))
	return end + micros(m.p.Link.LatencyUs) + micros(m.p.Engine.CommandUs)
}

// load is what one request asks of the flash.
type load struct {
	perChannel []int // pages
	pages      int
}

// pagesOn counts pages by channel.
func (m *model) pagesOn(pages []uint32) load {
	l := load{perChannel: make([]int, len(m.channels)), pages: len(pages)}
	for _, p := range pages {
		l.perChannel[int(p)/m.p.NAND.BlockPages%len(m.channels)]++
	}
	return l
}

// read reserves the flash: on each channel, dies sense pages while others' bytes cross it; then all cross the bus.
func (m *model) read(at time.Duration, l load) (end time.Duration) {
	return m.flash(at, l, micros(m.p.NAND.ReadUs))
}

// program reserves the flash for writing.
func (m *model) program(at time.Duration, l load) (end time.Duration) {
	return m.flash(at, l, micros(m.p.NAND.ProgramUs))
}

func (m *model) flash(at time.Duration, l load, cell time.Duration) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end = at
	page := crossing(m.p.NAND.PageBytes, m.p.NAND.ChannelBytesPerS)
	parallel := m.p.NAND.Dies * m.p.NAND.Planes
	for c, n := range l.perChannel {
		if n == 0 {
			continue
		}
		cells := time.Duration((n+parallel-1)/parallel) * cell
		occupied := max(time.Duration(n)*page, cells)
		start, _ := m.channels[c].reserve(at, occupied)
		end = max(end, start+max(cell+time.Duration(n)*page, cells+page))
		m.nandBusy += occupied
	}
	if l.pages > 0 {
		_, over := m.bus.reserve(at, crossing(l.pages*m.p.NAND.PageBytes, m.p.NAND.BusBytesPerS))
		end = max(end, over)
	}
	return end
}

// scan reserves engine and, for codes in it, the DRAM; ready is when other codes are there.
func (m *model) scan(ready time.Duration, bytes int, fromDRAM bool) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fromDRAM {
		start, over := m.dram.reserve(ready, crossing(bytes, m.p.DRAM.BytesPerS))
		_, end = m.engine.reserve(start, crossing(bytes, m.p.Engine.ScanBytesPerS))
		return max(end, over)
	}
	_, end = m.engine.reserve(ready, crossing(bytes, m.p.Engine.ScanBytesPerS))
	return end
}

// send reserves the link to the host.
func (m *model) send(at time.Duration, bytes int) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, end = m.toHost.reserve(at, crossing(bytes, m.p.Link.ToHostBytesPerS))
	return end
}

// erase charges every channel its share of erased blocks.
func (m *model) erase(at time.Duration, blocks int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.channels {
		share := blocks / len(m.channels)
		if i < blocks%len(m.channels) {
			share++
		}
		d := time.Duration(share) * micros(m.p.NAND.EraseUs) / time.Duration(m.p.NAND.Dies*m.p.NAND.Planes)
		m.channels[i].reserve(at, d)
		m.pagesErased += d
	}
}

func (m *model) busy() (nand, engine, link time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nandBusy, m.engine.busy, m.toHost.busy + m.toDrive.busy
}
