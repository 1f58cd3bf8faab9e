package flash

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// TestSparse compares a sparse list with a map.
func TestSparse(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s Sparse[int]
		want := map[int]int{}
		reach := []int{100, 3000, 1 << 24}[seed%3]
		for range 500 {
			switch i := rng.IntN(reach); rng.IntN(12) {
			case 0:
				s.Cut(i)
				for k := range want {
					if k >= i {
						delete(want, k)
					}
				}
			default:
				v := 1 + rng.IntN(100)
				s.Set(i, v)
				want[i] = v
			}
			if i := rng.IntN(reach); s.At(i) != want[i] {
				t.Fatalf("seed %d: place %d holds %d, want %d", seed, i, s.At(i), want[i])
			}
		}
		from, n, last := rng.IntN(reach), 0, -1
		for i, v := range s.All(from) {
			if i < from || i <= last || v != want[i] {
				t.Fatalf("seed %d: %d after %d: %d, want %d", seed, i, last, v, want[i])
			}
			if last = i; v != 0 {
				n++
			}
		}
		for k := range want {
			if k < from {
				delete(want, k)
			}
		}
		if n != len(want) {
			t.Errorf("seed %d: %d from %d on, want %d", seed, n, from, len(want))
		}
		if !slices.IsSortedFunc(s.chunks, func(a, b chunk[int]) int { return a.number - b.number }) {
			t.Error("unsorted")
		}
	}
}

// TestFarGroupsCostNothing: groups with wild numbers, in many layers, take the memory of what is stored, now and after a
// restart, and are forgotten as others are.
func TestFarGroupsCostNothing(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, nil)
	q, _, err := s.OpenSequence([16]byte{}, 1, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	allocated := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const far = maxIndex
	if n := allocated(func() {
		for layer := range int32(50) {
			for _, g := range []int32{0, far / 2, far} {
				if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: layer, Group: g}, Parts: [][]byte{{byte(layer)}}}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Close()
		s = mustOpen(t, dir, nil)
	}); n > 8<<20 {
		t.Errorf("150 groups: %d bytes were allocated", n)
	}
	got := make([]byte, 1)
	if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 49, Group: far}, 0, got}}); err != nil || got[0] != 49 {
		t.Errorf("the last: %v, %v", got, err)
	}
	if groups := s.Groups(q.ID, 7, far); !slices.Equal(groups, []int{0, far / 2}) {
		t.Errorf("groups below the last: %v", groups)
	}
	if err := s.Cut(q.ID, far/2+1); err != nil {
		t.Fatal(err)
	}
	if u := s.Usage(); u.Groups != 100 {
		t.Errorf("after a cut: %+v", u)
	}
}
