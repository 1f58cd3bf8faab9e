package convert

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

func inverseRoot(n int) float64 { return 1 / math.Sqrt(float64(n)) }

// Synthesize writes a model of random weights: Gaussian values of a scale that keeps activations finite, a byte-level
// tokenizer, the metadata of the architecture. The same spec, type and seed give the same bytes. Errors wrap ErrSpec, ErrType,
// the context's or those of the system.
func Synthesize(ctx context.Context, dst string, s Spec, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := s.Validate(); err != nil {
		return err
	}
	tensors := s.tensors(o.Type)
	infos := make([]gguf.Info, len(tensors))
	fallen, largest := 0, 2*drawValues
	for i, t := range tensors {
		infos[i] = t.Info
		largest = max(largest, int(t.SizeBytes()))
		if t.Type != o.Type && !stays(t.Name, t.Shape) && !halves(t.Name) {
			fallen++
		}
	}
	if fallen > 0 {
		o.notice("%d matrices have rows that are no multiple of %d values and are written in another type than %s", fallen, o.Type.BlockLen(), o.Type)
	}
	return create(ctx, dst, s.meta(o.Type), infos, o, func(w *writer) error {
		pools := map[poolKey]*pool{}
		for i, t := range tensors {
			if t.given != nil {
				if err := w.run(t.Info, 1, len(t.given), given(t.given), nil); err != nil {
					return err
				}
				continue
			}
			key := poolKey{t.Type, t.mean, t.sigma}
			if pools[key] == nil {
				p, err := newPool(key, s.Seed, min(maxPoolValues, largest))
				if err != nil {
					return fmt.Errorf("convert: %w", err)
				}
				pools[key] = p
			}
			rows, cols := 1, t.Shape[len(t.Shape)-1]
			for _, n := range t.Shape[:len(t.Shape)-1] {
				rows *= n
			}
			if err := w.run(t.Info, rows, cols, pools[key].draw(s.Seed, i, cols), nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// given produces values that are not random.
func given(values []float32) produce {
	return func(out *panel, _, _ int) error {
		out.blocks = grown(out.blocks, 4*len(values))
		return quant.Quantize(quant.F32, out.blocks, values)
	}
}

// meta is the metadata of a random model.
func (s *Spec) meta(kind quant.Type) *gguf.Meta {
	m := &gguf.Meta{}
	m.Set("general.architecture", s.Arch)
	m.Set("general.name", fmt.Sprintf("random %s %dx%d seed %d", s.Arch, s.Layers, s.Hidden, s.Seed))
	m.Set("general.file_type", fileTypes[kind])
	m.Set("general.quantization_version", uint32(2))
	for _, f := range []struct {
		key   string
		value int
	}{
		{"block_count", s.Layers}, {"context_length", s.Context}, {"embedding_length", s.Hidden}, {"feed_forward_length", s.FFN},
		{"attention.head_count", s.Heads}, {"attention.head_count_kv", s.KVHeads},
		{"attention.key_length", s.HeadDim}, {"attention.value_length", s.HeadDim},
		{"rope.dimension_count", s.HeadDim}, {"vocab_size", s.Vocab},
	} {
		m.Set(s.Arch+"."+f.key, uint32(f.value))
	}
	m.Set(s.Arch+".attention.layer_norm_rms_epsilon", float32(1e-5))
	theta := float32(10000)
	if s.Arch != "llama" || s.Context > 8192 {
		theta = 1e6
	}
	m.Set(s.Arch+".rope.freq_base", theta)
	if s.Arch == "gemma3" {
		m.Set("gemma3.attention.sliding_window", uint32(512))
	}
	s.family().meta(s, func(key string, value any) { m.Set(s.Arch+"."+key, value) })
	byteVocabulary(m, s.Vocab)
	return m
}

// maxPoolValues is how many Gaussian values at most are quantised once for all tensors of a scale; a tensor is drawn from
// their blocks. Quantising every value would take ten minutes for 8 billion Q4_K weights, drawing takes what the disk takes.
const maxPoolValues = 1 << 20

// drawValues is the length of the runs that are drawn, a multiple of every block.
const drawValues = 256

type poolKey struct {
	kind        quant.Type
	mean, sigma float64
}

// pool is a stock of quantised Gaussian values.
type pool struct {
	kind   quant.Type
	blocks []byte
}

// newPool makes a stock of about n values.
func newPool(k poolKey, seed uint64, n int) (*pool, error) {
	rng := rand.New(rand.NewPCG(seed, uint64(k.kind)<<32^math.Float64bits(k.sigma)))
	values := make([]float32, n/drawValues*drawValues)
	for i := range values {
		values[i] = float32(k.mean + k.sigma*rng.NormFloat64())
	}
	p := &pool{k.kind, make([]byte, k.kind.RowBytes(len(values)))}
	return p, quant.Quantize(k.kind, p.blocks, values)
}

// draw returns the producer of a tensor's rows of cols values: runs of the pool, drawn by a generator of each panel's own, so
// that the bytes do not depend on the number of goroutines.
func (p *pool) draw(seed uint64, tensor, cols int) produce {
	return func(out *panel, first, n int) error {
		rng := rand.NewPCG(seed^0x9e3779b97f4a7c15, uint64(tensor)<<40|uint64(first))
		block := p.kind.BlockBytes()
		run := drawValues / p.kind.BlockLen() // blocks
		starts := uint64(len(p.blocks)/block - run)
		out.blocks = grown(out.blocks, n*p.kind.RowBytes(cols))
		for rest := out.blocks; len(rest) > 0; {
			at := int(rng.Uint64()%starts) * block
			rest = rest[copy(rest, p.blocks[at:at+run*block]):]
		}
		return nil
	}
}
