package contexts

import (
	"context"
	"errors"
	"fmt"
)

// WritePlaced has nothing stored or copied by use: a placement says what lies on which tier, with [OneTier]'s Put, Read and Drop.
const WritePlaced WritePolicy = 2

// Tier describes a tier of a store, for a placement.
type Tier struct {
	Kind          string // host, ssd, valkey, s3
	CapacityBytes int64
	RateBytes     int64 // that reads are held to; 0 = as fast as it is
}

// Tiers lists the tiers, fastest first.
func (s *Store) Tiers() (out []Tier) {
	for _, m := range s.tiers {
		out = append(out, Tier{m.kind, m.spec.CapacityBytes, m.spec.RateBytes})
	}
	return out
}

// OneTier is a tier of a store, as a placement uses it.
type OneTier struct{ m *member }

// On is the tier of a number, in the order of Tiers.
func (s *Store) On(tier int) OneTier { return OneTier{s.tiers[tier]} }

// Held is what lies on the tier now, and the most that did.
func (t OneTier) Held() (bytes, peak int64) {
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes = m.bytes()
	return bytes, max(bytes, m.peak)
}

// Put stores records, all or none: nothing else there makes room for them. Errors wrap ErrFull, or say why the
// tier does not answer.
func (t OneTier) Put(ctx context.Context, records []*Record) error {
	m := t.m
	if m.bytes()+size(records) > m.spec.CapacityBytes {
		return fmt.Errorf("contexts: %d bytes on %s, which holds %d of %d: %w", size(records), m.name, m.bytes(), m.spec.CapacityBytes, ErrFull)
	}
	keys := make([]Key, len(records))
	for i, r := range records {
		keys[i] = r.Key
	}
	err := m.write(ctx, records)
	if err != nil {
		err = errors.Join(err, m.remove(ctx, keys))
	}
	m.mu.Lock()
	m.peak = max(m.peak, m.bytes())
	m.mu.Unlock()
	return err
}

// Read reads records, not held to its rate. Errors wrap ErrMiss where one is not there.
func (t OneTier) Read(ctx context.Context, keys []Key) ([]*Record, error) {
	records := make([]*Record, len(keys))
	for i, k := range keys {
		var err error
		if records[i], err = t.m.read(ctx, k); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// Drop removes records.
func (t OneTier) Drop(ctx context.Context, keys []Key) error {
	return t.m.remove(ctx, keys)
}

// DropOthers removes what is none of those that known says, and returns how many records.
func (t OneTier) DropOthers(ctx context.Context, known func(Key) bool) (int, error) {
	entries, err := t.m.list(ctx)
	if err != nil {
		return 0, err
	}
	var others []Key
	for _, e := range entries {
		if !known(e.Key) {
			others = append(others, e.Key)
		}
	}
	if len(others) == 0 {
		return 0, nil
	}
	return len(others), t.m.remove(ctx, others)
}

// Placed reports whether a placement says what is stored.
func (s *Store) Placed() bool { return s != nil && s.o.Write == WritePlaced }

// Sizes are those of the records that lie there.
func (t OneTier) Sizes(ctx context.Context) (map[Key]int64, error) {
	entries, err := t.m.list(ctx)
	if err != nil {
		return nil, err
	}
	held := make(map[Key]int64, len(entries))
	for _, e := range entries {
		held[e.Key] = e.Bytes
	}
	return held, nil
}
