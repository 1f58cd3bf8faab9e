package quant

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// shared finds a file of the material shared beside the repository (or under TERRACE_SHARED); the test is skipped without it.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	root := os.Getenv("TERRACE_SHARED")
	for dir := "."; root == ""; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = filepath.Join(dir, "..", "shared")
		} else if abs, _ := filepath.Abs(dir); abs == filepath.Dir(abs) {
			t.Skip("no go.mod above the test")
		}
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: %s is not there (set TERRACE_SHARED)", path)
	}
	return path
}

// goldenRows reads the F32 tensors of a safetensors file by its plain definition.
func goldenRows(t testing.TB, path string) map[string][]float32 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	rows := map[string][]float32{}
	for name, e := range header {
		if e.DType != "F32" {
			continue
		}
		data := b[8+n:][e.Offsets[0]:e.Offsets[1]]
		for ; len(data) > 0; data = data[4:] {
			rows[name] = append(rows[name], math.Float32frombits(binary.LittleEndian.Uint32(data)))
		}
	}
	return rows
}

// blocks finds the bytes of a tensor in a GGUF file of the goldens by a minimal reader that trusts the file: package
// weights/gguf stands above this one.
func blocks(t testing.TB, path, tensor string) (Type, int, []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := 8
	u32 := func() uint32 { at += 4; return binary.LittleEndian.Uint32(b[at-4:]) }
	u64 := func() int { at += 8; return int(binary.LittleEndian.Uint64(b[at-8:])) }
	str := func() string { n := u64(); at += n; return string(b[at-n : at]) }
	sizes := map[uint32]int{0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
	var skip func(kind uint32)
	skip = func(kind uint32) {
		switch kind {
		case 8:
			str()
		case 9:
			elem := u32()
			for range u64() {
				skip(elem)
			}
		default:
			at += sizes[kind]
		}
	}
	tensors, pairs := u64(), u64()
	for range pairs {
		str()
		skip(u32())
	}
	var found struct{ cols, rows, offset int }
	var kind Type
	for range tensors {
		name, dims := str(), int(u32())
		cols, rows := u64(), 1
		for range dims - 1 {
			rows *= u64()
		}
		k, offset := Type(u32()), u64()
		if name == tensor {
			kind, found.cols, found.rows, found.offset = k, cols, rows, offset
		}
	}
	if found.cols == 0 {
		t.Fatalf("%s has no tensor %q", path, tensor)
	}
	start := (at+31)/32*32 + found.offset
	return kind, found.cols, b[start : start+found.rows*kind.RowBytes(found.cols)]
}
