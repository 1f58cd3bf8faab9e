package imatrix

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"terrace/internal/kernels/quant"
	"terrace/internal/replace"
	"terrace/weights/gguf"
)

const (
	sumsSuffix   = ".in_sum2"
	countsSuffix = ".counts"
	// maxLegacyBytes bounds what is read of a file that is not mapped.
	maxLegacyBytes = 1 << 30
)

// Write writes the matrix as llama-imatrix does. The file appears when it is complete.
func (m *Matrix) Write(path string) error {
	meta := &gguf.Meta{}
	meta.Set("general.type", "imatrix")
	meta.Set("imatrix.datasets", m.Datasets)
	meta.Set("imatrix.chunk_count", uint32(m.Chunks))
	meta.Set("imatrix.chunk_size", uint32(m.ChunkTokens))
	var infos []gguf.Info
	var data [][]float32
	for _, name := range m.Names() {
		e := m.entries[name]
		sums, counts := []int{e.cols}, []int{1}
		if n := len(e.counts); n > 1 {
			sums, counts = []int{n, e.cols}, []int{n, 1}
		}
		infos = append(infos, gguf.Info{Name: name + sumsSuffix, Type: quant.F32, Shape: sums}, gguf.Info{Name: name + countsSuffix, Type: quant.F32, Shape: counts})
		data = append(data, e.squares, e.counts)
	}
	f, err := replace.New(path, 0o644)
	if err != nil {
		return fmt.Errorf("imatrix: %w", err)
	}
	defer f.Cleanup() // nothing after the rename
	w := bufio.NewWriter(f)
	g, err := gguf.NewWriter(w, meta, infos)
	if err != nil {
		return fmt.Errorf("imatrix: %s: %w", path, err)
	}
	for _, values := range data {
		raw := make([]byte, 0, 4*len(values))
		for _, v := range values {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if _, err := g.Write(raw); err != nil {
			return fmt.Errorf("imatrix: %s: %w", path, err)
		}
	}
	if err := g.Close(); err != nil {
		return fmt.Errorf("imatrix: %s: %w", path, err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("imatrix: %s: %w", path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("imatrix: %s: %w", path, err)
	}
	return nil
}

// Read reads a file of either format. Errors wrap ErrFormat, gguf.ErrFormat or those of the system.
func Read(path string) (*Matrix, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("imatrix: %w", err)
	}
	defer f.Close()
	var magic [4]byte
	if _, err := io.ReadFull(f, magic[:]); err != nil {
		return nil, fmt.Errorf("imatrix: %s: %w: %w", path, ErrFormat, err)
	}
	var m *Matrix
	if string(magic[:]) == "GGUF" {
		m, err = readGGUF(path)
	} else {
		m, err = readLegacy(f)
	}
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("imatrix: %s: %w", path, err)
	}
	return m, nil
}

func readGGUF(path string) (*Matrix, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	if kind, err := g.Meta().String("general.type"); err != nil || kind != "imatrix" {
		return nil, fmt.Errorf("general.type is %q, want imatrix (is it a model?): %w", kind, ErrFormat)
	}
	m := &Matrix{entries: map[string]*entry{}}
	m.Datasets, _ = g.Meta().Strings("imatrix.datasets") // what these say is for people
	m.Chunks, _ = g.Meta().Int("imatrix.chunk_count")
	m.ChunkTokens, _ = g.Meta().Int("imatrix.chunk_size")
	counts := map[string][]float32{}
	for _, t := range g.Tensors() {
		if t.Type != quant.F32 {
			return nil, fmt.Errorf("tensor %q is %s, want F32: %w", t.Name, t.Type, ErrFormat)
		}
		name, isSum := strings.CutSuffix(t.Name, sumsSuffix)
		count, isCount := strings.CutSuffix(t.Name, countsSuffix)
		if !isSum && !isCount {
			continue // later files may hold more about a tensor
		}
		data, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		values := make([]float32, t.Rows()*t.Cols())
		quant.Dequantize(quant.F32, values, data)
		if isSum {
			m.entries[name] = &entry{cols: t.Cols(), squares: values}
		} else {
			counts[count] = values
		}
	}
	for name, e := range m.entries {
		if e.counts = counts[name]; e.counts == nil {
			return nil, fmt.Errorf("tensor %q has sums and no counts: %w", name, ErrFormat)
		}
		delete(counts, name)
	}
	for name := range counts {
		return nil, fmt.Errorf("tensor %q has counts and no sums: %w", name, ErrFormat)
	}
	return m, nil
}

// readLegacy reads llama.cpp's binary format: a number of entries, then for each name, calls and sums (of all experts as one row:
// values times calls), then calls and the dataset.
func readLegacy(f *os.File) (*Matrix, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	r := legacyReader{in: bufio.NewReader(io.LimitReader(f, maxLegacyBytes))}
	m := &Matrix{entries: map[string]*entry{}}
	entries := r.count(1, 1<<20)
	for range entries {
		name := string(r.bytes(r.count(1, 1<<12)))
		calls, values := r.count(0, math.MaxInt32), r.count(1, 1<<26)
		raw := r.bytes(4 * values)
		if r.err != nil {
			break
		}
		e := &entry{cols: values, squares: make([]float32, values), counts: []float32{float32(max(calls, 1))}}
		quant.Dequantize(quant.F32, e.squares, raw)
		m.entries[name] = e
	}
	if r.err != nil {
		return nil, fmt.Errorf("neither GGUF nor llama.cpp's binary format: %w: %w", ErrFormat, r.err)
	}
	if m.Chunks = r.count(0, math.MaxInt32); r.err == nil { // older files end before
		if name := r.bytes(r.count(0, 1<<16)); r.err == nil {
			m.Datasets = []string{string(name)}
		}
	}
	return m, nil
}

// legacyReader reads until the first error.
type legacyReader struct {
	in  io.Reader
	err error
}

func (r *legacyReader) bytes(n int) []byte {
	if r.err != nil {
		return nil
	}
	var b strings.Builder // grows with what is there: a wild length costs no memory
	if _, r.err = io.CopyN(&b, r.in, int64(n)); r.err != nil {
		return nil
	}
	return []byte(b.String())
}

func (r *legacyReader) count(low, high int) int {
	b := r.bytes(4)
	if r.err != nil {
		return 0
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < low || n > high {
		r.err = fmt.Errorf("a number is %d, want %d to %d", n, low, high)
		return 0
	}
	return n
}
