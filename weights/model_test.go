package weights_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights"
	"terrace/weights/gguf"
)

// layers makes metadata and tensors of a model with n layers of one tensor each.
func layers(n int) (*weights.Meta, []gguf.Info) {
	m := &weights.Meta{}
	m.Set("general.architecture", "llama")
	m.Set("llama.block_count", uint32(n))
	infos := []gguf.Info{{Name: "token_embd.weight", Type: quant.F32, Shape: []int{4, 2}}}
	for i := range n {
		infos = append(infos, gguf.Info{Name: fmt.Sprintf("blk.%d.attn_q.weight", i), Type: quant.F32, Shape: []int{2, 2}})
	}
	return m, infos
}

// writeFile writes a model whose tensors are filled with their number.
func writeFile(t *testing.T, path string, m *weights.Meta, infos []gguf.Info) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gguf.NewWriter(&b, m, infos)
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range infos {
		if _, err := w.Write(bytes.Repeat([]byte{byte(i)}, int(info.SizeBytes()))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestModel(t *testing.T) {
	meta, infos := layers(3)
	path := writeFile(t, filepath.Join(t.TempDir(), "m.gguf"), meta, infos)
	m, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Path() != path || m.Format() != "gguf" || len(m.Tensors()) != 4 || !m.Has("blk.2.attn_q.weight") || m.Has("blk.3.attn_q.weight") {
		t.Errorf("path %q, format %q, %d tensors", m.Path(), m.Format(), len(m.Tensors()))
	}
	if st, err := os.Stat(path); err != nil || st.Size() != m.SizeBytes() {
		t.Errorf("size %d, %v", m.SizeBytes(), err)
	}
	if n, err := m.Meta().Int("llama.block_count"); err != nil || n != 3 {
		t.Errorf("block_count %d, %v", n, err)
	}
	x, err := m.Tensor("blk.1.attn_q.weight")
	if err != nil || x.Raw()[0] != 2 {
		t.Errorf("tensor of layer 1: %v", err)
	}
	if _, err := m.Tensor("nothing"); !errors.Is(err, weights.ErrMissingTensor) || !strings.Contains(err.Error(), "nothing") || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing tensor: %v", err)
	}
	var calls int
	var last [2]int64
	if err := m.Verify(t.Context(), func(done, total int64) { calls++; last = [2]int64{done, total} }); err != nil || calls != 4 || last[0] != last[1] || last[1] != 80 {
		t.Errorf("verify: %v, %d calls, at last %v", err, calls, last)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Verify(cancelled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("verify with a cancelled context: %v", err)
	}
	writeFile(t, path, meta, infos[:2])
	if err := m.CheckUnchanged(); !errors.Is(err, weights.ErrFileChanged) {
		t.Errorf("the file was written again: %v", err)
	}
}

// TestContradictions: what holds whatever the architecture.
func TestContradictions(t *testing.T) {
	cases := map[string]struct {
		change  func(m *weights.Meta, infos []gguf.Info) []gguf.Info
		mention string
	}{
		"architecture is a number": {func(m *weights.Meta, i []gguf.Info) []gguf.Info { m.Set("general.architecture", 3); return i }, "general.architecture"},
		"architecture is empty":    {func(m *weights.Meta, i []gguf.Info) []gguf.Info { m.Set("general.architecture", ""); return i }, "empty"},
		"block_count is a text":    {func(m *weights.Meta, i []gguf.Info) []gguf.Info { m.Set("llama.block_count", "2"); return i }, "block_count"},
		"block_count is 2000":      {func(m *weights.Meta, i []gguf.Info) []gguf.Info { m.Set("llama.block_count", 2000); return i }, "block_count"},
		"a layer too few":          {func(m *weights.Meta, i []gguf.Info) []gguf.Info { return i[:2] }, "blk.1"},
		"a layer too many":         {func(m *weights.Meta, i []gguf.Info) []gguf.Info { m.Set("llama.block_count", 1); return i }, "layer 1"},
		"a token too many": {func(m *weights.Meta, i []gguf.Info) []gguf.Info {
			m.Set("tokenizer.ggml.tokens", []string{"a", "b", "c", "d", "e"})
			return i
		}, "vocabulary"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, infos := layers(2)
			infos = c.change(m, infos)
			_, err := weights.Open(writeFile(t, filepath.Join(t.TempDir(), "m.gguf"), m, infos))
			if !errors.Is(err, weights.ErrFormat) || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("error %v, want ErrFormat that mentions %q", err, c.mention)
			}
		})
	}
}

// splitFiles writes a model in n parts, one tensor each after the first, and returns their names.
func splitFiles(t *testing.T, dir string, n int) []string {
	t.Helper()
	whole, infos := layers(n - 1)
	var paths []string
	for i := range n {
		m := &weights.Meta{}
		if i == 0 {
			m = whole.Clone()
			m.Set("split.tensors.count", int32(n))
		}
		m.Set("split.no", uint16(i))
		m.Set("split.count", uint16(n))
		paths = append(paths, writeFile(t, filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, n)), m, infos[i:i+1]))
	}
	return paths
}

func TestSplit(t *testing.T) {
	paths := splitFiles(t, t.TempDir(), 3)
	for _, path := range paths {
		m, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Tensors()) != 3 || !m.Meta().Has("general.architecture") {
			t.Errorf("%s: %d tensors", path, len(m.Tensors()))
		}
		if err := m.Verify(t.Context(), nil); err != nil {
			t.Error(err)
		}
		m.Close()
	}
}

func TestSplitFaults(t *testing.T) {
	cases := map[string]struct {
		change  func(t *testing.T, dir string, paths []string) string
		mention string
	}{
		"part missing": {func(t *testing.T, dir string, p []string) string { os.Remove(p[1]); return p[0] }, "part 2 of 3 is missing"},
		"other name": {func(t *testing.T, dir string, p []string) string {
			os.Rename(p[0], dir+"/m.gguf")
			return dir + "/m.gguf"
		}, "of 3 parts"},
		"name says 2": {func(t *testing.T, dir string, p []string) string {
			to := dir + "/m-00001-of-00002.gguf"
			os.Rename(p[0], to)
			return to
		}, "split.count"},
		"part twice": {func(t *testing.T, dir string, p []string) string {
			os.Remove(p[2])
			os.Link(p[1], p[2])
			return p[0]
		}, "split.no"},
		"count 0": {func(t *testing.T, dir string, p []string) string {
			m, infos := layers(1)
			m.Set("split.count", uint16(0))
			return writeFile(t, p[0], m, infos)
		}, "split.count"},
		"count is a text": {func(t *testing.T, dir string, p []string) string {
			m, infos := layers(1)
			m.Set("split.count", "three")
			return writeFile(t, p[0], m, infos)
		}, "split.count"},
		"tensors missing": {func(t *testing.T, dir string, p []string) string {
			m, infos := layers(2)
			m.Set("split.count", uint16(1))
			m.Set("split.no", uint16(0))
			m.Set("split.tensors.count", int32(9))
			return writeFile(t, p[0], m, infos)
		}, "split.tensors.count"},
		"tensor twice": {func(t *testing.T, dir string, p []string) string {
			m := &weights.Meta{}
			_, infos := layers(1)
			m.Set("split.count", uint16(3))
			m.Set("split.no", uint16(2))
			writeFile(t, p[2], m, infos[:1])
			return p[0]
		}, "duplicate"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := weights.Open(c.change(t, dir, splitFiles(t, dir, 3)))
			if !errors.Is(err, weights.ErrFormat) || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("error %v, want ErrFormat that mentions %q", err, c.mention)
			}
		})
	}
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(dir, os.DirFS(shared(t, "data", "bad", "ok_hf_bf16"))); err != nil {
		t.Fatal(err)
	}
	m, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	weightFile := filepath.Join(dir, "model.safetensors")
	st, err := os.Stat(weightFile)
	if err != nil || m.Format() != "safetensors" || m.SizeBytes() != st.Size() || !m.Has("blk.0.attn_q.weight") {
		t.Errorf("format %q, %d bytes, %v", m.Format(), m.SizeBytes(), err)
	}
	if err := m.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	os.Chmod(weightFile, 0o644)
	if err := os.Truncate(weightFile, 5000); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckUnchanged(); !errors.Is(err, weights.ErrFileChanged) {
		t.Errorf("the file was cut: %v", err)
	}
	if _, err := weights.Open(filepath.Join(dir, "nothing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
}

// TestRealModels opens the real models, where they are, and scans all weights.
func TestRealModels(t *testing.T) {
	for _, name := range []string{"TERRACE_TEST_SMOLLM2", "TERRACE_TEST_GEMMA3"} {
		path := os.Getenv(name)
		if path == "" {
			t.Logf("skipped: %s is not set", name)
			continue
		}
		m, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(t.Context(), nil); err != nil {
			t.Error(err)
		}
		m.Close()
	}
}

func TestGuard(t *testing.T) {
	if err := weights.Guard(func() error { return os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
