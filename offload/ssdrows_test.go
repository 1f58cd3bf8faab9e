package offload

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/vfs"
)

// gather compares some single tokens of a layer with what was written.
func (m *model) gather(q *Queue) {
	shape, per := m.s.Shape(), int32(m.s.Shape().GroupTokens)
	groups := map[Key][]int32{} // of a sequence and layer
	for k := range m.want {
		at := Key{k.Seq, k.Layer, 0}
		groups[at] = append(groups[at], k.Group)
	}
	for at, have := range groups {
		slices.Sort(have)
		var tokens []int32
		often := 1 + m.rnd.IntN(16)
		for _, g := range have {
			for place := range per {
				if m.rnd.IntN(16) < often {
					tokens = append(tokens, g*per+place)
				}
			}
		}
		if len(tokens) == 0 {
			continue
		}
		layer := int(at.Layer)
		record1, head := shape.RecordBytes(layer), shape.HeadBytes(layer)
		dst := make([]byte, (len(tokens)+int(per)-1)/int(per)*record1)
		if err := q.Gather(Prefetch, at.Seq, int(at.Layer), tokens, dst).Wait(context.Background()); err != nil {
			m.t.Fatal(err)
		}
		for i, token := range tokens {
			key := Key{at.Seq, at.Layer, token / per}
			want := fill(record(shape, at.Seq, at.Layer, key.Group), m.want[key]).Data
			got := dst[i/int(per)*record1:][:record1]
			for h := range shape.KVHeads(layer) {
				a, b, l := want[h*head:], got[h*head:], shape.PageOf(layer)
				if !bytes.Equal(l.KRow(a, int(token%per)), l.KRow(b, i%int(per))) || !bytes.Equal(l.VRow(a, int(token%per)), l.VRow(b, i%int(per))) {
					m.t.Fatalf("%v token %d head %d reads back as something else", key, token%per, h)
				}
			}
		}
	}
	if err := q.Gather(Demand, 9, 0, []int32{0}, make([]byte, shape.RecordBytes(0))).Wait(context.Background()); !errors.Is(err, ErrMissing) {
		m.t.Fatalf("a token that is not there: %v", err)
	}
}

// TestSSDRows does random writes, whole and partial reads, drops and reads of single tokens on records that lie token by token.
func TestSSDRows(t *testing.T) {
	wide, odd := testShape(), testShape()
	wide.Layers = cacheshape.Equal(4, 5, cacheshape.KV{Heads: 5, KeyDim: 192, ValueDim: 320}) // rows of 5 KiB, records of 80
	odd.Layers = cacheshape.Equal(4, 1, cacheshape.KV{Heads: 1, KeyDim: 20, ValueDim: 12})    // rows of 64 bytes, records of 1 KiB
	for name, o := range ssdKinds(t) {
		o.TokenRows = true
		for shapeName, shape := range map[string]Shape{"12 KiB": testShape(), "80 KiB": wide, "1 KiB": odd, "mixed": mixedShape()} {
			t.Run(name+"/"+shapeName, func(t *testing.T) {
				if shapeName == "80 KiB" {
					o.CapacityBytes *= 2
				}
				s, err := OpenSSD(shape, o)
				if err != nil {
					t.Fatal(err)
				}
				defer closeSSD(t, s)
				q := NewQueue(s, QueueOptions{})
				defer q.Close()
				m := &model{t: t, s: s, rnd: rand.New(rand.NewPCG(4, 9)), want: map[Key]uint64{}}
				for range 12 {
					m.step()
					m.gather(q)
				}
				checkSSD(t, s)
			})
		}
	}
}

// TestSSDRowsRead: a token costs the device its own sectors, neighbours one operation, and a broken row is found.
func TestSSDRowsRead(t *testing.T) {
	shape, ctx := testShape(), context.Background()
	s := openSSD(t, shape, SSDOptions{Dir: "/d", FS: vfs.NewMem(64 << 20), CapacityBytes: 32 << 20, TokenRows: true})
	var recs []Record
	for g := range int32(8) {
		recs = append(recs, fill(record(shape, 1, 2, g), 0))
	}
	if err := s.Write(ctx, recs); err != nil {
		t.Fatal(err)
	}
	read := func(tokens ...int32) (ops, asked, device int64, err error) {
		before := s.Stats()
		err = s.own.Gather(Demand, 1, 2, tokens, make([]byte, (len(tokens)+15)/16*shape.RecordBytes(0))).Wait(ctx)
		after := s.Stats()
		return after.Reads - before.Reads, after.ReadBytes - before.ReadBytes, after.DeviceReadBytes - before.DeviceReadBytes, err
	}
	for _, c := range []struct {
		tokens             []int32
		ops, asked, device int64
	}{
		{[]int32{3}, 1, 768, 1024},
		{[]int32{3, 4, 5}, 1, 3 * 768, 2560},
		{[]int32{0, 15}, 1, 2 * 768, 12 << 10},
		{[]int32{0, 43, 88}, 2, 3 * 768, 33792 + 1024}, // 31.5 and 33 KiB between
		{[]int32{15, 16}, 1, 2 * 768, 2048},
		{[]int32{2, 50, 127}, 3, 3 * 768, 3 * 1024},
	} {
		ops, asked, device, err := read(c.tokens...)
		if err != nil || ops != c.ops || asked != c.asked || device != c.device {
			t.Errorf("tokens %v: %d reads, %d bytes asked for, %d read, %v; want %+v", c.tokens, ops, asked, device, err, c)
		}
	}
	q := s.seqs[1]
	q.layers[2].sums[2*16+5]++
	if _, _, _, err := read(2*16+4, 2*16+6); err != nil {
		t.Errorf("beside a broken row: %v", err)
	}
	if _, _, _, err := read(2*16 + 5); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a broken row: %v", err)
	}
	if err := s.Read(ctx, []Record{record(shape, 1, 2, 2)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record with a broken row: %v", err)
	}
	if _, err := OpenSSD(oddShape(), SSDOptions{Dir: "/e", FS: vfs.NewMem(8 << 20), CapacityBytes: 4 << 20, TokenRows: true}); !errors.Is(err, ErrShape) {
		t.Errorf("rows of quantised pages: %v", err)
	}
}

// TestGatherPlanIsCheapest: by a device that reads GapBytes in the time of an operation, single tokens are read in the division into
// operations that takes the least time of all that there are; each token comes in one of them. Every subset of ten tokens is tried.
func TestGatherPlanIsCheapest(t *testing.T) {
	shape := testShape()
	places := []int32{0, 1, 3, 9, 10, 16, 31, 48, 50, 79} // of rows of 768 bytes: all within one operation of 64 KiB
	for _, gap := range []int{512, 4 << 10, 13000, 40 << 10} {
		s := openSSD(t, shape, SSDOptions{Dir: "/d", FS: vfs.NewMem(64 << 20), CapacityBytes: 32 << 20, TokenRows: true, GapBytes: gap})
		var recs []Record
		for g := range int32(5) {
			recs = append(recs, fill(record(shape, 1, 2, g), 0))
		}
		if err := s.Write(t.Context(), recs); err != nil {
			t.Fatal(err)
		}
		sector := func(n int) int { return n / 512 * 512 }
		for set := 1; set < 1<<len(places); set++ {
			var tokens []int32
			for i, p := range places {
				if set>>i&1 != 0 {
					tokens = append(tokens, p)
				}
			}
			trs, err := s.planTokens(1, 2, tokens, make([]byte, (len(tokens)+15)/16*shape.RecordBytes(0)))
			if err != nil {
				t.Fatal(err)
			}
			cost, read := 0, 0
			for _, tr := range trs {
				cost += gap + int(tr.device)
				for i := range tr.job.segs {
					read += len(tr.job.segs[i].tokens)
				}
				s.abandon(tr)
			}
			least := 1 << 30
			for cuts := range 1 << (len(tokens) - 1) { // bit i: a new operation begins behind token i
				sum, first := 0, 0
				for i := range tokens {
					if i == len(tokens)-1 || cuts>>i&1 != 0 {
						sum += gap + sector(int(tokens[i]+1)*768+511) - sector(int(tokens[first])*768)
						first = i + 1
					}
				}
				least = min(least, sum)
			}
			if cost != least || read != len(tokens) {
				t.Fatalf("tokens %v, %d bytes an operation: %d operations cost %d, the cheapest division %d; %d tokens are read", tokens, gap, len(trs), cost, least, read)
			}
		}
	}
}
