package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"terrace/csdshim"
	"terrace/internal/clock"
)

// script is a store whose calls fail as a list says: nil lets one through.
type script struct {
	*Memory
	mu    sync.Mutex
	fates []error
	calls int
}

func (s *script) next() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if len(s.fates) == 0 {
		return nil
	}
	err := s.fates[0]
	s.fates = s.fates[1:]
	return err
}

func (s *script) Read(ctx context.Context, recs []Record) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.Memory.Read(ctx, recs)
}

func (s *script) Write(ctx context.Context, recs []Record) error {
	if err := s.next(); err != nil {
		return err
	}
	return s.Memory.Write(ctx, recs)
}

// TestTransfersAreTriedTwice: what may pass is begun once more and then is ErrTier; what cannot pass is told at once, and what
// says nothing against the tier as it is.
func TestTransfersAreTriedTwice(t *testing.T) {
	for _, c := range []struct {
		fates []error
		calls int
		is    error
		tier  bool
	}{
		{nil, 1, nil, false},
		{[]error{syscall.EIO}, 2, nil, false},
		{[]error{ErrCorrupt}, 2, nil, false},
		{[]error{csdshim.ErrLost}, 2, nil, false},
		{[]error{csdshim.ErrTimeout}, 2, nil, false},
		{[]error{syscall.EIO, syscall.EIO}, 2, syscall.EIO, true},
		{[]error{syscall.EIO, ErrFull}, 2, ErrFull, false},
		{[]error{ErrFull}, 1, ErrFull, false},
		{[]error{ErrClosed}, 1, ErrClosed, false},
		{[]error{ErrMissing}, 1, ErrMissing, true},
		{[]error{ErrShape}, 1, ErrShape, true},
		{[]error{csdshim.ErrRequest}, 1, csdshim.ErrRequest, true},
	} {
		for _, write := range []bool{false, true} {
			m, err := NewMemory("host", testShape(), 0)
			if err != nil {
				t.Fatal(err)
			}
			r := fill(record(testShape(), 1, 0, 0), 1)
			if err := m.Write(t.Context(), []Record{r}); err != nil {
				t.Fatal(err)
			}
			s := &script{Memory: m}
			for _, fate := range c.fates {
				s.fates = append(s.fates, fmt.Errorf("store: %w", fate))
			}
			q := NewQueue(s, QueueOptions{})
			start := q.Read
			if write {
				start = q.Write
			}
			err = start(Prefetch, []Record{r}).Wait(t.Context())
			if s.calls != c.calls || !errors.Is(err, c.is) || errors.Is(err, ErrTier) != c.tier {
				t.Errorf("%v, write %v: %d calls, want %d, and %v, want %v", c.fates, write, s.calls, c.calls, err, c.is)
			}
			if n := q.Stats().Retries; n != int64(c.calls-1) {
				t.Errorf("%v: %d retries", c.fates, n)
			}
			q.Close()
		}
	}
}

// TestOnlyWhatFailedIsTriedAgain: of a ticket of several transfers one fails.
func TestOnlyWhatFailedIsTriedAgain(t *testing.T) {
	m, err := NewMemory("host", testShape(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &script{Memory: m, fates: []error{nil, syscall.EIO}}
	var recs []Record
	for g := range int32(200) { // 12 KiB each, 42 to a transfer
		recs = append(recs, fill(record(testShape(), 1, 0, g), 1))
	}
	q := NewQueue(s, QueueOptions{Depth: 1})
	defer q.Close()
	if err := q.Write(WriteBack, recs).Wait(t.Context()); err != nil || s.calls != 6 {
		t.Errorf("%d calls, want 5 and one again: %v", s.calls, err)
	}
}

// TestCancelledIsNotTriedAgain: nobody wants what was cancelled, nor what a closed queue has left.
func TestCancelledIsNotTriedAgain(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g, q := newGate(t)
			unwanted := q.Read(Demand, []Record{record(testShape(), 1, 0, 0)})
			<-g.begun
			g.fail = syscall.EIO
			closed := make(chan error, 1)
			if closing {
				go func() { closed <- q.Close() }()
				synctest.Wait() // until it waits for the read
			} else {
				unwanted.Cancel()
				closed <- nil
			}
			g.pass <- struct{}{}
			<-unwanted.Done()
			if err := unwanted.Wait(t.Context()); !errors.Is(err, syscall.EIO) || q.Stats().Retries != 0 {
				t.Errorf("closing %v: %v, %d retries", closing, err, q.Stats().Retries)
			}
			if err := errors.Join(<-closed, q.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// watched is a clock that jumps, and calls something at a time.
type watched struct {
	*clock.Jumping
	at   time.Duration
	then func()
}

func (w *watched) Sleep(ctx context.Context, d time.Duration) error {
	err := w.Jumping.Sleep(ctx, d)
	if w.then != nil && w.Now() >= w.at {
		w.then()
		w.then = nil
	}
	return err
}

// TestRedial: a drive that died is dialled for as long as the options say, to the end: one that is back shortly before that is
// found; one that is not is lost, and the calls after that dial once each.
func TestRedial(t *testing.T) {
	shape := csdShape()
	for _, back := range []time.Duration{0, 1900 * time.Millisecond} {
		drive := newCSDDrive(t)
		w := &watched{Jumping: clock.NewJumping()}
		c, err := OpenCSD(t.Context(), drive.socket, shape, CSDOptions{Codes: csdshim.CodesInt8, Clock: w})
		if err != nil {
			t.Fatal(err)
		}
		want := csdRecord(shape, 1, 0, 0)
		if err := c.Write(t.Context(), []Record{want}); err != nil {
			t.Fatal(err)
		}
		drive.stop()
		got := Record{Key: want.Key, Data: make([]byte, len(want.Data))}
		if back > 0 {
			w.at, w.then = back, drive.start
			if err := readTwice(t, c, got); err != nil || !bytes.Equal(got.Data, want.Data) || w.Now() < back {
				t.Errorf("back after %v: at %v: %v", back, w.Now(), err)
			}
			continue
		}
		if err := readTwice(t, c, got); !errors.Is(err, csdshim.ErrLost) || w.Now() != 2*time.Second {
			t.Errorf("gone: given up after %v: %v", w.Now(), err)
		}
		if err := c.Read(t.Context(), []Record{got}); !errors.Is(err, csdshim.ErrLost) || w.Now() != 2*time.Second {
			t.Errorf("a second call: at %v: %v", w.Now(), err)
		}
		drive.start()
		if err := c.Read(t.Context(), []Record{got}); err != nil || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("back at last: %v", err)
		}
	}
}

// readTwice reads through a queue: the first call may be the one that finds the connection ended.
func readTwice(t *testing.T, c *CSD, r Record) error {
	t.Helper()
	q := NewQueue(c, QueueOptions{})
	defer q.Close()
	return q.Read(Demand, []Record{r}).Wait(t.Context())
}

// TestScoreGoesOn: a drive that breaks off in the middle of its scores is asked again, and no token comes twice.
func TestScoreGoesOn(t *testing.T) {
	shape := csdShape()
	for kind := range map[csdshim.FaultKind]bool{csdshim.FaultDisconnect: true, csdshim.FaultShort: true, csdshim.FaultGarbage: true, csdshim.FaultFail: true} {
		drive := newCSDDrive(t)
		drive.stop()
		drive.faults = csdshim.Faults{Seed: 1, Rules: []csdshim.Fault{{Kind: kind, On: "score", Times: 1}}}
		drive.start()
		c, err := OpenCSD(t.Context(), drive.socket, shape, CSDOptions{Codes: csdshim.CodesInt8})
		if err != nil {
			t.Fatal(err)
		}
		const groups = 300 // several frames of scores
		var recs []Record
		for g := range int32(groups) {
			recs = append(recs, csdRecord(shape, 1, 0, g))
		}
		if err := errors.Join(c.Write(t.Context(), recs), c.SetScales(t.Context(), 1, 0, []float32{0.25, 0.25})); err != nil {
			t.Fatal(err)
		}
		q := &csdshim.Query{Codes: csdshim.CodesInt8, Int8: make([]int8, 64), Block: 32}
		q.Int8[0] = 1
		next := int32(0)
		_, err = c.Score(t.Context(), 1, 0, q, func(b *csdshim.Block) error {
			for i, p := range b.Positions {
				if p != next || b.Scores[i] != float32(p/16) && p < 127*16 {
					t.Fatalf("%v: position %d, want %d, score %v", kind, p, next, b.Scores[i])
				}
				next++
			}
			return nil
		})
		if n := c.Stats().Retries; err != nil || next != groups*16 || n != 1 {
			t.Errorf("%v: %d tokens scored, %d calls done again: %v", kind, next, n, err)
		}
		told := errors.New("enough")
		if _, err := c.Score(t.Context(), 1, 0, q, func(*csdshim.Block) error { return told }); !errors.Is(err, told) {
			t.Errorf("%v: an error of the caller's: %v", kind, err)
		}
		if err := c.SetScales(t.Context(), 1, 9, []float32{1, 1}); !errors.Is(err, ErrTier) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: scales of layer 9 of 2: %v", kind, err)
		}
		c.Close()
	}
}

// TestDropAfterRestart: a sequence is dropped on a drive that ended and came back in the meantime; of one that stays away the
// caller is told.
func TestDropAfterRestart(t *testing.T) {
	shape := csdShape()
	for _, back := range []bool{true, false} {
		drive := newCSDDrive(t)
		c, err := OpenCSD(t.Context(), drive.socket, shape, CSDOptions{Codes: csdshim.CodesInt8, Clock: clock.NewJumping()})
		if err != nil {
			t.Fatal(err)
		}
		r := csdRecord(shape, 1, 0, 0)
		if err := c.Write(t.Context(), []Record{r}); err != nil {
			t.Fatal(err)
		}
		drive.stop()
		if back {
			drive.start()
		}
		if err := c.Drop(1); back != (err == nil) || !back && !errors.Is(err, csdshim.ErrLost) {
			t.Errorf("back %v: %v", back, err)
		}
		if err := c.Read(t.Context(), []Record{r}); back && !errors.Is(err, ErrMissing) {
			t.Errorf("read after it was dropped: %v", err)
		}
		_ = c.Close()
	}
}

// TestAttempts: what stays is begun once, what may pass twice, and a third time where a drive's connection ended; what callers get once
// nothing is tried again wraps ErrTier, unless what the tier holds is as good as before.
func TestAttempts(t *testing.T) {
	for _, c := range []struct {
		err   error
		made  int
		tiers bool
	}{
		{nil, 1, false}, {ErrFull, 1, false}, {ErrClosed, 1, false}, {ErrCancelled, 1, false}, {ErrMissing, 1, true}, {ErrBusy, 1, true}, {ErrShape, 1, true},
		{csdshim.ErrRequest, 1, true}, {csdshim.ErrUnsupported, 1, true}, {syscall.EIO, 2, true}, {ErrCorrupt, 2, true}, {csdshim.ErrTimeout, 2, true},
		{csdshim.ErrLost, 3, true}, {fmt.Errorf("%w: %w", csdshim.ErrLost, ErrClosed), 1, false},
	} {
		if got := attempts(c.err); got != c.made || c.err != nil && Again(c.err, got) || !Again(c.err, got-1) {
			t.Errorf("%v: begun %d times, want %d", c.err, got, c.made)
		}
		if err := failed(c.err); errors.Is(err, ErrTier) != c.tiers || !errors.Is(err, c.err) {
			t.Errorf("%v: callers get %v", c.err, err)
		}
	}
}
