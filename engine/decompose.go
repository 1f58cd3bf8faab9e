package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"terrace/internal/replace"
	"terrace/policy"
)

// calibrationTokens is how many tokens of the sample text are read to decompose a model's queries.
const calibrationTokens = 512

// ofModel work out what policies see of a model (policy.Needs.OfModel), by the observation's key; filled by the init of their files.
var ofModel = map[string]func(e *Engine, o policy.Observation) (any, error){}

// registerOfModel says what works out the observations of a key. A key that is taken is a bug.
func registerOfModel(key string, work func(e *Engine, o policy.Observation) (any, error)) {
	if ofModel[key] != nil {
		panic("engine: worked out twice: " + key)
	}
	ofModel[key] = work
}

// The singular vectors of a model's queries (InfiniGen; algorithms.md 5.3) and of its keys (KVSwap), and the order of its channels (Double Sparsity),
// are in the cache folder, else made by
// reading the sample text once. Cost: one prefill of 512 tokens and an eigendecomposition a KV head, dk × dk, or a layer, of all its
// heads' keys.
func init() {
	registerOfModel(policy.QueryBasis{}.Key(), func(e *Engine, o policy.Observation) (any, error) {
		return e.learned(o.Key(), policy.NewDecomposition(e.policyModel()))
	})
	registerOfModel(policy.KeyBasis{}.Key(), func(e *Engine, o policy.Observation) (any, error) {
		return e.learned(o.Key(), policy.NewKeyBasis(e.policyModel()))
	})
	registerOfModel(policy.ChannelOrder{}.Key(), func(e *Engine, o policy.Observation) (any, error) {
		return e.learned(o.Key(), policy.NewDecomposition(e.policyModel()))
	})
}

// learn gives policies what they need of the model beside the text, once.
func (e *Engine) learn(n policy.Needs) error {
	shape := e.retrieval.Shape()
	for _, o := range n.OfModel {
		if _, ok := policy.Seen[any](shape.Observed, o); ok {
			continue
		}
		work := ofModel[o.Key()]
		if work == nil {
			return fmt.Errorf("engine: a policy wants to see %s of the model (%s), which nobody works out: %w", o, o.Key(), policy.ErrModel)
		}
		value, err := work(e, o)
		if err != nil {
			return err
		}
		shape.Observed = append(shape.Observed, policy.Observed{Of: o, Value: value})
	}
	return nil
}

// learned fills one decomposition, of what it is named after.
func (e *Engine) learned(of string, d *policy.Decomposition) (*policy.Decomposition, error) {
	path := ""
	if e.o.CacheDir != "" {
		path = filepath.Join(e.o.CacheDir, of+"-"+e.fingerprint()+".svd")
		b, err := os.ReadFile(path)
		if err == nil {
			if err = d.UnmarshalBinary(b); err != nil {
				err = fmt.Errorf("engine: %s: delete it, it is made again: %w", path, err)
			}
			return d, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("engine: decomposition: %w", err)
		}
	}
	if len(e.o.Calibration) == 0 {
		return nil, fmt.Errorf("engine: the policy decomposes the model's %s and there is no sample text: %w", of, ErrOption)
	}
	if err := e.readSample(d, of); err != nil || path == "" {
		return d, err
	}
	b, err := d.MarshalBinary()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = replace.WriteFile(path, b, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("engine: decomposition: %w", err)
	}
	return d, nil
}

// readSample reads the sample text layer by layer and decomposes what each layer asked, or the keys that it made, or orders its channels by both.
func (e *Engine) readSample(d *policy.Decomposition, of string) error {
	ids := e.o.Calibration[:min(len(e.o.Calibration), calibrationTokens, e.o.Context)]
	s, err := e.NewSession(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	w := &wholePrompt{e: e, s: s, ctx: context.Background(), promptSpan: promptSpan{total: len(ids)}}
	return guarded(func() error {
		return w.eachLayer(ids, func(layer int) error {
			if !e.cache.Reads(layer) {
				return w.blocks(0, func(p *pass) error { return w.through(p, layer, wholeLayer) })
			}
			queries, err := w.projectAll(layer)
			if err != nil {
				return err
			}
			if !e.cache.Keeps(layer) {
				return w.again(layer, queries)
			}
			sample, heads := queries, e.m.Layer[layer].Heads
			switch of {
			case policy.KeyBasis{}.Key():
				sample, heads = s.text.Keys(layer), 1
			case policy.ChannelOrder{}.Key():
				d.SetChannels(layer, queries, s.text.Keys(layer), len(ids), heads)
				return w.again(layer, queries)
			}
			if err := d.SetLayer(layer, sample, len(sample)/(heads*d.Dim(layer)), heads); err != nil {
				return err
			}
			return w.again(layer, queries)
		})
	})
}

// again takes the rows through a layer whose queries are there and whose keys are cached.
func (w *wholePrompt) again(layer int, queries []float32) error {
	w.kept = keptRows{queries: queries, again: true}
	defer func() { w.kept = keptRows{} }()
	return w.blocks(0, func(p *pass) error { return w.through(p, layer, afterKeys) })
}

// fingerprint names the model by its description, size and the head of its file.
func (e *Engine) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %d %d %v %d %d %v %v\n", e.m.Arch, e.m.Name, e.m.Layers, e.m.Hidden, e.cache, e.m.Vocab, e.m.File.SizeBytes(), e.o.Exact, e.m.Ropes)
	fmt.Fprint(h, e.o.Rotate, e.o.KType, e.o.VType, e.o.KVWindow) // types of single layers are in e.cache
	if norm, err := e.m.Params.FinalNorm.W.Values(); err == nil {
		_ = binary.Write(h, binary.LittleEndian, norm)
	}
	fmt.Fprint(h, e.o.Calibration)
	return fmt.Sprintf("%x", h.Sum(nil)[:12])
}
