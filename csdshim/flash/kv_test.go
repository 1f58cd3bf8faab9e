package flash

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/vfs"
)

// kvWorld is a store with sequences that are attended to, and what they should hold.
type kvWorld struct {
	t     *testing.T
	disk  *vfs.Mem
	opts  Options
	s     *Store
	rng   *rand.Rand
	ids   []uint32
	shape []KVShape
	keys  [][][]byte // sequence, layer → [tokens][Heads][row]
	vals  [][][]byte
	limit int64
}

func newKVWorld(t *testing.T, seed uint64, limit int64) *kvWorld {
	w := &kvWorld{t: t, disk: vfs.NewMem(64 << 20), rng: rand.New(rand.NewPCG(seed, 9)), limit: limit}
	w.opts = Options{FS: w.disk, Geometry: Geometry{Channels: 4, Dies: 2, Planes: 1, PageBytes: 512, BlockPages: 16, CapacityBytes: 512 * 16 * 220, SparePercent: 10}, GroupBufferBytes: func() int64 { return w.limit }}
	w.open()
	return w
}

func (w *kvWorld) open() {
	w.t.Helper()
	var err error
	if w.s, err = Open("drive", w.opts); err != nil {
		w.t.Fatal(err)
	}
}

func (w *kvWorld) add(number uint64, k KVShape) {
	w.t.Helper()
	q, _, err := w.s.OpenSequence([16]byte{1}, number, 0, nil)
	if err == nil {
		err = w.s.ShapeKV(q.ID, k)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.ids, w.shape = append(w.ids, q.ID), append(w.shape, k)
	w.keys, w.vals = append(w.keys, make([][]byte, k.Layers)), append(w.vals, make([][]byte, k.Layers))
}

func (w *kvWorld) append(i, layer, tokens int) []uint32 {
	w.t.Helper()
	k := w.shape[i]
	keys, vals := make([]byte, tokens*k.Heads*k.KeyRowBytes()), make([]byte, tokens*k.Heads*k.ValueRowBytes())
	for j := range keys {
		keys[j] = byte(w.rng.Uint32())
	}
	for j := range vals {
		vals[j] = byte(w.rng.Uint32())
	}
	pages, err := w.s.AppendKV(w.ids[i], layer, tokens, keys, vals)
	if err != nil {
		w.t.Fatal(err)
	}
	w.keys[i][layer], w.vals[i][layer] = append(w.keys[i][layer], keys...), append(w.vals[i][layer], vals...)
	return pages
}

// some are rising numbers below n.
func (w *kvWorld) some(n int) (list []int32) {
	for i := range n {
		if w.rng.IntN(3) == 0 {
			list = append(list, int32(i))
		}
	}
	return list
}

// check reads parts of everything and compares.
func (w *kvWorld) check() {
	w.t.Helper()
	for i, k := range w.shape {
		for layer := range k.Layers {
			n := len(w.keys[i][layer]) / (k.Heads * k.KeyRowBytes())
			if got := w.s.TokensKV(w.ids[i], layer); got != n {
				w.t.Fatalf("sequence %d, layer %d: %d tokens, want %d", i, layer, got, n)
			}
			embedded := w.s.EmbeddedKV(w.ids[i], layer)
			if each := k.EmbeddingTokens(512); each > 0 && embedded != n/each*each {
				w.t.Fatalf("sequence %d, layer %d: %d of %d tokens in the embedding copy", i, layer, embedded, n)
			}
			var reads []KVRead
			var want [][]byte
			for head := range k.Heads {
				tokens, dims := w.some(n), w.some(k.KeyDim)
				wantK, wantV, wantE := []byte{}, []byte{}, []byte{}
				for _, t := range tokens {
					wantK = append(wantK, w.keys[i][layer][(int(t)*k.Heads+head)*k.KeyRowBytes():][:k.KeyRowBytes()]...)
					wantV = append(wantV, w.vals[i][layer][(int(t)*k.Heads+head)*k.ValueRowBytes():][:k.ValueRowBytes()]...)
				}
				for _, d := range dims {
					for t := range embedded {
						wantE = append(wantE, w.keys[i][layer][(t*k.Heads+head)*k.KeyRowBytes()+int(d)*k.ElemBytes:][:k.ElemBytes]...)
					}
				}
				reads = append(reads, KVRead{layer, head, KVKeys, tokens, make([]byte, len(wantK))}, KVRead{layer, head, KVValues, tokens, make([]byte, len(wantV))})
				want = append(want, wantK, wantV)
				if k.EmbeddingGroup > 0 {
					reads, want = append(reads, KVRead{layer, head, KVEmbeddings, dims, make([]byte, len(wantE))}), append(want, wantE)
				}
			}
			if w.rng.IntN(4) == 0 { // the same again: every page is still read once
				again := reads[0]
				again.Dst = make([]byte, len(again.Dst))
				reads, want = append(reads, again), append(want, want[0])
			}
			pages, err := w.s.ReadKV(w.ids[i], reads)
			if err != nil {
				w.t.Fatal(err)
			}
			for j := range reads {
				if !bytes.Equal(reads[j].Dst, want[j]) {
					w.t.Fatalf("sequence %d, layer %d, read %d (part %d): other bytes", i, layer, j, reads[j].Part)
				}
			}
			slices.Sort(pages)
			if len(slices.Compact(slices.Clone(pages))) != len(pages) {
				w.t.Fatal("a page was read twice")
			}
		}
	}
}

var kvShapes = []KVShape{
	{Layers: 2, Heads: 3, KeyDim: 16, ValueDim: 16, ElemBytes: 2, TokenGroup: 16, EmbeddingGroup: 2},
	{Layers: 3, Heads: 1, KeyDim: 32, ValueDim: 16, ElemBytes: 4, TokenGroup: 3, EmbeddingGroup: 4},
	{Layers: 1, Heads: 2, KeyDim: 8, ValueDim: 24, ElemBytes: 2, TokenGroup: 7, EmbeddingGroup: 8},
	{Layers: 1, Heads: 2, KeyDim: 10, ValueDim: 10, ElemBytes: 4, TokenGroup: 12},
	{Layers: 2, Heads: 2, KeyDim: 16, ValueDim: 24, ElemBytes: 2, TokenGroup: 6, EmbeddingGroup: 4, Paired: true},
}

// TestKVPaired: of a chosen token one page is read, whose keys and values come in one read; half as many tokens lie on it.
func TestKVPaired(t *testing.T) {
	for _, paired := range []bool{false, true} {
		w := newKVWorld(t, 1, 1<<30)
		k := KVShape{Layers: 1, Heads: 2, KeyDim: 16, ValueDim: 16, ElemBytes: 2, TokenGroup: 16, Paired: paired}
		want := 6 // three groups, keys and values
		if paired {
			k.TokenGroup, want = 8, 4
		}
		w.add(1, k)
		w.append(0, 0, 256)
		tokens := []int32{3, 5, 100, 103, 104, 200}
		keys, values := make([]byte, len(tokens)*32), make([]byte, len(tokens)*32)
		pages, err := w.s.ReadKV(w.ids[0], []KVRead{{0, 1, KVKeys, tokens, keys}, {0, 1, KVValues, tokens, values}})
		if err != nil || len(pages) != want {
			t.Errorf("paired %v: %d pages, want %d, %v", paired, len(pages), want, err)
		}
		if life := w.s.Life(); life.TokenProgrammed != 2*2*16 {
			t.Errorf("paired %v: %d pages programmed, want 64", paired, life.TokenProgrammed)
		}
		w.check()
	}
	if err := (KVShape{Layers: 1, Heads: 1, KeyDim: 16, ValueDim: 16, ElemBytes: 2, TokenGroup: 9, Paired: true}).Validate(512); !errors.Is(err, ErrGeometry) {
		t.Errorf("nine pairs of 64 bytes in a page of 512: %v", err)
	}
}

// TestKVAgainstArrays appends tokens to several sequences in steps of every size, with group buffers from none to plenty, and
// reads rows and columns back; sequences come and go, so that garbage is collected; the process dies without a word at times.
func TestKVAgainstArrays(t *testing.T) {
	for seed, limit := range []int64{0, 700, 5000, 1 << 30, 1 << 30} {
		w := newKVWorld(t, uint64(seed), limit)
		for i, k := range kvShapes {
			w.add(uint64(i), k)
		}
		for step := range 60 {
			i := w.rng.IntN(len(w.ids))
			k := w.shape[i]
			n := 1 + w.rng.IntN(1+w.rng.IntN(60))
			for layer := range k.Layers {
				w.append(i, layer, n)
			}
			if life := w.s.Life(); int64(life.GroupBufferBytes) > limit || life.GroupBufferPeak > uint64(limit) || limit > 1<<20 && life.GroupBufferPeak == 0 {
				t.Fatalf("group buffer of %d: %+v", limit, life)
			}
			switch {
			case step%9 == 4:
				if err := w.s.Cut(w.ids[i], 0); err != nil {
					t.Fatal(err)
				}
				w.ids, w.shape, w.keys, w.vals = slices.Delete(w.ids, i, i+1), slices.Delete(w.shape, i, i+1), slices.Delete(w.keys, i, i+1), slices.Delete(w.vals, i, i+1)
				w.add(uint64(100+step), k)
			case step%13 == 5:
				before := w.s.Life()
				w.s.closeFiles() // as if it was killed
				w.open()
				after := w.s.Life()
				if after.TokenProgrammed != before.TokenProgrammed || after.EmbeddingProgrammed != before.EmbeddingProgrammed || after.Moved != before.Moved || after.Erases != before.Erases || after.Valid != before.Valid || after.GroupBufferBytes != before.GroupBufferBytes {
					t.Fatalf("after a kill %+v, before %+v", after, before)
				}
			}
			if step%4 == 0 {
				w.check()
			}
		}
		w.check()
		for i := range w.ids {
			if err := w.s.Cut(w.ids[i], 0); err != nil {
				t.Fatal(err)
			}
		}
		if life := w.s.Life(); life.Valid != 0 || life.GroupBufferBytes != 0 || w.s.Usage().UsedBytes != 0 || w.s.Usage().Sequences != 0 {
			t.Errorf("with nothing left: %+v", life)
		}
		if err := w.s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKVPageCounts: a prompt programs each of its full groups once, keys twice, values once; heads' pages lie on all channels.
func TestKVPageCounts(t *testing.T) {
	w := newKVWorld(t, 1, 1<<30)
	k := KVShape{Layers: 2, Heads: 2, KeyDim: 16, ValueDim: 16, ElemBytes: 2, TokenGroup: 16, EmbeddingGroup: 2}
	w.add(1, k)
	for layer := range 2 {
		w.append(0, layer, 300)
	}
	life := w.s.Life()
	if token, embedding := uint64(2*2*2*(300/16)), uint64(2*2*(16/2)*(300/128)); life.TokenProgrammed != token || life.EmbeddingProgrammed != embedding || life.Valid != token+embedding {
		t.Errorf("%+v, want %d token and %d embedding pages", life, token, embedding)
	}
	all := make([]int32, 256)
	for i := range all {
		all[i] = int32(i)
	}
	pages, err := w.s.ReadKV(w.ids[0], []KVRead{{0, 0, KVKeys, all, make([]byte, 256*32)}})
	if err != nil || len(pages) != 16 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	on := make([]int, 4)
	for _, p := range pages {
		on[int(p)/16%4]++
	}
	if slices.Min(on) != 4 {
		t.Errorf("a head's 16 pages of keys lie on the channels as %v", on)
	}
}

// TestKVWrittenLate: generated tokens, one a step, program as many pages as a prompt of as many: each waits in the group buffer until 16 fill
// pages, so none is programmed twice or in part (HILOS' delayed write-back with 16 tokens). Written when it comes, each token would
// program a page of keys and one of values a head.
func TestKVWrittenLate(t *testing.T) {
	k := KVShape{Layers: 2, Heads: 2, KeyDim: 16, ValueDim: 16, ElemBytes: 2, TokenGroup: 16}
	for _, step := range []int{300, 16, 7, 1} {
		w := newKVWorld(t, 1, 1<<30)
		w.add(1, k)
		for layer := range 2 {
			for done := 0; done < 300; done += step {
				w.append(0, layer, min(step, 300-done))
			}
		}
		life := w.s.Life()
		if want := uint64(2 * 2 * 2 * (300 / 16)); life.TokenProgrammed != want || life.Moved != 0 || life.Valid != want {
			t.Errorf("%d tokens a step: %+v, want %d pages programmed once", step, life, want)
		}
		if want := uint64(2 * 2 * (300 % 16) * (16 + 16) * 2); life.GroupBufferBytes != want {
			t.Errorf("%d tokens a step: %d bytes wait, want %d", step, life.GroupBufferBytes, want)
		}
	}
}

// TestKVRefuses: what does not fit the shape is an error and changes nothing.
func TestKVRefuses(t *testing.T) {
	w := newKVWorld(t, 1, 1<<30)
	k := kvShapes[0]
	w.add(1, k)
	w.append(0, 0, 20)
	id := w.ids[0]
	other := k
	other.TokenGroup = 8
	for name, f := range map[string]func() error{
		"another shape": func() error { return w.s.ShapeKV(id, other) },
		"no sequence":   func() error { return w.s.ShapeKV(99, k) },
		"bad shape":     func() error { return w.s.ShapeKV(id, KVShape{}) },
		"short keys":    func() error { _, err := w.s.AppendKV(id, 0, 1, nil, nil); return err },
		"layer":         func() error { _, err := w.s.AppendKV(id, 7, 1, make([]byte, 96), make([]byte, 96)); return err },
		"wild token": func() error {
			_, err := w.s.ReadKV(id, []KVRead{{0, 0, KVKeys, []int32{1 << 30}, make([]byte, 32)}})
			return err
		},
		"falling tokens": func() error {
			_, err := w.s.ReadKV(id, []KVRead{{0, 0, KVKeys, []int32{3, 2}, make([]byte, 64)}})
			return err
		},
		"wild head": func() error {
			_, err := w.s.ReadKV(id, []KVRead{{0, 3, KVKeys, []int32{3}, make([]byte, 32)}})
			return err
		},
		"wild dimension": func() error { _, err := w.s.ReadKV(id, []KVRead{{0, 0, KVEmbeddings, []int32{16}, nil}}); return err },
		"no room":        func() error { _, err := w.s.ReadKV(id, []KVRead{{0, 0, KVKeys, []int32{3}, nil}}); return err },
	} {
		if err := f(); err == nil || !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrGeometry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := 1 << 12
	if _, err := w.s.AppendKV(id, 0, 10*big, make([]byte, 10*big*96), make([]byte, 10*big*96)); !errors.Is(err, ErrFull) {
		t.Errorf("more than the drive holds: %v", err)
	}
	w.check()
	for tokens, want := range map[int]int{100: 8, 255: 8, 512: 4, 1000: 4, 1024: 2, 9999: 2} {
		if got := EmbeddingGroupFor(4096, 2, tokens); got != want {
			t.Errorf("%d tokens: groups of %d, want %d", tokens, got, want)
		}
	}
}
