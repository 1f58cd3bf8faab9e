package csdshim

import (
	"sync"
	"time"

	"terrace/csdshim/flash"
	"terrace/csdshim/hardware"
	"terrace/csdshim/nand"
)

// model is the drive's hardware as time: the flash is package nand's array, and each other resource a token bucket without
// burst, that is, a line on which requests reserve their share one after another. All times are of the drive's clock.
type model struct {
	p  Profile
	mu sync.Mutex

	array             *nand.Array
	bus, dram, engine line
	toHost, toDrive   line
	units             engineLines

	idle       *model    // a second one, whose flash nobody else uses
	ops        []nand.Op // room, as the next two
	head, come []int32   // of operations
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

func newModel(p Profile) *model {
	return &model{p: p, array: nand.New(p.FlashTiming()), units: newEngineLines(p)}
}

// arrive is when a command of n bytes that was sent at a time is ready to be worked on.
func (m *model) arrive(at time.Duration, n int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, end := m.toDrive.reserve(at, hardware.Crossing(n, m.p.Link.ToDriveBytesPerS))
	return end + hardware.Micros(m.p.Link.LatencyUs) + hardware.Micros(m.p.Engine.CommandUs)
}

// place is where a physical page lies: block b is on channel b mod Channels, then die, then plane; pages at one place of
// their blocks are a row.
func (m *model) place(page uint32) nand.Place {
	n := m.p.NAND
	b := int(page) / n.BlockPages
	return nand.Place{Channel: b % n.Channels, Die: b / n.Channels % n.Dies, Plane: b / (n.Channels * n.Dies) % n.Planes, Row: int(page) % n.BlockPages}
}

// read reserves the flash for reading pages and the bus that they cross.
func (m *model) read(at time.Duration, pages []uint32) (end time.Duration) {
	return m.pages(at, nand.Read, pages)
}

// program reserves bus and flash for writing pages.
func (m *model) program(at time.Duration, pages []uint32) (end time.Duration) {
	return m.pages(at, nand.Program, pages)
}

func (m *model) pages(at time.Duration, kind nand.Kind, pages []uint32) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end = m.run(at, kind, pages)
	if len(pages) > 0 {
		_, over := m.bus.reserve(at, hardware.Crossing(len(pages)*m.p.NAND.PageBytes, m.p.NAND.BusBytesPerS))
		end = max(end, over)
	}
	return end
}

// run reserves dies and channels; mu is held.
func (m *model) run(at time.Duration, kind nand.Kind, pages []uint32) (end time.Duration) {
	m.ops = m.ops[:0]
	for _, p := range pages {
		m.ops = append(m.ops, nand.Op{At: at, Kind: kind, Place: m.place(p)})
	}
	end = at
	for _, done := range m.array.Run(m.ops) {
		end = max(end, done)
	}
	return end
}

// collect charges what the flash did by itself: pages read to build others, moved out of a block, and blocks erased. Who comes later finds the
// dies taken.
func (m *model) collect(at time.Duration, work flash.Housekeeping) {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to := make([]uint32, len(work.Moved)), make([]uint32, len(work.Moved))
	for i, move := range work.Moved {
		from[i], to[i] = move.From, move.To
	}
	m.run(at, nand.Read, work.Read)
	read := m.run(at, nand.Read, from)
	written := m.run(read, nand.Program, to)
	first := make([]uint32, len(work.Erased))
	for i, b := range work.Erased {
		first[i] = b * uint32(m.p.NAND.BlockPages)
	}
	m.run(written, nand.Erase, first)
}

// scan reserves engine and, for codes in it, the DRAM; ready is when other codes are there.
func (m *model) scan(ready time.Duration, bytes int, fromDRAM bool) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fromDRAM {
		start, over := m.dram.reserve(ready, hardware.Crossing(bytes, m.p.DRAM.BytesPerS))
		_, end = m.engine.reserve(start, hardware.Crossing(bytes, m.p.Engine.ScanBytesPerS))
		return max(end, over)
	}
	_, end = m.engine.reserve(ready, hardware.Crossing(bytes, m.p.Engine.ScanBytesPerS))
	return end
}

// send reserves the link to the host.
func (m *model) send(at time.Duration, bytes int) (end time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, end = m.toHost.reserve(at, hardware.Crossing(bytes, m.p.Link.ToHostBytesPerS))
	return end
}

func (m *model) busy() (nand, engine, link time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.array.Busy(), m.engine.busy, m.toHost.busy + m.toDrive.busy
}
