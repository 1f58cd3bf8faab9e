package contexts

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"terrace/internal/vfs"
)

// arrived takes records as they arrive, all first sections before all second ones; it returns how many there were.
func arrived(t testing.TB, s *Store, chain []*Record, rule Rule) int {
	t.Helper()
	keys := make([]Key, len(chain))
	for i, r := range chain {
		keys[i] = r.Key
	}
	a := s.Arrive(t.Context(), keys, rule, 1000)
	defer a.Close()
	records, whole := a.Begun(t.Context())
	for section := 0; len(records) > 0 && section < records[0].Sections(); section++ {
		for i := range records {
			b, err := records[i].Section(section), error(nil)
			if !whole {
				b, err = a.Section(t.Context(), i, section)
			}
			if err != nil || !bytes.Equal(b, chain[i].Section(section)) {
				t.Fatalf("record %d, section %d: %v", i, section, err)
			}
		}
	}
	for i, r := range a.Whole(t.Context())[:len(records)] {
		if !same(r, chain[i]) {
			t.Errorf("record %d has other bytes", i)
		}
	}
	a.Used(len(records))
	return len(records)
}

// TestArrive: sections come from whatever tiers have them, in parts of any size, up to the first record that is nowhere.
func TestArrive(t *testing.T) {
	t.Parallel()
	for _, part := range []int{4096, 8192, 0} {
		for _, specs := range [][]Spec{{{Kind: "ssd", Place: "d", CapacityBytes: 8 << 20}}, {{Kind: "host", CapacityBytes: 200 << 10}, {Kind: "ssd", Place: "d", CapacityBytes: 8 << 20}}, {{Kind: "host", CapacityBytes: 8 << 20}}} {
			t.Run(fmt.Sprint(part, " ", specs[0].Kind, len(specs)), func(t *testing.T) {
				t.Parallel()
				s, err := Open(t.Context(), specs, Options{FS: vfs.NewMem(1 << 30), PartBytes: part})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				chain := chainOf(t, 1, 100, 30000)
				s.Put(chain[:70]...)
				s.Put(chain[80:]...)
				flushed(t, s)
				for range 2 { // the second time some came up
					if n := arrived(t, s, chain, Rule{Wait: true}); n != 70 {
						t.Errorf("%d records, want 70", n)
					}
					flushed(t, s)
				}
				if n := arrived(t, s, chainOf(t, 2, 3, 9000), Rule{Wait: true}); n != 0 {
					t.Errorf("%d records of another text", n)
				}
			})
		}
	}
}

// partsOf are the records of a compressed context.
func partsOf(t testing.TB, n, sizeBytes int) (records []*Record) {
	t.Helper()
	context := ContextKey(Root(nil, ""), []int{n})
	for i := range n {
		r, err := Build(Meta{Key: PartKey(context, i), Parent: context, Tokens: 9, Part: i, Parts: n}, []int{40, sizeBytes, sizeBytes / 3}, func(s int, dst []byte) ([]byte, error) {
			for j := len(dst); j < cap(dst); j++ {
				dst = append(dst, byte(i+s+j))
			}
			return dst, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// TestArriveContext: the first part says how many there are; the first sections come before the last on tiers that are held to a rate,
// those in memory too.
func TestArriveContext(t *testing.T) {
	t.Parallel()
	host, ssd := Spec{Kind: "host", CapacityBytes: 32 << 20}, Spec{Kind: "ssd", Place: "d", CapacityBytes: 32 << 20}
	slowHost, slowSSD := host, ssd
	slowHost.RateBytes, slowSSD.RateBytes = 10<<20, 10<<20
	for name, specs := range map[string][]Spec{"host": {host}, "slow host": {slowHost}, "ssd": {ssd}, "slow ssd": {slowSSD}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(t.Context(), specs, Options{FS: vfs.NewMem(1 << 30)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want := partsOf(t, 5, 900<<10)
			s.Put(want...)
			flushed(t, s)
			a := s.ArriveContext(t.Context(), want[0].Key, func(parts int) (keys []Key) {
				for _, r := range want[1:parts] {
					keys = append(keys, r.Key)
				}
				return keys
			}, Rule{Wait: true}, 9)
			defer a.Close()
			records, whole := a.Begun(t.Context())
			if len(records) != len(want) || whole || a.Records() != len(want) {
				t.Fatalf("%d records of %d, whole %v", len(records), len(want), whole)
			}
			first := time.Since(a.begun)
			for section := range 3 {
				for i := range records {
					if b, err := a.Section(t.Context(), i, section); err != nil || !bytes.Equal(b, want[i].Section(section)) {
						t.Fatalf("record %d, section %d: %v", i, section, err)
					}
				}
			}
			if all := time.Since(a.begun); specs[0].RateBytes > 0 && (all < 560*time.Millisecond || first > all/2) { // 6 MB at 10 MiB/s
				t.Errorf("the beginnings came in %v, all in %v", first, all)
			}
			if n := len(a.Whole(t.Context())); n != len(want) {
				t.Errorf("%d whole records", n)
			}
		})
	}
}

// TestArriveLate: where beginnings take more than their share of the time, whole records of the beginning are taken.
func TestArriveLate(t *testing.T) {
	t.Parallel()
	specs := []Spec{{Kind: "ssd", Place: "d", CapacityBytes: 8 << 20, RateBytes: 1 << 20}}
	s, err := Open(t.Context(), specs, Options{FS: vfs.NewMem(1 << 30), PartBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	chain := chainOf(t, 1, 100, 30000)
	s.Put(chain...)
	flushed(t, s)
	begun := time.Now()
	if n := arrived(t, s, chain, Rule{Base: 1200 * time.Millisecond}); n == 0 || n > 60 { // about 40
		t.Errorf("%d of 100 records in 1.2 s of 3", n)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := arrived(t, s, chain, Rule{Base: time.Minute}); n != 100 {
		t.Errorf("%d of 100 records in a minute", n)
	}
}

// TestArriveClosed: what was not taken ends, also while a read hangs.
func TestArriveClosed(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem(1 << 30)
	w, err := Open(t.Context(), []Spec{{Kind: "ssd", Place: "d", CapacityBytes: 8 << 20}}, Options{FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	chain := chainOf(t, 1, 3, 30000)
	w.Put(chain...)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	faults := &vfs.Faults{Chance: map[vfs.OpKind]float64{vfs.OpRead: 1}, Kinds: []vfs.FaultKind{vfs.Hang}, After: 1 << 40}
	s, err := Open(t.Context(), []Spec{{Kind: "ssd", Place: "d", CapacityBytes: 8 << 20}}, Options{FS: &vfs.Faulty{FS: mem, Faults: faults}, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	faults.After = 0
	if n := arrived(t, s, chain, Rule{Base: 50 * time.Millisecond}); n != 0 {
		t.Errorf("%d records of a device that hangs", n)
	}
	faults.Stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
