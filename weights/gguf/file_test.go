package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/mapped"
)

func copyTiny(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, tiny(t), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	path := copyTiny(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.header.version != 3 || f.header.alignment != 32 || f.SizeBytes() != int64(len(tiny(t))) || len(f.Tensors()) != 11 {
		t.Errorf("version %d, alignment %d, size %d, %d tensors", f.header.version, f.header.alignment, f.SizeBytes(), len(f.Tensors()))
	}
	e := f.Tensors()[0]
	if e.Name != "token_embd.weight" || e.Rows() != 64 || e.Cols() != 32 || e.SizeBytes() != 8192 && e.SizeBytes() != 4096 {
		t.Errorf("first tensor %q %s %v, %d bytes", e.Name, e.Type, e.Shape, e.SizeBytes())
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, x := range f.Tensors() {
				b, err := x.Bytes()
				if err != nil || int64(len(b)) != x.SizeBytes() {
					t.Errorf("tensor %q: %d bytes, %v", x.Name, len(b), err)
				}
			}
		})
	}
	wg.Wait()
	before := bytes.Clone(e.Raw())
	e.Drop()
	if !bytes.Equal(e.Raw(), before) {
		t.Error("bytes differ after Drop")
	}
	if err := f.CheckUnchanged(); err != nil {
		t.Error(err)
	}
	arch, err := f.Meta().String("general.architecture")
	if closeErr := f.Close(); closeErr != nil || err != nil || arch != "llama" {
		t.Errorf("architecture %q, %v, %v", arch, err, closeErr)
	}
	if list, err := f.Meta().Strings("tokenizer.ggml.tokens"); err != nil || len(list) != 64 {
		t.Errorf("tokens after Close: %d, %v", len(list), err)
	}
	if f.Close() != nil {
		t.Error("closing twice is an error")
	}
}

// TestCutWhileMapped cuts the file after it was opened: reading the lost tensor is an error, never a crash.
func TestCutWhileMapped(t *testing.T) {
	path := copyTiny(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	last := f.Tensors()[len(f.Tensors())-1]
	for range 2 {
		if _, err := last.Bytes(); !errors.Is(err, mapped.ErrChanged) || !strings.Contains(err.Error(), last.Name) {
			t.Errorf("reading a tensor that was cut off: %v, want ErrChanged that names %q", err, last.Name)
		}
	}
	if err := f.CheckUnchanged(); !errors.Is(err, mapped.ErrChanged) {
		t.Errorf("CheckUnchanged: %v", err)
	}
}

func TestNotFinite(t *testing.T) {
	nan := binary.LittleEndian.AppendUint32(make([]byte, 12), math.Float32bits(float32(math.NaN())))
	tensor := NewTensor("blk.0.bad", quant.F32, []int{2, 2}, func() ([]byte, error) { return nan, nil })
	for range 2 {
		if _, err := tensor.Bytes(); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "blk.0.bad") || !strings.Contains(err.Error(), "row 1 column 1") {
			t.Errorf("a NaN at [1,1]: %v", err)
		}
	}
	if len(tensor.Raw()) != 16 {
		t.Error("Raw must not look at the values")
	}
	block := make([]byte, 34)
	binary.LittleEndian.PutUint16(block, 0x7c00)
	scale := NewTensor("q", quant.Q8_0, []int{1, 32}, func() ([]byte, error) { return block, nil })
	if _, err := scale.Bytes(); !errors.Is(err, ErrNotFinite) || !strings.Contains(err.Error(), "scale") {
		t.Errorf("an infinite scale: %v", err)
	}
}

// TestComputed: a tensor that is computed is computed once, and once more after Drop.
func TestComputed(t *testing.T) {
	calls := 0
	x := NewTensor("x", quant.F16, []int{3}, func() ([]byte, error) { calls++; return make([]byte, 6), nil })
	for range 3 {
		if _, err := x.Bytes(); err != nil {
			t.Fatal(err)
		}
	}
	x.Drop()
	if x.Raw() == nil || calls != 2 {
		t.Errorf("computed %d times, want 2", calls)
	}
	short := NewTensor("short", quant.F16, []int{3}, func() ([]byte, error) { return make([]byte, 4), nil })
	if _, err := short.Bytes(); !errors.Is(err, ErrFormat) || short.Raw() != nil {
		t.Errorf("4 bytes for 6: %v", err)
	}
	failing := NewTensor("failing", quant.F16, []int{3}, func() ([]byte, error) { return nil, os.ErrDeadlineExceeded })
	if _, err := failing.Bytes(); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "failing") {
		t.Errorf("a load that fails: %v", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, mapped.ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	empty := filepath.Join(dir, "empty.gguf")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(empty); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "empty.gguf") {
		t.Errorf("an empty file: %v", err)
	}
}

// TestStack: the parts lie one after the other, and a fault in one is the stack's.
func TestStack(t *testing.T) {
	part := func(b byte) *Tensor {
		return NewTensor("p", quant.F16, []int{2, 3}, func() ([]byte, error) { return bytes.Repeat([]byte{b}, 12), nil })
	}
	s := Stack("experts", []*Tensor{part(1), part(2)})
	b, err := s.Bytes()
	if err != nil || !bytes.Equal(b, append(bytes.Repeat([]byte{1}, 12), bytes.Repeat([]byte{2}, 12)...)) || s.Rows() != 4 || len(s.Shape) != 3 || len(s.Parts()) != 2 {
		t.Errorf("stack %v: %v, %v", s.Shape, b, err)
	}
	s.Drop()
	if again := s.Raw(); !bytes.Equal(again, b) || len(part(0).Parts()) != 1 {
		t.Error("the stack differs after Drop")
	}
	bad := Stack("experts", []*Tensor{part(1), NewTensor("q", quant.F16, []int{2, 3}, func() ([]byte, error) { return nil, os.ErrClosed })})
	if _, err := bad.Bytes(); !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "experts") {
		t.Errorf("a part that fails: %v", err)
	}
}

// TestOpenIsLazy opens a file with 5 GiB of tensors (a hole on the disk): only the header may be read.
func TestOpenIsLazy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.gguf")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	m := filled()
	var infos []Info
	for i := range 40 {
		infos = append(infos, Info{fmt.Sprintf("t%d", i), quant.F32, []int{1 << 13, 1 << 12}})
	}
	var header bytes.Buffer
	if _, err := NewWriter(&header, m, infos); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(header.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Truncate(int64(header.Len())+40<<27), file.Close()); err != nil {
		t.Skipf("skipped: no sparse file of 5 GiB: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resident := residentBytes(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	runtime.ReadMemStats(&after)
	grown := residentBytes(t) - resident
	t.Logf("%d bytes opened, %d allocated, %d more resident", f.SizeBytes(), after.TotalAlloc-before.TotalAlloc, grown)
	if after.TotalAlloc-before.TotalAlloc > 1<<20 || grown > 16<<20 {
		t.Error("opening touched more than the header")
	}
}

// residentBytes is what the process has in memory, mapped files included.
func residentBytes(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
