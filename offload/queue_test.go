package offload

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// testShape is 4 layers of 3 heads of 4 KiB: SmolLM2's record of 12 KiB.
func testShape() Shape {
	return Shape{Layers: cacheshape.Equal(4, 3, cacheshape.KV{Heads: 3, KeyDim: 64, ValueDim: 64}), Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16, TokenMajor: true}, GroupTokens: 16}
}

// fill gives a record's bytes a content that depends on its key and a version.
func fill(r Record, version uint64) Record {
	rnd := rand.New(rand.NewPCG(r.Key.Seq<<32|uint64(r.Key.Layer)<<24|uint64(r.Key.Group), version))
	for i := 0; i+8 <= len(r.Data); i += 256 {
		binary.LittleEndian.PutUint64(r.Data[i:], rnd.Uint64())
	}
	for i, b := range rnd.Perm(8) { // whole words between, the same for all
		binary.LittleEndian.PutUint64(r.Data[8+8*i:], uint64(b))
	}
	return r
}

// record returns a record with memory of its own.
func record(s Shape, seq uint64, layer, group int32) Record {
	return Record{Key: Key{seq, layer, group}, Data: make([]byte, s.RecordBytes(int(layer)))}
}

func TestQueueMovesEverything(t *testing.T) {
	shape, ctx := testShape(), context.Background()
	m, err := NewMemory("host", shape, 0)
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(m, QueueOptions{})
	defer q.Close()
	var recs []Record
	for layer := range int32(4) {
		for group := range int32(50) {
			recs = append(recs, fill(record(shape, 7, layer, group), 0))
		}
	}
	if err := q.Write(WriteBack, recs).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	back := make([]Record, len(recs))
	for i := range recs {
		back[i] = record(shape, 7, recs[i].Key.Layer, recs[i].Key.Group)
	}
	if err := q.Read(Prefetch, back).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		if !bytes.Equal(recs[i].Data, back[i].Data) {
			t.Fatalf("%v reads back as something else", recs[i].Key)
		}
	}
	s := q.Stats()
	if want := int64(len(recs) * shape.RecordBytes(0)); s.Bytes != [2]int64{want, want} || s.MaxDepth < 1 || s.MaxDepth > 32 {
		t.Errorf("stats %+v", s)
	}
	if err := q.Read(Demand, []Record{record(shape, 8, 0, 0)}).Wait(ctx); !errors.Is(err, ErrMissing) {
		t.Errorf("a record that is not there: %v", err)
	}
}

// gate is a store whose reads wait until they are let through, one at a time, and which notes their order.
type gate struct {
	*Memory
	begun chan Key
	pass  chan struct{}
	fail  error // of reads, where not nil
}

func (g *gate) Read(ctx context.Context, recs []Record) error {
	g.begun <- recs[0].Key
	<-g.pass
	if g.fail != nil {
		return g.fail
	}
	return g.Memory.Read(ctx, recs)
}

func newGate(t *testing.T) (*gate, *Queue) {
	m, err := NewMemory("gate", testShape(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for group := range int32(8) {
		if err := m.Write(context.Background(), []Record{fill(record(testShape(), 1, 0, group), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	g := &gate{Memory: m, begun: make(chan Key), pass: make(chan struct{})}
	return g, NewQueue(g, QueueOptions{Depth: 1})
}

func TestPrioritiesOrderWhatWaits(t *testing.T) {
	g, q := newGate(t)
	one := func(group int32) []Record { return []Record{record(testShape(), 1, 0, group)} }
	first := q.Read(Prefetch, one(0))
	if k := <-g.begun; k.Group != 0 {
		t.Fatalf("first %v", k)
	}
	tickets := []*Ticket{q.Read(WriteBack, one(1)), q.Read(Prefetch, one(2)), q.Read(Demand, one(3)), q.Read(WriteBack, one(4)), q.Read(Prefetch, one(5))}
	tickets[3].urge() // somebody waits for group 4
	for _, want := range []int32{3, 4, 2, 5, 1} {
		g.pass <- struct{}{}
		if k := <-g.begun; k.Group != want {
			t.Fatalf("group %d begins, want %d", k.Group, want)
		}
	}
	g.pass <- struct{}{}
	for _, tk := range append(tickets, first) {
		if err := tk.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCancelAndDeadline: what waits is forgotten when it is cancelled, what hangs costs its deadline; time is the test's.
func TestCancelAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, q := newGate(t)
		one := func(group int32) []Record { return []Record{record(testShape(), 1, 0, group)} }
		running, waiting := q.Read(Demand, one(0)), q.Read(Demand, one(1))
		<-g.begun
		waiting.Cancel()
		if err := waiting.Wait(t.Context()); !errors.Is(err, ErrCancelled) {
			t.Errorf("cancelled: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if err := running.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || running.Ready() || time.Since(start) != time.Minute {
			t.Errorf("a read that hangs: %v after %v, done %v", err, time.Since(start), running.Ready())
		}
		g.pass <- struct{}{}
		<-running.Done()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := q.Read(Demand, one(0)).Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestQueueRefuses(t *testing.T) {
	g, _ := newGate(t)
	q := NewQueue(g, QueueOptions{Depth: 1, MaxWaiting: 2})
	one := func(group int32) []Record { return []Record{record(testShape(), 1, 0, group)} }
	first := q.Read(Demand, one(0))
	<-g.begun
	a, b := q.Read(Demand, one(1)), q.Read(Demand, one(2))
	if err := q.Read(Demand, one(3)).Wait(context.Background()); !errors.Is(err, ErrBusy) {
		t.Errorf("a third record waits: %v", err)
	}
	if err := q.Read(Demand, []Record{{Key: Key{1, 9, 0}}}).Wait(context.Background()); !errors.Is(err, ErrShape) {
		t.Errorf("layer 9 of 4: %v", err)
	}
	closed := make(chan struct{})
	go func() {
		for {
			select {
			case <-g.begun: // one may begin before Close
			case g.pass <- struct{}{}:
			case <-closed:
				return
			}
		}
	}()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	close(closed)
	for _, tk := range []*Ticket{first, a, b} {
		if err := tk.Wait(context.Background()); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
