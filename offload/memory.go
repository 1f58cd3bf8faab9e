package offload

import (
	"context"
	"fmt"
	"sync"
)

// Memory is a Store in DRAM: the reference of all others, and the tier of tests and simulations.
type Memory struct {
	name  string
	shape Shape

	mu     sync.Mutex
	recs   map[Key][]byte
	stats  Stats
	closed bool
}

// NewMemory returns an empty store of at most capacityBytes; 0 means no limit.
func NewMemory(name string, shape Shape, capacityBytes int64) (*Memory, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	return &Memory{name: name, shape: shape, recs: map[Key][]byte{}, stats: Stats{CapacityBytes: capacityBytes}}, nil
}

// Name is the name given to NewMemory.
func (m *Memory) Name() string { return m.name }

// Shape is the shape given to NewMemory.
func (m *Memory) Shape() Shape { return m.shape }

func (m *Memory) usable(ctx context.Context, recs []Record, write bool) error {
	if m.closed {
		return fmt.Errorf("offload: %s: %w", m.name, ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("offload: %s: %w", m.name, err)
	}
	return m.shape.check(recs, write)
}

// Write copies the records.
func (m *Memory) Write(ctx context.Context, recs []Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, recs, true); err != nil {
		return err
	}
	fresh, need := map[Key]bool{}, int64(0)
	for _, r := range recs {
		if m.recs[r.Key] == nil && !fresh[r.Key] {
			fresh[r.Key] = true
			need += int64(len(r.Data))
		}
	}
	if c := m.stats.CapacityBytes; c > 0 && m.stats.UsedBytes+need > c {
		return fmt.Errorf("offload: %s: %d bytes more, %d of %d in use: %w", m.name, need, m.stats.UsedBytes, c, ErrFull)
	}
	for _, r := range recs {
		if m.recs[r.Key] == nil {
			m.recs[r.Key] = make([]byte, len(r.Data))
		}
		copy(m.recs[r.Key], r.Data)
		m.stats.Writes++
		m.stats.WrittenBytes += int64(len(r.Data))
	}
	m.stats.DeviceWriteBytes = m.stats.WrittenBytes
	m.stats.UsedBytes += need
	m.stats.PeakBytes = max(m.stats.PeakBytes, m.stats.UsedBytes)
	return nil
}

// Read copies the records out.
func (m *Memory) Read(ctx context.Context, recs []Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, recs, false); err != nil {
		return err
	}
	for _, r := range recs {
		data := m.recs[r.Key]
		if data == nil {
			return fmt.Errorf("offload: %s: %v: %w", m.name, r.Key, ErrMissing)
		}
		from, size := m.shape.span(int(r.Key.Layer), r.Part)
		copy(r.Data, data[from:from+size])
		m.stats.Reads++
		m.stats.ReadBytes += int64(size)
	}
	m.stats.DeviceReadBytes = m.stats.ReadBytes
	return nil
}

// Drop forgets a sequence.
func (m *Memory) Drop(seq uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("offload: %s: %w", m.name, ErrClosed)
	}
	for k, data := range m.recs {
		if k.Seq == seq {
			delete(m.recs, k)
			m.stats.UsedBytes -= int64(len(data))
		}
	}
	return nil
}

// Units implements Cache: a unit is a record.
func (m *Memory) Units() int {
	most := 1
	for layer := range m.shape.Layers {
		most = max(most, m.shape.RecordBytes(layer))
	}
	return int(m.stats.CapacityBytes) / most
}

// UnitGroups implements Cache.
func (m *Memory) UnitGroups(int) int { return 1 }

// Forget implements Cache.
func (m *Memory) Forget(k Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("offload: %s: %w", m.name, ErrClosed)
	}
	m.stats.UsedBytes -= int64(len(m.recs[k]))
	delete(m.recs, k)
	return nil
}

// Stats are the counts so far.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stats
}

// IndexBytes is 0: what the records take is what the tier holds.
func (m *Memory) IndexBytes(int) int64 { return 0 }

// Trim does nothing: no memory is kept.
func (m *Memory) Trim() {}

// ResetPeak implements Store.
func (m *Memory) ResetPeak() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.PeakBytes = m.stats.UsedBytes
}

// Close forgets everything.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.recs = true, nil
	m.stats.UsedBytes = 0
	return nil
}
