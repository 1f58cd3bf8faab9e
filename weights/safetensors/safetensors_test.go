package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

func tiny(tb testing.TB) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/tiny.safetensors")
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// file makes a file of a header text and n bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

// TestTruncation cuts a file at every byte: none of the pieces may be accepted, none may panic.
func TestTruncation(t *testing.T) {
	whole := tiny(t)
	if err := new(File).parse(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := new(File).parse(whole[:n:n]); !errors.Is(err, gguf.ErrFormat) {
			t.Fatalf("cut to %d of %d bytes: error %v, want ErrFormat", n, len(whole), err)
		}
	}
}

// TestHeaderBitFlips flips every bit of length and header; what is still accepted must tile the data.
func TestHeaderBitFlips(t *testing.T) {
	whole := tiny(t)
	end := 8 + int(binary.LittleEndian.Uint64(whole))
	flipped, refused := bytes.Clone(whole), 0
	for bit := range 8 * end {
		flipped[bit/8] ^= 1 << (bit % 8)
		f := new(File)
		if f.parse(flipped) != nil {
			refused++
		} else {
			checkTiling(t, f)
		}
		flipped[bit/8] ^= 1 << (bit % 8)
	}
	t.Logf("%d of %d flips refused", refused, 8*end)
	if refused < 4*end {
		t.Errorf("only %d of %d flips were refused", refused, 8*end)
	}
}

func checkTiling(t testing.TB, f *File) {
	t.Helper()
	total := 0
	for _, e := range f.entries {
		if e.begin < 0 || e.end < e.begin || e.end > len(f.data) {
			t.Fatalf("tensor %q: bytes %d to %d of %d", e.Name, e.begin, e.end, len(f.data))
		}
		total += e.SizeBytes()
	}
	if total != len(f.data) {
		t.Fatalf("tensors hold %d bytes of %d", total, len(f.data))
	}
}

// TestAllocation meters what headers take that make much of little: at most 4 × the file + 16 MiB.
func TestAllocation(t *testing.T) {
	var names strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&names, `"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
	}
	files := map[string][]byte{
		"tiny":          tiny(t),
		"many members":  file("{"+strings.TrimSuffix(names.String(), ",")+"}", 0),
		"deep":          file(`{"a":{"x":`+strings.Repeat("[", 1<<20)+strings.Repeat("]", 1<<20)+`}}`, 0),
		"a long string": file(`{"`+strings.Repeat("a", 1<<20)+`\u0061`+strings.Repeat("b", 1<<20)+`"}`, 0),
		"length 2^63":   append(binary.LittleEndian.AppendUint64(nil, 1<<63), make([]byte, 100)...),
	}
	for name, data := range files {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := new(File).parse(data)
		runtime.ReadMemStats(&after)
		took, limit := after.TotalAlloc-before.TotalAlloc, uint64(4*len(data)+16<<20)
		t.Logf("%s: %d bytes, allocated %d (%.100v)", name, len(data), took, err)
		if took > limit {
			t.Errorf("%s: allocated %d bytes for a file of %d, the limit is %d", name, took, len(data), limit)
		}
	}
}

// TestDecoder has one header for each rule of strictness, refused and accepted ones.
func TestDecoder(t *testing.T) {
	one := `"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}`
	cases := []struct{ header, mention string }{
		{`{` + one + `}`, ""},
		{`{` + one + "}  \n", ""},
		{`{ "a" : { "dtype" : "U8" , "shape" : [ 2 ] , "data_offsets" : [ 0 , 2 ] } }`, ""},
		{`{"__metadata__":{"format":"pt","x":"\"\\\/\b\f\n\r\té\ud83d\ude00"},` + one + `}`, ""},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"note":{"deep":[1,-2.5e3,true,null,"x",{"y":[]}]}}}`, ""},
		{`{"\u0061":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, ""},
		{`{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}`, ""},
		{`{"z":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},` + one + `}`, ""},
		{`{` + one + `}x`, "follows"},
		{`{` + one + `,}`, "invalid"},
		{`{` + one + ` "b"}`, "invalid"},
		{`{` + one + `,` + one + `}`, "duplicate"},
		{`{` + one + `,"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, "duplicate"},
		{`{"__metadata__":{"x":"1","x":"2"},` + one + `}`, "duplicate"},
		{`{"__metadata__":{},"__metadata__":{},` + one + `}`, "duplicate"},
		{`{"__metadata__":{"x":1},` + one + `}`, "invalid"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":{"y":1,"y":2}}}`, "duplicate"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":tru}}`, "invalid"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":01}}`, "invalid"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":}}`, "missing value"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}}`, "nested"},
		{`{"a":{"shape":[2],"data_offsets":[0,2]}}`, "dtype is missing"},
		{`{"a":{"dtype":"U8","data_offsets":[0,2]}}`, "shape is missing"},
		{`{"a":{"dtype":"U8","shape":[2]}}`, "data_offsets is missing"},
		{`{"a":{"dtype":"U7","shape":[2],"data_offsets":[0,2]}}`, "dtype"},
		{`{"a":{"dtype":"U8","shape":[-2],"data_offsets":[0,2]}}`, "whole number"},
		{`{"a":{"dtype":"U8","shape":[2.0],"data_offsets":[0,2]}}`, "whole"},
		{`{"a":{"dtype":"U8","shape":[2e0],"data_offsets":[0,2]}}`, "whole"},
		{`{"a":{"dtype":"U8","shape":[02],"data_offsets":[0,2]}}`, "invalid"},
		{`{"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,2]}}`, "overflows"},
		{`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,2]}}`, "more than"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0]}}`, "data_offsets"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2,2]}}`, "more than"},
		{`{"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}`, "backwards"},
		{`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, "dtype"},
		{"{\"\xff\":1}", "UTF-8"},
		{"{\"\\n\xff\":1}", "UTF-8"},
		{"{\"a\x01\":1}", "control"},
		{"{\"\\n\x01\":1}", "control"},
		{`{"\q":1}`, "escape"},
		{`{"\ud800":1}`, "surrogate"},
		{`{"\ud800\u0061":1}`, "surrogate"},
		{`{"\u00g0":1}`, "escape"},
		{`{"\u00`, "EOF"},
		{`{"\`, "EOF"},
		{`{"a`, "EOF"},
		{`{"a"`, "EOF"},
		{`{"a":[]}`, "invalid"},
		{`[]`, "object"},
	}
	for _, c := range cases {
		err := new(File).parse(file(c.header, 2))
		switch {
		case c.mention == "" && err != nil:
			t.Errorf("%.90s: %v, want no error", c.header, err)
		case c.mention != "" && (!errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), c.mention)):
			t.Errorf("%.90s: %v, want ErrFormat that mentions %q", c.header, err, c.mention)
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	if err := os.WriteFile(path, tiny(t), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors()) != 11 || len(f.Entries()) != 11 || f.Path() != path || f.SizeBytes() != int64(len(tiny(t))) {
		t.Errorf("%d tensors, %d entries, size %d", len(f.Tensors()), len(f.Entries()), f.SizeBytes())
	}
	for _, x := range f.Tensors() {
		b, err := x.Bytes()
		if err != nil || x.Type != quant.BF16 || !bytes.Equal(b, f.Bytes(x.Name)) {
			t.Errorf("tensor %q %s: %v", x.Name, x.Type, err)
		}
	}
	if f.Bytes("nothing") != nil {
		t.Error("bytes of a tensor that is not there")
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensors()[10].Bytes(); err == nil {
		t.Log("still in the first page") // read above: the pages may be kept
	}
	if err := f.CheckUnchanged(); !errors.Is(err, mapped.ErrChanged) {
		t.Errorf("cut while open: %v, want ErrChanged", err)
	}
	if _, err := Open(path); !errors.Is(err, gguf.ErrFormat) || !strings.Contains(err.Error(), path) {
		t.Errorf("opening the cut file: %v", err)
	}
	if _, err := Open(filepath.Dir(path)); !errors.Is(err, mapped.ErrNotRegular) {
		t.Errorf("opening a folder: %v", err)
	}
}

func TestWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "o.safetensors")
	entries := []Entry{{Name: "logits \"x\"", DType: "F32", Shape: []int{2, 2}}, {Name: "ids", DType: "I64", Shape: []int{3}}, {Name: "scalar", DType: "U8"}}
	w, err := Create(path, entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WriteFloat32s([]float32{1, -2, 3.5, 0}), binary.Write(w, binary.LittleEndian, []int64{-1, 2, 1 << 40})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there before Close")
	}
	if _, err := w.Write([]byte{9}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.Abort() // nothing after Close
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]float32, 4)
	quant.Dequantize(quant.F32, got, f.Bytes(entries[0].Name))
	if got[1] != -2 || got[2] != 3.5 || int64(binary.LittleEndian.Uint64(f.Bytes("ids"))) != -1 || f.Bytes("scalar")[0] != 9 || len(f.Tensors()) != 1 {
		t.Errorf("read back %v, %d tensors", got, len(f.Tensors()))
	}
}

func TestWriterRefusals(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "o.safetensors")
	for name, entries := range map[string][]Entry{
		"twice":    {{Name: "a", DType: "F32"}, {Name: "a", DType: "F32"}},
		"reserved": {{Name: "__metadata__", DType: "F32"}},
		"dtype":    {{Name: "a", DType: "F33"}},
		"overflow": {{Name: "a", DType: "F32", Shape: []int{1 << 40, 1 << 40}}},
		"negative": {{Name: "a", DType: "F32", Shape: []int{-1}}},
	} {
		if _, err := Create(path, entries); !errors.Is(err, gguf.ErrFormat) {
			t.Errorf("%s: %v, want ErrFormat", name, err)
		}
	}
	if _, err := Create(filepath.Join(dir, "no", "o.safetensors"), nil); err == nil {
		t.Error("created in a folder that is not there")
	}
	w, err := Create(path, []Entry{{Name: "a", DType: "U8", Shape: []int{4}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, ErrOrder) {
		t.Errorf("a byte too few: %v, want ErrOrder", err)
	}
	if w, err = Create(path, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte{1}); !errors.Is(err, ErrOrder) {
		t.Errorf("a byte too many: %v, want ErrOrder", err)
	}
	w.Abort()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func FuzzSafetensors(f *testing.F) {
	whole, err := os.ReadFile("testdata/tiny.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(file(`{"__metadata__":{"a":"\u00e9"},"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8],"z":[{}]}}`, 8))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := new(File)
		if err := file.parse(data); err != nil {
			if !errors.Is(err, gguf.ErrFormat) {
				t.Fatalf("error %v does not wrap ErrFormat", err)
			}
			return
		}
		checkTiling(t, file)
	})
}
