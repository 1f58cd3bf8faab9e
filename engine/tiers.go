package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"terrace/engine/tier"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
)

// tiers are an engine's open tiers below host memory.
type tiers struct {
	store offload.Store
	queue *offload.Queue
	owned bool        // the store is closed with the engine
	rows  *hiddenRows // that some layers keep instead of keys and values; nil = none
}

// openTiers opens what Options.Tiers name. The engine's cache is not there yet.
func (e *Engine) openTiers() error {
	o := &e.o
	if err := tier.Check(o.Tiers); err != nil {
		return err
	}
	store, owned := o.Store, false
	var rows *hiddenRows
	for _, t := range o.Tiers {
		if t.Kind == tier.Host {
			o.KVBudgetBytes = t.CapacityBytes
		}
	}
	if sockets := socketsOf(o.Tiers); len(sockets) > 0 && e.policy.AttendsOnDrives() {
		return e.openDrives(sockets)
	}
	if err := checkStoring(o.Tiers); err != nil {
		return err
	}
	for _, t := range o.Tiers {
		if t.Kind == tier.Device {
			o.DeviceKVBytes = t.CapacityBytes
		}
	}
	if lower := tier.Lower(o.Tiers); len(lower) > 0 {
		if store != nil {
			return fmt.Errorf("engine: tier %s beside a store that is open already: %w", lower[0].Kind, ErrOption)
		}
		var err error
		if rows, err = openHiddenRows(e, lower); err != nil {
			return err
		}
		if store, err = e.openChain(lower, rows.below(e)); err != nil {
			return errors.Join(err, rows.close())
		}
		store, owned = rows.on(store, e), true
	}
	if store != nil {
		e.tiers = &tiers{store: store, rows: rows, queue: offload.NewQueue(store, offload.QueueOptions{Trace: o.Trace, Clock: o.Machine.Clock, DepthBytes: underWayBytes(o)}), owned: owned}
	}
	return nil
}

// socketsOf are those of the drives.
func socketsOf(tiers []tier.Tier) (list []string) {
	for _, t := range tiers {
		if t.Kind == tier.CSD {
			list = append(list, t.Place)
		}
	}
	return list
}

// checkStoring refuses drives that would only store.
func checkStoring(tiers []tier.Tier) error {
	drives := len(socketsOf(tiers))
	if drives > 1 {
		return fmt.Errorf("engine: tier csd is given %d times: only drives that attend share a text, which policy sparf asks for: %w", drives, ErrOption)
	}
	if drives == 1 && !slices.ContainsFunc(tiers, func(t tier.Tier) bool { return t.Kind == tier.Host }) {
		return fmt.Errorf("engine: a lower tier needs host=SIZE beside it: what fits there stays: %w", ErrOption)
	}
	return nil
}

// openDrives opens drives that attend: what they hold is not read back.
func (e *Engine) openDrives(sockets []string) error {
	o := &e.o
	for _, t := range o.Tiers {
		if t.Kind != tier.CSD && t.Kind != tier.Host {
			return fmt.Errorf("engine: tier %s beside drives that attend: want host=SIZE or nothing: %w", t.Kind, ErrOption)
		}
	}
	if o.KType != o.VType || o.KType.Quantised() || o.Backend != "native" {
		return fmt.Errorf("engine: drives attend to %v keys and %v values of backend %s: want f32, f16 or bf16 for both, and the native backend: %w", o.KType, o.VType, o.Backend, ErrOption)
	}
	heads, kv, same := e.cache.Same()
	if !same || kv.ValueInKey {
		return fmt.Errorf("engine: drives attend to layers of one shape, and this model's layers differ, share keys, keep latent ones, or keep none: %w", model.ErrUnsupported)
	}
	if slices.ContainsFunc(e.m.Params.Layers, func(l model.LayerParams) bool { return !l.Sinks.Absent() }) {
		return fmt.Errorf("engine: drives attend without the scores of sinks that this model's heads have: %w", model.ErrUnsupported)
	}
	if slices.ContainsFunc(e.m.Layer, func(l model.LayerConfig) bool { return l.Chunk > 0 }) {
		return fmt.Errorf("engine: drives attend without the chunks that this model's layers have: %w", model.ErrUnsupported)
	}
	drives, err := retrieval.OpenDrives(context.Background(), sockets, offload.AttendShape{Layers: len(e.cache), Heads: heads, KVHeads: kv.Heads,
		KeyDim: kv.KeyDim, ValueDim: kv.ValueDim, Elem: o.KType, Fingerprint: fingerprint(e.m)},
		offload.DrivesOptions{Clock: o.Machine.Clock, Dial: o.Machine.Dial, Trace: o.Trace})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	e.drives = drives
	return nil
}

// shape is what the lower tier's records are.
func (e *Engine) shape() offload.Shape {
	l := e.o.format(e.policy)
	if l.Tokens == 0 {
		l.Tokens = l.K.PageTokens()
	}
	return offload.Shape{Layers: e.cache, Page: l, GroupTokens: l.Tokens, Fingerprint: fingerprint(e.m)}
}

// close ends what is under way and closes the store.
func (t *tiers) close() error {
	if t == nil {
		return nil
	}
	err := t.queue.Close()
	if t.owned {
		err = errors.Join(err, t.store.Close())
	}
	return errors.Join(err, t.rows.close())
}

// hidden are the rows that some layers keep; nil = none do.
func (t *tiers) hidden() *hiddenRows {
	if t == nil {
		return nil
	}
	return t.rows
}

// backing is the queue of what the cache keeps its blocks in; nil = everything stays in host memory.
func (e *Engine) backing() *offload.Queue {
	if e.tiers == nil {
		return nil
	}
	return e.tiers.queue
}

// besideWeights is a share of the disk that weights are read from as they are needed, for KV that lies at path; nil where KV has another
// disk, or weights are in memory. Half is each one's where both have something to do.
func (e *Engine) besideWeights(path string) *vfs.Share {
	if store := e.m.Streamed(); store != nil {
		return store.Files().Beside("kv", 1, path)
	}
	return nil
}

// openChain opens the tiers below host memory, each a cache of the next.
func (e *Engine) openChain(lower []tier.Tier, shape offload.Shape) (offload.Store, error) {
	var stores []offload.Store
	fail := func(err error) (offload.Store, error) {
		for _, s := range stores {
			err = errors.Join(err, s.Close())
		}
		return nil, err
	}
	for i, t := range lower {
		s, err := e.openStore(t, i, shape)
		if err != nil {
			return fail(err)
		}
		stores = append(stores, s)
	}
	for n := len(stores) - 1; n > 0; n-- {
		chain, err := offload.NewChain(stores[n-1].(offload.Cache), stores[n], e.o.Machine.Clock) // tier.Check: only the last is no cache
		if err != nil {
			return fail(fmt.Errorf("engine: %w", err))
		}
		stores = append(stores[:n-1], chain)
	}
	return stores[0], nil
}

// openStore opens a tier of records of a shape below host memory, so many of which lie above it. A drive scores keys where the policy ranks tokens by what it can
// compute.
func (e *Engine) openStore(t tier.Tier, above int, shape offload.Shape) (offload.Store, error) {
	switch t.Kind {
	case tier.SSD:
		needs := e.policy.Needs()
		s, err := offload.OpenSSD(shape, offload.SSDOptions{Name: tier.LevelName(tier.SSD, above), FS: e.o.Machine.Disk, Clock: e.o.Machine.Clock, Dir: t.Place, CapacityBytes: t.CapacityBytes, GapBytes: t.GapBytes, Share: e.besideWeights(t.Place), NoDirect: t.Buffered, MaxIOBytes: int(underWayBytes(&e.o)/8) / 4096 * 4096,
			TokenRows: needs.TokenGranularity && (needs.SharedAcrossHeads || needs.SinglesByHead) && shape.Page.TokenMajor && !shape.Page.K.Quantised() && !shape.Page.V.Quantised()})
		if err != nil {
			return nil, fmt.Errorf("engine: tier ssd=%s: %w", t.Place, err)
		}
		return s, nil
	case tier.CSD:
		if k := e.o.KType; k.KeyGroup() > retrieval.DriveGroupTokens {
			return nil, fmt.Errorf("engine: tier csd=unix:%s: %v keys share scales over %d tokens, a drive takes groups of %d: %w", t.Place, k, k.KeyGroup(), retrieval.DriveGroupTokens, ErrOption)
		}
		if n := shape.GroupTokens; n != retrieval.DriveGroupTokens {
			return nil, fmt.Errorf("engine: tier csd=unix:%s: pages of %d tokens, a drive takes %d: %w", t.Place, n, retrieval.DriveGroupTokens, ErrOption)
		}
		s, err := retrieval.OpenDrive(context.Background(), t.Place, shape, e.policy.Needs(), offload.CSDOptions{Clock: e.o.Machine.Clock, Dial: e.o.Machine.Dial})
		if err != nil {
			return nil, fmt.Errorf("engine: tier csd=unix:%s: %w", t.Place, err)
		}
		return s, nil
	}
	return nil, fmt.Errorf("engine: tier %s: %w", t.Kind, model.ErrUnsupported)
}

// fingerprint tells models apart whose KV must not be taken for each other's.
func fingerprint(m *model.Model) [32]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%s %d %d %v %d", m.Arch, m.Layers, m.Hidden, m.Cache(), m.Vocab))
}

// permit refuses a session's policy that the tiers cannot serve: how KV lies below host memory, and what a drive makes of it,
// was fixed by the policy that the engine was opened with.
func (t *tiers) permit(under, opened *policy.Spec) error {
	if t == nil || under.Lossless() {
		return nil
	}
	if page := t.store.Shape().Page; !under.Needs().TokenGranularity || page.TokenMajor || page.K.Quantised() || page.V.Quantised() {
		return nil
	}
	return fmt.Errorf("engine: policy %s on tier %s, which was opened for %s: keys lie there in tiles, and this policy reads single tokens; open the engine for it: %w",
		under, t.store.Name(), opened, ErrOption)
}
