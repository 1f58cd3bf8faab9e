package offload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// storeKinds are all stores that keep records, empty, with room for so many records of csdShape.
func storeKinds(t *testing.T) map[string]func(t *testing.T, records int) Store {
	rows := csdShape()
	rows.Page.TokenMajor = true
	ssd := func(shape Shape, o SSDOptions) func(t *testing.T, records int) Store {
		return func(t *testing.T, records int) Store {
			o.Dir, o.FS, o.ExtentGroups = "d", vfs.NewMem(1<<26), 1
			o.CapacityBytes = headerBytes + int64(records)*int64(storageStride(shape))
			s, err := OpenSSD(shape, o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	chain := func(above, below func(t *testing.T, records int) Store) func(t *testing.T, records int) Store {
		return func(t *testing.T, records int) Store {
			s, err := NewChain(above(t, max(records/8, 4)).(Cache), below(t, records), nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	kinds := map[string]func(t *testing.T, records int) Store{
		"memory": func(t *testing.T, records int) Store {
			m, err := NewMemory("host", csdShape(), int64(records*csdShape().RecordBytes(0)))
			if err != nil {
				t.Fatal(err)
			}
			return m
		},
		"ssd":      ssd(csdShape(), SSDOptions{}),
		"ssd rows": ssd(rows, SSDOptions{TokenRows: true}),
		"csd": func(t *testing.T, records int) Store {
			d := newFakeDrive(csdshim.Identity{CanScore: true})
			c, err := OpenCSD(t.Context(), "s", csdShape(), CSDOptions{Codes: csdshim.CodesInt8, Clock: clock.NewJumping(), Dial: d.dial})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
	}
	kinds["memory above ssd"] = chain(kinds["memory"], kinds["ssd"])
	kinds["ssd above csd"] = chain(kinds["ssd"], kinds["csd"])
	kinds["ssd rows above ssd rows"] = chain(kinds["ssd rows"], kinds["ssd rows"])
	kinds["memory above ssd above csd"] = chain(kinds["memory"], kinds["ssd above csd"])
	return kinds
}

func storageStride(s Shape) int { return stride(s.RecordBytes(0), 512) }

// blank is a record of a store to be read into.
func blank(s Store, k Key, p Part) Record {
	_, size := s.Shape().span(int(k.Layer), p)
	return Record{Key: k, Part: p, Data: make([]byte, size)}
}

// versioned is a record with bytes that say which and which version it is.
func versioned(s Store, k Key, version int) Record {
	r := blank(s, k, Part{})
	rnd := rand.New(rand.NewPCG(uint64(k.Group)<<32|uint64(k.Layer)<<16|k.Seq, uint64(version)))
	for i := range r.Data {
		r.Data[i] = byte(rnd.Uint32())
	}
	return r
}

// TestStoresAgainstModel: whatever is done to a store, it has what a map has.
func TestStoresAgainstModel(t *testing.T) {
	for name, open := range storeKinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 64)
			defer s.Close()
			ctx, rnd, model, version := t.Context(), rand.New(rand.NewPCG(3, 4)), map[Key]int{}, 0
			key := func() Key { return Key{1 + rnd.Uint64N(3), rnd.Int32N(2), rnd.Int32N(6)} }
			for step := range 400 {
				switch k := key(); rnd.IntN(6) {
				case 0, 1:
					version++
					batch := []Record{versioned(s, k, version)}
					if next := (Key{k.Seq, k.Layer, k.Group + 1}); next.Group < 6 {
						batch = append(batch, versioned(s, next, version))
					}
					if err := s.Write(ctx, batch); err != nil {
						t.Fatalf("step %d: %v", step, err)
					}
					for _, r := range batch {
						model[r.Key] = version
					}
				case 2:
					if rnd.IntN(4) == 0 {
						if err := s.Drop(k.Seq); err != nil {
							t.Fatalf("step %d: dropping: %v", step, err)
						}
						for m := range model {
							if m.Seq == k.Seq {
								delete(model, m)
							}
						}
					}
				default:
					part := Part{}
					if rnd.IntN(3) == 0 {
						part = Part{rnd.Int32N(2), 1}
					}
					got := blank(s, k, part)
					err := s.Read(ctx, []Record{got})
					v, there := model[k]
					if !there {
						if !errors.Is(err, ErrMissing) {
							t.Fatalf("step %d: %v: %v, want that it is missing", step, k, err)
						}
						continue
					}
					from, size := s.Shape().span(0, part)
					if err != nil || !bytes.Equal(got.Data, versioned(s, k, v).Data[from:from+size]) {
						t.Fatalf("step %d: %v: %v, or other bytes", step, k, err)
					}
				}
			}
			used := s.Stats().UsedBytes
			if least := int64(len(model) * s.Shape().RecordBytes(0)); used < least || used > 2*least {
				t.Errorf("%d bytes used of %d records of %d", used, len(model), s.Shape().RecordBytes(0))
			}
		})
	}
}

// TestStoresAccounts: peaks, what an index takes, and what is given back.
func TestStoresAccounts(t *testing.T) {
	for name, open := range storeKinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 40)
			ctx := t.Context()
			before := s.Stats()
			for g := range int32(10) {
				if err := s.Write(ctx, []Record{versioned(s, Key{1, 0, g}, 1), versioned(s, Key{1, 1, g}, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			full := s.Stats()
			if full.UsedBytes <= before.UsedBytes || full.PeakBytes != full.UsedBytes || full.CapacityBytes != 0 && full.UsedBytes > full.CapacityBytes {
				t.Errorf("%+v after 20 records", full)
			}
			s.Trim()
			if grown, most := s.Stats().HostBytes-before.HostBytes, s.IndexBytes(10); grown > most {
				t.Errorf("the index of 10 groups takes %d bytes, at most %d were told", grown, most)
			}
			if s.IndexBytes(0) != 0 {
				t.Errorf("the index of nothing takes %d bytes", s.IndexBytes(0))
			}
			if err := errors.Join(s.Drop(1), s.Drop(1), s.Drop(9)); err != nil {
				t.Error(err)
			}
			if st := s.Stats(); st.UsedBytes != 0 || st.PeakBytes != full.PeakBytes {
				t.Errorf("%+v after all was dropped", st)
			}
			if s.ResetPeak(); s.Stats().PeakBytes != 0 {
				t.Errorf("a peak of %d bytes after it was begun again", s.Stats().PeakBytes)
			}
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Error(err)
			}
			if err := s.Write(ctx, []Record{versioned(s, Key{1, 0, 0}, 1)}); !errors.Is(err, ErrClosed) {
				t.Errorf("written after it was closed: %v", err)
			}
			if err := s.Read(ctx, []Record{blank(s, Key{1, 0, 0}, Part{})}); !errors.Is(err, ErrClosed) {
				t.Errorf("read after it was closed: %v", err)
			}
			if err := s.Drop(1); !errors.Is(err, ErrClosed) {
				t.Errorf("dropped after it was closed: %v", err)
			}
		})
	}
}

// TestStoresFull: what does not fit changes nothing; room that was given back is used again.
func TestStoresFull(t *testing.T) {
	for name, open := range storeKinds(t) {
		if strings.Contains(name, "csd") { // a drive knows what it holds
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := open(t, 8)
			defer s.Close()
			ctx := t.Context()
			for g := range int32(8) {
				if err := s.Write(ctx, []Record{versioned(s, Key{uint64(g / 4), 0, g % 4}, 1)}); err != nil {
					t.Fatalf("record %d of 8: %v", g, err)
				}
			}
			more := []Record{versioned(s, Key{0, 0, 0}, 2), versioned(s, Key{2, 0, 0}, 2)}
			if err := s.Write(ctx, more); !errors.Is(err, ErrFull) {
				t.Errorf("a ninth record: %v", err)
			}
			for g := range int32(8) {
				k := Key{uint64(g / 4), 0, g % 4}
				got := blank(s, k, Part{})
				if err := s.Read(ctx, []Record{got}); err != nil || !bytes.Equal(got.Data, versioned(s, k, 1).Data) {
					t.Errorf("%v after a write that did not fit: %v, or other bytes", k, err)
				}
			}
			if err := s.Write(ctx, more[:1]); err != nil {
				t.Errorf("a record that is there, written over: %v", err)
			}
			if err := s.Drop(1); err != nil {
				t.Fatal(err)
			}
			for g := range int32(4) {
				if err := s.Write(ctx, []Record{versioned(s, Key{3, 0, g}, 1)}); err != nil {
					t.Errorf("record %d in the room of those that were dropped: %v", g, err)
				}
			}
		})
	}
}

// TestStoresRefuse: records that are not of the shape, and calls that nobody waits for any more, change nothing.
func TestStoresRefuse(t *testing.T) {
	for name, open := range storeKinds(t) {
		t.Run(name, func(t *testing.T) {
			s := open(t, 8)
			defer s.Close()
			ctx, good := t.Context(), versioned(s, Key{1, 1, 1}, 1)
			if err := s.Write(ctx, []Record{good}); err != nil {
				t.Fatal(err)
			}
			for what, r := range map[string]Record{
				"layer 2 of 2": {Key: Key{1, 2, 0}, Data: good.Data}, "layer -1": {Key: Key{1, -1, 0}, Data: good.Data}, "group -1": {Key: Key{1, 0, -1}, Data: good.Data},
				"a byte less": {Key: good.Key, Data: good.Data[1:]}, "a part": {Key: good.Key, Part: Part{0, 1}, Data: good.Data[:len(good.Data)/2]}, "nothing": {Key: good.Key},
			} {
				if err := s.Write(ctx, []Record{r}); !errors.Is(err, ErrShape) {
					t.Errorf("writing %s: %v", what, err)
				}
			}
			for what, p := range map[string]Part{"head 2 of 2": {2, 1}, "head -1": {-1, 1}, "two from head 1": {1, 2}, "none": {1, 0}} {
				if err := s.Read(ctx, []Record{{Key: good.Key, Part: p, Data: good.Data[:len(good.Data)/2]}}); !errors.Is(err, ErrShape) {
					t.Errorf("reading %s: %v", what, err)
				}
			}
			late, cancel := context.WithCancel(ctx)
			cancel()
			if !strings.Contains(name, "csd") { // which is a fake
				if err := s.Write(late, []Record{versioned(s, good.Key, 2)}); !errors.Is(err, context.Canceled) {
					t.Errorf("written for nobody: %v", err)
				}
			}
			got := blank(s, good.Key, Part{})
			if err := s.Read(ctx, []Record{got}); err != nil || !bytes.Equal(got.Data, good.Data) {
				t.Errorf("after all that: %v, or other bytes", err)
			}
		})
	}
}

// TestShapes: what a shape says of its records, and that one out of range is refused.
func TestShapes(t *testing.T) {
	s := csdShape()
	if s.HeadBytes(0) != 16*(32+32)*2 || s.RecordBytes(1) != 2*s.HeadBytes(1) || s.KVHeads(0) != 2 {
		t.Errorf("%d bytes a head, %d a record, %d heads", s.HeadBytes(0), s.RecordBytes(1), s.KVHeads(0))
	}
	for what, change := range map[string]func(s *Shape){
		"no layers":                 func(s *Shape) { s.Layers = nil },
		"groups of less than pages": func(s *Shape) { s.GroupTokens = 8 },
		"groups of a page and more": func(s *Shape) { s.GroupTokens = 24 },
		"endless groups":            func(s *Shape) { s.GroupTokens = 1 << 20 },
		"no page tokens":            func(s *Shape) { s.Page.Tokens = 0 },
		"no such element":           func(s *Shape) { s.Page.K = kvpage.Elem(200) },
	} {
		bad := csdShape()
		change(&bad)
		if err := bad.Validate(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := NewMemory("host", bad, 0); err == nil {
			t.Errorf("%s: a store of it", what)
		}
		if _, err := OpenSSD(bad, SSDOptions{Dir: "d", FS: vfs.NewMem(1 << 20), CapacityBytes: 1 << 20}); err == nil {
			t.Errorf("%s: an ssd store of it", what)
		}
	}
	mixed := csdShape()
	mixed.Layers[0] = cacheshape.Layer{State: cacheshape.State{Bytes: 64}}
	if mixed.RecordBytes(0) != 0 || mixed.Validate() != nil {
		t.Errorf("a layer that keeps nothing: %d bytes a record, %v", mixed.RecordBytes(0), mixed.Validate())
	}
	m, err := NewMemory("host", mixed, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Write(t.Context(), []Record{{Key: Key{1, 0, 0}}}); !errors.Is(err, ErrShape) {
		t.Errorf("a record of a layer that keeps nothing: %v", err)
	}
	if got := fmt.Sprint(Key{1, 2, 3}); got != "sequence 1 layer 2 group 3" {
		t.Error(got)
	}
}
