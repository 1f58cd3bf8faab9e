package bert

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"terrace/internal/kernels"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/vocab"
)

// Arch is GGUF's name of the architecture.
const Arch = "bert"

// Pooling is how the rows of a text become one vector.
type Pooling int

const (
	PoolMean Pooling = 1 // llama.cpp's numbers
	PoolCLS  Pooling = 2
)

// Config are an encoder's figures.
type Config struct {
	Layers, Hidden, Heads, FFN int
	Vocab, Positions, Segments int
	MaxTokens                  int // of a text, [CLS] and [SEP] included
	Eps                        float32
	Pooling                    Pooling
	act                        func(x []float32)
}

// Encoder is an opened encoder. Close it after its last use.
type Encoder struct {
	Config
	tok    *tokenizer.WordPiece
	params params
	pool   *kernels.Pool

	mu sync.Mutex // of everything below: one call computes at a time
	ws scratch
}

// Options of Open; zero values are defaults.
type Options struct {
	Threads int // workers; 0 = one a CPU
}

// IsEncoder reports whether a model is one that this package computes.
func IsEncoder(file *weights.Model) bool {
	arch, err := file.Meta().String("general.architecture")
	return err == nil && arch == Arch
}

// Open reads an encoder from an open model, which must outlive it. Errors wrap ErrNotEncoder, ErrModel or what packages
// weights and tokenizer return.
func Open(file *weights.Model, o Options) (*Encoder, error) {
	if !IsEncoder(file) {
		arch, _ := file.Meta().String("general.architecture")
		return nil, fmt.Errorf("bert: %s: architecture %q, want %q: %w", file.Path(), arch, Arch, ErrNotEncoder)
	}
	if file.Format() != "safetensors" {
		return nil, fmt.Errorf("bert: %s: a %s file: only folders with config.json, vocab.txt or tokenizer.json, and safetensors are read: %w", file.Path(), file.Format(), ErrModel)
	}
	e := &Encoder{}
	if err := e.readConfig(file); err != nil {
		return nil, fmt.Errorf("bert: %s: %w", file.Path(), err)
	}
	v, err := vocab.WordPiece(file.Path())
	if err != nil {
		return nil, err
	}
	if e.tok, err = tokenizer.NewWordPiece(v); err != nil {
		return nil, err
	}
	if e.tok.Size() > e.Vocab {
		return nil, fmt.Errorf("bert: %s: the tokenizer has %d tokens, the embedding %d rows: %w", file.Path(), e.tok.Size(), e.Vocab, ErrModel)
	}
	if err := e.readParams(file); err != nil {
		return nil, err
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	e.pool = kernels.NewPool(max(1, o.Threads))
	return e, nil
}

// readConfig reads the figures, which package weights/hf has checked against each other.
func (e *Encoder) readConfig(file *weights.Model) error {
	meta := file.Meta()
	for _, f := range []struct {
		key string
		to  *int
	}{
		{"block_count", &e.Layers}, {"embedding_length", &e.Hidden}, {"attention.head_count", &e.Heads}, {"feed_forward_length", &e.FFN},
		{"vocab_size", &e.Vocab}, {"context_length", &e.Positions}, {"token_type_count", &e.Segments},
	} {
		n, err := meta.Int(Arch + "." + f.key)
		if err != nil {
			return fmt.Errorf("%w: %w", err, ErrModel)
		}
		*f.to = n
	}
	eps, err := meta.Float(Arch + ".attention.layer_norm_epsilon")
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrModel)
	}
	pooling, err := meta.Int(Arch + ".pooling_type")
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrModel)
	}
	e.Eps, e.Pooling, e.MaxTokens = float32(eps), Pooling(pooling), e.Positions
	if meta.Has("terrace.max_tokens") {
		if e.MaxTokens, err = meta.Int("terrace.max_tokens"); err != nil {
			return fmt.Errorf("%w: %w", err, ErrModel)
		}
	}
	return e.readActivation(meta)
}

func (e *Encoder) readActivation(meta *weights.Meta) error {
	e.act = kernels.GeluErf
	if !meta.Has("terrace.activation") {
		return nil
	}
	name, err := meta.String("terrace.activation")
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrModel)
	}
	act, ok := map[string]func([]float32){"gelu": kernels.GeluErf, "gelu_tanh": kernels.Gelu, "relu": kernels.ReLU}[name]
	if !ok {
		return fmt.Errorf("activation %q, want gelu, gelu_tanh or relu: %w", name, ErrModel)
	}
	e.act = act
	return nil
}

// Close ends the workers.
func (e *Encoder) Close() { e.pool.Close() }

// Tokens gives the ids of a text, [CLS] and [SEP] included. It does not cut.
func (e *Encoder) Tokens(text string) []int32 { return e.tok.Encode(text) }

// Cut shortens ids to what the encoder takes, and keeps the last one, which ends a text.
func (e *Encoder) Cut(ids []int32) []int32 {
	if len(ids) <= e.MaxTokens {
		return ids
	}
	return append(slices.Clone(ids[:e.MaxTokens-1]), ids[len(ids)-1])
}

// check refuses ids that cannot be computed.
func (e *Encoder) check(texts [][]int32) error {
	for i, ids := range texts {
		if len(ids) == 0 {
			return fmt.Errorf("bert: text %d has no token: %w", i, ErrToken)
		}
		if len(ids) > e.MaxTokens {
			return fmt.Errorf("bert: text %d has %d tokens, at most %d: %w", i, len(ids), e.MaxTokens, ErrTooLong)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= e.Vocab {
				return fmt.Errorf("bert: text %d: id %d, the vocabulary has %d: %w", i, id, e.Vocab, ErrToken)
			}
		}
	}
	return nil
}
