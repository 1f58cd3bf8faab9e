package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"terrace/internal/replace"
)

// ErrBase marks a file that does not hold the log-probabilities that are to be compared with.
var ErrBase = errors.New("bad log-probabilities")

// A file of log-probabilities has them as float32 rows, one a scored position, behind a header of magic, vocabulary and tokens a chunk.
const baseMagic = "TERRLOG1"

func baseHeader(vocab, chunk int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte(baseMagic), uint64(vocab)), uint64(chunk))
}

// BaseReader reads the log-probabilities of a run that BaseWriter has kept; close it.
type BaseReader struct {
	file *os.File
	r    *bufio.Reader
	row  []float64
	raw  []byte
}

// OpenBase opens a file for a vocabulary and chunks of so many tokens; another's is ErrBase.
func OpenBase(path string, vocab, chunk int) (*BaseReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &BaseReader{file: file, r: bufio.NewReaderSize(file, 1<<20), row: make([]float64, vocab), raw: make([]byte, 4*vocab)}
	want := baseHeader(vocab, chunk)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(b.r, got); err != nil || string(got) != string(want) {
		file.Close()
		return nil, fmt.Errorf("not written by --save-kl-base for a vocabulary of %d and chunks of %d: %w", vocab, chunk, ErrBase)
	}
	return b, nil
}

// Next is the next row [V], valid until the call after: PerplexityOptions.Base. A file that ends is ErrBase.
func (b *BaseReader) Next() ([]float64, error) {
	if _, err := io.ReadFull(b.r, b.raw); err != nil {
		return nil, fmt.Errorf("ends early: %v: %w", err, ErrBase)
	}
	for i := range b.row {
		b.row[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b.raw[4*i:])))
	}
	return b.row, nil
}

// Close closes the file.
func (b *BaseReader) Close() error { return b.file.Close() }

// BaseWriter keeps a run's log-probabilities in a file, which is there once it is complete; close it.
type BaseWriter struct {
	file *replace.File
	w    *bufio.Writer
	raw  []byte
	err  error
}

// CreateBase begins a file for a vocabulary and chunks of so many tokens.
func CreateBase(path string, vocab, chunk int) (*BaseWriter, error) {
	file, err := replace.New(path, 0o600)
	if err != nil {
		return nil, err
	}
	b := &BaseWriter{file: file, w: bufio.NewWriterSize(file, 1<<20), raw: make([]byte, 4*vocab)}
	_, b.err = b.w.Write(baseHeader(vocab, chunk))
	return b, nil
}

// Add keeps a row [V]: PerplexityOptions.OnLogits. What fails is said by Close.
func (b *BaseWriter) Add(logProbs []float64) {
	for i, p := range logProbs {
		binary.LittleEndian.PutUint32(b.raw[4*i:], math.Float32bits(float32(p)))
	}
	if _, err := b.w.Write(b.raw); b.err == nil {
		b.err = err
	}
}

// Close makes the file visible where the run went well, and removes it otherwise.
func (b *BaseWriter) Close(keep bool) error {
	defer b.file.Cleanup()
	if !keep {
		return nil
	}
	if err := b.w.Flush(); b.err == nil {
		b.err = err
	}
	if b.err != nil {
		return b.err
	}
	return b.file.CloseAtomicallyReplace()
}
