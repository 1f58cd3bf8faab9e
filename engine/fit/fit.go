// Package fit computes what a model needs, and what of it fits into an amount of memory, from its shape: nothing is opened or
// measured.
package fit

import (
	"sort"

	"terrace/engine"
	"terrace/internal/kernels"
	"terrace/model"
)

// Report is what a model needs and what fits into an amount of memory.
type Report struct {
	WeightsBytes     int64 `json:"weights_bytes"`         // of the files, and what tiles of some types take beyond them
	BuffersBytes     int64 `json:"buffers_bytes"`         // estimate
	KVBytesPerToken  int64 `json:"kv_bytes_per_token"`    // where every layer keeps it
	StateBytes       int64 `json:"state_bytes,omitempty"` // of a text beside keys and values, whatever its length, in KVBytesAtContext
	KVBytesAtContext int64 `json:"kv_bytes_at_context"`   // of a text of ContextTokens, at most (engine.KVBytes)
	ContextTokens    int   `json:"context_tokens"`        // Options.Context
	MemoryBytes      int64 `json:"memory_bytes"`
	LongestContext   int   `json:"longest_context_tokens"` // at most what the model was trained for
}

// packedPanelBytes is the room that unpacked weight panels take in the caches of the workers.
const packedPanelBytes = 8 << 20

// mixerWidth is the numbers of a row that a recurrent mixer holds: what its products give, and its output.
func mixerWidth(r *model.RecurrentParams) int {
	n := 0
	for _, w := range append([]*model.Linear{r.Z, r.A, r.B}, r.In...) {
		if !w.Absent() {
			n += 2 * w.Rows
		}
	}
	return n
}

// Of computes what of the model fits: weights are mapped whole, activations are those of one prefill chunk, KV pages are
// whole. Validate must have filled o.
func Of(m *model.Model, o engine.Options, memoryBytes int64) Report {
	width, beyond := 0, 0 // bytes of a row at a time; numbers beside the residual, of rows that carry more
	if wide := m.RowWidth(); wide > m.Hidden {
		beyond = 2*wide + 2*m.Hidden + 2*m.PerLayer
	}
	for i := range m.Params.Layers {
		a := &m.Layer[i]
		width = max(width, 4*(2*m.Hidden+2*a.Heads*a.StoredKey()+a.KVHeads*(a.StoredKey()+a.StoredValue())+a.Heads*a.StoredValue()))
		if up := m.Params.Layers[i].Up; up != nil {
			width = max(width, 4*(3*m.Hidden+2*a.Heads*a.StoredKey()+2*up.Rows))
		}
		if l := &m.Params.Layers[i]; len(l.ExpertUp) > 0 { // rows gathered for an expert, its output, the norm, the router's choices
			width = max(width, 4*(6*m.Hidden+2*a.Heads*a.KeyDim+2*l.ExpertUp[0].Rows+3*m.Experts))
		}
		width = max(width, 4*(2*m.Hidden+mixerWidth(&m.Params.Layers[i].Recurrent)))
	}
	r := Report{WeightsBytes: m.File.SizeBytes(), MemoryBytes: memoryBytes, BuffersBytes: int64(o.ChunkTokens)*int64(width+4*beyond) + int64(4*m.Vocab) + packedPanelBytes, ContextTokens: o.Context}
	for _, t := range m.File.Tensors() { // what is packed into larger tiles; the mapped bytes leave
		r.WeightsBytes += kernels.PackedGrowth(t.Type, t.Rows(), t.Cols())
	}
	l := o.PlainLayout()
	r.KVBytesPerToken = int64(engine.TokenBytes(m.Cache(), l))
	r.StateBytes = 2 * m.Cache().StateBytes()
	r.KVBytesAtContext = engine.KVBytes(m, o, o.Context)
	free := memoryBytes - r.WeightsBytes - r.BuffersBytes
	pages := sort.Search(m.Context/l.Tokens+1, func(pages int) bool { return engine.KVBytes(m, o, (pages+1)*l.Tokens) > free })
	r.LongestContext = min(pages*l.Tokens, m.Context)
	return r
}
