package terrace

import (
	"fmt"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/tierspec"
	"terrace/model"
	"terrace/weights/stream"
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
	return f.boundWeights(m, o, budget)
}

// boundWeights bounds a file's weights, unless an engine on the same file has.
func (f *File) boundWeights(m *model.Model, o *Options, budget int64) error {
	bias, err := expertBias(o)
	if err != nil {
		return err
	}
	if m.Streamed() != nil {
		if m.Bias() != bias {
			return fmt.Errorf("terrace: expert bias %q: an engine on the same file has %q: %w", bias, m.Bias(), ErrOption)
		}
		return nil
	}
	if err := m.CheckBias(bias); err != nil {
		return fmt.Errorf("terrace: %s: %w", f.name, marked{err, ErrOption})
	}
	return m.Stream(model.StreamOptions{BudgetBytes: budget, Notice: o.Notice, Bias: bias})
}

// expertBias reads Options.ExpertBias.
func expertBias(o *Options) (b stream.Bias, err error) {
	switch {
	case o.ExpertBias == "":
		return b, nil
	case o.Weights == "" && o.Memory == "":
		return b, fmt.Errorf("terrace: expert bias %s: all weights are in memory, it saves reads where Weights or Memory bounds them: %w", o.ExpertBias, ErrOption)
	}
	if b, err = stream.ParseBias(o.ExpertBias); err != nil {
		return b, fmt.Errorf("terrace: expert bias %w", marked{err, ErrOption})
	}
	return b, nil
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
