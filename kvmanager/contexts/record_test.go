package contexts

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"terrace/internal/storage"
)

// made is a record of n sections whose bytes name it.
func made(t testing.TB, root Key, ids []int, first, sizeBytes int) *Record {
	t.Helper()
	r, err := Build(Meta{Key: Chain(root, ids, len(ids))[0], Parent: root, Root: root, First: first, Tokens: len(ids), Info: "model"}, []int{5, sizeBytes, 0, sizeBytes / 2},
		func(i int, dst []byte) ([]byte, error) {
			for j := len(dst); j < cap(dst); j++ {
				dst = append(dst, byte(ids[j%len(ids)]+i))
			}
			return dst, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRecordBits: what was built is parsed; with any bit turned, it is not, or is the same in all that is used.
func TestRecordBits(t *testing.T) {
	r := made(t, Root(nil, ""), []int{1, 2, 3}, 0, 300)
	again, err := Parse(r.Raw())
	if err != nil || again.Meta != r.Meta || again.Sections() != 4 {
		t.Fatalf("%+v, %v", again.Meta, err)
	}
	raw, accepted := slices.Clone(r.Raw()), 0
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			if x, err := Parse(raw); err == nil {
				accepted++
				for s := range x.Sections() {
					if x.Meta != r.Meta || !bytes.Equal(x.Section(s), r.Section(s)) {
						t.Fatalf("byte %d bit %d changes the record and is accepted", i, bit)
					}
				}
			} else if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			raw[i] ^= 1 << bit
		}
	}
	if padding := 8 * (len(raw) - headerFixed - 8*4 - 32 - 5 - 300 - 150); accepted != padding {
		t.Errorf("%d turned bits are accepted, %d are padding", accepted, padding)
	}
	for n := range len(raw) {
		if _, err := Parse(raw[:n]); err == nil {
			t.Fatalf("a record cut to %d bytes is accepted", n)
		}
	}
}

// resealed gives bytes the magic, version and checksums of a record, as whoever writes to a store on purpose can.
func resealed(raw []byte) []byte {
	b := slices.Clone(raw)
	if len(b) < pageBytes {
		return b
	}
	le := binary.LittleEndian
	copy(b, formatMagic)
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], pageBytes)
	n := min(int(le.Uint32(b[headerFixed-8:])), maxSections)
	le.PutUint32(b[headerFixed-8:], uint32(n))
	for i, at := 0, pageBytes; i < n; i++ {
		size := int(le.Uint32(b[headerFixed+8*i:]))
		if size > len(b)-at {
			break
		}
		le.PutUint32(b[headerFixed+8*i+4:], storage.Checksum(b[at:at+size]))
		at += storage.RoundUp(size, pageBytes)
	}
	sum := sha256.Sum256(b[:headerFixed+8*n])
	copy(b[headerFixed+8*n:], sum[:])
	return b
}

// FuzzParse: bytes of anybody are refused as damaged, or are a record whose sections lie in it and whose directory stays within its
// text; with checksums that are right too.
func FuzzParse(f *testing.F) {
	heads := []Head{{Main: []int32{0, 2, 3}, Ranks: []uint32{2, 0, 5}}, {Main: []int32{1}, Recent: []int32{2}}}
	for _, m := range []Meta{{Tokens: 4, Info: "model"}, {Tokens: 4, Part: 1, Parts: 2, Ranks: RanksVersion}} {
		own := slices.Clone(heads)
		if m.Ranks > 0 {
			own[1].Recent = nil
		}
		directory := AppendDirectory(nil, own)
		if m.Ranks > 0 {
			directory = AppendRanks(directory, own)
		}
		r, err := Build(m, []int{len(directory), 40}, func(i int, dst []byte) ([]byte, error) {
			return append(dst, [][]byte{directory, make([]byte, 40)}[i]...), nil
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.Raw())
		f.Add(r.Raw()[:pageBytes])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, b := range [][]byte{raw, resealed(raw)} {
			r, err := Parse(b)
			if err != nil {
				if !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				continue
			}
			n := int64(pageBytes)
			for i := range r.Sections() {
				n += int64(storage.RoundUp(len(r.Section(i)), pageBytes))
			}
			if n != int64(len(b)) || r.Slot < n || r.First < 0 || r.Tokens < 1 || r.Parts > 0 && r.Part >= r.Parts {
				t.Fatalf("%+v of %d bytes, sections make %d", r.Meta, len(b), n)
			}
			if r.Sections() == 0 {
				continue
			}
			end := r.First + r.Tokens
			got, err := ParseDirectory(r.Section(0), len(heads), 64, end, r.Ranks)
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			if err != nil {
				continue
			}
			for _, h := range got {
				all := slices.Concat(h.Main, h.Recent)
				if len(all) > 128 || !slices.IsSorted(all) || len(all) > 0 && (all[0] < 0 || int(all[len(all)-1]) >= end) || h.Ranks != nil && len(h.Ranks) != len(h.Main) {
					t.Fatalf("%+v of a text of %d tokens", h, end)
				}
			}
		}
	})
}

// TestKeys: keys are those that are documented, and no two of different texts, roots or salts are equal.
func TestKeys(t *testing.T) {
	a := Root([]Field{{"weights", "x"}}, "")
	if got, want := a.String()[:16], "6b37790d5b48a843"; got != want {
		t.Errorf("root %s, want %s: the key format changed, so nothing stored before is found", got, want)
	}
	if got, want := Chain(a, []int{1, 2, 3, 4}, 2)[1].String()[:16], "65ad54327a0f6f09"; got != want {
		t.Errorf("chain %s, want %s", got, want)
	}
	seen := map[Key]string{}
	add := func(what string, k Key) {
		if was, ok := seen[k]; ok {
			t.Errorf("%s and %s have one key", was, what)
		}
		seen[k] = what
	}
	for _, salt := range []string{"", "a", "A", "aa"} {
		for _, fields := range [][]Field{nil, {{"w", "x"}}, {{"wx", ""}}, {{"w", ""}, {"x", ""}}, {{"w", "x"}, {"salt", "a"}}} {
			root := Root(fields, salt)
			what := fmt.Sprint(fields, salt)
			add(what, root)
			for _, n := range []int{2, 4} {
				for i, k := range Chain(root, []int{7, 8, 7, 8, 7, 8, 7, 8}, n) {
					add(fmt.Sprint(what, " block ", n, i), k)
				}
			}
			c := ContextKey(root, []int{7, 8, 7, 8})
			add(what+" context", c)
			add(what+" part 0", PartKey(c, 0))
			add(what+" part 1", PartKey(c, 1))
		}
	}
}

// TestDirectory: positions come back, whatever runs they make; a directory that is cut or has other numbers is refused or within
// bounds.
func TestDirectory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads := make([]Head, rapid.IntRange(1, 4).Draw(t, "heads"))
		end := 0
		for i := range heads {
			pos := rapid.SliceOfDistinct(rapid.Int32Range(0, 60), rapid.ID[int32]).Draw(t, "positions")
			slices.Sort(pos)
			n := rapid.IntRange(0, len(pos)).Draw(t, "main")
			heads[i] = Head{Main: pos[:n:n], Recent: pos[n:]}
			if len(pos) > 0 {
				end = max(end, int(pos[len(pos)-1])+1)
			}
		}
		b := AppendDirectory(nil, heads)
		got, err := ParseDirectory(b, len(heads), 64, end, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range heads {
			if !slices.Equal(got[i].Main, heads[i].Main) || !slices.Equal(got[i].Recent, heads[i].Recent) {
				t.Fatalf("head %d: %v, want %v", i, got[i], heads[i])
			}
		}
		at := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[at] ^= byte(1 << rapid.IntRange(0, 7).Draw(t, "bit"))
		if got, err := ParseDirectory(b, len(heads), 64, end, 0); err == nil {
			for _, h := range got {
				if all := slices.Concat(h.Main, h.Recent); !slices.IsSorted(all) || len(all) > 128 || len(all) > 0 && int(all[len(all)-1]) >= end {
					t.Fatalf("%v", h)
				}
			}
		}
		if _, err := ParseDirectory(b[:at], len(heads), 64, end, 0); err == nil {
			t.Fatal("a cut directory is accepted")
		}
	})
}

// TestRanks: ranks come back behind the positions, those of some heads too; cut or turned they are refused or within bounds, and a
// header with ranks of another version, or of a block of a plain prefix, is damaged.
func TestRanks(t *testing.T) {
	heads := []Head{{Main: []int32{0, 2, 3}, Ranks: []uint32{2, 0, 5}}, {Main: []int32{1}}, {Ranks: []uint32{}}}
	b := AppendRanks(AppendDirectory(nil, heads), heads)
	got, err := ParseDirectory(b, 3, 8, 4, RanksVersion)
	if err != nil || !slices.Equal(got[0].Ranks, heads[0].Ranks) || got[1].Ranks != nil || got[2].Ranks == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := ParseDirectory(b, 3, 8, 4, 0); !errors.Is(err, ErrDamaged) {
		t.Errorf("read as one without ranks: %v", err)
	}
	for at := range b {
		if _, err := ParseDirectory(b[:at], 3, 8, 4, RanksVersion); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut to %d bytes: %v", at, err)
		}
		for bit := range 8 {
			b[at] ^= 1 << bit
			if got, err := ParseDirectory(b, 3, 8, 4, RanksVersion); err == nil {
				for _, h := range got {
					if h.Ranks != nil && (len(h.Ranks) != len(h.Main) || len(h.Ranks) > 0 && slices.Max(h.Ranks) >= 12) {
						t.Fatalf("byte %d bit %d: %+v", at, bit, h)
					}
				}
			}
			b[at] ^= 1 << bit
		}
	}
	for _, m := range []Meta{{Tokens: 4, Parts: 1, Ranks: RanksVersion + 1}, {Tokens: 4, Ranks: RanksVersion}} {
		r, err := Build(m, []int{0}, func(_ int, dst []byte) ([]byte, error) { return dst, nil })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(r.Raw()); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
