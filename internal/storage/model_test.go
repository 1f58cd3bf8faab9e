package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"terrace/internal/vfs"
)

// lettered is a value that says whose it is and which version.
func lettered(name string, version, pages int) Value {
	rnd := rand.New(rand.NewPCG(uint64(name[0]), uint64(version)))
	b := Aligned(pages * PageBytes)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return Value{name, b, time.Unix(int64(version), 0)}
}

// TestRecordsLosePower: whatever operation fails in whatever way, and when the power fails after it, a value that was acknowledged is there as
// it was, and one that was not is there whole, as it was before, or not at all; what is left unfinished goes with Recover.
func TestRecordsLosePower(t *testing.T) {
	kinds := []vfs.FaultKind{vfs.EIO, vfs.ENOSPC, vfs.Short, vfs.Torn, vfs.PowerOff}
	struck, lost := 0, 0
	for round := range 300 {
		rnd := rand.New(rand.NewPCG(uint64(round), 9))
		mem := vfs.NewCrashMem(1<<20, uint64(round))
		faults := &vfs.Faults{Seed: uint64(round), Nth: 1 + rnd.Int64N(60), Times: 1 + rnd.Int64N(3), Kind: kinds[round%len(kinds)]}
		folder, err := OpenFolder("d", Options{FS: &vfs.Faulty{FS: mem, Faults: faults}})
		if err != nil {
			continue
		}
		r := NewRecords(folder, 2, 1<<20, letter)
		there, maybe := map[string]int{}, map[string]map[int]bool{} // versions that are, or may be, under a name; 0 = none
		sizes := map[string]int{}
		for version := 1; version < 12; version++ {
			var batch []Value
			for i := range 1 + rnd.IntN(3) {
				name := string(rune('a' + (version+i)%6))
				if sizes[name] == 0 {
					sizes[name] = 1 + rnd.IntN(4)
				}
				batch = append(batch, lettered(name, version, sizes[name]))
			}
			n, err := r.Put(batch)
			if err != nil {
				struck++
			}
			for i, v := range batch {
				if i < n {
					there[v.Name], maybe[v.Name] = version, nil
					continue
				}
				if maybe[v.Name] == nil {
					maybe[v.Name] = map[int]bool{}
				}
				maybe[v.Name][version] = true
			}
			if rnd.IntN(4) == 0 && r.Remove(batch[0].Name) == nil {
				delete(there, batch[0].Name)
				maybe[batch[0].Name] = nil
			}
		}
		mem.Crash()
		faults.Stop()
		folder, err = OpenFolder("d", Options{FS: mem})
		if err != nil {
			t.Fatal(err)
		}
		r = NewRecords(folder, 2, 1<<20, letter)
		_, _, unfinished, err := r.Scan()
		var names []string
		for _, x := range unfinished {
			names = append(names, x.Name)
		}
		if err := errors.Join(err, r.RemoveFiles(names)); err != nil {
			t.Fatal(err)
		}
		for name, size := range sizes {
			b, err := r.Get(name, 0)
			version := there[name]
			switch {
			case errors.Is(err, ErrMissing) && version == 0:
				lost++
				continue
			case err != nil:
				t.Errorf("round %d: %s, of which version %d was acknowledged: %v", round, name, version, err)
				continue
			}
			found := version > 0 && bytes.Equal(b, lettered(name, version, size).Bytes)
			for v := range maybe[name] {
				found = found || bytes.Equal(b, lettered(name, v, size).Bytes)
			}
			if !found {
				t.Errorf("round %d: %s: neither version %d nor one of %v", round, name, version, maybe[name])
			}
		}
		if n, err := r.Put([]Value{lettered("z", 1, 1)}); n != 1 || err != nil {
			t.Errorf("round %d: stored after all that: %d, %v", round, n, err)
		}
	}
	if struck < 150 || lost < 10 {
		t.Errorf("%d puts failed, %d values were lost: the test says nothing", struck, lost)
	}
}

// TestManyOpen: more records are read in part at a time than stay open; each gives its own bytes, and none stays open when its end was read.
func TestManyOpen(t *testing.T) {
	mem := vfs.NewMem(64 << 20)
	folder, err := OpenFolder("d", Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	r := NewRecords(folder, 1, 1<<20, func(string) bool { return true })
	const many = maxOpen + 50
	var batch []Value
	for i := range many {
		batch = append(batch, Value{Name: fmt.Sprint(i), Bytes: bytes.Repeat([]byte{byte(i)}, 2*PageBytes)})
	}
	if n, err := r.Put(batch); n != many || err != nil {
		t.Fatal(n, err)
	}
	dst := Aligned(PageBytes)
	for part := range 2 {
		for i := range many {
			if n, err := r.ReadPart(fmt.Sprint(i), dst, int64(part*PageBytes)); n != PageBytes || err != nil || dst[0] != byte(i) || dst[PageBytes-1] != byte(i) {
				t.Fatalf("part %d of %d: %d bytes, %v", part, i, n, err)
			}
		}
		if want := []int{maxOpen, 0}[part]; len(r.open) != want || len(r.old) != want {
			t.Errorf("after part %d %d are open, %d in order, want %d", part, len(r.open), len(r.old), want)
		}
	}
	if _, err := r.ReadPart("0", dst, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove("0"); err != nil || len(r.open) != 0 {
		t.Errorf("a removed record stays open: %v", err)
	}
	if _, err := r.ReadPart("0", dst, PageBytes); !errors.Is(err, ErrMissing) {
		t.Errorf("the rest of a removed record: %v", err)
	}
}

// TestStagingTogether: many take and give at once, and nobody has another's piece.
func TestStagingTogether(t *testing.T) {
	s := NewStaging(64<<10, 16<<10, 256<<10)
	var wg sync.WaitGroup
	for who := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(who), 1))
			for range 200 {
				b, huge := s.Take(1 + rnd.IntN(300<<10))
				b[0], b[len(b)-1] = byte(who), byte(who)
				if who == 0 {
					s.Trim(16 << 10)
				}
				if b[0] != byte(who) || b[len(b)-1] != byte(who) {
					t.Error("somebody else wrote to a piece")
				}
				s.Give(b, huge)
			}
		})
	}
	wg.Wait()
	if s.Trim(0); s.Bytes() != 0 {
		t.Errorf("%d bytes are left", s.Bytes())
	}
}
