package engine

import (
	"fmt"

	"terrace/model"
	"terrace/policy"
)

// ownPolicy is the policy of models that have a trained indexer, where none is named: they attend to what it chooses.
const ownPolicy = "indexer"

// openIndexer looks at what a trained indexer needs of the backend and of the model's files.
func (e *Engine) openIndexer() error {
	x := e.m.TrainedIndex()
	if x == nil {
		e.indexes = nil
		return nil
	}
	if e.o.Rotate.Keys() {
		return fmt.Errorf("engine: %s has a trained indexer, whose keys lie behind those that a rotation would mix them with: %w", e.m.Arch, model.ErrUnsupported)
	}
	if e.indexes == nil {
		return nil // checkPolicy refuses the policy alone
	}
	for layer := range e.m.Layer {
		if e.m.Layer[layer].Index == nil {
			continue
		}
		if err := e.indexes.IndexKey(layer, 0, make([]float32, x.Dim)); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
	}
	return nil
}

// trainedIndex is the model's indexer as policies see it; nil where it has none, or the backend does not compute it.
func (e *Engine) trainedIndex() *policy.Index {
	x := e.m.TrainedIndex()
	if x == nil || e.indexes == nil {
		return nil
	}
	return &policy.Index{Heads: x.Heads, Dim: x.Dim, TopK: x.TopK, Block: x.Block, Finish: func(layer, position int, key []float32) {
		_ = e.indexes.IndexKey(layer, position, key) // openIndexer has read what it takes
	}}
}
