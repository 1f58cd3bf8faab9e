package offload

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/vfs"
)

// faulty opens an SSD store in memory whose file operations may go wrong. The error is OpenSSD's.
func faulty(f *vfs.Faults) (*SSD, *vfs.Mem, error) {
	m := vfs.NewMem(2 << 20)
	s, err := OpenSSD(testShape(), SSDOptions{Dir: "d", FS: &vfs.Faulty{FS: m, Faults: f}, CapacityBytes: 1 << 20, ExtentGroups: 2, Depth: 4, MaxIOBytes: 36 << 10})
	return s, m, err
}

// scene writes, reads, rewrites and drops under faults. Whatever an operation answers, a read that succeeds gives the bytes of
// the last write that did, and nothing else (invariant 1).
func scene(t *testing.T, s *SSD, rnd *rand.Rand, steps int) (failures int) {
	t.Helper()
	ctx, shape := context.Background(), testShape()
	want := map[Key]uint64{} // 0: unknown, because a write of it failed
	for step := range steps {
		layer, first, n := rnd.Int32N(4), rnd.Int32N(8), 1+rnd.Int32N(6)
		switch rnd.IntN(5) {
		case 0, 1:
			var recs []Record
			for g := range n {
				recs = append(recs, fill(record(shape, 1, layer, first+g), uint64(step+1)))
			}
			err := s.Write(ctx, recs)
			for _, r := range recs {
				want[r.Key] = uint64(step + 1)
				if err != nil {
					want[r.Key] = 0
				}
			}
			if err != nil {
				failures++
			}
		case 2:
			if first > 1 { // often enough
				continue
			}
			if err := s.Drop(1); err != nil {
				t.Fatal(err)
			}
			clear(want)
		default:
			for g := range n {
				k := Key{1, layer, first + g}
				r := record(shape, 1, layer, first+g)
				err := s.Read(ctx, []Record{r})
				version, written := want[k]
				switch {
				case err != nil:
					if !errors.Is(err, ErrMissing) {
						failures++
					} else if written && version != 0 {
						t.Fatalf("step %d: %v was written and is missing", step, k)
					}
				case !written:
					t.Fatalf("step %d: %v was dropped or never written, and is read", step, k)
				case version != 0 && !bytes.Equal(r.Data, fill(record(shape, 1, layer, first+g), version).Data):
					t.Fatalf("step %d: %v reads back as something else", step, k)
				}
			}
		}
	}
	return failures
}

// TestEveryOperationFails (K1) lets the Nth file operation of a scene fail, for every N and every fault, alone and with those
// that follow: one failure alone is made good where it can be seen.
func TestEveryOperationFails(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	for _, kind := range []vfs.FaultKind{vfs.EIO, vfs.Short, vfs.Flip, vfs.Lose} {
		for _, times := range []int64{1, 4} {
			seen := 0
			for nth := int64(1); ; nth++ {
				f := &vfs.Faults{Seed: 7, Nth: nth, Times: times, Kind: kind}
				s, m, err := faulty(f)
				if err == nil {
					seen += scene(t, s, rand.New(rand.NewPCG(5, 5)), 12)
					checkSSD(t, s)
					f.Stop()
					err = s.Close()
				}
				if err != nil && (errors.Is(err, ErrShape) || errors.Is(err, ErrInUse)) {
					t.Errorf("fault %d at operation %d: %v", kind, nth, err)
				}
				if len(m.Names()) > 1 { // the file at most, where the fault struck its removal
					t.Errorf("left behind: %v", m.Names())
				}
				if _, struck := f.Ops(); struck == 0 {
					break
				}
			}
			if (kind == vfs.EIO || kind == vfs.Short) && (seen > 0) != (times > 1) {
				t.Errorf("fault %d, %d times: %d operations failed", kind, times, seen)
			}
		}
	}
	awaitGoroutines(t, goroutines)
}

// awaitGoroutines waits until no more goroutines run than before: engines end theirs after the last answer.
func awaitGoroutines(t *testing.T, n int) {
	t.Helper()
	if !eventually(2*time.Second, func() bool { return runtime.NumGoroutine() <= n }) {
		t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), n)
	}
}

// eventually asks until ok says yes or the limit is over: for what goroutines that have done their work do on their own.
func eventually(limit time.Duration, ok func() bool) bool {
	tick, over := time.NewTicker(time.Millisecond), time.After(limit)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			return false
		}
	}
	return true
}

// TestManyFaults strikes a tenth of all operations at once, by many seeds.
func TestManyFaults(t *testing.T) {
	failures := 0
	for seed := range uint64(20) {
		f := &vfs.Faults{Seed: seed, After: 8, Chance: map[vfs.OpKind]float64{vfs.OpRead: 0.2, vfs.OpWrite: 0.1},
			Kinds: []vfs.FaultKind{vfs.EIO, vfs.ENOSPC, vfs.Short, vfs.Flip, vfs.Misplace, vfs.Lose}}
		s, _, err := faulty(f)
		if err != nil {
			t.Fatal(err)
		}
		failures += scene(t, s, rand.New(rand.NewPCG(seed, 5)), 40)
		checkSSD(t, s)
		f.Stop()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if failures < 20 {
		t.Errorf("%d failures in 20 scenes: the faults do not strike", failures)
	}
}

// TestReadIsTriedTwice: a fault on the way does no harm, one that stays is an error that names the record.
func TestReadIsTriedTwice(t *testing.T) {
	for _, kind := range []vfs.FaultKind{vfs.EIO, vfs.Short, vfs.Flip, vfs.Misplace} {
		f := &vfs.Faults{Seed: 3}
		s, _, err := faulty(f)
		if err != nil {
			t.Fatal(err)
		}
		shape, ctx := testShape(), context.Background()
		if err := s.Write(ctx, []Record{fill(record(shape, 1, 0, 0), 1), fill(record(shape, 1, 0, 1), 2)}); err != nil {
			t.Fatal(err)
		}
		ops, _ := f.Ops()
		f.Nth, f.Kind = ops+1, kind
		r := record(shape, 1, 0, 1)
		if err := s.Read(ctx, []Record{r}); err != nil || !bytes.Equal(r.Data, fill(record(shape, 1, 0, 1), 2).Data) {
			t.Errorf("fault %d once: %v", kind, err)
		}
		if n := s.own.Stats().Retries; n != 1 {
			t.Errorf("fault %d: %d retries", kind, n)
		}
		f.Nth, f.Chance, f.Kinds = 0, map[vfs.OpKind]float64{vfs.OpRead: 1}, []vfs.FaultKind{kind}
		if err := s.Read(ctx, []Record{r}); err == nil || errors.Is(err, ErrMissing) || !bytes.Contains([]byte(err.Error()), []byte("sequence 1 layer 0 group 1")) {
			t.Errorf("fault %d always: %v", kind, err)
		} else if (kind == vfs.Flip || kind == vfs.Misplace) != errors.Is(err, ErrCorrupt) {
			t.Errorf("fault %d always: %v", kind, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStaleBytesAreNoticed (K7): the place of a dropped record is used again, but the write is lost on the way.
func TestStaleBytesAreNoticed(t *testing.T) {
	f := &vfs.Faults{Seed: 3}
	s, _, err := faulty(f)
	if err != nil {
		t.Fatal(err)
	}
	shape, ctx := testShape(), context.Background()
	if err := s.Write(ctx, []Record{fill(record(shape, 1, 0, 0), 1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	ops, _ := f.Ops()
	f.Nth, f.Kind = ops+1, vfs.Lose
	if err := s.Write(ctx, []Record{fill(record(shape, 2, 0, 0), 9)}); err != nil {
		t.Fatal(err)
	}
	r := record(shape, 2, 0, 0)
	if err := s.Read(ctx, []Record{r}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("bytes of a sequence that was dropped: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestHungDevice (K8): a read that never ends costs its deadline and no more, Close says that buffers cannot be given back, and
// once the device answers everything ends. Time is the test's.
func TestHungDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &vfs.Faults{Seed: 3}
		s, err := OpenSSD(testShape(), SSDOptions{Dir: "d", FS: &vfs.Faulty{FS: vfs.NewMem(8 << 20), Faults: f}, CapacityBytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		shape := testShape()
		if err := s.Write(t.Context(), []Record{fill(record(shape, 1, 0, 0), 1)}); err != nil {
			t.Fatal(err)
		}
		q := NewQueue(s, QueueOptions{})
		ops, _ := f.Ops()
		f.Nth, f.Kind = ops+1, vfs.Hang
		const patience = 30 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		start := time.Now()
		hung := q.Read(Demand, []Record{record(shape, 1, 0, 0)})
		if err := hung.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrTier) || hung.Ready() || time.Since(start) != patience {
			t.Errorf("a read that hangs: %v after %v, done %v", err, time.Since(start), hung.Ready())
		}
		if err := s.Drop(1); err != nil { // while its bytes are on their way
			t.Fatal(err)
		}
		start = time.Now()
		if err := s.Close(); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("closing a device that hangs: %v after %v", err, time.Since(start))
		}
		f.Release()
		<-hung.Done()
		if err := errors.Join(q.Close(), s.own.Close(), s.engine.Close(), s.file.Close(), s.lock.Close()); err != nil {
			t.Error(err)
		}
	}) // and no goroutine is left, or this would not return
}

// TestNoSpaceIsFull: a file system that has no room although it reserved some says so as a tier that is full; nothing is tried
// again, and what was stored stays.
func TestNoSpaceIsFull(t *testing.T) {
	f := &vfs.Faults{Seed: 3}
	s, _, err := faulty(f)
	if err != nil {
		t.Fatal(err)
	}
	shape, ctx := testShape(), context.Background()
	if err := s.Write(ctx, []Record{fill(record(shape, 1, 0, 0), 1)}); err != nil {
		t.Fatal(err)
	}
	f.Chance, f.Kinds = map[vfs.OpKind]float64{vfs.OpWrite: 1}, []vfs.FaultKind{vfs.ENOSPC}
	if err := s.Write(ctx, []Record{fill(record(shape, 1, 0, 1), 1)}); !errors.Is(err, ErrFull) || errors.Is(err, ErrTier) || s.own.Stats().Retries != 0 {
		t.Errorf("no space: %v, %d retries", err, s.own.Stats().Retries)
	}
	r := record(shape, 1, 0, 0)
	if err := s.Read(ctx, []Record{r}); err != nil || !bytes.Equal(r.Data, fill(record(shape, 1, 0, 0), 1).Data) {
		t.Errorf("what was stored before: %v", err)
	}
	checkSSD(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
