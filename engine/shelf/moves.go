package shelf

import (
	"context"
	"errors"
	"slices"

	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// change is a context that is to lie elsewhere, or in another form.
type change struct {
	it     *item
	tier   int // -1: nowhere
	config policy.Config
}

// Settle carries out what the layout has decided. What cannot be put is not stored; it is computed when it is asked for.
func (s *Shelf) Settle(ctx context.Context) error {
	s.improve()
	var errs []error
	for {
		more, err := s.move(ctx, false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errs = append(errs, err); !more {
			break
		}
	}
	for _, it := range s.items { // what was computed has been put away
		it.release()
	}
	return errors.Join(errs...)
}

// improve has the layout placed again where it gains by it.
func (s *Shelf) improve() {
	if s.layout.Improve() {
		s.version++
	}
}

// changes are what is to be done, in the order of arrival; contexts that could not be put, under the layout as it is, are left.
func (s *Shelf) changes() (out []change) {
	for _, p := range s.layout.Placed() {
		it, tier := s.items[p.ID], p.Tier
		if tier == s.tiers {
			tier, it.held = -1, nil
		}
		if it.failed != s.version && (it.tier != tier || tier >= 0 && it.config != p.Config) {
			out = append(out, change{it, tier, p.Config})
		}
	}
	return out
}

// move takes one step towards the layout; false = nothing is left to do. light steps compute nothing. First comes what only leaves; then what has room where it
// goes; else something is taken up, so that there is room; at last what has none is tried.
func (s *Shelf) move(ctx context.Context, light bool) (more bool, err error) {
	if len(s.gone) > 0 {
		it := s.gone[0]
		s.gone = s.gone[1:]
		return true, s.drop(ctx, it)
	}
	all := s.changes()
	if i := slices.IndexFunc(all, func(c change) bool { return c.tier < 0 }); i >= 0 {
		return true, s.drop(ctx, all[i].it)
	}
	if light {
		all = slices.DeleteFunc(all, s.computes)
	}
	if len(all) == 0 {
		return false, nil
	}
	i := slices.IndexFunc(all, s.hasRoom)
	if i >= 0 {
		return true, s.carry(ctx, all[i])
	}
	if i := slices.IndexFunc(all, func(c change) bool { return c.it.tier >= 0 }); i >= 0 {
		return true, s.takeUp(ctx, all[i])
	}
	return true, s.carry(ctx, all[0])
}

// computes reports whether a change needs the engine.
func (s *Shelf) computes(c change) bool {
	it := c.it
	return !(it.tier >= 0 && it.config == c.config || it.held != nil && it.heldAs == c.config || it.packed != nil && c.config == policy.Uncompressed)
}

// hasRoom reports whether a change's place has room for it now.
func (s *Shelf) hasRoom(c change) bool {
	need := int64(s.size(c.config, len(c.it.IDs)))
	if s.placement.Kind == policy.PlaceImpress {
		need = int64(s.wholeBytes(len(c.it.IDs)))
	}
	now, _ := s.store.On(c.tier).Held()
	if c.it.tier == c.tier {
		now -= c.it.bytes
	}
	return now+need <= s.store.Tiers()[c.tier].CapacityBytes
}

// takeUp takes a context off its tier in the form that it will have.
func (s *Shelf) takeUp(ctx context.Context, c change) error {
	records, err := s.take(ctx, c.it, c.config)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.it.failed = s.version
	} else {
		c.it.held, c.it.heldAs = records, c.config
	}
	return errors.Join(err, s.drop(ctx, c.it))
}

// carry puts a context where it belongs.
func (s *Shelf) carry(ctx context.Context, c change) error {
	it := c.it
	if it.held == nil || it.heldAs != c.config {
		if err := s.takeUp(ctx, c); it.held == nil {
			if ctx.Err() == nil {
				it.failed = s.version
			}
			return err
		}
	}
	records := it.held
	it.held = nil
	if err := s.put(ctx, c, records); err != nil {
		it.failed = s.version
		return err
	}
	s.Moved++
	return nil
}

// put stores records on a tier; those that lie there are shared.
func (l *lying) put(ctx context.Context, c change, records []*contexts.Record) error {
	fresh := slices.DeleteFunc(slices.Clone(records), func(r *contexts.Record) bool { return l.count[place{c.tier, r.Key}] > 0 })
	ctx = context.WithoutCancel(ctx)
	err := l.store.On(c.tier).Put(ctx, fresh)
	if errors.Is(err, contexts.ErrFull) && l.dropStrangers(ctx, c.tier) {
		err = l.store.On(c.tier).Put(ctx, fresh)
	}
	if err != nil {
		return err
	}
	it := c.it
	it.tier, it.config, it.keys, it.bytes, it.packed = c.tier, c.config, nil, 0, nil
	for _, r := range records {
		it.keys = append(it.keys, r.Key)
		it.bytes += r.Bytes()
		l.count[place{c.tier, r.Key}]++
	}
	return nil
}

// drop has a context lie nowhere.
func (l *lying) drop(ctx context.Context, it *item) error {
	if it.tier < 0 {
		return nil
	}
	var last []contexts.Key
	for _, k := range it.keys {
		at := place{it.tier, k}
		if l.count[at]--; l.count[at] <= 0 {
			delete(l.count, at)
			last = append(last, k)
		}
	}
	tier := it.tier
	if it.tier, it.keys, it.bytes = -1, nil, 0; len(last) == 0 {
		return nil
	}
	return l.store.On(tier).Drop(context.WithoutCancel(ctx), last)
}

// dropStrangers frees what lies on a tier and is no context of the shelf's: what an earlier process has left. false = there is nothing.
func (l *lying) dropStrangers(ctx context.Context, tier int) bool {
	n, err := l.store.On(tier).DropOthers(ctx, func(k contexts.Key) bool { return l.count[place{tier, k}] > 0 })
	return err == nil && n > 0
}

// take gives a context's records in a configuration: those that lie there, or a part of them, or new ones from what was computed, or
// from the text.
func (s *Shelf) take(ctx context.Context, it *item, config policy.Config) ([]*contexts.Record, error) {
	if it.tier >= 0 && it.config == config {
		return s.store.On(it.tier).Read(ctx, it.keys)
	}
	if records, err := s.smaller(ctx, it, config); records != nil || err != nil {
		return records, err
	}
	return s.records(ctx, it, config)
}

// smaller makes a context's records in a configuration from those that lie there of a larger share by the same method. They are nil
// where there are none such, or where those are damaged or were made without ranks.
func (s *Shelf) smaller(ctx context.Context, it *item, config policy.Config) ([]*contexts.Record, error) {
	if s.placement.Kind == policy.PlaceImpress || it.tier < 0 || config.Method != it.config.Method || config.Keep >= it.config.Keep {
		return nil, nil
	}
	from, err := KeptAs(it.config)
	if err != nil {
		return nil, err
	}
	to, err := KeptAs(config)
	if err != nil {
		return nil, err
	}
	records, err := s.store.On(it.tier).Read(ctx, it.keys)
	if err == nil {
		records, err = s.cx.Shrink(records, it.IDs, from, to, it.Salt)
	}
	switch {
	case err == nil:
		s.Shrunk++
		return records, nil
	case errors.Is(err, contexts.ErrNoRanks) || errors.Is(err, contexts.ErrDamaged) || errors.Is(err, contexts.ErrMiss):
		return nil, nil
	}
	return nil, err
}
