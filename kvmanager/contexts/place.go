package contexts

import (
	"context"
	"errors"
	"fmt"
)

// WritePlaced has nothing stored or copied by use: a placement says what lies on which tier, with PutOn, ReadFrom and Drop.
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

// Held is what lies on a tier now, and the most that did.
func (s *Store) Held(tier int) (bytes, peak int64) {
	m := s.tiers[tier]
	m.mu.Lock()
	defer m.mu.Unlock()
	bytes = m.bytes()
	return bytes, max(bytes, m.peak)
}

// PutOn stores records on one tier, all or none: nothing else there makes room for them. Errors wrap ErrFull, or say why the
// tier does not answer.
func (s *Store) PutOn(ctx context.Context, tier int, records []*Record) error {
	m := s.tiers[tier]
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

// ReadFrom reads records from one tier, not held to its rate. Errors wrap ErrMiss where one is not there.
func (s *Store) ReadFrom(ctx context.Context, tier int, keys []Key) ([]*Record, error) {
	records := make([]*Record, len(keys))
	for i, k := range keys {
		var err error
		if records[i], err = s.tiers[tier].read(ctx, k); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// Drop removes records from a tier.
func (s *Store) Drop(ctx context.Context, tier int, keys []Key) error {
	return s.tiers[tier].remove(ctx, keys)
}

// DropOthers removes what lies on a tier and is none of those that known says, and returns how many records.
func (s *Store) DropOthers(ctx context.Context, tier int, known func(Key) bool) (int, error) {
	entries, err := s.tiers[tier].list(ctx)
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
	return len(others), s.tiers[tier].remove(ctx, others)
}

// Placed reports whether a placement says what is stored.
func (s *Store) Placed() bool { return s != nil && s.o.Write == WritePlaced }

// HeldOn are the sizes of the records that lie on a tier.
func (s *Store) HeldOn(ctx context.Context, tier int) (map[Key]int64, error) {
	entries, err := s.tiers[tier].list(ctx)
	if err != nil {
		return nil, err
	}
	held := make(map[Key]int64, len(entries))
	for _, e := range entries {
		held[e.Key] = e.Bytes
	}
	return held, nil
}
