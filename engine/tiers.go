package engine

import (
	"errors"
	"fmt"
	"strings"

	"terrace/internal/units"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
)

// TierKind names a kind of memory that holds KV.
type TierKind string

// The tiers, fastest first.
const (
	TierDevice TierKind = "device" // memory of a backend's own device, which keeps copies of what lies below
	TierHost   TierKind = "host"   // DRAM, up to a number of bytes
	TierSSD    TierKind = "ssd"    // a file in a directory
	TierCSD    TierKind = "csd"    // a computational storage drive behind a Unix socket
)

// Tier is one tier of the KV cache.
type Tier struct {
	Kind  TierKind
	Path  string // directory of an SSD, socket of a drive
	Bytes int64  // capacity; 0 = a drive's own
}

// ParseTier reads device=SIZE, host=SIZE, ssd=DIR,SIZE or csd=unix:SOCKET.
func ParseTier(spec string) (Tier, error) {
	kind, rest, ok := strings.Cut(spec, "=")
	t := Tier{Kind: TierKind(kind)}
	size := rest
	switch {
	case !ok || rest == "":
		return t, fmt.Errorf("engine: tier %q: want device=SIZE, host=SIZE, ssd=DIR,SIZE or csd=unix:SOCKET: %w", spec, ErrOption)
	case t.Kind == TierSSD:
		at := strings.LastIndexByte(rest, ',')
		if at <= 0 {
			return t, fmt.Errorf("engine: tier %q: want ssd=DIR,SIZE: %w", spec, ErrOption)
		}
		t.Path, size = rest[:at], rest[at+1:]
	case t.Kind == TierCSD:
		if t.Path, ok = strings.CutPrefix(rest, "unix:"); !ok || t.Path == "" {
			return t, fmt.Errorf("engine: tier %q: want csd=unix:SOCKET: %w", spec, ErrOption)
		}
		return t, nil
	case t.Kind != TierHost && t.Kind != TierDevice:
		return t, fmt.Errorf("engine: tier %q: kind %q is not known, want device, host, ssd or csd: %w", spec, kind, ErrOption)
	}
	n, err := units.ParseBytes(size)
	if err != nil || n <= 0 {
		return t, fmt.Errorf("engine: tier %q: size %q: want a number of bytes above 0, like 256MiB: %w", spec, size, ErrOption)
	}
	t.Bytes = n
	return t, nil
}

// CheckTiers refuses sets of tiers that mean nothing.
func CheckTiers(tiers []Tier) error {
	seen := map[TierKind]bool{}
	for _, t := range tiers {
		if seen[t.Kind] {
			return fmt.Errorf("engine: tier %s is given twice: %w", t.Kind, ErrOption)
		}
		seen[t.Kind] = true
	}
	if (seen[TierSSD] || seen[TierCSD]) && !seen[TierHost] {
		return fmt.Errorf("engine: a lower tier needs host=SIZE beside it: what fits there stays: %w", ErrOption)
	}
	if seen[TierSSD] && seen[TierCSD] {
		return fmt.Errorf("engine: one tier below host at a time, not both ssd and csd: %w", ErrOption)
	}
	return nil
}

// tiers are an engine's open tiers below host memory.
type tiers struct {
	store offload.Store
	queue *offload.Queue
	owned bool // the store is closed with the engine
	drive bool // another process, which is talked to

	charged int64 // host memory of the store that is counted
	pools   int   // of sessions, open
}

// openTiers opens what Options.Tiers name. The engine's cache is not there yet.
func (e *Engine) openTiers() error {
	o := &e.o
	if err := CheckTiers(o.Tiers); err != nil {
		return err
	}
	store, owned := o.Store, false
	for _, t := range o.Tiers {
		if t.Kind == TierHost {
			o.KVBudgetBytes = t.Bytes
		}
	}
	for _, t := range o.Tiers {
		if store != nil && (t.Kind == TierSSD || t.Kind == TierCSD) {
			return fmt.Errorf("engine: tier %s beside a store that is open already: %w", t.Kind, ErrOption)
		}
		switch t.Kind {
		case TierHost:
			continue
		case TierDevice:
			o.DeviceKVBytes = t.Bytes
			continue
		}
		var err error
		if store, err = e.openStore(t); err != nil {
			return err
		}
		owned = true
	}
	if store != nil {
		_, drive := store.(offload.Scorer)
		e.tiers = &tiers{store: store, drive: drive, queue: offload.NewQueue(store, offload.QueueOptions{Trace: o.Trace, DepthBytes: o.underWayBytes()}), owned: owned}
	}
	return nil
}

// shape is what the lower tier's records are.
func (e *Engine) shape() offload.Shape {
	l := e.o.layout(e.m, e.spec)
	if l.Tokens == 0 {
		l.Tokens = kvmanager.DefaultPageTokens
	}
	return offload.Shape{Layers: e.m.Layers, KVHeads: e.m.KVHeads, Page: l, GroupTokens: l.Tokens, Fingerprint: fingerprint(e.m)}
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
	return err
}

// ticket is a kvmanager.Transfer.
type ticket struct{ *offload.Ticket }

// Done implements kvmanager.Transfer.
func (t ticket) Done() bool { return t.Ready() }

// Read implements kvmanager.Lower.
func (t *tiers) Read(urgent bool, recs []offload.Record) kvmanager.Transfer {
	p := offload.Prefetch
	if urgent {
		p = offload.Demand
	}
	return ticket{t.queue.Read(p, recs)}
}

// Write implements kvmanager.Lower.
func (t *tiers) Write(recs []offload.Record) kvmanager.Transfer {
	return ticket{t.queue.Write(offload.WriteBack, recs)}
}

// Gathers implements kvmanager.Gatherer.
func (t *tiers) Gathers() bool { return t.queue.Gathers() }

// Gather implements kvmanager.Gatherer.
func (t *tiers) Gather(seq uint64, layer int, tokens []int32, dst []byte) kvmanager.Transfer {
	return ticket{t.queue.Gather(offload.Prefetch, seq, layer, tokens, dst)}
}

// Drop implements kvmanager.Lower.
func (t *tiers) Drop(seq uint64) error { return t.store.Drop(seq) }

// lower is what the cache stores its blocks in; nil = everything stays in host memory.
func (e *Engine) lower() kvmanager.Lower {
	if e.tiers == nil {
		return nil
	}
	return e.tiers
}

// sliding is each layer's window.
func sliding(m *model.Model) []int {
	out := make([]int, m.Layers)
	for i, l := range m.Layer {
		out[i] = l.Window
	}
	return out
}

// planTiers decides before a pass what stays in host memory.
func (e *Engine) planTiers(sessions []*Session, prefill bool, rows int) error {
	if e.tiers == nil {
		return nil
	}
	if err := e.chargeStore(); err != nil {
		return err
	}
	e.extents = e.extents[:0]
	for i, s := range sessions {
		x := kvmanager.Extent{Seq: s.seq, Rows: rows}
		if prefill {
			x.Tokens = int(e.pass.Len[i*rows])
		} else {
			s.place.step()
		}
		e.extents = append(e.extents, s.place.extent(x))
	}
	return e.kv.Plan(e.extents)
}

// planPrompt is planTiers of a prompt that passes layer by layer.
func (e *Engine) planPrompt(s *Session, rows, tokens int) error {
	if e.tiers == nil {
		return nil
	}
	if err := e.chargeStore(); err != nil {
		return err
	}
	e.extents = append(e.extents[:0], s.place.extent(kvmanager.Extent{Seq: s.seq, Rows: min(rows, tokens), Tokens: tokens}))
	return e.kv.Plan(e.extents)
}

// acquireTiers brings a layer into host memory and begins to fetch the next, unless a decode step reads single tokens of that.
func (e *Engine) acquireTiers(sessions []*Session, layer int, kind passKind) error {
	if e.tiers == nil {
		return nil
	}
	rows := len(e.pass.Pos) / len(sessions)
	for i, s := range sessions {
		if !kind.prefill && s.place.selects(layer) {
			continue
		}
		if err := s.seq.Acquire(layer, e.lowest(layer, e.pass.Pos[i*rows])); err != nil {
			return fmt.Errorf("engine: KV of %s: %w", e.tiers.store.Name(), err)
		}
	}
	next := (layer + 1) % e.m.Layers
	for i, s := range sessions {
		if (!kind.prefill || kind.last && next == 0) && s.place.selects(next) {
			continue
		}
		s.seq.Prefetch(next, e.lowest(next, e.pass.Pos[i*rows]))
	}
	return nil
}

// lowest is the first position that a row at a position reads of a layer.
func (e *Engine) lowest(layer int, pos int32) int32 {
	if w := e.m.Layer[layer].Window; w > 0 {
		return pos - int32(w) + 1
	}
	return 0
}

// releaseTiers lets go of a layer.
func (e *Engine) releaseTiers(sessions []*Session, layer int) error {
	if e.tiers == nil {
		return nil
	}
	for _, s := range sessions {
		if err := s.seq.Release(layer); err != nil {
			return fmt.Errorf("engine: KV of %s: %w", e.tiers.store.Name(), err)
		}
	}
	return nil
}
