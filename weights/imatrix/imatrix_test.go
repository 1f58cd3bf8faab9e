package imatrix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// sample has a dense tensor and one of three experts, the last never reached.
func sample(t *testing.T) *Matrix {
	t.Helper()
	c := NewCollector()
	for _, err := range []error{
		c.Add("blk.0.attn_q.weight", 0, 1, 2, []float32{1, 2, 3, -4}),
		c.Add("blk.0.ffn_up_exps.weight", 0, 3, 2, []float32{1, 0}),
		c.Add("blk.0.ffn_up_exps.weight", 1, 3, 2, []float32{2, 2, 4, 0}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := c.Matrix([]string{"text.txt"}, 3, 512)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func checkSample(t *testing.T, m *Matrix) {
	t.Helper()
	dense, err := m.Weights("blk.0.attn_q.weight", 1, 2)
	if err != nil || !slices.Equal(dense, []float32{5, 10}) {
		t.Errorf("dense: %v, %v", dense, err)
	}
	experts, err := m.Weights("blk.0.ffn_up_exps.weight", 3, 2)
	if err != nil || !slices.Equal(experts, []float32{1, 0, 10, 2, 1, 1}) {
		t.Errorf("experts: %v, %v", experts, err)
	}
	if none, err := m.Weights("blk.1.attn_q.weight", 1, 2); none != nil || err != nil {
		t.Errorf("unknown tensor: %v, %v", none, err)
	}
	if _, err := m.Weights("blk.0.attn_q.weight", 1, 3); !errors.Is(err, ErrShape) {
		t.Errorf("other columns: %v", err)
	}
}

// A written file read back, and looked at byte by byte: the layout that llama-imatrix's save_imatrix writes (one dimension for a
// tensor of one matrix, since ggml counts dimensions above 1).
func TestWriteAndRead(t *testing.T) {
	m := sample(t)
	checkSample(t, m)
	path := filepath.Join(t.TempDir(), "i.gguf")
	if err := m.Write(path); err != nil {
		t.Fatal(err)
	}
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	checkSample(t, back)
	if back.Chunks != 3 || back.ChunkTokens != 512 || !slices.Equal(back.Datasets, []string{"text.txt"}) {
		t.Errorf("chunks %d of %d tokens of %v", back.Chunks, back.ChunkTokens, back.Datasets)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	str := func(s string) []byte { return append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...) }
	u32 := func(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
	u64 := func(v ...uint64) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	header := join([]byte("GGUF"), u32(3), u64(4, 4),
		str("general.type"), u32(8), str("imatrix"),
		str("imatrix.datasets"), u32(9), u32(8), u64(1), str("text.txt"),
		str("imatrix.chunk_count"), u32(4), u32(3), str("imatrix.chunk_size"), u32(4), u32(512),
		str("blk.0.attn_q.weight.in_sum2"), u32(1), u64(2), u32(0), u64(0),
		str("blk.0.attn_q.weight.counts"), u32(1), u64(1), u32(0), u64(32),
		str("blk.0.ffn_up_exps.weight.in_sum2"), u32(2), u64(2, 3), u32(0), u64(64),
		str("blk.0.ffn_up_exps.weight.counts"), u32(2), u64(1, 3), u32(0), u64(96))
	if !bytes.HasPrefix(raw, header) {
		t.Errorf("header differs:\n%q\nwant\n%q", raw[:min(len(raw), len(header))], header)
	}
}

// legacy writes llama.cpp's older format by its definition: what is stored is the mean square times the calls.
func legacy(name string, calls int32, values []float32) []byte {
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	put(int32(1))
	put(int32(len(name)))
	b.WriteString(name)
	put(calls)
	put(int32(len(values)))
	put(values)
	put(calls)
	put(int32(len("wiki.txt")))
	b.WriteString("wiki.txt")
	return b.Bytes()
}

func TestReadLegacy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.dat")
	whole := legacy("blk.0.attn_q.weight", 4, []float32{8, 2, 0, 4})
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := m.Weights("blk.0.attn_q.weight", 1, 4); err != nil || !slices.Equal(w, []float32{2, 0.5, 0, 1}) {
		t.Errorf("%v, %v", w, err)
	}
	if w, err := m.Weights("blk.0.attn_q.weight", 2, 2); err != nil || !slices.Equal(w, []float32{2, 0.5, 0, 1}) {
		t.Errorf("as experts: %v, %v", w, err)
	}
	if m.Chunks != 4 || !slices.Equal(m.Datasets, []string{"wiki.txt"}) {
		t.Errorf("%d chunks of %v", m.Chunks, m.Datasets)
	}
}

// What is no importance matrix is refused, whatever its first bytes say, and without reading what a wild length promises.
func TestReadRefusals(t *testing.T) {
	whole := legacy("n", 4, []float32{8, 2, 0, 4})
	wild := slices.Clone(whole)
	binary.LittleEndian.PutUint32(wild[4:], 1<<30)
	negative := legacy("n", 4, []float32{8, -2})
	infinite := legacy("n", 4, []float32{8, float32(math.Inf(1))})
	cases := map[string][]byte{"empty": nil, "text": []byte("this is a text of some length"), "wild": wild, "negative": negative, "infinite": infinite}
	for i := range 33 { // up to the end of the values
		cases["cut at "+strconv.Itoa(i)] = whole[:i]
	}
	for name, b := range cases {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := Read(path); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if _, err := Read("../gguf/testdata/tiny.gguf"); !errors.Is(err, ErrFormat) {
		t.Errorf("a model: %v", err)
	}
}
