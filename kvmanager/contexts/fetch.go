package contexts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"terrace/internal/guard"
	"terrace/kvmanager/values"
)

// Rule says how long a fetch is waited for: HiCache's three ways to stop. What is not there in time is computed.
type Rule struct {
	// Wait until all is there that a tier has.
	Wait bool
	// Base and PerThousand: at most Base, and PerThousand for each thousand tokens asked for, from the beginning of the fetch. With
	// neither and without Wait only what is there already is taken (best effort).
	Base, PerThousand time.Duration
}

// DefaultRule is a deadline by length: two seconds, and one more for each thousand tokens.
var DefaultRule = Rule{Base: 2 * time.Second, PerThousand: time.Second}

// BestEffort takes what is there when it is asked for.
var BestEffort = Rule{Base: 1}

// ParseRule reads best-effort, wait or deadline. Errors wrap ErrSpec.
func ParseRule(s string) (Rule, error) {
	switch s {
	case "", "deadline":
		return DefaultRule, nil
	case "wait":
		return Rule{Wait: true}, nil
	case "best-effort":
		return BestEffort, nil
	}
	return Rule{}, fmt.Errorf("contexts: %q: want best-effort, wait or deadline: %w", s, ErrSpec)
}

// deadline is how long a fetch of some tokens may take; ok is false where there is no end.
func (r Rule) deadline(tokens int) (d time.Duration, ok bool) {
	return r.Base + time.Duration(tokens)*r.PerThousand/1000, !r.Wait
}

const (
	fetchWorkers = values.Parallel
	fetchAhead   = 64 // records that may be read and not taken yet
)

// Fetch is records of a chain on their way, in order.
type Fetch struct {
	s       *Store
	keys    []Key
	results []chan result // one each, with room
	cancel  context.CancelFunc
	done    sync.WaitGroup
	begun   time.Time

	mu    sync.Mutex
	next  int        // to read
	limit int        // nothing from here on
	room  *sync.Cond // taken has moved
	taken int
	ended bool
	from  map[int]bool // tiers that records came from
}

type result struct {
	r    *Record
	tier int
}

// Fetch begins to read the records of keys, in order, up to the first that is on no tier. Close it.
func (s *Store) Fetch(ctx context.Context, keys []Key) *Fetch {
	f := &Fetch{s: s, keys: keys, results: make([]chan result, len(keys)), limit: len(keys), begun: time.Now(), from: map[int]bool{}}
	f.room = sync.NewCond(&f.mu)
	for i := range f.results {
		f.results[i] = make(chan result, 1)
	}
	ctx, f.cancel = context.WithCancel(ctx)
	for range min(fetchWorkers, len(keys)) {
		f.done.Go(func() {
			if err := guard.Run(func() error { f.work(ctx); return nil }); err != nil {
				f.stop(0)
				s.say("", err)
			}
		})
	}
	return f
}

// work reads record after record.
func (f *Fetch) work(ctx context.Context) {
	for {
		i, ok := f.claim()
		if !ok {
			return
		}
		r, tier, err := f.s.get(ctx, f.keys[i])
		if err != nil {
			f.stop(i)
		}
		f.results[i] <- result{r, tier}
	}
}

// claim takes the next record to read, once there is room for it.
func (f *Fetch) claim() (i int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.ended && f.next < f.limit && f.next >= f.taken+fetchAhead {
		f.room.Wait()
	}
	if f.ended || f.next >= f.limit {
		return 0, false
	}
	f.next++
	return f.next - 1, true
}

// stop says that nothing from record i on will come.
func (f *Fetch) stop(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = min(f.limit, i)
	f.room.Broadcast()
}

// Next waits for the next record, as long as the rule says; nil is the end: it is on no tier, or late.
func (f *Fetch) Next(ctx context.Context, rule Rule, tokens int) *Record {
	f.mu.Lock()
	i := f.taken
	over := f.ended || i >= f.limit
	f.mu.Unlock()
	if over {
		return nil
	}
	select { // what is there is taken, late or not
	case got := <-f.results[i]:
		return f.take(i, got)
	default:
	}
	if most, ends := rule.deadline(tokens); ends {
		left := time.Until(f.begun.Add(most))
		if left <= 0 {
			return nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	select {
	case got := <-f.results[i]:
		return f.take(i, got)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			f.s.late(i, len(f.keys))
		}
		return nil
	}
}

// take counts a record as taken; nil ends the fetch.
func (f *Fetch) take(i int, got result) *Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	if got.r == nil || i >= f.limit {
		f.ended = true
	} else {
		f.taken++
		f.from[got.tier] = true
	}
	f.room.Broadcast()
	if f.ended {
		return nil
	}
	return got.r
}

// Tier is the slowest tier that records came from so far; empty = none did.
func (f *Fetch) Tier() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.s.slowest(f.from)
}

// Join counts another fetch's tiers as this one's.
func (f *Fetch) Join(more *Fetch) {
	more.mu.Lock()
	from := maps.Clone(more.from)
	more.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.Copy(f.from, from)
}

// Used notes that the first n records were used: they go last. Those of records that came from a slow tier are written to the
// faster ones.
func (f *Fetch) Used(n int, records []*Record) {
	f.mu.Lock()
	below := 0
	for i := range f.from {
		below = max(below, i)
	}
	f.mu.Unlock()
	f.s.used(f.keys[:n], records, below)
}

// Close ends the fetch; records that were not taken are forgotten. It does not wait for a tier that hangs.
func (f *Fetch) Close() {
	f.mu.Lock()
	f.ended = true
	f.room.Broadcast()
	f.mu.Unlock()
	f.cancel()
}
