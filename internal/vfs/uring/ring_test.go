package uring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ring opens a ring or skips where the system has none.
func ring(t *testing.T, depth int) *Ring {
	r, err := Open(depth)
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("no io_uring here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func run(t *testing.T, r *Ring, reqs []Request) map[uint64]Result {
	t.Helper()
	got := map[uint64]Result{}
	for begun := 0; len(got) < len(reqs); {
		n, err := r.Submit(reqs[begun:])
		if err != nil {
			t.Fatal(err)
		}
		begun += n
		if err := r.awaitOne(); err != nil {
			t.Fatal(err)
		}
		for _, res := range r.Reap(nil) {
			if _, twice := got[res.Tag]; twice {
				t.Fatalf("%d ends twice", res.Tag)
			}
			got[res.Tag] = res
		}
	}
	return got
}

func TestWriteThenRead(t *testing.T) {
	r := ring(t, 8)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const n, part = 50, 1000
	var reqs []Request
	for i := range n {
		a, b := bytes.Repeat([]byte{byte(i)}, part), bytes.Repeat([]byte{byte(i + 100)}, part)
		reqs = append(reqs, Request{FD: int(f.Fd()), Write: true, Off: int64(i) * 2 * part, Bufs: [][]byte{a, b}, Tag: uint64(i) + 7})
	}
	for tag, res := range run(t, r, reqs) {
		if res.Err != nil || res.N != 2*part {
			t.Fatalf("write %d: %+v", tag, res)
		}
	}
	for i := range reqs {
		reqs[i].Write = false
		reqs[i].Bufs = [][]byte{make([]byte, part), make([]byte, part)}
	}
	for tag, res := range run(t, r, reqs) {
		if res.Err != nil || res.N != 2*part {
			t.Fatalf("read %d: %+v", tag, res)
		}
	}
	for i, q := range reqs {
		if !bytes.Equal(q.Bufs[0], bytes.Repeat([]byte{byte(i)}, part)) || !bytes.Equal(q.Bufs[1], bytes.Repeat([]byte{byte(i + 100)}, part)) {
			t.Fatalf("block %d reads back as something else", i)
		}
	}
}

func TestErrorsAndShortReads(t *testing.T) {
	r := ring(t, 4)
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	got := run(t, r, []Request{
		{FD: int(f.Fd()), Bufs: [][]byte{make([]byte, 10)}, Tag: 1},
		{FD: int(f.Fd()), Off: 100, Bufs: [][]byte{make([]byte, 10)}, Tag: 2},
		{FD: 1 << 30, Bufs: [][]byte{make([]byte, 10)}, Tag: 3},
	})
	f.Close()
	if got[1].N != 3 || got[1].Err != nil || got[2].N != 0 || got[2].Err != nil || got[3].Err == nil {
		t.Errorf("short %+v, past the end %+v, bad file %+v", got[1], got[2], got[3])
	}
	if r.Depth() < 4 {
		t.Errorf("depth %d", r.Depth())
	}
}

func TestAwaitSome(t *testing.T) {
	r := ring(t, 4)
	if err := r.AwaitSome(2, time.Millisecond); err != nil { // nothing is under way: time passes
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Wake(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.AwaitSome(2, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := r.Reap(nil); len(got) != 2 {
		t.Fatalf("reaped %+v", got)
	}
}

func TestWake(t *testing.T) {
	r := ring(t, 2)
	for range 5 { // slots are given back
		woken := make(chan error)
		go func() { woken <- r.awaitOne() }()
		if err := r.Wake(); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if got := r.Reap(nil); len(got) != 1 || got[0].Tag != WakeTag {
			t.Fatalf("reaped %+v", got)
		}
	}
}
