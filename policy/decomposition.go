package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"terrace/internal/cacheshape"
)

// QueryBasis is the [Observation] of a model's queries: a *Decomposition ([NewDecomposition]).
type QueryBasis struct{}

// Key implements [Observation]; it is a part of the file name of what is kept.
func (QueryBasis) Key() string    { return "queries" }
func (QueryBasis) String() string { return "SVD of the model's queries" }

// KeyBasis is the [Observation] of a model's keys, of all heads together: a *Decomposition ([NewKeyBasis]).
type KeyBasis struct{}

// Key implements [Observation]; it is a part of the file name of what is kept.
func (KeyBasis) Key() string    { return "keys" }
func (KeyBasis) String() string { return "SVD of the model's keys" }

// Decomposition is InfiniGen's skewing of a model: per layer and KV head an orthogonal matrix whose rows are directions of
// the query-key space, by falling joint energy. It is computed once a model and stored by the engine. [NewKeyBasis] makes one of
// the keys of all heads together. Layers that keep no keys have none.
type Decomposition struct {
	layers []basisShape
	// Basis holds [KVHeads][KeyDim, KeyDim] float32 of one layer after another, row-major, one direction a row.
	Basis []float32
}

// basisShape is a layer's part of a decomposition.
type basisShape struct {
	heads, dim int
	first      int // where it begins in Basis
}

// NewDecomposition makes an empty decomposition of a model's shape.
func NewDecomposition(m Model) *Decomposition {
	return newDecomposition(m, func(kv cacheshape.KV) (heads, dim int) { return kv.Heads, kv.KeyDim })
}

// NewKeyBasis makes an empty decomposition of what a model's KV heads have together: one head a layer, as wide as all of them
// (KVSwap's calibration on a model).
func NewKeyBasis(m Model) *Decomposition {
	return newDecomposition(m, func(kv cacheshape.KV) (heads, dim int) { return min(kv.Heads, 1), kv.Heads * kv.KeyDim })
}

func newDecomposition(m Model, of func(kv cacheshape.KV) (heads, dim int)) *Decomposition {
	d, n := &Decomposition{layers: make([]basisShape, len(m.Layers))}, 0
	for i := range d.layers {
		heads, dim := of(m.Layers[i].KV)
		d.layers[i] = basisShape{heads, dim, n}
		n += heads * dim * dim
	}
	d.Basis = make([]float32, n)
	return d
}

// Head is the basis of one layer and KV head [KeyDim, KeyDim].
func (d *Decomposition) Head(layer, kvHead int) []float32 {
	l := &d.layers[layer]
	n := l.dim * l.dim
	return d.Basis[l.first+kvHead*n:][:n]
}

// Dim is the width of a layer's directions.
func (d *Decomposition) Dim(layer int) int { return d.layers[layer].dim }

// Fits reports an error where the decomposition is not of a model's shape.
func (d *Decomposition) Fits(m Model) error { return d.fits(NewDecomposition(m)) }

// fits compares shapes.
func (d *Decomposition) fits(want *Decomposition) error {
	if len(d.layers) != len(want.layers) || len(d.Basis) != len(want.Basis) {
		return fmt.Errorf("policy: decomposition of %d layers, %d numbers: want %d, %d: %w", len(d.layers), len(d.Basis), len(want.layers), len(want.Basis), ErrModel)
	}
	for i, l := range d.layers {
		if w := want.layers[i]; l != w {
			return fmt.Errorf("policy: decomposition of %d KV heads of %d in layer %d: want %d of %d: %w", l.heads, l.dim, i, w.heads, w.dim, ErrModel)
		}
	}
	return nil
}

// SetLayer computes one layer's bases from a sample of its queries [rows, heads*KeyDim] after RoPE: per KV head the right
// singular vectors of its group's stacked queries, from the largest singular value down (algorithms.md 5.3). The first
// non-zero component of each direction is made positive, so that the result does not depend on the solver's signs.
func (d *Decomposition) SetLayer(layer int, queries []float32, rows, heads int) error {
	l := &d.layers[layer]
	if l.heads == 0 {
		return nil // it keeps no keys
	}
	group, dim := heads/l.heads, l.dim
	for g := range l.heads {
		gram := make([]float64, dim*dim)
		for r := range rows {
			for h := g * group; h < (g+1)*group; h++ {
				q := queries[(r*heads+h)*dim : (r*heads+h+1)*dim]
				for i, x := range q {
					for j := range i + 1 {
						gram[i*dim+j] += float64(x) * float64(q[j])
					}
				}
			}
		}
		for i := range dim {
			for j := range i {
				gram[j*dim+i] = gram[i*dim+j]
			}
		}
		var eigen mat.EigenSym
		if !eigen.Factorize(mat.NewSymDense(dim, gram), true) {
			return fmt.Errorf("policy: decomposition of layer %d, KV head %d: no eigenvectors found: %w", layer, g, ErrModel)
		}
		var vectors mat.Dense
		eigen.VectorsTo(&vectors)
		fillBasis(d.Head(layer, g), &vectors, dim)
	}
	return nil
}

// fillBasis copies eigenvectors, which come by rising eigenvalue as columns, into rows by falling eigenvalue.
func fillBasis(basis []float32, vectors *mat.Dense, dim int) {
	for c := range dim {
		sign := 1.0
		for i := range dim {
			if v := vectors.At(i, dim-1-c); v != 0 {
				if v < 0 {
					sign = -1
				}
				break
			}
		}
		for i := range dim {
			basis[c*dim+i] = float32(sign * vectors.At(i, dim-1-c))
		}
	}
}

// decompositionMagic begins the bytes of a decomposition; then come, as little-endian uint32, the number of layers and
// each one's KV heads and width, the float32 bases, and the SHA-256 of all before.
const decompositionMagic = "TERRSVD2"

// shape is the number of layers, and each one's heads and width.
func (d *Decomposition) shape() []int {
	list := []int{len(d.layers)}
	for _, l := range d.layers {
		list = append(list, l.heads, l.dim)
	}
	return list
}

// MarshalBinary implements [encoding.BinaryMarshaler].
func (d *Decomposition) MarshalBinary() ([]byte, error) {
	b := []byte(decompositionMagic)
	for _, n := range d.shape() {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for _, v := range d.Basis {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// UnmarshalBinary implements [encoding.BinaryUnmarshaler] for bytes of a decomposition of d's shape.
func (d *Decomposition) UnmarshalBinary(b []byte) error {
	head := len(decompositionMagic) + 4*len(d.shape())
	if len(b) != head+4*len(d.Basis)+sha256.Size || string(b[:len(decompositionMagic)]) != decompositionMagic || sha256.Sum256(b[:len(b)-sha256.Size]) != [sha256.Size]byte(b[len(b)-sha256.Size:]) {
		return errors.New("policy: decomposition: damaged, or of another version or model")
	}
	for i, want := range d.shape() {
		if got := binary.LittleEndian.Uint32(b[len(decompositionMagic)+4*i:]); int(got) != want {
			return fmt.Errorf("policy: decomposition: shape %d of it is %d, want %d", i, got, want)
		}
	}
	for i := range d.Basis {
		d.Basis[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[head+4*i:]))
	}
	return nil
}
