package terrace

import (
	"fmt"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/tierspec"
	"terrace/model"
)

// parseWeights reads Options.Weights; 0 = no limit.
func parseWeights(spec string) (int64, error) {
	if spec == "" {
		return 0, nil
	}
	t, err := tierspec.Parse(spec)
	if err != nil || t.Kind != tier.Host || t.RateBytes > 0 {
		return 0, fmt.Errorf("terrace: weights %q: want host=SIZE, the memory that weights may take, such as host=8GiB: %w", spec, ErrOption)
	}
	return t.CapacityBytes, nil
}

// stream bounds the weights in memory, where the options do. A file's weights are bounded once: engines on it share them.
func (f *File) stream(m *model.Model, o *Options, eo *engine.Options) error {
	budget, err := parseWeights(o.Weights)
	if err != nil || budget == 0 {
		return err
	}
	switch {
	case o.Backend != "" && o.Backend != "native":
		return fmt.Errorf("terrace: weights %s: backend %s keeps all weights in memory, the native backend reads them as they are needed: %w", o.Weights, o.Backend, ErrOption)
	case f.adapted:
		return fmt.Errorf("terrace: weights %s: an adapter is merged into all weights, which then no file has: leave it out, or merge it into a file first: %w", o.Weights, ErrOption)
	}
	if plan, err := m.StreamPlan(); err == nil && budget < plan.WholeBytes() {
		o.lengthenChunks(eo)
	}
	if m.Streamed() != nil {
		return nil
	}
	return m.Stream(model.StreamOptions{BudgetBytes: budget, Notice: o.Notice})
}

// streamedChunk is the prompt tokens of a pass where weights are read as they are needed: each pass reads those that do not fit once, so
// that longer ones read less for a prompt. Beyond it activations take more memory than that is worth.
const streamedChunk = 2048

// lengthenChunks sets streamedChunk where nothing else was chosen. Quantised KV is rounded as passes end, so there texts would change.
func (o *Options) lengthenChunks(eo *engine.Options) {
	if o.Chunk == 0 && !eo.KType.Quantised() && !eo.VType.Quantised() {
		eo.ChunkTokens = streamedChunk
	}
}
