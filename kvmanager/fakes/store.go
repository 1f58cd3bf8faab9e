// Package fakes is a backing store for the tests of kvmanager and what stands on it: records in memory behind a queue, with the
// delays, faults and the I/O log that a test asks for.
//
// Until a read is done its buffers hold rubbish, and a write takes the bytes only when it is done: a block that is used too
// early, or freed while it moves, is found out. Tests run in a bubble of testing/synctest, where a delay passes only when
// everybody waits, so what happens does not depend on the machine.
package fakes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// Store is offload.Memory, slower and worse. Its fields are set before use, or by Change.
type Store struct {
	*offload.Memory
	Delay func(write bool, recs []offload.Record) time.Duration // of a call; nil = a millisecond
	Fail  func(key offload.Key, write bool) error               // of a record; it is called once for each, before the call's delay

	mu      sync.Mutex
	records map[offload.Key]bool
	most    int
	moved   []io
	reads   int
	writes  int
}

// io is a record that was moved.
type io struct {
	write bool
	key   offload.Key
	bytes int
}

// New returns an empty store of any size for a cache of that shape.
func New(layers cacheshape.Model, page kvpage.Layout) *Store {
	m, err := offload.NewMemory("fake", offload.Shape{Layers: layers, Page: page, GroupTokens: page.Tokens}, 0)
	if err != nil {
		panic(err) // a mistake of the test
	}
	return &Store{Memory: m, records: map[offload.Key]bool{}}
}

// Change changes the fields while transfers may be under way.
func (s *Store) Change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Read fills the buffers with rubbish, and after the delay with what is stored.
func (s *Store) Read(ctx context.Context, recs []offload.Record) error {
	for _, r := range recs {
		for i := range r.Data {
			r.Data[i] = 0xa5
		}
	}
	if err := s.begin(false, recs); err != nil {
		return err
	}
	return s.Memory.Read(ctx, recs)
}

// Write stores the records after the delay.
func (s *Store) Write(ctx context.Context, recs []offload.Record) error {
	if err := s.begin(true, recs); err != nil {
		return err
	}
	s.mu.Lock()
	for _, r := range recs {
		s.records[r.Key] = true
	}
	s.most = max(s.most, len(s.records))
	s.mu.Unlock()
	return s.Memory.Write(ctx, recs)
}

func (s *Store) begin(write bool, recs []offload.Record) error {
	s.mu.Lock()
	delay, err := time.Millisecond, error(nil)
	if s.Delay != nil {
		delay = s.Delay(write, recs)
	}
	for _, r := range recs {
		if s.Fail != nil && err == nil {
			err = s.Fail(r.Key, write)
		}
	}
	if err == nil {
		for _, r := range recs {
			s.moved = append(s.moved, io{write, r.Key, len(r.Data)})
		}
		if write {
			s.writes += len(recs)
		} else {
			s.reads += len(recs)
		}
	}
	s.mu.Unlock()
	time.Sleep(delay)
	return err
}

// Drop forgets a sequence.
func (s *Store) Drop(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.records {
		if k.Seq == seq {
			delete(s.records, k)
		}
	}
	return s.Memory.Drop(seq)
}

// Moved is how many records were read and written so far.
func (s *Store) Moved() (reads, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.writes
}

// Records is how many records are stored, and how many there were at most.
func (s *Store) Records() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records), s.most
}

// Log is what was moved since the last call, in the order of direction, layer, sequence and group, a line for each run of
// groups; the order within a pass is the machine's.
func (s *Store) Log() string {
	s.mu.Lock()
	moved := s.moved
	s.moved = nil
	s.mu.Unlock()
	slices.SortFunc(moved, func(a, b io) int { return slices.Compare(a.order(), b.order()) })
	var out strings.Builder
	for len(moved) > 0 {
		n, bytes := 1, moved[0].bytes
		for ; n < len(moved) && moved[n].write == moved[0].write && moved[n].key.Layer == moved[0].key.Layer && moved[n].key.Seq == moved[0].key.Seq &&
			moved[n].key.Group == moved[n-1].key.Group+1; n++ {
			bytes += moved[n].bytes
		}
		what, first, last := "read ", moved[0].key, moved[n-1].key
		if moved[0].write {
			what = "write"
		}
		groups := fmt.Sprint("group ", first.Group)
		if last != first {
			groups = fmt.Sprintf("groups %d-%d", first.Group, last.Group)
		}
		fmt.Fprintf(&out, "%s seq %d layer %d %s: %d bytes\n", what, first.Seq, first.Layer, groups, bytes)
		moved = moved[n:]
	}
	return out.String()
}

func (x io) order() []int {
	w := 0
	if x.write {
		w = 1
	}
	return []int{w, int(x.key.Layer), int(x.key.Seq), int(x.key.Group)}
}
