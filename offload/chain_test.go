package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"terrace/csdshim"
	"terrace/internal/clock"
	"terrace/internal/vfs"
)

// chained is a chain of a level of so many records above one without a limit, and both.
func chained(t *testing.T, records int) (c *Chain, above, below *Memory) {
	t.Helper()
	memory := func(name string, records int) *Memory {
		m, err := NewMemory(name, csdShape(), int64(records*csdShape().RecordBytes(0)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	above, below = memory("above", records), memory("below", 0)
	s, err := NewChain(above, below, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*Chain), above, below
}

func groupKey(group int) Key { return Key{1, 0, int32(group)} }

// writeGroups writes groups 0 to n-1.
func writeGroups(t *testing.T, s Store, n int) {
	t.Helper()
	for g := range n {
		if err := s.Write(t.Context(), []Record{versioned(s, groupKey(g), 1)}); err != nil {
			t.Fatal(err)
		}
	}
}

// readGroups reads groups, each for itself.
func readGroups(t *testing.T, s Store, groups ...int) {
	t.Helper()
	for _, g := range groups {
		got := blank(s, groupKey(g), Part{})
		if err := s.Read(t.Context(), []Record{got}); err != nil || !bytes.Equal(got.Data, versioned(s, groupKey(g), 1).Data) {
			t.Fatalf("group %d: %v, or other bytes", g, err)
		}
	}
}

// TestChainIsInclusive: the level below has all records, the one above as many as have room.
func TestChainIsInclusive(t *testing.T) {
	c, above, below := chained(t, 4)
	writeGroups(t, c, 10)
	if a, b := len(above.recs), len(below.recs); a != 4 || b != 10 {
		t.Errorf("%d records above, %d below, want 4 and 10", a, b)
	}
	if names := []string{c.Name(), Levels(c)[0].Name(), Levels(c)[1].Name()}; fmt.Sprint(names) != "[above+below above below]" || len(Levels(above)) != 1 {
		t.Errorf("levels %v", names)
	}
	if st := c.Stats(); st.UsedBytes != below.Stats().UsedBytes || st.WrittenBytes != int64(14*csdShape().RecordBytes(0)) || st.HostBytes < 10*chainUnitBytes {
		t.Errorf("accounts %+v", st)
	}
	if err := c.Drop(1); err != nil {
		t.Fatal(err)
	}
	if st := c.Stats(); len(above.recs)+len(below.recs) != 0 || st.HostBytes != 0 || len(c.held)+len(c.units) != 0 {
		t.Errorf("%d and %d records, %d units after all was dropped", len(above.recs), len(below.recs), len(c.units))
	}
	writeGroups(t, c, 4)
	if len(above.recs) != 4 {
		t.Errorf("%d records above in the room of those that were dropped", len(above.recs))
	}
}

// TestChainOfStreams: what is read in turn moves nothing, and the part above is read there.
func TestChainOfStreams(t *testing.T) {
	c, _, _ := chained(t, 4)
	writeGroups(t, c, 10)
	for range 30 {
		readGroups(t, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	}
	if want := (ChainUse{Above: 120, Below: 180}); c.Use() != want {
		t.Errorf("%+v, want %+v", c.Use(), want)
	}
}

// TestChainFollowsReads: what is read more often than what lies above takes its place, and gives way when another text's is.
func TestChainFollowsReads(t *testing.T) {
	c, above, _ := chained(t, 4)
	writeGroups(t, c, 10)
	for range 10 {
		readGroups(t, c, 7, 8)
	}
	for _, g := range []int{7, 8} {
		if above.recs[groupKey(g)] == nil {
			t.Errorf("group %d, read ten times, is not above", g)
		}
	}
	if u := c.Use(); u.Raised != 2 || u.Lowered != 2 || u.Below != 4 || u.Above != 16 {
		t.Errorf("%+v, want two records raised at their second read", u)
	}
	for range 400 {
		readGroups(t, c, 4, 5, 6, 9)
	}
	for _, g := range []int{4, 5, 6, 9} {
		if above.recs[groupKey(g)] == nil {
			t.Errorf("group %d is not above", g)
		}
	}
	if err := c.Write(t.Context(), []Record{versioned(c, groupKey(20), 1)}); err != nil || above.recs[groupKey(20)] != nil {
		t.Errorf("a record that nobody has read pushed out one that is read: %v", err)
	}
}

// TestChainOfParts: parts are read on either level; a record that is read often comes up whole.
func TestChainOfParts(t *testing.T) {
	c, above, below := chained(t, 1)
	writeGroups(t, c, 2)
	for _, g := range []int{0, 1, 1, 1, 1, 1} {
		got := blank(c, groupKey(g), Part{1, 1})
		if err := c.Read(t.Context(), []Record{got}); err != nil || !bytes.Equal(got.Data, versioned(c, groupKey(g), 1).Data[len(got.Data):]) {
			t.Fatalf("head 1 of group %d: %v, or other bytes", g, err)
		}
	}
	if want := (ChainUse{Above: 2, Below: 4, Raised: 1, Lowered: 1}); c.Use() != want || !bytes.Equal(above.recs[groupKey(1)], below.recs[groupKey(1)]) {
		t.Errorf("%+v, want %+v, and the whole record above", c.Use(), want)
	}
}

// TestChainAgainstModelWithUnits: units of several records, which come and leave as a whole, with parts of them missing above.
func TestChainAgainstModelWithUnits(t *testing.T) {
	above, err := OpenSSD(csdShape(), SSDOptions{Dir: "d", FS: vfs.NewMem(1 << 26), ExtentGroups: 3, CapacityBytes: headerBytes + 5*3*int64(storageStride(csdShape()))})
	if err != nil {
		t.Fatal(err)
	}
	below, err := NewMemory("below", csdShape(), 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewChain(above, below, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, rnd, version := s.(*Chain), rand.New(rand.NewPCG(5, 6)), map[Key]int{}
	for step := range 3000 {
		k := Key{1 + rnd.Uint64N(2), rnd.Int32N(2), rnd.Int32N(6) * rnd.Int32N(6)}
		switch rnd.IntN(10) {
		case 0:
			version[k] = step + 1
			if err := s.Write(t.Context(), []Record{versioned(s, k, step+1)}); err != nil {
				t.Fatal(err)
			}
		case 1:
			if rnd.IntN(40) > 0 {
				continue
			}
			for m := range version {
				if m.Seq == k.Seq {
					delete(version, m)
				}
			}
			if err := s.Drop(k.Seq); err != nil {
				t.Fatal(err)
			}
		default:
			got := blank(s, k, Part{})
			if err := s.Read(t.Context(), []Record{got}); errors.Is(err, ErrMissing) != (version[k] == 0) {
				t.Fatalf("step %d: %v, version %d: %v", step, k, version[k], err)
			} else if err == nil && !bytes.Equal(got.Data, versioned(s, k, version[k]).Data) {
				t.Fatalf("step %d: %v has other bytes", step, k)
			}
		}
		if used := above.place.extents - len(above.free); used != len(c.held) || used > above.Units() {
			t.Fatalf("step %d: %d units are noted above, %d extents are in use there", step, len(c.held), used)
		}
	}
	if u := c.Use(); u.Lowered < 10 || u.Raised < 10 || u.Above < 100 || u.Below < 100 || u.Failed != 0 {
		t.Errorf("the test sees little: %+v", u)
	}
	n := int64(0)
	for _, u := range c.units {
		if n += u.bytes(); u.users != 0 {
			t.Errorf("unit %v has %d users when nothing is under way", u.key, u.users)
		}
	}
	if n != c.index {
		t.Errorf("units take %d bytes, %d are counted", n, c.index)
	}
}

// broken is a cache whose transfers fail.
type broken struct {
	*Memory
	reads, writes error
	begun, goOn   chan bool // of a read; nil = it does not wait
}

func (b *broken) Read(ctx context.Context, recs []Record) error {
	if b.begun != nil {
		b.begun <- true
		<-b.goOn
	}
	if b.reads != nil {
		return b.reads
	}
	return b.Memory.Read(ctx, recs)
}

func (b *broken) Write(ctx context.Context, recs []Record) error {
	if b.writes != nil {
		return b.writes
	}
	return b.Memory.Write(ctx, recs)
}

// TestChainKeepsWhatIsRead: a unit does not give way while it is read.
func TestChainKeepsWhatIsRead(t *testing.T) {
	c, above, _ := chained(t, 1)
	b := &broken{Memory: above}
	c.above, c.up = b, NewQueue(b, QueueOptions{})
	writeGroups(t, c, 2)
	b.begun, b.goOn = make(chan bool), make(chan bool)
	read := make(chan error)
	go func() { read <- c.Read(context.Background(), []Record{blank(c, groupKey(0), Part{})}) }()
	<-b.begun
	for range 10 {
		readGroups(t, c, 1)
	}
	if above.recs[groupKey(0)] == nil || c.Use().Lowered != 0 {
		t.Error("a record left while it was read")
	}
	b.goOn <- true
	if err := <-read; err != nil {
		t.Error(err)
	}
	if readGroups(t, c, 1); above.recs[groupKey(1)] == nil {
		t.Error("a record read eleven times is not above")
	}
}

// TestChainPassesBy: a level above that fails, in reads or in writes, is passed by, and what it lost is not looked for there again.
func TestChainPassesBy(t *testing.T) {
	above, err := NewMemory("above", csdShape(), int64(20*csdShape().RecordBytes(0)))
	if err != nil {
		t.Fatal(err)
	}
	below, err := NewMemory("below", csdShape(), 0)
	if err != nil {
		t.Fatal(err)
	}
	b := &broken{Memory: above}
	s, err := NewChain(b, below, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.(*Chain)
	writeGroups(t, s, 10)
	b.reads = fmt.Errorf("a page: %w", ErrCorrupt)
	readGroups(t, s, 0, 1, 2, 3)
	if u := c.Use(); u.Failed != 4 || u.Above != 4 {
		t.Errorf("%+v after four reads that failed above", u)
	}
	b.reads = nil
	readGroups(t, s, 0, 1, 2, 3)
	if u := c.Use(); u.Failed != 4 || u.Below != 4 {
		t.Errorf("%+v: what could not be read above was looked for there again", u)
	}
	b.writes = fmt.Errorf("a disk: %w", ErrTier)
	if err := s.Write(t.Context(), []Record{versioned(s, groupKey(9), 2), versioned(s, groupKey(10), 1)}); err != nil {
		t.Errorf("written where the level above fails: %v", err)
	}
	got := blank(s, groupKey(9), Part{})
	if err := s.Read(t.Context(), []Record{got}); err != nil || !bytes.Equal(got.Data, versioned(s, groupKey(9), 2).Data) {
		t.Errorf("a record whose new bytes did not reach the level above: %v, or its old bytes", err)
	}
}

// TestChainGathers: each single token comes from the highest level that has it, and what is read often comes up.
func TestChainGathers(t *testing.T) {
	shape := csdShape()
	shape.Page.TokenMajor = true
	ssd := func(dir string, records int) *SSD {
		s, err := OpenSSD(shape, SSDOptions{Dir: dir, FS: vfs.NewMem(1 << 26), ExtentGroups: 1, TokenRows: true, CapacityBytes: headerBytes + int64(records*storageStride(shape))})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, err := NewChain(ssd("a", 4), ssd("b", 20), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.(*Chain)
	writeGroups(t, s, 6)
	q := NewQueue(s, QueueOptions{})
	defer q.Close()
	if !q.Gathers() {
		t.Fatal("no single tokens")
	}
	for i, x := range []struct {
		tokens []int32
		levels [2]bool // that are read
	}{{[]int32{3, 5, 40}, [2]bool{true, false}}, {[]int32{3, 5, 70, 71, 90}, [2]bool{true, true}}, {[]int32{80, 90}, [2]bool{false, true}},
		{[]int32{0, 7, 81, 90}, [2]bool{true, false}}} {
		read := func() [2]int64 {
			return [2]int64{c.above.Stats().ReadBytes, c.below.Stats().ReadBytes}
		}
		before, dst, want := read(), make([]byte, shape.RecordBytes(0)), make([]byte, shape.RecordBytes(0))
		if err := q.Gather(Demand, 1, 0, x.tokens, dst).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := read()
		if moved := [2]bool{after[0] > before[0], after[1] > before[1]}; moved != x.levels {
			t.Errorf("case %d: bytes were read above and below: %v", i, moved)
		}
		if err := NewQueue(c.below, QueueOptions{}).Gather(Demand, 1, 0, x.tokens, want).Wait(t.Context()); err != nil || !bytes.Equal(dst, want) {
			t.Errorf("case %d: %v, or other bytes", i, err)
		}
	}
	for _, layer := range []int{-1, 2, 0} { // the last into too few bytes
		if err := q.Gather(Demand, 1, layer, []int32{1}, make([]byte, 7)).Wait(t.Context()); !errors.Is(err, ErrShape) {
			t.Errorf("a token of layer %d into 7 bytes: %v", layer, err)
		}
	}
	if want := (ChainUse{Above: 2 + 1 + 2, Below: 2 + 1, Raised: 2, Lowered: 2}); c.Use() != want {
		t.Errorf("%+v, want %+v", c.Use(), want)
	}
}

// TestChainScores: a chain above a drive scores as the drive does, which holds all keys.
func TestChainScores(t *testing.T) {
	d := newFakeDrive(csdshim.Identity{CanScore: true})
	below, err := OpenCSD(t.Context(), "s", csdShape(), CSDOptions{Codes: csdshim.CodesInt8, Clock: clock.NewJumping(), Dial: d.dial})
	if err != nil {
		t.Fatal(err)
	}
	above, err := NewMemory("above", csdShape(), int64(2*csdShape().RecordBytes(0)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewChain(above, below, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	drive, ok := s.(ManyScorer)
	if !ok || drive.Scores() != below.Scores() {
		t.Fatal("a chain above a drive does not score")
	}
	if _, plain := Store(&Chain{}).(Scorer); plain {
		t.Error("a chain without a drive says that it scores")
	}
	other := csdShape()
	other.GroupTokens *= 2
	wide, err := NewMemory("wide", other, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewChain(above, wide, nil); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "two shapes") {
		t.Errorf("levels of two shapes: %v", err)
	}
}

// TestForget: the room of a unit is free at once, its records are missing, all others stay, and what is not there is no error.
func TestForget(t *testing.T) {
	for _, name := range []string{"memory", "ssd", "ssd rows"} {
		t.Run(name, func(t *testing.T) {
			s := storeKinds(t)[name](t, 4).(Cache)
			if s.Units() != 4 || s.UnitGroups(0) != 1 {
				t.Fatalf("%d units of %d groups, want 4 of 1", s.Units(), s.UnitGroups(0))
			}
			writeGroups(t, s, 4)
			used := s.Stats().UsedBytes
			if err := errors.Join(s.Forget(groupKey(2)), s.Forget(groupKey(2)), s.Forget(groupKey(9)), s.Forget(Key{7, 1, 0})); err != nil {
				t.Fatal(err)
			}
			if got := s.Stats().UsedBytes; got != used*3/4 {
				t.Errorf("%d bytes in use of %d once one of four records is forgotten", got, used)
			}
			if err := s.Read(t.Context(), []Record{blank(s, groupKey(2), Part{})}); !errors.Is(err, ErrMissing) {
				t.Errorf("what was forgotten: %v", err)
			}
			readGroups(t, s, 0, 1, 3)
			if err := s.Write(t.Context(), []Record{versioned(s, groupKey(5), 1)}); err != nil {
				t.Errorf("in the room that is free: %v", err)
			}
			readGroups(t, s, 0, 1, 3, 5)
			if err := s.Write(t.Context(), []Record{versioned(s, groupKey(6), 1)}); !errors.Is(err, ErrFull) {
				t.Errorf("a fifth record: %v", err)
			}
			if err := errors.Join(s.Drop(1), s.Close()); err != nil {
				t.Error(err)
			}
			if err := s.Forget(groupKey(0)); !errors.Is(err, ErrClosed) {
				t.Errorf("forgotten after it was closed: %v", err)
			}
		})
	}
}

// TestChainTogether: texts that are written, read and dropped at the same time have their own bytes, whatever gives way above.
func TestChainTogether(t *testing.T) {
	c, above, below := chained(t, 12)
	q := NewQueue(c, QueueOptions{Depth: 6})
	defer q.Close()
	var wg sync.WaitGroup
	for seq := range uint64(6) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seq, 1))
			for round := range 3 {
				for g := range int32(8) {
					if err := q.Write(WriteBack, []Record{versioned(c, Key{seq, 0, g}, round)}).Wait(t.Context()); err != nil {
						t.Error(err)
					}
				}
				for range 60 {
					k := Key{seq, 0, rnd.Int32N(3) * rnd.Int32N(4)}
					got := blank(c, k, Part{})
					if err := q.Read(Prefetch, []Record{got}).Wait(t.Context()); err != nil || !bytes.Equal(got.Data, versioned(c, k, round).Data) {
						t.Errorf("%v, round %d: %v, or other bytes", k, round, err)
					}
				}
				if err := q.Drop(seq); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(above.recs) + len(below.recs) + len(c.units) + len(c.held); n != 0 || c.index != 0 {
		t.Errorf("%d records and units, %d bytes of index once all was dropped", n, c.index)
	}
	if u := c.Use(); u.Above == 0 || u.Below == 0 || u.Failed != 0 {
		t.Errorf("the test sees little: %+v", u)
	}
}
