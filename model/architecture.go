package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"terrace/weights"
	"terrace/weights/stream"
)

// Model is an opened model: what it is, and its weights, not yet read.
type Model struct {
	Config
	Params Params
	File   *weights.Model
	// Inputs, if not nil, is shown the rows x [n, w.Cols] that the native backend is about to multiply with w, once where several
	// parts of one tensor take the same rows; products are then computed one by one. It must not keep x.
	Inputs func(w *Linear, x []float32) error
	// Routed, if not nil, is told which rows of a pass each expert of a layer has, [expert][of its rows], or, predicted, will probably have
	// (weights that are read as they are needed, Stream). It must not keep rows. On the native backend.
	Routed func(layer int, rows [][]int, predicted bool)

	streamed *stream.Store // what of the weights is in memory; nil = all that was used
	bias     bias
}

// show hands x to Inputs, once a tensor.
func (m *Model) show(x []float32, products []product) error {
	for i, p := range products {
		if i > 0 && p.w.Tensor == products[i-1].w.Tensor {
			continue
		}
		if err := m.Inputs(p.w, x); err != nil {
			return err
		}
	}
	return nil
}

// architecture reads one family: its figures first (they are validated before anything is sized by them), then its tensors.
// Faults are collected in the reader.
type architecture struct {
	config func(r *reader) *Config
	params func(r *reader, c *Config) *Params
}

var architectures = map[string]architecture{}

// registerArchitecture is called from the init of each architecture's file; a name given twice is a bug.
func registerArchitecture(a architecture, names ...string) {
	for _, n := range names {
		if _, dup := architectures[n]; dup {
			panic("model: architecture registered twice: " + n)
		}
		architectures[n] = a
	}
}

// Architectures lists the architectures that can be loaded.
func Architectures() []string { return slices.Sorted(maps.Keys(architectures)) }

// Open reads the description of a model file or folder and checks it against the tensors that are there; weights are read
// at their first use. Errors wrap weights.ErrFormat, ErrUnknownArchitecture or ErrConfig.
func Open(file *weights.Model) (*Model, error) {
	meta := file.Meta()
	arch, err := meta.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("model: %s: %w: %w", file.Path(), err, ErrConfig)
	}
	a, ok := architectures[arch]
	if arch == "bert" {
		return nil, fmt.Errorf("model: %s: architecture %q is an encoder and generates no text: 'infer embed' computes its vectors: %w", file.Path(), arch, ErrUnknownArchitecture)
	}
	if !ok {
		return nil, fmt.Errorf("model: %s: architecture %q: %w (known: %s)", file.Path(), arch, ErrUnknownArchitecture, strings.Join(Architectures(), ", "))
	}
	r := newReader(file, arch)
	cfg := a.config(r)
	if err := r.err(); err != nil {
		return nil, fmt.Errorf("model: %s: %w", file.Path(), err)
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("model: %s: %w", file.Path(), err)
	}
	params := a.params(r, cfg)
	if err := r.err(); err != nil {
		return nil, fmt.Errorf("model: %s: %w", file.Path(), err)
	}
	if err := unread(r, cfg); err != nil {
		return nil, fmt.Errorf("model: %s: %w", file.Path(), err)
	}
	return &Model{Config: *cfg, Params: *params, File: file}, nil
}
