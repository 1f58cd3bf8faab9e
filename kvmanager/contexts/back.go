package contexts

import (
	"context"
	"slices"
	"terrace/kvmanager/values"
)

// WriteBack has a record stored on the fastest tier that has room, and on the next one down when it gives way there, before it does. What only host
// memory holds goes down when the store is closed: a process that is killed has written none of that. From ssd on, a record lies
// on a tier that outlives the process at every moment, on two of them where it is killed in between.
const WriteBack WritePolicy = 3

// yielding is a tier that says which records give way, before they are gone.
type yielding interface {
	// onYield has f called with records that give way; the tier does nothing else meanwhile, and f does not call it.
	onYield(f func([]*Record))
}

// handDown has what gives way on a tier stored on the next one.
func (s *Store) handDown() {
	for i, m := range s.tiers[:max(0, len(s.tiers)-1)] {
		if t, ok := m.tier.(yielding); ok {
			t.onYield(func(records []*Record) { s.put(s.tiers[i+1], records) })
		}
	}
}

// put stores records on a tier, in batches; trouble is said.
func (s *Store) put(m *member, records []*Record) {
	for len(records) > 0 && !m.resting() {
		n, bytes := 0, int64(0)
		for n < len(records) && (n == 0 || bytes+records[n].Bytes() <= batchBytes) {
			bytes += records[n].Bytes()
			n++
		}
		if err := m.write(context.Background(), records[:n]); err != nil {
			s.fault(m, err)
		}
		m.mu.Lock()
		m.peak = max(m.peak, m.bytes())
		m.mu.Unlock()
		records = records[n:]
	}
}

// lastDown stores what host memory holds on the next tier, the last used last: it stays where there is not room for all.
func (s *Store) lastDown() {
	for i, m := range s.tiers[:max(0, len(s.tiers)-1)] {
		if h, ok := m.tier.(*host); ok {
			s.put(s.tiers[i+1], h.all())
		}
	}
}

// all are the records, least recently used first.
func (h *host) all() (records []*Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for e := h.order.Front(); e != nil; e = e.Next() {
		records = append(records, e.Value.(*hosted).r)
	}
	return records
}

func (h *host) onYield(f func([]*Record)) { h.yield = f }

func (t *blobs) onYield(f func([]*Record)) { t.yield = f }

// handOver hands the records of values on that give way, a chain's beginning first; writing is held.
func (t *blobs) handOver(ctx context.Context, gone []values.Value) {
	if t.yield == nil {
		return
	}
	var records []*Record
	for _, b := range gone {
		long, cancel := values.OpContext(ctx, b.Bytes)
		raw, err := t.b.get(long, b.Name, 0)
		cancel()
		if err != nil {
			continue
		}
		if r, err := parseAligned(raw); err == nil && r.Key.String() == b.Name {
			records = append(records, r)
		}
	}
	slices.SortStableFunc(records, func(a, b *Record) int { return a.First - b.First })
	if len(records) > 0 {
		t.yield(records)
	}
}
