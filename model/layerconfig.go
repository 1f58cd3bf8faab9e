package model

import (
	"math"
	"strings"

	"terrace/internal/cacheshape"
)

// LayerConfig is what one layer does with its rows: a mixer, which lets a row see others, and a feed-forward network. A recurrent mixer
// beside attention works on the same norm, and their outputs are added.
type LayerConfig struct {
	Attention             // Heads 0 = the layer does not attend
	Delta      *DeltaNet  // nil = none
	SSM        *Mamba2    // nil = none
	Conv       *ShortConv // nil = none
	NGrams     *NGrams    // added to the rows before a recurrent mixer; nil = none
	MoE        bool       // the feed-forward network is a mixture of experts
	NoFFN      bool       // there is none
	Curve      Curve      // of XIELU
	Sparse     bool       // of a row's gates only what lies above their mean by Deviations standard deviations stays, less that
	Deviations float32
}

// Attention is the mixer that reads keys and values of other tokens. Its figures are the layer's own: layers may differ.
type Attention struct {
	Heads   int // H, query heads
	KVHeads int // G, divides H
	KeyDim  int // dk
	ValDim  int // dv
	Owner   int // the layer whose keys and values are read: itself, or an earlier one of the same KVHeads, KeyDim and ValDim
	Window  int // sliding window in tokens: key visible iff posQ − posK < Window; 0 = all
	Rope    int // index into Config.Ropes, -1 = no rotation

	Scale   float32 // multiplies q·k; 0 = 1/√dk
	Softcap float32 // cap·tanh(s/cap) on scores; 0 = none
	Gate    GateKind
	Latent  *Latent  // keys and values are a latent vector; nil = they are not
	Index   *Indexer // chooses what queries attend to; nil = they attend to all

	Chunk         int         // keys of the query's own chunk of so many tokens are visible, none before it; 0 = no chunks
	Temperature   Temperature // of queries, by position
	NormAfterRope bool        // the norms of q and k come after the rotation
	HeadNorms     bool        // the norms of q and k have weights for each head of its own
}

// GateKind is what multiplies the output of attention, by head or by number: a function of LayerParams.OutGate · norm(hidden).
type GateKind uint8

const (
	NoGate GateKind = iota
	SigmoidGate
	SoftplusGate
)

// Latent is attention whose keys and values are made of one vector a token (MLA). The projections of keys and values are taken into the
// query and the output, so that what is cached is the latent itself, normed, with the rotated part behind it: one KV head of
// Rank+Rope numbers, whose value is its key. The layer's KVHeads is 1, KeyDim and ValDim are Rank+Rope.
type Latent struct {
	Rank  int // numbers of the latent that keys and values are made of
	Nope  int // numbers of a query head that meet the latent through LayerParams.KeyUp
	Rope  int // numbers that rotate, in every query head and once in the key
	Value int // numbers of a value head, made of the latent by LayerParams.ValueUp
}

// Temperature scales a query at position p by 1 + Scale·ln(1 + ⌊(p+From)/Every⌋); Scale 0 = none.
type Temperature struct {
	Scale float32
	Every int
	From  int
}

// at is the factor at a position.
func (t *Temperature) at(pos int) float32 {
	return float32(1 + float64(t.Scale)*math.Log1p(float64((pos+t.From)/t.Every)))
}

// reach is how many tokens a layer looks back at most; 0 = all.
func (a *Attention) reach() int {
	if a.Chunk > 0 && (a.Window == 0 || a.Chunk < a.Window) {
		return a.Chunk
	}
	return a.Window
}

// Group is the number of query heads that share a key/value head.
func (a *Attention) Group() int { return a.Heads / a.KVHeads }

// ScoreScale is the factor on q·k.
func (a *Attention) ScoreScale() float32 {
	if a.Scale != 0 {
		return a.Scale
	}
	return float32(1 / math.Sqrt(float64(a.KeyDim)))
}

// Cache is what each layer keeps of a text.
func (c *Config) Cache() cacheshape.Model {
	m := make(cacheshape.Model, len(c.Layer))
	for i := range c.Layer {
		m[i] = c.Layer[i].cache(i)
		if a := &c.Layer[i].Attention; a.Heads > 0 && a.Owner < i {
			keepFor(&m[a.Owner].KV, a.reach())
		}
	}
	return m
}

func (l *LayerConfig) cache(layer int) cacheshape.Layer {
	shape := cacheshape.Layer{Heads: l.Heads, Owner: l.Owner, State: cacheshape.State{Bytes: 4 * l.stateFloats()}}
	if l.Heads > 0 && l.Owner == layer {
		shape.KV = cacheshape.KV{Heads: l.KVHeads, KeyDim: l.StoredKey(), ValueDim: l.StoredValue(), Window: l.reach(), ValueInKey: l.Latent != nil, Index: l.indexShare()}
	}
	return shape
}

// keepFor widens the window of what a layer keeps to what a later layer reads of it.
func keepFor(kv *cacheshape.KV, window int) {
	if kv.Window > 0 && (window == 0 || window > kv.Window) {
		kv.Window = window
	}
}

// Recurs reports whether a layer has a mixer that keeps state.
func (l *LayerConfig) Recurs() bool { return l.Delta != nil || l.SSM != nil || l.Conv != nil }

// EachAttention changes the attention of every layer, for architectures whose layers have a figure in common.
func (c *Config) EachAttention(set func(a *Attention)) {
	for i := range c.Layer {
		set(&c.Layer[i].Attention)
	}
}

// Kind names what a layer's mixers are: "attention", "latent attention", "gated DeltaNet", "Mamba-2", "short convolution", two of them side by
// side with a + between, or "feed-forward".
func (l *LayerConfig) Kind() string {
	var kinds []string
	switch {
	case l.Latent != nil:
		kinds = append(kinds, "latent attention")
	case l.Heads > 0:
		kinds = append(kinds, "attention")
	}
	switch {
	case l.Delta != nil:
		kinds = append(kinds, "gated DeltaNet")
	case l.SSM != nil:
		kinds = append(kinds, "Mamba-2")
	case l.Conv != nil:
		kinds = append(kinds, "short convolution")
	}
	if len(kinds) == 0 {
		return "feed-forward"
	}
	return strings.Join(kinds, " + ")
}
