package vfs

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// contest has two users ask for operations of some bytes, each as many at a time as it may, until so many have ended in the order in
// which they began; it returns the bytes that each had.
func contest(t *testing.T, s *Shares, users []*Share, bytes []int64, depth []int, ends int) (had []int64) {
	t.Helper()
	type op struct{ user int }
	var flying []op
	had = make([]int64, len(users))
	out := make([]int, len(users)) // asked for and not ended
	ask := func() {
		for i, u := range users {
			for out[i] < depth[i] {
				out[i]++
				if u.Ask(bytes[i], func() { flying = append(flying, op{i}) }) {
					flying = append(flying, op{i})
				}
			}
		}
	}
	for ask(); ends > 0; ask() {
		if len(flying) == 0 {
			t.Fatal("nothing is under way, and operations wait")
		}
		o := flying[0]
		flying = flying[1:]
		had[o.user] += bytes[o.user]
		out[o.user]--
		users[o.user].Done(bytes[o.user])
		ends--
	}
	for len(flying) > 0 {
		o := flying[0]
		flying = flying[1:]
		users[o.user].Done(bytes[o.user])
	}
	if s.flying != 0 {
		t.Errorf("%d bytes are under way at the end", s.flying)
	}
	return had
}

// TestShares: by counts of operations, each user gets its part of the bytes, whatever the size and number that the other asks for.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []float64
		bytes   []int64
		depth   []int
		want    float64 // of the first
	}{
		{"alike", []float64{1, 1}, []int64{256 << 10, 256 << 10}, []int{8, 8}, 0.5},
		{"small ones beside large ones", []float64{1, 1}, []int64{16 << 10, 256 << 10}, []int{64, 8}, 0.5},
		{"many beside few", []float64{1, 1}, []int64{256 << 10, 256 << 10}, []int{8, 500}, 0.5},
		{"three parts of four", []float64{3, 1}, []int64{256 << 10, 64 << 10}, []int{16, 128}, 0.75},
		{"larger than what may be under way", []float64{1, 1}, []int64{4 << 20, 64 << 10}, []int{4, 128}, 0.5},
	} {
		s := &Shares{}
		users := []*Share{s.New("a", c.weights[0]), s.New("b", c.weights[1])}
		had := contest(t, s, users, c.bytes, c.depth, 20000)
		if got := float64(had[0]) / float64(had[0]+had[1]); got < c.want*0.93-0.004 || got > c.want*1.07+0.004 {
			t.Errorf("%s: the first has had %.3f of the bytes, want %.3f", c.name, got, c.want)
		}
		use := s.Use()
		if use[0].Name != "a" || use[0].Turns == 0 || use[0].Bytes != use[0].Turns*c.bytes[0] || use[1].Waits == 0 || use[0].Waits > use[0].Turns {
			t.Errorf("%s: accounts %+v", c.name, use)
		}
	}
}

// TestSharesAlone: who is alone never waits, and has no more to ask for afterwards because the other was away.
func TestSharesAlone(t *testing.T) {
	s := &Shares{}
	a, b := s.New("a", 1), s.New("b", 1)
	for range 1000 {
		if !a.Ask(1<<20, nil) {
			t.Fatal("waits alone")
		}
	}
	for range 1000 {
		a.Done(1 << 20)
	}
	if u := s.Use()[0]; u.Waits != 0 || u.Turns != 1000 {
		t.Errorf("accounts %+v", u)
	}
	had := contest(t, s, []*Share{a, b}, []int64{1 << 20, 1 << 20}, []int{8, 8}, 200)
	if had[0] < had[1]*9/10 {
		t.Errorf("after a was alone it has had %d bytes, b %d", had[0], had[1])
	}
	if b.Leave(); len(s.Use()) != 1 {
		t.Errorf("users after one has left: %+v", s.Use())
	}
}

// heldEngine begins operations when it is told to.
type heldEngine struct {
	Engine
	begun []*IO
}

func (h *heldEngine) Start(ios []*IO) { h.begun = append(h.begun, ios...) }

func (h *heldEngine) end() {
	op := h.begun[0]
	h.begun = h.begun[1:]
	op.Done(op)
}

// TestSharedEngine: an engine's operations take turns with reads, and one that is begun again by who asked for it takes another.
func TestSharedEngine(t *testing.T) {
	s := &Shares{}
	reads, kv := s.New("weights", 1), s.New("kv", 1)
	h := &heldEngine{}
	e := kv.Engine(h)
	ended := 0
	again := func(op *IO) {
		if ended++; ended == 1 {
			e.Start([]*IO{op})
		}
	}
	ios := make([]*IO, 40)
	for i := range ios {
		ios[i] = &IO{Bufs: [][]byte{make([]byte, 256<<10)}, Done: again}
	}
	var wg sync.WaitGroup
	held := make(chan struct{})
	entered := make(chan struct{})
	wg.Go(func() {
		n, err := reads.Read(1<<20, func() (int, error) { close(entered); <-held; return 7, errors.ErrUnsupported })
		if n != 7 || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a read: %d, %v", n, err)
		}
	})
	<-entered
	e.Start(ios)
	if len(h.begun) != 4 { // 1 MiB beside the read's
		t.Errorf("%d operations begin beside a read of 1 MiB, want 4", len(h.begun))
	}
	h.end() // and is begun again, behind those that wait
	if len(h.begun) != 4 || slices.Contains(h.begun, ios[0]) {
		t.Errorf("%d operations after one has ended, want 4 others", len(h.begun))
	}
	close(held)
	wg.Wait()
	if len(h.begun) != 40 { // alone: all that wait
		t.Errorf("%d operations once the read has ended, want 40", len(h.begun))
	}
	for len(h.begun) > 0 {
		h.end()
	}
	if use := s.Use(); ended != 41 || s.flying != 0 || use[1].Turns != 41 || use[1].Waits != 37 || use[0].Turns != 1 {
		t.Errorf("%d have ended, %d bytes under way, accounts %+v", ended, s.flying, use)
	}
	if (*Share)(nil).Engine(h) != Engine(h) {
		t.Error("no share changes an engine")
	}
}

// TestSameDisk: a folder and a file in it that is not there yet lie on one disk; the system's own tables do not.
func TestSameDisk(t *testing.T) {
	dir := t.TempDir()
	if !SameDisk(dir, dir+"/none/yet") {
		t.Error("a folder and what will lie in it are told apart")
	}
	if runtime.GOOS == "linux" && SameDisk(dir, "/proc/self") {
		t.Error("a folder lies where /proc does")
	}
}
