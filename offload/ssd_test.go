package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// ssdKinds are the ways of doing I/O and of laying records out that one body of tests runs on.
func ssdKinds(t *testing.T) map[string]SSDOptions {
	const capBytes = 24 << 20
	return map[string]SSDOptions{
		"ring":      {Dir: t.TempDir(), CapacityBytes: capBytes},
		"threads":   {Dir: t.TempDir(), CapacityBytes: capBytes, NoRing: true, Depth: 4},
		"buffered":  {Dir: t.TempDir(), CapacityBytes: capBytes, NoDirect: true},
		"no gaps":   {Dir: t.TempDir(), CapacityBytes: capBytes, ExtentGroups: 3, MergeGapBytes: -1},
		"in memory": {Dir: "/d", FS: vfs.NewMem(2 * capBytes), CapacityBytes: capBytes},
		"shared":    {Dir: t.TempDir(), CapacityBytes: capBytes, Share: new(vfs.Shares).New("kv", 1)},
		"small I/O": {Dir: t.TempDir(), CapacityBytes: capBytes, MaxIOBytes: 16 << 10, MergeGapBytes: 1 << 20},
	}
}

// oddShape has records that no device likes: 1 head of 2208 bytes with int8, of which 2 make a record of 4416.
func oddShape() Shape {
	return Shape{Layers: cacheshape.Equal(4, 2, cacheshape.KV{Heads: 2, KeyDim: 64, ValueDim: 64}), Page: kvpage.Layout{K: kvpage.I8, V: kvpage.I8, KeyDim: 64, ValueDim: 64, Tokens: 16}, GroupTokens: 16}
}

// mixedShape has layers of other heads and widths, one that keeps nothing, and one whose values are its keys.
func mixedShape() Shape {
	s := testShape()
	s.Layers[1] = cacheshape.Layer{}
	s.Layers[2] = cacheshape.Layer{Heads: 4, KV: cacheshape.KV{Heads: 4, KeyDim: 32, ValueDim: 48}, Owner: 2}
	s.Layers[3] = cacheshape.Layer{Heads: 4, KV: cacheshape.KV{Heads: 1, KeyDim: 40, ValueDim: 40, ValueInKey: true}, Owner: 3}
	return s
}

func openSSD(t *testing.T, shape Shape, o SSDOptions) *SSD {
	t.Helper()
	s, err := OpenSSD(shape, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSSD(t, s) })
	return s
}

// TestSharedDisk: a store has a user's place on a disk as long as it is open, and none where it could not be opened.
func TestSharedDisk(t *testing.T) {
	disk := &vfs.Shares{}
	other := disk.New("weights", 1)
	o := SSDOptions{Dir: t.TempDir(), CapacityBytes: 4 << 20, Share: disk.New("kv", 1)}
	s, err := OpenSSD(testShape(), o)
	if err != nil {
		t.Fatal(err)
	}
	seq := uint64(7)
	rec := Record{Key: Key{Seq: seq}, Data: make([]byte, s.Shape().RecordBytes(0))}
	if err := s.Write(t.Context(), []Record{rec}); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(t.Context(), []Record{rec}); err != nil {
		t.Fatal(err)
	}
	use := disk.Use()
	if len(use) != 2 || use[1].Name != "kv" || use[1].Turns != 2 || use[1].Bytes < 2*int64(len(rec.Data)) || use[1].Waits != 0 {
		t.Errorf("users of the disk %+v, want two turns of kv", use)
	}
	if !other.Ask(1, nil) {
		t.Error("a disk on which nothing is under way lets its other user wait")
	}
	other.Done(1)
	closeSSD(t, s)
	if use := disk.Use(); len(use) != 1 {
		t.Errorf("users of the disk behind Close: %+v", use)
	}
	o.Share, o.CapacityBytes = disk.New("kv", 1), 1
	if _, err := OpenSSD(testShape(), o); err == nil || len(disk.Use()) != 1 {
		t.Errorf("a store that does not open: %v, users %+v", err, disk.Use())
	}
}

// closeSSD closes a store and checks that nothing is left of it.
func closeSSD(t *testing.T, s *SSD) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.folder.FS.OpenFile(filepath.Join(s.opt.Dir, fileName), vfs.OpenOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close the file is there: %v", err)
	}
	if err := s.Read(context.Background(), nil); err != nil && !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// checkSSD checks the books of a store that rests: extents are free or one sequence's, used bytes are those of the records.
func checkSSD(t *testing.T, s *SSD) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := map[int32]string{}
	for _, e := range s.free {
		seen[e] = "free"
	}
	if len(seen) != len(s.free) {
		t.Errorf("%d of %d free extents are others", len(seen), len(s.free))
	}
	used := int64(0)
	for id, q := range s.seqs {
		placed := int64(0)
		for layer, l := range q.layers {
			for _, st := range l.state {
				if st&1 == 1 {
					placed += int64(s.place.layers[layer].strideBytes)
				} else if st != 0 {
					t.Errorf("sequence %d: a record in state %d", id, st)
				}
			}
		}
		if placed != q.placed || q.pins != 0 {
			t.Errorf("sequence %d: %d bytes there, %d counted, %d pins", id, placed, q.placed, q.pins)
		}
		used += placed
		for layer := range q.extents {
			for _, e := range q.extents[layer] {
				if owner, twice := seen[e]; twice && e >= 0 {
					t.Errorf("extent %d is of sequence %d and %s", e, id, owner)
				}
				if e >= 0 {
					seen[e] = fmt.Sprint("of sequence ", id)
				}
			}
		}
	}
	if len(seen) != s.place.extents {
		t.Errorf("%d of %d extents found", len(seen), s.place.extents)
	}
	if s.stats.UsedBytes != used || s.pins != 0 || s.stats.PeakBytes > s.stats.CapacityBytes {
		t.Errorf("used %d, want %d; peak %d of %d; %d pins", s.stats.UsedBytes, used, s.stats.PeakBytes, s.stats.CapacityBytes, s.pins)
	}
}

// TestSSDAgainstModel does random writes, reads of all kinds and drops on a store and on a map.
func TestSSDAgainstModel(t *testing.T) {
	for name, o := range ssdKinds(t) {
		for shapeName, shape := range map[string]Shape{"12 KiB": testShape(), "odd": oddShape(), "mixed": mixedShape()} {
			t.Run(name+"/"+shapeName, func(t *testing.T) {
				s, err := OpenSSD(shape, o)
				if err != nil {
					t.Fatal(err)
				}
				defer closeSSD(t, s)
				if s.stats.Notice != "" {
					t.Log(s.stats.Notice)
				}
				m := &model{t: t, s: s, rnd: rand.New(rand.NewPCG(3, 9)), want: map[Key]uint64{}}
				for range 40 {
					m.step()
				}
				checkSSD(t, s)
			})
		}
	}
}

// model is what a store should hold: a version of each record's content.
type model struct {
	t       *testing.T
	s       Store
	rnd     *rand.Rand
	want    map[Key]uint64
	version uint64
}

func (m *model) step() {
	switch seq := m.rnd.Uint64N(3); m.rnd.IntN(8) {
	case 0, 1, 2:
		m.write(seq)
	case 3:
		if err := m.s.Drop(seq); err != nil {
			m.t.Fatal(err)
		}
		for k := range m.want {
			if k.Seq == seq {
				delete(m.want, k)
			}
		}
	default:
		m.read()
	}
}

// write stores a range of groups of one or all layers.
func (m *model) write(seq uint64) {
	m.version++
	shape := m.s.Shape()
	first, n := m.rnd.Int32N(30), 1+m.rnd.Int32N(20)
	layers := []int32{0, 1, 2, 3}
	layers = slices.DeleteFunc(layers, func(layer int32) bool { return !shape.Layers.Keeps(int(layer)) })
	if m.rnd.IntN(2) == 0 {
		layers = layers[:1]
	}
	var recs []Record
	for _, layer := range layers {
		for g := range n {
			recs = append(recs, fill(aligned(shape, m.rnd, seq, layer, first+g), m.version))
			m.want[recs[len(recs)-1].Key] = m.version
		}
	}
	if err := m.s.Write(context.Background(), recs); err != nil {
		m.t.Fatal(err)
	}
	free(recs)
}

// read compares some records, whole or in part, and asks for one that is not there.
func (m *model) read() {
	shape := m.s.Shape()
	var recs []Record
	for k := range m.want {
		if m.rnd.IntN(3) == 0 {
			r := aligned(shape, m.rnd, k.Seq, k.Layer, k.Group)
			if m.rnd.IntN(2) == 0 {
				r.Part = Part{m.rnd.Int32N(int32(shape.KVHeads(int(k.Layer)))), 1}
				r.Data = r.Data[:shape.HeadBytes(int(k.Layer))]
			}
			recs = append(recs, r)
		}
	}
	if err := m.s.Read(context.Background(), recs); err != nil {
		m.t.Fatal(err)
	}
	for _, r := range recs {
		want := fill(record(shape, r.Key.Seq, r.Key.Layer, r.Key.Group), m.want[r.Key]).Data
		from, size := shape.span(int(r.Key.Layer), r.Part)
		if !bytes.Equal(r.Data, want[from:from+size]) {
			m.t.Fatalf("%v %v reads back as something else", r.Key, r.Part)
		}
	}
	free(recs)
	if err := m.s.Read(context.Background(), []Record{record(shape, 9, 0, 0)}); !errors.Is(err, ErrMissing) {
		m.t.Fatalf("a record that is not there: %v", err)
	}
}

// aligned returns a record with memory of its own: aligned, or, now and then, not.
func aligned(s Shape, rnd *rand.Rand, seq uint64, layer, group int32) Record {
	r := Record{Key: Key{seq, layer, group}, Data: AlignedBytes(s.RecordBytes(int(layer)))}
	if rnd.IntN(4) == 0 {
		FreeAligned(r.Data)
		r.Data = make([]byte, s.RecordBytes(int(layer))+1)[1:]
	}
	return r
}

func free(recs []Record) {
	for _, r := range recs {
		if vfs.Aligned(r.Data, 4096) && cap(r.Data)%4096 == 0 && cap(r.Data) > 0 {
			FreeAligned(r.Data)
		}
	}
}

func TestSSDMergesNeighbours(t *testing.T) {
	shape, ctx := testShape(), context.Background()
	s := openSSD(t, shape, SSDOptions{Dir: t.TempDir(), CapacityBytes: 32 << 20, MaxIOBytes: 120 << 10})
	var recs []Record
	for g := range int32(40) {
		recs = append(recs, fill(record(shape, 1, 2, g), 0))
	}
	if err := s.Write(ctx, recs); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Writes != 4 || st.WrittenBytes != 40*12<<10 {
		t.Errorf("40 neighbours of 12 KiB in operations of 120: %d writes of %d bytes", st.Writes, st.WrittenBytes)
	}
	read := func(groups ...int32) (ops, device int64) {
		before := s.Stats()
		var recs []Record
		for _, g := range groups {
			recs = append(recs, record(shape, 1, 2, g))
		}
		if err := s.Read(ctx, recs); err != nil {
			t.Fatal(err)
		}
		after := s.Stats()
		return after.Reads - before.Reads, after.DeviceReadBytes - before.DeviceReadBytes
	}
	if ops, device := read(9, 3, 5, 4); ops != 2 || device != 4*12<<10 { // 3 4 5 | 9
		t.Errorf("scattered: %d reads of %d bytes", ops, device)
	}
	before := s.Stats()
	parts := []Record{{Key{1, 2, 7}, Part{2, 1}, make([]byte, 4096)}, {Key{1, 2, 8}, Part{1, 1}, make([]byte, 4096)}} // 4 KiB lie between
	if err := s.Read(ctx, parts); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Reads-before.Reads != 1 || st.DeviceReadBytes-before.DeviceReadBytes != 12<<10 || !bytes.Equal(parts[1].Data, recs[8].Data[4096:8192]) {
		t.Errorf("a gap of 4 KiB: %d reads of %d bytes", st.Reads-before.Reads, st.DeviceReadBytes-before.DeviceReadBytes)
	}
}

func TestSSDIsFull(t *testing.T) {
	shape, ctx := testShape(), context.Background()
	s := openSSD(t, shape, SSDOptions{Dir: t.TempDir(), CapacityBytes: 1 << 20, ExtentGroups: 4})
	var held int32
	for ; ; held++ {
		err := s.Write(ctx, []Record{fill(record(shape, 1, 0, held), 1)})
		if errors.Is(err, ErrFull) && strings.Contains(err.Error(), "1048576") {
			break
		}
		if err != nil || held > 100 {
			t.Fatal(err)
		}
	}
	if held < 60 {
		t.Errorf("%d records of 12 KiB in 1 MiB", held)
	}
	r := record(shape, 1, 0, held-1)
	if err := s.Read(ctx, []Record{r}); err != nil || !bytes.Equal(r.Data, fill(record(shape, 1, 0, held-1), 1).Data) {
		t.Errorf("after a refusal: %v", err)
	}
	checkSSD(t, s)
	if err := s.Drop(1); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(ctx, []Record{fill(record(shape, 2, 3, 0), 1)}); err != nil {
		t.Errorf("after a drop: %v", err)
	}
	checkSSD(t, s)
}

func TestSSDRefusesAtOpening(t *testing.T) {
	shape, dir := testShape(), t.TempDir()
	for name, c := range map[string]struct {
		o    SSDOptions
		want error
		text string
	}{
		"no directory":    {SSDOptions{CapacityBytes: 1}, ErrShape, "directory"},
		"no capacity":     {SSDOptions{Dir: dir}, ErrShape, "capacity"},
		"tiny":            {SSDOptions{Dir: dir, CapacityBytes: 8192}, ErrFull, "takes"},
		"more than there": {SSDOptions{Dir: dir, CapacityBytes: 1 << 60}, ErrFull, "room"},
		"file system caps": {SSDOptions{Dir: "d", FS: &vfs.Faulty{FS: vfs.NewMem(1 << 30), Faults: &vfs.Faults{Chance: map[vfs.OpKind]float64{vfs.OpPreallocate: 1}, Kinds: []vfs.FaultKind{vfs.ENOSPC}}},
			CapacityBytes: 1 << 20}, ErrFull, "1048576"},
	} {
		if _, err := OpenSSD(shape, c.o); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v %v", names, err)
	}
	other := filepath.Join(dir, fileName)
	if err := os.WriteFile(other, []byte("my thesis, do not delete"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSSD(shape, SSDOptions{Dir: dir, CapacityBytes: 1 << 20}); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "my thesis") {
		t.Errorf("somebody's file: %v", err)
	}
	if b, err := os.ReadFile(other); err != nil || len(b) != 24 {
		t.Errorf("somebody's file is gone: %v", err)
	}
	if _, err := OpenSSD(Shape{}, SSDOptions{Dir: dir, CapacityBytes: 1 << 20}); !errors.Is(err, ErrShape) {
		t.Errorf("no shape: %v", err)
	}
}

func TestSSDTwiceInOneDirectory(t *testing.T) {
	o := SSDOptions{Dir: t.TempDir(), CapacityBytes: 1 << 20}
	s, err := OpenSSD(testShape(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSSD(testShape(), o); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second store: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(o.Dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	shape, err := describe(b[:headerBytes])
	want := testShape()
	want.Page.KeyDim, want.Page.ValueDim = 0, 0 // the layers have them
	if err != nil || !reflect.DeepEqual(shape, want) {
		t.Errorf("the header says %+v, %v", shape, err)
	}
	b[20] ^= 1
	if _, err := describe(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a bit of the header flipped: %v", err)
	}
	closeSSD(t, s)
	if err := os.WriteFile(filepath.Join(o.Dir, fileName), b, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	again, err := OpenSSD(oddShape(), o)
	if err != nil {
		t.Fatalf("scratch of a dead process: %v", err)
	}
	closeSSD(t, again)
}
