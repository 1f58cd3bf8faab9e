package contexts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Care looks after what a store holds.
type Care struct{ *Store }

// Stats are the accounts of the tiers, in their order.
func (s Care) Stats(ctx context.Context) ([]Stats, error) {
	var out []Stats
	for _, m := range s.tiers {
		entries, err := m.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", m.name, err)
		}
		st := Stats{Name: m.name, Kind: m.kind, CapacityBytes: m.spec.CapacityBytes, Blocks: len(entries), Modelled: m.slow != nil}
		for _, e := range entries {
			st.Bytes += e.Bytes
			if e.Parts == 0 {
				st.BlockTokens = max(st.BlockTokens, e.Tokens)
			}
		}
		out = append(out, st)
	}
	return out, nil
}

// Listed is a context that lies on a tier: a plain prefix up to a block that none follows, or a compressed context.
type Listed struct {
	Tier   string // kind=place
	Key    Key    // of the last block, or of the context
	Info   string
	Tokens int
	Blocks int
	Bytes  int64 // of all its records; blocks that several prefixes share count for each
	Parts  bool  // compressed
	Broken bool  // records before the last are missing
	Used   time.Time
}

// Contexts lists what lies on the tiers, by tier, the last used first.
func (s Care) Contexts(ctx context.Context) (out []Listed, err error) {
	for _, m := range s.tiers {
		entries, err := m.list(ctx)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", m.name, err)
		}
		of := listed(entries)
		for i := range of {
			of[i].Tier = m.name
		}
		out = append(out, of...)
	}
	return out, nil
}

// listed puts records together.
func listed(entries []Entry) (out []Listed) {
	at, parent, whole := map[Key]Entry{}, map[Key]bool{}, map[Key]*Listed{}
	for _, e := range entries {
		at[e.Key], parent[e.Parent] = e, true
	}
	for _, e := range entries {
		switch {
		case e.Parts > 0:
			l := whole[e.Parent]
			if l == nil {
				l = &Listed{Key: e.Parent, Info: e.Info, Tokens: e.Tokens, Parts: true, Used: e.Used}
				whole[e.Parent] = l
			}
			l.Blocks++
			l.Bytes += e.Bytes
			l.Broken = l.Blocks < e.Parts
		case !parent[e.Key]:
			l := Listed{Key: e.Key, Info: e.Info, Tokens: e.First + e.Tokens, Used: e.Used}
			for b, ok := e, true; ok; b, ok = at[b.Parent] {
				l.Blocks++
				l.Bytes += b.Bytes
				l.Broken = b.First != 0
			}
			out = append(out, l)
		}
	}
	for _, l := range whole {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Listed) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(b.Tokens, a.Tokens), slices.Compare(a.Key[:], b.Key[:]))
	})
	return out
}

// Verify reads and checks everything; note is called for each record or file that was looked at.
func (s Care) Verify(ctx context.Context, note func(Finding)) error {
	var errs []error
	for _, m := range s.tiers {
		if err := m.verify(ctx, note); err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", m.name, err))
		}
	}
	return errors.Join(errs...)
}

// GC gives back the room of what cannot be used: damaged records, files that a process left unfinished, those of other versions,
// records whose beginning is gone. It returns the bytes.
func (s Care) GC(ctx context.Context) (freed int64, err error) {
	for _, m := range s.tiers {
		n, gcErr := m.gc(ctx)
		freed += n
		if gcErr != nil {
			err = errors.Join(err, fmt.Errorf("store %s: %w", m.name, gcErr))
			continue
		}
		entries, listErr := m.list(ctx)
		lost, bytes := orphans(entries)
		if listErr == nil && len(lost) > 0 {
			listErr = m.remove(ctx, lost)
			freed += bytes
		}
		err = errors.Join(err, listErr)
	}
	return freed, err
}

// orphans are records that nobody can find: blocks whose parents are gone, parts of a context that is not whole.
func orphans(entries []Entry) (lost []Key, bytes int64) {
	at, parts := map[Key]Entry{}, map[Key]int{}
	for _, e := range entries {
		at[e.Key] = e
		if e.Parts > 0 {
			parts[e.Parent]++
		}
	}
	for _, e := range entries {
		found := e.Parts == 0
		for b, ok := e, true; found && b.First > 0; {
			if b, ok = at[b.Parent]; !ok {
				found = false
			}
		}
		if !found && (e.Parts == 0 || parts[e.Parent] < e.Parts) {
			lost, bytes = append(lost, e.Key), bytes+e.Bytes
		}
	}
	return lost, bytes
}

// RemoveMatching deletes the contexts whose key begins with a prefix in hexadecimal, with those blocks that no other context has;
// an empty prefix deletes all. It returns how many contexts and bytes.
func (s Care) RemoveMatching(ctx context.Context, prefix string) (n int, bytes int64, err error) {
	for _, m := range s.tiers {
		entries, err := m.list(ctx)
		if err != nil {
			return n, bytes, fmt.Errorf("store %s: %w", m.name, err)
		}
		keys, contexts := matching(entries, prefix)
		if n += contexts; len(keys) == 0 {
			continue
		}
		at := map[Key]int64{}
		for _, e := range entries {
			at[e.Key] = e.Bytes
		}
		for _, k := range keys {
			bytes += at[k]
		}
		if err := m.remove(ctx, keys); err != nil {
			return n, bytes, fmt.Errorf("store %s: %w", m.name, err)
		}
	}
	return n, bytes, nil
}

// matching are the records to delete with the contexts whose key begins with a prefix.
func matching(entries []Entry, prefix string) (keys []Key, contexts int) {
	at, keep, drop := map[Key]Entry{}, map[Key]bool{}, map[Key]bool{}
	for _, e := range entries {
		at[e.Key] = e
	}
	for _, l := range listed(entries) {
		gone := len(prefix) <= len(l.Key.String()) && l.Key.String()[:len(prefix)] == prefix
		if gone {
			contexts++
		}
		set := keep
		if gone {
			set = drop
		}
		for e, ok := at[l.Key]; ok; e, ok = at[e.Parent] {
			set[e.Key] = true
		}
		for _, e := range entries {
			if l.Parts && e.Parent == l.Key {
				set[e.Key] = true
			}
		}
	}
	for k := range drop {
		if !keep[k] {
			keys = append(keys, k)
		}
	}
	return keys, contexts
}
