package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"terrace/internal/golden"
	"terrace/internal/kernels/quant"
)

func tiny(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/tiny.gguf")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// TestTruncation cuts a file at every byte: none of the pieces may be accepted, none may panic.
func TestTruncation(t *testing.T) {
	whole := tiny(t)
	if _, err := parse(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := parse(whole[:n:n]); !errors.Is(err, ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: error %v, want ErrFormat", n, len(whole), err)
		}
	}
}

// TestHeaderBitFlips flips every bit of the header. A file may stay valid (a letter of a name changes); then its tensors must
// still lie inside it, apart from each other. Nothing may panic.
func TestHeaderBitFlips(t *testing.T) {
	whole := tiny(t)
	h, err := parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	flipped, refused, tried, each := bytes.Clone(whole), 0, 0, 3 // every third bit: two or three of each byte
	if golden.Thorough() {
		each = 1
	}
	for bit := 0; bit < 8*h.dataStart; bit += each {
		tried++
		flipped[bit/8] ^= 1 << (bit % 8)
		got, err := parse(flipped)
		if err != nil {
			refused++
		} else {
			checkPlaces(t, got, len(whole))
			readEverything(t, got.meta)
		}
		flipped[bit/8] ^= 1 << (bit % 8)
	}
	t.Logf("%d of %d flips refused", refused, tried)
	if refused < tried/2 {
		t.Errorf("only %d of %d flips were refused", refused, tried)
	}
}

// checkPlaces proves what a caller relies on: every tensor in the file, none over another.
func checkPlaces(t testing.TB, h *header, size int) {
	t.Helper()
	for i, a := range h.entries {
		if a.start < h.dataStart || a.size < 0 || a.start+a.size > size {
			t.Fatalf("tensor %q: bytes %d to %d of %d", a.name, a.start, a.start+a.size, size)
		}
		for _, b := range h.entries[:i] {
			if a.start < b.start+b.size && b.start < a.start+a.size {
				t.Fatalf("tensors %q and %q overlap", a.name, b.name)
			}
		}
	}
}

// readEverything calls every getter on every key; they may refuse but not panic.
func readEverything(t testing.TB, m *Meta) {
	t.Helper()
	for _, key := range m.Keys() {
		calls := []func() error{
			func() error { _, err := m.String(key); return err },
			func() error { _, err := m.Int(key); return err },
			func() error { _, err := m.Float(key); return err },
			func() error { _, err := m.Bool(key); return err },
			func() error { _, err := m.Strings(key); return err },
			func() error { _, err := m.Ints(key); return err },
			func() error { _, err := m.Int32s(key); return err },
			func() error { _, err := m.Floats(key); return err },
		}
		for _, call := range calls {
			if err := call(); err != nil && !errors.Is(err, ErrWrongType) {
				t.Fatalf("key %q: %v, want a value or ErrWrongType", key, err)
			}
		}
	}
}

// TestAllocation meters what parsing takes for files that claim much: at most 4 × the file + 16 MiB.
func TestAllocation(t *testing.T) {
	counts := binary.LittleEndian.AppendUint32([]byte(magic), 3)
	manyEmpty := &Meta{}
	manyEmpty.Set("a", make([]string, 1<<20)) // eight bytes an item in the file
	var many bytes.Buffer
	w, err := NewWriter(&many, manyEmpty, nil)
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"tiny":           tiny(t),
		"2^63 tensors":   append(binary.LittleEndian.AppendUint64(counts, 1<<63), make([]byte, 64)...),
		"2^40 keys":      append(binary.LittleEndian.AppendUint64(append(counts, make([]byte, 8)...), 1<<40), make([]byte, 64)...),
		"a million \"\"": many.Bytes(),
		"zeros":          append(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(counts, 30000), 0), make([]byte, 1<<20)...),
	}
	for name, file := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h, err := parse(file)
		if err == nil && h.meta.Has("a") {
			_, err = h.meta.Strings("a")
		}
		runtime.ReadMemStats(&after)
		took, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(file)+16<<20)
		t.Logf("%s: %d bytes, allocated %d (%v)", name, len(file), took, err)
		if took > limit {
			t.Errorf("%s: allocated %d bytes for a file of %d, the limit is %d", name, took, len(file), limit)
		}
	}
}

// TestRefusals has one file for each rule that the corpus of bad files does not reach.
func TestRefusals(t *testing.T) {
	u32, u64 := binary.LittleEndian.AppendUint32, binary.LittleEndian.AppendUint64
	start := func(version uint32, tensors, keys uint64) []byte {
		return u64(u64(u32([]byte(magic), version), tensors), keys)
	}
	pair := func(b []byte, key string, kind valueKind, value ...byte) []byte {
		return append(u32(appendText(b, key), uint32(kind)), value...)
	}
	room := make([]byte, 256)
	tensor := func(b []byte, name string, kind quant.Type, offset uint64, ne ...uint64) []byte {
		b = u32(appendText(b, name), uint32(len(ne)))
		for _, n := range ne {
			b = u64(b, n)
		}
		return u64(u32(b, uint32(kind)), offset)
	}
	cases := map[string]struct {
		file    []byte
		mention string
	}{
		"version 1":         {append(start(1, 0, 0), room...), "version 1"},
		"big-endian":        {append(append([]byte("GGUF"), 0, 0, 0, 3), room...), "big-endian"},
		"reversed magic":    {append([]byte("FUGG"), room...), "big-endian"},
		"no GGUF":           {append([]byte("ggml"), room...), "magic"},
		"empty key":         {append(pair(start(3, 0, 1), "", kindUint8, 1), room...), "empty"},
		"key no UTF-8":      {append(pair(start(3, 0, 1), "\xff\xfe", kindUint8, 1), room...), "UTF-8"},
		"long key":          {append(pair(start(3, 0, 1), strings.Repeat("k", maxKeyBytes+1), kindUint8, 1), room...), "limit"},
		"bool 2":            {append(pair(start(3, 0, 1), "k", kindBool, 2), room...), "bool"},
		"nested array":      {append(u64(u32(pair(start(3, 0, 1), "k", kindArray), uint32(kindArray)), 1), room...), "nested"},
		"array of type 13":  {append(u64(u32(pair(start(3, 0, 1), "k", kindArray), 13), 1), room...), "unknown item"},
		"bool item 7":       {append(append(u64(u32(pair(start(3, 0, 1), "k", kindArray), uint32(kindBool)), 2), 1, 7), room...), "item 1"},
		"alignment text":    {append(appendText(pair(start(3, 0, 1), "general.alignment", kindString), "32"), room...), "general.alignment"},
		"alignment 4":       {append(pair(start(3, 0, 1), "general.alignment", kindUint32, 4, 0, 0, 0), room...), "power of two"},
		"alignment 48":      {append(pair(start(3, 0, 1), "general.alignment", kindUint32, 48, 0, 0, 0), room...), "power of two"},
		"no dimension":      {append(tensor(start(3, 1, 0), "t", quant.F32, 0), room...), "dimensions"},
		"empty tensor name": {append(tensor(start(3, 1, 0), "", quant.F32, 0, 4), room...), "empty"},
		"removed type":      {append(tensor(start(3, 1, 0), "t", 4, 0, 32), room...), "type 4"},
		"huge dimension":    {append(tensor(start(3, 1, 0), "t", quant.F32, 0, 1<<49), room...), "2^48"},
		"size overflow":     {append(tensor(start(3, 1, 0), "t", quant.F32, 0, 1<<40, 1<<30), room...), "overflow"},
		"size overflow 4D":  {append(tensor(start(3, 1, 0), "t", quant.F32, 0, 1<<20, 1<<20, 1<<20, 1<<20), room...), "overflow"},
		"unaligned offset":  {append(tensor(start(3, 1, 0), "t", quant.F32, 8, 4), room...), "alignment"},
		"past the end":      {append(tensor(start(3, 1, 0), "t", quant.F32, 1<<20, 4), room...), "past the end"},
		"hole before":       {append(tensor(start(3, 1, 0), "t", quant.F32, 32, 4), room...), "hole"},
		"hole between":      {append(tensor(tensor(start(3, 2, 0), "t", quant.F32, 0, 4), "u", quant.F32, 64, 4), room...), "hole"},
		"inside padding":    {tensor(start(3, 1, 0), "t", quant.F32, 0, 4), "past the end"},
		"tail":              {append(append(tensor(start(3, 1, 0), "t", quant.F32, 0, 4), room...), 1), "not zero"},
		"same bytes":        {append(tensor(tensor(start(3, 2, 0), "t", quant.F32, 0, 4), "u", quant.F32, 0, 4), room...), "overlap"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.file)
			if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("error %v, want ErrFormat that mentions %q", err, c.mention)
			}
		})
	}
}

func FuzzGGUF(f *testing.F) {
	whole, err := os.ReadFile("testdata/tiny.gguf")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:600])
	var small bytes.Buffer
	m := &Meta{}
	m.Set("general.architecture", "x")
	m.Set("a.list", []int32{1, 2})
	m.Set("a.texts", []string{"a", ""})
	w, err := NewWriter(&small, m, []Info{{"t", quant.F32, []int{2, 2}}, {"u", quant.Q8_0, []int{32}}})
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{16, 34} {
		if _, err := w.Write(make([]byte, n)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(small.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := parse(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("error %v does not wrap ErrFormat", err)
			}
			return
		}
		checkPlaces(t, h, len(data))
		readEverything(t, h.meta)
	})
}
