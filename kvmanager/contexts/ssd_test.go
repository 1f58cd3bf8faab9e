package contexts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/internal/tierspec"
	"terrace/internal/vfs"
)

// folder opens an ssd tier.
func folder(t testing.TB, fs vfs.FS, capacity int64) *ssd {
	t.Helper()
	s, _, err := openSSD(fs, Spec{Kind: tierspec.SSD, Place: "d", CapacityBytes: capacity}, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// chainOf is a text's records, one a block of 2 tokens.
func chainOf(t testing.TB, text, blocks, sizeBytes int) []*Record {
	root := Root(nil, fmt.Sprint(text))
	var out []*Record
	for i := range blocks {
		r := made(t, root, []int{text, i}, 2*i, sizeBytes)
		out = append(out, r)
	}
	return out
}

// same reports whether two records are equal in all that is used.
func same(a, b *Record) bool {
	return a.Meta == b.Meta && slices.EqualFunc(a.sections, b.sections, bytes.Equal)
}

func expectRead(t testing.TB, s tier, r *Record, there bool) {
	t.Helper()
	got, err := s.read(context.Background(), r.Key)
	switch {
	case there && (err != nil || !same(got, r)):
		t.Errorf("record %d of %s: %v", r.First/2, r.Root.String()[:4], err)
	case !there && !errors.Is(err, ErrMiss):
		t.Errorf("record %d of %s: %v, want a miss", r.First/2, r.Root.String()[:4], err)
	}
}

// TestSSDReopened: records are there after a restart and in another process; verify finds all good.
func TestSSDReopened(t *testing.T) {
	fs := vfs.NewMem(1 << 30)
	a, b := folder(t, fs, 1<<20), folder(t, fs, 1<<20)
	chain := chainOf(t, 1, 6, 8000)
	for _, r := range chain {
		expectRead(t, b, r, false)
	}
	if err := a.write(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	c := folder(t, fs, 1<<20)
	for _, r := range chain {
		expectRead(t, a, r, true)
		expectRead(t, b, r, true)
		expectRead(t, c, r, true)
	}
	n := 0
	if err := c.verify(t.Context(), func(f Finding) {
		if n++; f.Err != nil {
			t.Error(f)
		}
	}); err != nil || n != len(chain) {
		t.Errorf("%d records verified, %v", n, err)
	}
	if err := b.remove(t.Context(), []Key{chain[5].Key, chain[4].Key}); err != nil {
		t.Fatal(err)
	}
	for i, r := range chain {
		expectRead(t, a, r, i < 4)
	}
	for _, s := range []*ssd{a, b, c} {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestSSDCapacity: files never take more than the capacity; of what is there the least recently used went first, ends before
// beginnings; a chain that is larger than the store keeps its beginning.
func TestSSDCapacity(t *testing.T) {
	const capacity = 1 << 20
	fs := vfs.NewMem(1 << 30)
	s := folder(t, fs, capacity)
	defer s.close()
	taken := func() int64 {
		n := int64(0)
		for _, name := range fs.Names() {
			f, err := fs.OpenFile(name, vfs.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size()
			n += size
		}
		return n
	}
	first := chainOf(t, 0, 10, 30000)
	for text := range 9 {
		chain := chainOf(t, text, 10, 30000+4096*2*(text%3)) // of three sizes
		if err := s.write(t.Context(), chain); err != nil && !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		if n := taken(); n > capacity {
			t.Fatalf("text %d: %d bytes of %d", text, n, capacity)
		}
		for _, r := range chain {
			expectRead(t, s, r, true)
		}
		s.touch([]Key{first[0].Key, first[1].Key}) // used again and again
	}
	expectRead(t, s, first[0], true)
	expectRead(t, s, first[1], true)
	long := chainOf(t, 99, 60, 30000)
	if err := s.write(t.Context(), long); !errors.Is(err, ErrFull) {
		t.Errorf("60 records of 48 KiB in 1 MiB: %v", err)
	}
	have := 0
	for have < len(long) && s.has(long[have].Key) {
		have++
	}
	for _, r := range long[have:] {
		expectRead(t, s, r, false)
	}
	if have < 10 || taken() > capacity {
		t.Errorf("%d records of a long chain, %d bytes", have, taken())
	}
	small := folder(t, fs, capacity/2)
	defer small.close()
	if err := small.write(t.Context(), chainOf(t, 100, 1, 30000)); err != nil || taken() > capacity/2 {
		t.Errorf("opened with half the capacity: %v, %d bytes", err, taken())
	}
}

// TestSSDFaults: with any operation failing in any way, and after a loss of power, a read gives the bytes that were stored under
// the key or none; what was acknowledged is there again.
func TestSSDFaults(t *testing.T) {
	kinds := []vfs.FaultKind{vfs.EIO, vfs.ENOSPC, vfs.Short, vfs.Flip, vfs.Misplace, vfs.Lose, vfs.Torn, vfs.PowerOff}
	rng := rand.New(rand.NewPCG(1, 2))
	kept, acknowledged := 0, 0
	for round := range 240 {
		m := vfs.NewCrashMem(1<<22, uint64(round))
		faults := &vfs.Faults{Seed: uint64(round), Nth: 1 + rng.Int64N(60), Times: 1 + rng.Int64N(2), Kind: kinds[round%len(kinds)]}
		fs := &vfs.Faulty{FS: m, Faults: faults}
		var chains [][]*Record
		var acked []*Record
		if s, _, err := openSSD(fs, Spec{Kind: tierspec.SSD, Place: "d", CapacityBytes: 400 << 10}, false); err == nil {
			for text := range 4 {
				chain := chainOf(t, text, 1+rng.IntN(3), 9000)
				chains = append(chains, chain)
				if err := s.write(t.Context(), chain); err == nil {
					acked = append(acked, chain...)
				}
				for _, c := range chains {
					for _, r := range c {
						if got, err := s.read(t.Context(), r.Key); err == nil && !same(got, r) {
							t.Fatalf("round %d: other bytes", round)
						}
					}
				}
			}
			_ = s.close()
		}
		m.Crash()
		faults.Stop()
		s := folder(t, m, 400<<10)
		for _, c := range chains {
			for _, r := range c {
				if got, err := s.read(t.Context(), r.Key); err == nil && !same(got, r) {
					t.Fatalf("round %d, opened again: other bytes", round)
				}
			}
		}
		if k := faults.Kind; k == vfs.EIO || k == vfs.ENOSPC || k == vfs.PowerOff || k == vfs.Torn { // those that say so
			for _, r := range acked {
				acknowledged++
				if _, err := s.read(t.Context(), r.Key); err == nil {
					kept++
				}
			}
			if err := s.verify(t.Context(), func(f Finding) {
				if f.Err != nil && k != vfs.Torn {
					t.Errorf("round %d, %v: %v", round, k, f)
				}
			}); err != nil {
				t.Error(err)
			}
		}
		if err := s.write(t.Context(), chainOf(t, 50, 2, 9000)); err != nil {
			t.Errorf("round %d: writing after it: %v", round, err)
		}
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
	if acknowledged < 120 || kept < acknowledged {
		t.Errorf("%d of %d acknowledged records are there again", kept, acknowledged)
	}
}

// TestSSDDamage: a damaged record is found by verify, is not read, and its slot is used again; strange files do no harm.
func TestSSDDamage(t *testing.T) {
	fs := vfs.NewMem(1 << 30)
	s := folder(t, fs, 1<<20)
	chain := chainOf(t, 1, 3, 9000)
	if err := s.write(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	s.close()
	put := func(name string, at int64, b []byte) {
		f, err := fs.OpenFile(name, vfs.OpenOptions{Create: true})
		if err == nil {
			_, err = f.WriteAt(b, at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(i int) string { return "d/" + chain[i].Key.String() + ".kv2" }
	put(file(0), 9001, []byte{0x55}) // in the first record's second section
	put(file(2), chain[2].Bytes(), make([]byte, 100))
	put("d/"+Key{1}.String()+".kv2", 0, chain[1].Raw()) // whole, under another's name
	for n, b := range map[string]int{"d/garbage": 100, file(1) + ".tmp": 10, "d/000003-4096-4.kv1": 5000, "d/000002-4096-2.kv3": 100, "d/short.kv2": 100} {
		put(n, 0, bytes.Repeat([]byte{0xff}, b))
	}
	s, notice, err := openSSD(fs, Spec{Kind: tierspec.SSD, Place: "d", CapacityBytes: 1 << 20}, false)
	if err != nil || !strings.Contains(notice, "5110 bytes of another version") || !strings.Contains(notice, "infer store gc --store ssd=d,") {
		t.Fatal(notice, err)
	}
	defer s.close()
	bad := 0
	if err := s.verify(t.Context(), func(f Finding) {
		if f.Err != nil {
			bad++
		}
	}); err != nil || bad != 3 { // the record, the file that is too long, the one under another name
		t.Errorf("verify finds %d damaged, %v", bad, err)
	}
	if _, err := s.read(t.Context(), chain[0].Key); !errors.Is(err, ErrDamaged) {
		t.Errorf("read: %v", err)
	}
	expectRead(t, s, chain[0], false) // known by now
	if freed, err := s.gc(t.Context()); err != nil || freed < 5100+3*chain[0].Bytes() {
		t.Errorf("gc: %d bytes, %v", freed, err)
	}
	if names := fs.Names(); len(names) != 3 || !slices.Contains(names, "d/garbage") || !slices.Contains(names, file(1)) {
		t.Errorf("left are %v", names)
	}
	if err := s.write(t.Context(), chain); err != nil {
		t.Fatal(err)
	}
	for _, r := range chain {
		expectRead(t, s, r, true)
	}
	if err := s.verify(t.Context(), func(f Finding) {
		if f.Err != nil {
			t.Error(f)
		}
	}); err != nil {
		t.Error(err)
	}
}

func flushed(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatalf("flush: %v", err)
	}
}
