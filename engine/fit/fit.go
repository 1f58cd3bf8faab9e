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
	TablesBytes      int64 `json:"tables_bytes"`          // of such a text: pages' descriptors, rotary angles, and Go's heap grown by them (estimate)
	ProgramBytes     int64 `json:"program_bytes"`         // the process beside all this: program, tokenizer, metadata, heap
	TotalBytes       int64 `json:"total_bytes"`           // of all these for Texts texts of ContextTokens
	Texts            int   `json:"texts"`                 // that are decoded together
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

// descriptorBytes is about what a page of a KV head takes beside its keys and values: estimated from peaks of SmolLM2 and Gemma 3.
const descriptorBytes = 160

// tables is the heap that a text of n tokens needs: descriptors of its pages and angles of its positions. Go's collector lets the heap
// grow to twice that.
func tables(m *model.Model, o engine.Options, n int) int64 {
	bytes, cache, page := int64(0), m.Cache(), o.PlainLayout().Tokens
	for i := range cache {
		if kv := cache[i].KV; cache.Keeps(i) {
			tokens := n
			if kv.Window > 0 && o.WindowOnly {
				tokens = min(n, kv.Window+o.ChunkTokens)
			}
			bytes += int64(kv.Heads) * int64(tokens/page+1) * descriptorBytes
		}
	}
	for i := range m.Ropes {
		bytes += int64(n) * int64(4*m.Ropes[i].Dim)
	}
	return 2 * bytes
}

// Of computes what of the model fits beside so many bytes of the process: weights are mapped whole, activations are those of one prefill
// chunk, KV pages are whole. Validate must have filled o.
func Of(m *model.Model, o engine.Options, memoryBytes, programBytes int64) Report {
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
	r := Report{WeightsBytes: m.File.SizeBytes(), MemoryBytes: memoryBytes, ProgramBytes: programBytes, BuffersBytes: int64(o.ChunkTokens)*int64(width+4*beyond) + int64(4*m.Vocab) + packedPanelBytes, ContextTokens: o.Context}
	for _, t := range m.File.Tensors() { // what is packed into larger tiles; the mapped bytes leave
		r.WeightsBytes += kernels.PackedGrowth(t.Type, t.Rows(), t.Cols())
	}
	l := o.PlainLayout()
	r.KVBytesPerToken = int64(engine.TokenBytes(engine.CacheOf(m, o), l))
	r.StateBytes = 2 * m.Cache().StateBytes()
	r.KVBytesAtContext = engine.KVBytes(m, o, o.Context)
	r.TablesBytes, r.Texts = tables(m, o, o.Context), max(o.Batch, 1)
	free := memoryBytes - r.ProgramBytes - r.WeightsBytes - r.BuffersBytes
	pages := sort.Search(m.Context/l.Tokens+1, func(pages int) bool {
		n := (pages + 1) * l.Tokens
		return int64(r.Texts)*(engine.KVBytes(m, o, n)+tables(m, o, n)) > free
	})
	r.LongestContext = min(pages*l.Tokens, m.Context)
	r.TotalBytes = r.ProgramBytes + r.WeightsBytes + r.BuffersBytes + int64(r.Texts)*(r.KVBytesAtContext+r.TablesBytes)
	return r
}
