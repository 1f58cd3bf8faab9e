package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"terrace/internal/replace"
	"terrace/policy"
)

// calibrationTokens is how many tokens of the sample text are read to decompose a model's queries.
const calibrationTokens = 512

// decompose gives policies the singular vectors of the model's queries: from the cache folder, else by reading the sample text
// once and decomposing each layer's queries (InfiniGen; algorithms.md 5.3). Cost: one prefill of 512 tokens and an
// eigendecomposition of dk × dk a KV head.
func (e *Engine) decompose() error {
	m := policyModel(e.m)
	path := ""
	if e.o.CacheDir != "" {
		path = filepath.Join(e.o.CacheDir, "queries-"+e.fingerprint()+".svd")
		d, err := readDecomposition(path, m)
		if err == nil {
			e.floor.SetDecomposition(d)
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if len(e.o.Calibration) == 0 {
		return fmt.Errorf("engine: the policy decomposes the model's queries and there is no sample text: %w", ErrOption)
	}
	d, err := e.sampleQueries(m)
	if err != nil {
		return err
	}
	e.floor.SetDecomposition(d)
	if path == "" {
		return nil
	}
	return writeDecomposition(path, d)
}

// sampleQueries reads the sample text layer by layer and decomposes what each layer asked.
func (e *Engine) sampleQueries(m policy.Model) (*policy.Decomposition, error) {
	d := policy.NewDecomposition(m)
	ids := e.o.Calibration[:min(len(e.o.Calibration), calibrationTokens, e.o.Context)]
	s, err := e.NewSession(nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	w := &wholePrompt{e: e, s: s, ctx: context.Background(), total: len(ids)}
	return d, guarded(func() error {
		return w.eachLayer(ids, func(layer int) error {
			queries, err := w.projectAll(layer)
			if err != nil {
				return err
			}
			if err := d.SetLayer(layer, queries, len(ids), e.m.Heads); err != nil {
				return err
			}
			w.kept = keptRows{queries: queries, again: true}
			defer func() { w.kept = keptRows{} }()
			return w.blocks(0, func(p *pass) error { return w.through(p, layer, afterKeys) })
		})
	})
}

// fingerprint names the model by its description, size and the head of its file.
func (e *Engine) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %d %d %d %d %d %d %v %v\n", e.m.Arch, e.m.Name, e.m.Layers, e.m.Hidden, e.m.Heads, e.m.KVHeads, e.m.Vocab, e.m.File.SizeBytes(), e.o.Exact, e.m.Ropes)
	fmt.Fprint(h, e.o.Rotate)
	if norm, err := e.m.Params.FinalNorm.W.Values(); err == nil {
		_ = binary.Write(h, binary.LittleEndian, norm)
	}
	fmt.Fprint(h, e.o.Calibration)
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}

// svdMagic begins a file of a decomposition; the rest is layers, KV heads and width as uint32, the float32 bases, and the
// SHA-256 of all before.
const svdMagic = "TERRSVD1"

func writeDecomposition(path string, d *policy.Decomposition) error {
	b := []byte(svdMagic)
	for _, n := range []int{d.Layers, d.KVHeads, d.KeyDim} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, v := range d.Basis {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	sum := sha256.Sum256(b)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("engine: decomposition: %w", err)
	}
	if err := replace.WriteFile(path, append(b, sum[:]...), 0o644); err != nil {
		return fmt.Errorf("engine: decomposition: %w", err)
	}
	return nil
}

// readDecomposition reads a file that writeDecomposition made for a model of this shape; anything else is an error that
// says to delete it.
func readDecomposition(path string, m policy.Model) (*policy.Decomposition, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("engine: decomposition: %w", err)
	}
	d := policy.NewDecomposition(m)
	head := len(svdMagic) + 12
	if len(b) != head+4*len(d.Basis)+sha256.Size || string(b[:len(svdMagic)]) != svdMagic || sha256.Sum256(b[:len(b)-sha256.Size]) != [32]byte(b[len(b)-sha256.Size:]) {
		return nil, fmt.Errorf("engine: decomposition %s is damaged or of another version; delete it, it is made again", path)
	}
	for i := range d.Basis {
		d.Basis[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[head+4*i:]))
	}
	return d, d.Fits(m)
}
