package prefixcache

import (
	"errors"
	"fmt"

	"terrace/engine"
	"terrace/kvmanager"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// NoteRanks has a session, before it reads a context, note what its policy ranks, so that records made of it can be made smaller.
// Other policies are left alone.
func NoteRanks(s *engine.Session) {
	if r := s.Ranker(); r != nil {
		r.NoteRanks()
	}
}

// ranksOf are the ranks of a session's tokens [Cache.lists], nil where a layer was not chosen from; all nil where they are
// not known, or where KV has other bytes once its neighbours go (int8, int4).
func (c *recordForm) ranksOf(s *engine.Session) [][]uint32 {
	r, known := s.Ranker(), false
	if r == nil || c.quantised() {
		return nil
	}
	ranks := make([][]uint32, len(c.lists))
	for i, at := range c.lists {
		if ranks[i] = r.Ranks(at.layer, at.head); ranks[i] == nil {
			continue
		}
		if known = true; len(ranks[i]) != s.Sequence().MainTokens(at.layer, at.head) {
			return nil // more was read since
		}
	}
	if !known {
		return nil
	}
	return ranks
}

// Shrink makes the records of ids under a policy that keeps less of the same order, from all those that one that kept more left, without
// reading the text: their KV is, to the bit, what compressing the whole text gives. Errors wrap contexts.ErrNoRanks where the
// records have no ranks (they are of an older build) or the policies differ in more than how much they keep, contexts.ErrDamaged
// where the records are not such, and those of the engine's memory.
func (c *Cache) Shrink(records []*contexts.Record, ids []int, from, to *policy.Spec, salt string) ([]*contexts.Record, error) {
	was, now := c.compressed(ids, from, salt), c.compressed(ids, to, salt)
	if c.quantised() {
		return nil, fmt.Errorf("prefixcache: quantised KV is not made smaller: %w", contexts.ErrNoRanks)
	}
	spans, _ := c.parseAll(records)
	if !was.all(records) || records[0].Parts != len(records) || len(spans) != len(records) {
		return nil, fmt.Errorf("prefixcache: %d records are not the context of %d tokens under %s: %w", len(records), len(ids), from, contexts.ErrDamaged)
	}
	ranks, err := c.joined(records, spans)
	if err != nil {
		return nil, err
	}
	keep, err := policy.ShrinkRanks(from, to, ranks, len(ids), c.e.ActingBytesPerToken())
	switch {
	case errors.Is(err, policy.ErrRanks):
		return nil, fmt.Errorf("prefixcache: %w: %w", err, contexts.ErrDamaged)
	case err != nil:
		return nil, fmt.Errorf("prefixcache: %w: %w", err, contexts.ErrNoRanks)
	}
	s, err := c.e.NewSession(nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	n, err := c.restore(s, ids, records, true)
	if err == nil && n == 0 {
		err = fmt.Errorf("prefixcache: KV of a context to be made smaller: %w", kvmanager.ErrBudget)
	}
	if err != nil {
		return nil, err
	}
	left, err := c.keepRanked(s, ranks, keep)
	if err != nil {
		return nil, err
	}
	return c.parts(s, now, left)
}

// compressed is where the store has ids under a policy that compresses.
func (c *Cache) compressed(ids []int, under *policy.Spec, salt string) *Prefix {
	p := &Prefix{c: c, ids: ids, under: under, salt: salt, root: c.root(len(ids), under, salt, false), whole: true}
	p.context = contexts.ContextKey(p.root, ids)
	return p
}

// joined are the ranks of a context's parts, one behind another: [layer][KVHeads][tokens], nil where a layer was not chosen from.
func (c *Cache) joined(records []*contexts.Record, spans []*restored) ([][][]uint32, error) {
	ranks := make([][][]uint32, len(c.shape))
	for i, x := range spans {
		if records[i].Ranks == 0 {
			return nil, fmt.Errorf("prefixcache: record %d of %d (%s): %w", i+1, len(records), records[i].Info, contexts.ErrNoRanks)
		}
		for at, h := range x.heads {
			layer, head := c.lists[at].layer, c.lists[at].head
			if i == 0 && head == 0 {
				ranks[layer] = make([][]uint32, c.shape[layer].KV.Heads)
			}
			if first := spans[0].heads[c.first[layer]].Ranks; (h.Ranks == nil) != (first == nil) {
				return nil, fmt.Errorf("prefixcache: layer %d of record %d is ranked in part: %w", layer, i+1, contexts.ErrDamaged)
			}
			if h.Ranks != nil {
				ranks[layer][head] = append(ranks[layer][head], h.Ranks...)
				if ranks[layer][head] == nil {
					ranks[layer][head] = []uint32{}
				}
			}
		}
	}
	return ranks, nil
}

// keepRanked drops what does not stay, and returns the ranks of what does: [Cache.lists].
func (c *Cache) keepRanked(s *engine.Session, ranks [][][]uint32, keep [][][]int) ([][]uint32, error) {
	var left [][]uint32
	for layer, heads := range keep {
		for head, stay := range heads {
			if stay == nil {
				left = append(left, nil)
				continue
			}
			of := make([]uint32, len(stay))
			for i, at := range stay {
				of[i] = ranks[layer][head][at]
			}
			left = append(left, of)
			if err := s.Sequence().Keep(layer, head, stay); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}
