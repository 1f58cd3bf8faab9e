package flash

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"terrace/internal/vfs"
)

func smallGeometry() Geometry {
	return Geometry{Channels: 3, Dies: 2, Planes: 1, PageBytes: 512, BlockPages: 8, CapacityBytes: 200 * 512, SparePercent: 0}
}

func mustOpen(t *testing.T, dir string, change func(*Options)) *Store {
	t.Helper()
	o := Options{Geometry: smallGeometry(), FS: disks.of(dir)}
	if change != nil {
		change(&o)
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// diskBytes is the size of a test's disk.
const diskBytes = 16 << 20

// disks are disks in memory, one a folder, so that tests don't depend on how busy the machine's is.
var disks shelf

type shelf struct {
	mu  sync.Mutex
	all map[string]*vfs.Mem
}

func (s *shelf) of(dir string) *vfs.Mem {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[dir] == nil {
		if s.all == nil {
			s.all = map[string]*vfs.Mem{}
		}
		s.all[dir] = vfs.NewMem(diskBytes)
	}
	return s.all[dir]
}

// content is what a file holds.
func content(t *testing.T, fs vfs.FS, path string) []byte {
	t.Helper()
	b, err := readFile(fs, path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// setContent makes a file hold other bytes.
func setContent(t *testing.T, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.OpenFile(path, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(0), vfs.WriteFull(f, [][]byte{b}, 0), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// world is what a test expects the store to hold.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	s      *Store
	groups map[Key][]byte
	seqs   map[uint64]uint32 // number → id
}

func (w *world) open(number uint64) uint32 {
	q, _, err := w.s.OpenSequence([16]byte{9}, number, 0, []byte{byte(number)})
	if err != nil {
		w.t.Fatal(err)
	}
	if id, ok := w.seqs[number]; ok && id != q.ID {
		w.t.Fatalf("sequence %d has id %d, was %d", number, q.ID, id)
	}
	w.seqs[number] = q.ID
	return q.ID
}

func (w *world) bytes() []byte {
	b := make([]byte, 1+w.rng.IntN(4*512))
	for i := range b {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// put writes a few groups, or finds the store full.
func (w *world) put() {
	id := w.open(uint64(w.rng.IntN(4)))
	var items []Item
	fresh := map[Key][]byte{}
	for range 1 + w.rng.IntN(4) {
		k := Key{Seq: id, Layer: int32(w.rng.IntN(3)), Group: int32(w.rng.IntN(12))}
		if fresh[k] != nil {
			continue
		}
		b := w.bytes()
		cut := w.rng.IntN(len(b) + 1)
		items = append(items, Item{Key: k, Parts: [][]byte{b[:cut], b[cut:]}})
		fresh[k] = b
	}
	_, err := w.s.Put(items)
	if errors.Is(err, ErrFull) {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	for k, b := range fresh {
		w.groups[k] = b
	}
}

func (w *world) cut() {
	number := uint64(w.rng.IntN(4))
	id, from := w.open(number), w.rng.IntN(12)
	if w.rng.IntN(2) == 0 {
		from = 0
	}
	if err := w.s.Cut(id, from); err != nil {
		w.t.Fatal(err)
	}
	for k := range w.groups {
		if k.Seq == id && int(k.Group) >= from {
			delete(w.groups, k)
		}
	}
	if from == 0 {
		delete(w.seqs, number)
	}
}

// check reads everything that should be there, and some that should not.
func (w *world) check() {
	w.t.Helper()
	used := 0
	for k, want := range w.groups {
		used += w.s.geo.pagesOf(len(want))
		off := w.rng.IntN(len(want) + 1)
		got := make([]byte, w.rng.IntN(len(want)-off+1))
		if _, err := w.s.Get([]Request{{k, off, got}}); err != nil {
			w.t.Fatal(err)
		}
		if !bytes.Equal(got, want[off:off+len(got)]) {
			w.t.Fatalf("%+v: other bytes", k)
		}
	}
	u := w.s.Usage()
	if int(u.UsedBytes) != used*512 || u.Groups != len(w.groups) || u.Sequences != len(w.seqs) {
		w.t.Fatalf("usage %+v, want %d bytes in %d groups of %d sequences", u, used*512, len(w.groups), len(w.seqs))
	}
	for _, id := range w.seqs {
		for l := range int32(3) {
			for g := range int32(12) {
				k := Key{Seq: id, Layer: l, Group: g}
				if _, err := w.s.Get([]Request{{k, 0, make([]byte, 1)}}); (err == nil) != (w.groups[k] != nil) {
					w.t.Fatalf("%+v: %v", k, err)
				}
			}
		}
	}
	w.blocks()
}

// blocks checks that pages are accounted for: live pages have an owner that names them, free blocks have none.
func (w *world) blocks() {
	w.t.Helper()
	free := map[uint32]bool{}
	for _, list := range w.s.blocks.free {
		for _, id := range list {
			free[id] = true
		}
	}
	live := 0
	for id := range w.s.blocks.all {
		b := &w.s.blocks.all[id]
		n := 0
		for at, e := range b.owners {
			if e == nil {
				continue
			}
			n++
			found := false
			for _, p := range e.pages {
				found = found || p.number == uint32(id*w.s.geo.BlockPages+at)
			}
			if !found || w.s.index.byID[e.key.Seq].find(e.key) != e {
				w.t.Fatalf("block %d page %d: owner %+v does not name it", id, at, e.key)
			}
		}
		if n != b.live || b.pending != 0 || free[uint32(id)] && (n > 0 || b.written > 0) {
			w.t.Fatalf("block %d: %d live pages, counted %d, %d pending, free %v", id, n, b.live, b.pending, free[uint32(id)])
		}
		live += n
	}
	if int64(live) != w.s.used || len(free) != w.s.blocks.frees {
		w.t.Fatalf("%d live pages, %d used; %d free blocks, %d counted", live, w.s.used, len(free), w.s.blocks.frees)
	}
}

// TestAgainstAMap does random writes, rewinds and restarts on a small, often full store, and compares it with a map.
func TestAgainstAMap(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			dir := t.TempDir()
			w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), s: mustOpen(t, dir, nil), groups: map[Key][]byte{}, seqs: map[uint64]uint32{}}
			for step := range 400 {
				switch n := w.rng.IntN(20); {
				case n < 14:
					w.put()
				case n < 18:
					w.cut()
				case n == 18:
					if err := w.s.Close(); err != nil {
						t.Fatal(err)
					}
					w.s = mustOpen(t, dir, nil)
				default:
					if err := w.s.compact(true, 0); err != nil {
						t.Fatal(err)
					}
				}
				if step%10 == 9 {
					w.check()
				}
			}
			u := w.s.Usage()
			t.Logf("%+v", u)
			if seed == 0 && (u.PagesProgrammed == 0 || u.BlocksErased == 0) {
				t.Error("nothing was erased")
			}
		})
	}
}

// TestCollectingGarbage keeps a store nearly full while groups of many sequences are replaced in random order, so that live
// pages must be moved.
func TestCollectingGarbage(t *testing.T) {
	dir := t.TempDir()
	w := &world{t: t, rng: rand.New(rand.NewPCG(5, 1)), s: mustOpen(t, dir, nil), groups: map[Key][]byte{}, seqs: map[uint64]uint32{}}
	ids := []uint32{w.open(0), w.open(1), w.open(2), w.open(3)}
	for i := range 2000 {
		k := Key{Seq: ids[w.rng.IntN(4)], Layer: int32(w.rng.IntN(3)), Group: int32(w.rng.IntN(16))}
		b := make([]byte, 512)
		b[0], b[1] = byte(i), byte(i>>8)
		if _, err := w.s.Put([]Item{{Key: k, Parts: [][]byte{b}}}); err != nil {
			t.Fatalf("write %d of a store that is never full: %v", i, err)
		}
		w.groups[k] = b
	}
	w.check()
	u := w.s.Usage()
	if u.PagesMoved == 0 {
		t.Errorf("no live page was moved: %+v", u)
	}
	t.Logf("%+v: %.2f pages programmed for each written", u, float64(u.PagesProgrammed+u.PagesMoved)/2000)
	w.s.Close()
	w.s = mustOpen(t, dir, nil)
	w.check()
}

// TestFinishedSequencesCostNothing: dropping a sequence leaves whole blocks, which are erased without moving a page.
func TestFinishedSequencesCostNothing(t *testing.T) {
	w := &world{t: t, rng: rand.New(rand.NewPCG(5, 1)), s: mustOpen(t, t.TempDir(), func(o *Options) { o.Geometry.CapacityBytes = 600 * 512 }), groups: map[Key][]byte{}, seqs: map[uint64]uint32{}}
	for number := range uint64(20) {
		id := w.open(number)
		for g := range int32(40) {
			if _, err := w.s.Put([]Item{{Key: Key{Seq: id, Layer: 0, Group: g}, Parts: [][]byte{make([]byte, 3*512)}}}); err != nil {
				t.Fatal(err)
			}
		}
		if number > 1 {
			if err := w.s.Cut(w.seqs[number-2], 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if u := w.s.Usage(); u.PagesMoved != 0 || u.BlocksErased == 0 {
		t.Errorf("%+v: want blocks erased and no page moved", u)
	}
}

func TestCapacityIsHard(t *testing.T) {
	s := mustOpen(t, t.TempDir(), nil)
	q, _, _ := s.OpenSequence([16]byte{}, 1, 0, nil)
	for g := range int32(200) {
		if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: g}, Parts: [][]byte{make([]byte, 512)}}}); err != nil {
			t.Fatalf("group %d of 200: %v", g, err)
		}
	}
	_, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: 200}, Parts: [][]byte{make([]byte, 512)}}})
	if !errors.Is(err, ErrFull) {
		t.Fatalf("group 201: %v", err)
	}
	t.Log(err)
	if err := s.Cut(q.ID, 199); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: 300}, Parts: [][]byte{make([]byte, 512)}}}); err != nil {
		t.Errorf("after a group was dropped: %v", err)
	}
}

// TestEveryBitOfAPage: a flipped bit, and a whole page in another's place, fail; other groups can be read.
func TestEveryBitOfAPage(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, nil)
	q, _, _ := s.OpenSequence([16]byte{}, 1, 0, nil)
	want := bytes.Repeat([]byte{0xa5, 1, 2, 3}, 128)
	var pages []uint32
	for g := range int32(3) {
		p, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: g}, Parts: [][]byte{want}}})
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, p...)
	}
	at := int64(pages[1]) * 512
	raw := make([]byte, 512)
	if _, err := s.image.ReadAt(raw, at); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 512)
	for bit := range 512 * 8 {
		raw[bit/8] ^= 1 << (bit % 8)
		s.image.WriteAt(raw, at)
		raw[bit/8] ^= 1 << (bit % 8)
		if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: 1}, 0, got}}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	s.image.WriteAt(want, at)
	if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: 1}, 0, got}}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("repaired: %v", err)
	}
	s.index.byID[q.ID].find(Key{Seq: q.ID, Layer: 0, Group: 1}).version++ // as if an older page had come back
	if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: 1}, 0, got}}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a page of an older version: %v", err)
	}
	s.index.byID[q.ID].find(Key{Seq: q.ID, Layer: 0, Group: 2}).pages[0].number = pages[1] // the same bytes, written for another group
	s.index.byID[q.ID].find(Key{Seq: q.ID, Layer: 0, Group: 2}).pages[0].sum = s.index.byID[q.ID].find(Key{Seq: q.ID, Layer: 0, Group: 1}).pages[0].sum
	if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: 2}, 0, got}}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another group's page and checksum: %v", err)
	}
	if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: 0}, 0, got}}); err != nil {
		t.Errorf("an unharmed group: %v", err)
	}
}

// TestJournalEnds cuts the journal at every length: the store opens with a prefix of what was written, never with an error,
// and never with wrong bytes; damage before the end is refused.
func TestJournalEnds(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, nil)
	q, _, _ := s.OpenSequence([16]byte{}, 1, 0, nil)
	for g := range int32(5) {
		if _, err := s.Put([]Item{{Key: Key{Seq: q.ID, Layer: 0, Group: g}, Parts: [][]byte{bytes.Repeat([]byte{byte(g)}, 700)}}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	disk, journal := disks.of(dir), filepath.Join(dir, "journal")
	whole := content(t, disk, journal)
	for n := len(whole); n >= 0; n-- {
		setContent(t, disk, journal, whole[:n])
		s := mustOpen(t, dir, nil)
		groups := s.Usage().Groups
		for g := range int32(groups) {
			got := make([]byte, 700)
			if _, err := s.Get([]Request{{Key{Seq: q.ID, Layer: 0, Group: g}, 0, got}}); err != nil || got[0] != byte(g) || got[699] != byte(g) {
				t.Fatalf("cut at %d: group %d: %v", n, g, err)
			}
		}
		if n == len(whole) && groups != 5 {
			t.Fatalf("the whole journal has %d groups, want 5", groups)
		}
		s.Close()
	}
	refused := 0
	for n := range whole {
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		setContent(t, disk, journal, damaged)
		s, err := Open(dir, Options{Geometry: smallGeometry(), FS: disk})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d: %v", n, err)
			}
			refused++
			continue
		}
		// Only the last frame may go without notice: the counters that Close writes.
		if last := frameHead + len(appendLife(nil, &s.life)); s.Usage().Groups != 5 || n < len(whole)-last {
			t.Fatalf("byte %d: damage was not noticed, %d groups", n, s.Usage().Groups)
		}
		s.Close()
	}
	if refused < len(whole)/2 {
		t.Errorf("%d of %d damages were refused", refused, len(whole))
	}
}

func TestOneProcessAFolder(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir, func(o *Options) { o.FS = vfs.OS{} })
	_, err := Open(dir, Options{Geometry: smallGeometry()})
	if !errors.Is(err, ErrLocked) || !bytes.Contains([]byte(err.Error()), []byte(fmt.Sprint(os.Getpid()))) {
		t.Errorf("second store: %v, want ErrLocked with the holder", err)
	}
}

func TestOtherGeometry(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir, nil).Close()
	g := smallGeometry()
	g.CapacityBytes += 512
	if _, err := Open(dir, Options{Geometry: g, FS: disks.of(dir)}); !errors.Is(err, ErrGeometry) {
		t.Errorf("another capacity: %v", err)
	}
	g.PageBytes = 1000
	if _, err := Open(t.TempDir(), Options{Geometry: g}); !errors.Is(err, ErrGeometry) {
		t.Errorf("pages of 1000 bytes: %v", err)
	}
	setContent(t, disks.of(dir), filepath.Join(dir, "geometry.toml"), []byte("format = 1\nsurprise = 2\n"))
	if _, err := Open(dir, Options{Geometry: smallGeometry(), FS: disks.of(dir)}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("geometry with an unknown key: %v", err)
	}
}
