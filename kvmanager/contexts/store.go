package contexts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"terrace/internal/clock"
	"terrace/internal/guard"
	"terrace/internal/tierspec"
	"terrace/internal/vfs"
	"terrace/kvmanager"
	"terrace/kvmanager/values"
)

// Options of a store; the zero value is the default.
type Options struct {
	FS       vfs.FS            // nil = the system's
	Clock    clock.Clock       // of rates; nil = the machine's
	Notice   func(line string) // at most one line a tier and trouble; nil = none
	ReadOnly bool
	Rule     Rule        // zero = DefaultRule
	Write    WritePolicy // to which tiers a record goes
	// QueueBytes is how much may wait to be written; 0 = 256 MiB. What comes while it is full is not stored.
	QueueBytes int64
	// PartBytes is how much of a record one read of Arrive takes, a multiple of 4096; 0 = 384 KiB.
	PartBytes int
	Access    values.Access // to servers
}

// WritePolicy says to which tiers records go.
type WritePolicy uint8

const (
	WriteThrough WritePolicy = iota // to all at once
	WriteOnHit                      // to the fastest; to the others once they were used (HiCache's write-through-selective)
)

// ParseWrite reads through, on-hit or back. Errors wrap ErrSpec.
func ParseWrite(s string) (WritePolicy, error) {
	switch s {
	case "", "through":
		return WriteThrough, nil
	case "on-hit":
		return WriteOnHit, nil
	case "back":
		return WriteBack, nil
	}
	return 0, fmt.Errorf("contexts: %q: want through, on-hit or back: %w", s, ErrSpec)
}

// member is a tier of a store with what is known of it.
type member struct {
	tier
	kind, name string
	spec       Spec
	slow       *throttle // nil = as fast as it is

	mu      sync.Mutex
	said    map[string]bool
	retryAt time.Time // a tier that failed is left alone until then
	peak    int64
}

// Store is tiers in order, fastest first.
type Store struct {
	o     Options
	tiers []*member
	queue writer
}

// Open opens the tiers. What cannot be opened is left out, and its error returned beside the store, which works without it: a
// store without tiers finds nothing and keeps nothing.
func Open(ctx context.Context, specs []Spec, o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Clock == nil {
		o.Clock = clock.Real()
	}
	if o.Rule == (Rule{}) {
		o.Rule = DefaultRule
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 256 << 20
	}
	if o.PartBytes == 0 {
		o.PartBytes = partBytes
	}
	if o.PartBytes < pageBytes || o.PartBytes%pageBytes != 0 {
		return nil, fmt.Errorf("contexts: parts of %d bytes, want a multiple of %d: %w", o.PartBytes, pageBytes, ErrSpec)
	}
	s := &Store{o: o}
	var errs []error
	for _, spec := range specs {
		m := &member{kind: string(spec.Kind), name: spec.Name(), spec: spec, said: map[string]bool{}}
		if spec.RateBytes > 0 {
			m.slow = &throttle{clock: o.Clock, rate: spec.RateBytes}
		}
		t, notice, err := s.openTier(ctx, spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("store %s: %w", m.name, err))
			continue
		}
		if m.tier = t; notice != "" && o.Notice != nil {
			o.Notice("store " + m.name + ": " + notice)
		}
		s.tiers = append(s.tiers, m)
	}
	if o.Write == WriteBack {
		s.handDown()
	}
	s.queue.open(s)
	return s, errors.Join(errs...)
}

func (s *Store) openTier(ctx context.Context, spec Spec) (tier, string, error) {
	switch spec.Kind {
	case tierspec.Host:
		h := newHost(spec.CapacityBytes)
		h.fixed = s.o.Write == WritePlaced
		if spec.Lent && !h.fixed {
			h.cap = 0 // until something is lent
		}
		return h, "", nil
	case tierspec.SSD:
		t, notice, err := openSSD(s.o.FS, spec, s.o.ReadOnly)
		if err != nil {
			return nil, "", err
		}
		t.fixed = s.o.Write == WritePlaced
		return t, notice, nil
	case tierspec.Valkey, tierspec.S3:
		server, err := values.Open(ctx, string(spec.Kind), spec.Place, s.o.Access)
		if err != nil {
			return nil, "", err
		}
		return newBlobs(served{server}, spec.CapacityBytes, s.o.Write == WritePlaced), "", nil
	}
	return nil, "", fmt.Errorf("contexts: tier %q: %w", spec.Kind, ErrSpec)
}

// Rule is how long fetches are waited for.
func (s *Store) Rule() Rule { return s.o.Rule }

// Empty reports whether there is no tier.
func (s *Store) Empty() bool { return s == nil || len(s.tiers) == 0 }

// Borrower is a store's tier in bytes that belong to running texts (Spec.Lent); nil = there is none. What lies by a placement needs its bytes for
// good.
func Borrower(s *Store) (b kvmanager.Borrower, forGood bool) {
	if s == nil {
		return nil, false
	}
	for _, m := range s.tiers {
		if h, ok := m.tier.(*host); ok && m.spec.Lent {
			return h, h.fixed
		}
	}
	return nil, false
}

// Has reports whether a tier has a record, as far as is known without asking a server again.
func (s *Store) Has(key Key) bool {
	return !s.Empty() && slices.ContainsFunc(s.tiers, func(m *member) bool { return !m.resting() && m.has(key) })
}

// Busy reports whether records wait to be stored, or are being stored.
func (s *Store) Busy() bool { return !s.Empty() && s.queue.works() }

// Modelled reports whether a tier's reads are held to a rate, so that times are modelled.
func (s *Store) Modelled() bool {
	for _, m := range s.tiers {
		if m.slow != nil {
			return true
		}
	}
	return false
}

// failedFor is how long a tier that does not answer is left alone.
const failedFor = 30 * time.Second

// get reads a record from the fastest tier that has it.
func (s *Store) get(ctx context.Context, key Key) (*Record, int, error) {
	for i, m := range s.tiers {
		if m.resting() {
			continue
		}
		begun := m.slow.begin()
		r, err := m.read(ctx, key)
		if err == nil {
			if err = m.slow.held(ctx, begun, r.Bytes()); err == nil {
				return r, i, nil
			}
		}
		if !errors.Is(err, ErrMiss) && ctx.Err() == nil {
			s.fault(m, err)
		}
	}
	return nil, 0, ErrMiss
}

// fault notes that a tier failed: one notice for each kind of trouble, and one that does not answer rests.
func (s *Store) fault(m *member, err error) {
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFull) && !errors.Is(err, ErrReadOnly) && !errors.Is(err, fs.ErrNotExist) {
		m.mu.Lock()
		m.retryAt = time.Now().Add(failedFor)
		m.mu.Unlock()
	}
	s.say(m.name, err)
}

func (m *member) resting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.retryAt)
}

// say passes trouble of a tier on, once for each kind.
func (s *Store) say(name string, err error) {
	kind, line := "gone", ""
	switch {
	case errors.Is(err, ErrDamaged):
		kind, line = "damaged", fmt.Sprintf("%v: computed instead ('infer store gc' frees it)", err)
	case errors.Is(err, vfs.ErrNoSpace):
		kind, line = "full", fmt.Sprintf("the disk is full, not everything is kept: %v", err)
	case errors.Is(err, ErrFull):
		return // the capacity is what the user chose
	case errors.Is(err, ErrReadOnly):
		kind, line = "read-only", fmt.Sprintf("nothing new is kept: %v", err)
	default:
		line = fmt.Sprintf("going on without it: %v", err)
	}
	for _, m := range s.tiers {
		if m.name == name {
			m.mu.Lock()
			said := m.said[kind]
			m.said[kind] = true
			m.mu.Unlock()
			if said {
				return
			}
		}
	}
	if s.o.Notice != nil {
		s.o.Notice("store " + name + ": " + line)
	}
}

// late says that record i of some did not come in time.
func (s *Store) late(i, of int) {
	if s.o.Notice == nil || len(s.tiers) == 0 {
		return
	}
	m := s.tiers[len(s.tiers)-1]
	m.mu.Lock()
	said := m.said["late"]
	m.said["late"] = true
	m.mu.Unlock()
	if !said {
		s.o.Notice(fmt.Sprintf("store %s: record %d of %d did not come in time: the rest is computed", m.name, i+1, of))
	}
}

// slowest is the slowest of some tiers; empty = there are none.
func (s *Store) slowest(of map[int]bool) (name string) {
	for i, t := range s.tiers {
		if of[i] {
			name = t.kind
		}
	}
	return name
}

// used notes that records were used, and copies them to the tiers before number below.
func (s *Store) used(keys []Key, records []*Record, below int) {
	if s.o.ReadOnly || s.o.Write == WritePlaced {
		return
	}
	if below == 0 && s.o.Write != WriteOnHit {
		records = nil
	}
	s.queue.add(job{touch: keys, records: records, used: true, below: below})
}

// Put queues records to be stored, in the order of their chain. It does not wait; what the queue has no room for is not stored.
func (s *Store) Put(records ...*Record) {
	if !s.Empty() && !s.o.ReadOnly && s.o.Write != WritePlaced {
		s.queue.add(job{records: records})
	}
}

// Flush waits until everything that was put is stored or refused.
func (s *Store) Flush(ctx context.Context) error { return s.queue.flush(ctx) }

// Close stores what was put and closes the tiers.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	s.queue.close()
	if s.o.Write == WriteBack && !s.o.ReadOnly {
		s.lastDown()
	}
	var err error
	for _, m := range s.tiers {
		err = errors.Join(err, guard.Run(m.tier.close))
	}
	return err
}
