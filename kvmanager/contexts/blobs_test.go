package contexts

import (
	"errors"
	"slices"
	"terrace/kvmanager/values"
	"testing"
	"time"
)

// remote opens a store on a fake server alone.
func remote(t testing.TB, s *server, capacity int64) (*Store, *notices) {
	t.Helper()
	said := &notices{}
	store, err := Open(t.Context(), []Spec{s.spec(capacity)}, Options{Notice: said.add, Rule: Rule{Wait: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store, said
}

// fetched reads a chain as a session does: as many records as come, each as it was stored.
func fetched(t testing.TB, s *Store, chain []*Record, rule Rule) (n int) {
	t.Helper()
	keys := make([]Key, len(chain))
	for i, r := range chain {
		keys[i] = r.Key
	}
	f := s.Fetch(t.Context(), keys)
	defer f.Close()
	for ; n < len(chain); n++ {
		r := f.Next(t.Context(), rule, 1000)
		if r == nil {
			break
		}
		if !same(r, chain[n]) {
			t.Errorf("record %d has other bytes", n)
		}
	}
	return n
}

// TestServers: tiers on valkey and s3 against servers of this process: what is stored comes back, to the byte, or not at all,
// whatever the server does, and a trouble is said once.
func TestServers(t *testing.T) {
	t.Parallel()
	for kind, open := range map[string]func(testing.TB) *server{"valkey": fakeValkey, "s3": fakeS3} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *server){"shared": serverShared, "damaged": serverDamaged, "slow": serverSlow, "hangs": serverHangs, "down": serverDown,
				"refuses": serverRefuses, "capacity": serverCapacity} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, open(t))
				})
			}
		})
	}
}

// stored puts a chain into a server through a store of its own.
func stored(t testing.TB, s *server, chain []*Record) {
	t.Helper()
	store, said := remote(t, s, 1<<30)
	store.Put(chain...)
	flushed(t, store)
	if got := said.all(); len(got) > 0 || s.held() != size(chain) {
		t.Fatalf("%d of %d bytes are stored; it said %q", s.held(), size(chain), got)
	}
}

func serverShared(t *testing.T, s *server) {
	chain := chainOf(t, 1, 5, 9000)
	stored(t, s, chain)
	other, said := remote(t, s, 1<<30)
	if n := fetched(t, other, chain, Rule{Wait: true}); n != len(chain) {
		t.Errorf("another process has %d of %d records", n, len(chain))
	}
	if n := fetched(t, other, chainOf(t, 2, 3, 9000), Rule{Wait: true}); n != 0 {
		t.Errorf("%d records of another text", n)
	}
	good := 0
	if err := other.tiers[0].verify(t.Context(), func(f Finding) {
		if f.Err == nil {
			good++
		}
	}); err != nil || good != len(chain) {
		t.Errorf("verify: %d good of %d, %v", good, len(chain), err)
	}
	list, err := other.tiers[0].list(t.Context())
	if err != nil || len(list) != len(chain) {
		t.Errorf("list: %d of %d, %v", len(list), len(chain), err)
	}
	if err := other.On(0).Drop(t.Context(), []Key{chain[3].Key}); err != nil {
		t.Error(err)
	}
	if n := fetched(t, other, chain, Rule{Wait: true}); n != 3 {
		t.Errorf("%d records before the one that was dropped, want 3", n)
	}
	if got := said.all(); len(got) > 0 {
		t.Errorf("it said %q", got)
	}
}

func serverDamaged(t *testing.T, s *server) {
	chain := chainOf(t, 1, 4, 9000)
	for name, change := range map[string]func([]byte) []byte{
		"a bit":         func(b []byte) []byte { b[pageBytes] ^= 4; return b },
		"half of it":    func(b []byte) []byte { return b[:len(b)/2] },
		"a header only": func(b []byte) []byte { return b[:pageBytes] },
		"a page more":   func(b []byte) []byte { return append(b, make([]byte, pageBytes)...) },
		"a byte more":   func(b []byte) []byte { return append(b, 0) },
		"one byte":      func(b []byte) []byte { return b[:1] },
		"another":       func([]byte) []byte { return slices.Clone(chainOf(t, 7, 1, 9000)[0].Raw()) },
	} {
		s.set(func(v *fakeValues) { clear(v.m) })
		stored(t, s, chain)
		if n := s.tamper(change); n != len(chain) {
			t.Fatalf("%s: %d records were changed", name, n)
		}
		store, said := remote(t, s, 1<<30)
		if n := fetched(t, store, chain, Rule{Wait: true}); n != 0 {
			t.Errorf("%s: %d damaged records were used", name, n)
		}
		said.oneLine(t, "damaged")
		for _, r := range chain { // each was seen to be damaged: it is written again
			if _, err := store.tiers[0].read(t.Context(), r.Key); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v, want damage", name, err)
			}
		}
		store.Put(chain...)
		flushed(t, store)
		if n := fetched(t, store, chain, Rule{Wait: true}); n != len(chain) {
			t.Errorf("%s: %d of %d records after they were stored again; it said %q", name, n, len(chain), said.all())
		}
	}
}

// serverSlow: a fetch with a deadline ends at it, with a prefix; one that waits gets all.
func serverSlow(t *testing.T, s *server) {
	chain := chainOf(t, 1, 40, 5000)
	stored(t, s, chain)
	store, said := remote(t, s, 1<<30)
	s.set(func(v *fakeValues) { v.delay = 150 * time.Millisecond })
	begun := time.Now()
	n := fetched(t, store, chain, Rule{Base: 400 * time.Millisecond})
	if took := time.Since(begun); n == len(chain) || took > 3*time.Second {
		t.Errorf("%d of %d records in %v, want some of them in 400 ms", n, len(chain), took)
	}
	said.oneLine(t, "did not come in time")
	s.set(func(v *fakeValues) { v.delay = 5 * time.Millisecond })
	if n := fetched(t, store, chain, Rule{Wait: true}); n != len(chain) {
		t.Errorf("%d of %d records where it waits", n, len(chain))
	}
}

// serverHangs: a server that does not answer costs one operation's time, then it is left alone.
func serverHangs(t *testing.T, s *server) {
	chain := chainOf(t, 1, 3, 5000)
	stored(t, s, chain)
	store, said := remote(t, s, 1<<30)
	s.set(func(v *fakeValues) { v.hang = true })
	begun := time.Now()
	if n := fetched(t, store, chain, Rule{Wait: true}); n != 0 {
		t.Errorf("%d records of a server that hangs", n)
	}
	if took := time.Since(begun); took > 4*values.OpTimeout {
		t.Errorf("it was waited for %v", took)
	}
	begun = time.Now()
	store.Put(chainOf(t, 2, 2, 5000)...)
	if fetched(t, store, chain, Rule{Wait: true}); time.Since(begun) > values.OpTimeout/2 {
		t.Errorf("a server that hung was asked again: %v", time.Since(begun))
	}
	flushed(t, store)
	said.oneLine(t, "going on without it")
}

func serverDown(t *testing.T, s *server) {
	chain := chainOf(t, 1, 3, 5000)
	stored(t, s, chain)
	store, said := remote(t, s, 1<<30)
	s.stop()
	begun := time.Now()
	if n := fetched(t, store, chain, Rule{Wait: true}); n != 0 {
		t.Errorf("%d records of a server that is gone", n)
	}
	store.Put(chain...)
	flushed(t, store)
	if took := time.Since(begun); took > 4*values.OpTimeout {
		t.Errorf("it was waited for %v", took)
	}
	said.oneLine(t, "going on without it")
	late, err := Open(t.Context(), []Spec{s.spec(1 << 20)}, Options{})
	if err == nil || !late.Empty() {
		t.Errorf("a server that is gone was opened: %v", err)
	}
	_ = late.Close()
}

// serverRefuses: a server that takes no more keeps what it has; what it refused is not there.
func serverRefuses(t *testing.T, s *server) {
	chain, more := chainOf(t, 1, 3, 5000), chainOf(t, 2, 3, 5000)
	stored(t, s, chain)
	s.set(func(v *fakeValues) { v.refuse = true })
	store, said := remote(t, s, 1<<30)
	store.Put(more...)
	flushed(t, store)
	said.oneLine(t, "going on without it")
	if s.held() != size(chain) {
		t.Errorf("%d bytes are there, want %d", s.held(), size(chain))
	}
	other, _ := remote(t, s, 1<<30)
	if n, m := fetched(t, other, chain, Rule{Wait: true}), fetched(t, other, more, Rule{Wait: true}); n != len(chain) || m != 0 {
		t.Errorf("%d records of before, %d of those refused", n, m)
	}
}

// serverCapacity: records of one process never take more than the capacity; the newest text is whole.
func serverCapacity(t *testing.T, s *server) {
	one := chainOf(t, 1, 1, 9000)[0].Bytes()
	store, _ := remote(t, s, 5*one)
	var last []*Record
	for text := range 6 {
		last = chainOf(t, text, 2, 9000)
		store.Put(last...)
		flushed(t, store)
		if s.held() > 5*one {
			t.Fatalf("text %d: %d bytes of %d", text, s.held(), 5*one)
		}
	}
	if n := fetched(t, store, last, Rule{Wait: true}); n != len(last) {
		t.Errorf("%d of the last text's %d records", n, len(last))
	}
}
