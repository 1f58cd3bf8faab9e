package policy

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"terrace/internal/cacheshape"
)

// doubleSparsity scans a few channels of every key, the same ones for the whole text, from a copy of their own (Yang et al. 2024, arXiv
// 2408.07092; algorithms.md 5.14). Per KV head the label channels are those with the largest Σ|q_c·k_c|, each token's query and key
// multiplied with each other, over a sample text (calibrate=model) or over this prompt. The copy holds them in 4 bits with a scale a
// token, or in half precision. A step multiplies the query's label channels with it, over √rank, and reads the best tokens whole.
//
// A step scans rank/2 + 4 bytes of a token and KV head (labels=half: 2·rank), and no centroid or bound: with the defaults 12 of the 256
// bytes that a token of 64 and 64 numbers takes in half precision.
type doubleSparsity struct {
	chooser
	rank   Budget // of KeyDim, or channels
	half   bool   // labels in half precision
	sample bool   // the channels are those of the model's sample text

	kv     cacheshape.KV  // of the layers that it acts on
	order  *Decomposition // of the model's channels, where sample
	shares [][]float64    // [Layers][KVHeads·KeyDim] Σ|q·k| over the prompt
	keys   []float32
	labels [][][]int32 // [Layers][KVHeads] channels, largest share first
	heads  []labelHead
}

// labelHead is one KV head's scratch: heads may be on different threads.
type labelHead struct {
	chooser
	q []float32 // [group, rank]
}

func init() {
	register(Info{
		Name:    "double_sparsity",
		Summary: "scans 4-bit copies of a few channels of the keys, chosen once, reads the best tokens",
		Paper:   "Post-Training Sparse Attention with Double Sparsity, arXiv 2408.07092",
		Phase:   PhaseRead,
		Params: append(chooserParams("6.25%", "2", "0", "1", "softmax"),
			Param{Name: "rank", Aliases: []string{"r"}, Default: "25%", Doc: "label channels: a share of a key's numbers, or a number"},
			Param{Name: "labels", Default: "int4", Doc: "how they are kept: int4 (a scale a token) or half"},
			Param{Name: "calibrate", Default: "prompt", Doc: "whose queries and keys choose them: this prompt's, or model: those of a sample text, once a model"}),
	}, func(a *args) Policy {
		return &doubleSparsity{chooser: newChooser(a), rank: a.share("rank"), half: a.choice("labels", "int4", "half") == 1, sample: a.choice("calibrate", "prompt", "model") == 1}
	})
}

// Bind sizes the labels.
func (p *doubleSparsity) Bind(m Model) error {
	kv, err := m.one(p.Name())
	if err != nil {
		return err
	}
	if p.rank.share.Count > kv.KeyDim {
		return fmt.Errorf("policy: double_sparsity: rank=%s: want at most the %d numbers of a key: %w", p.rank, kv.KeyDim, ErrModel)
	}
	p.kv, p.labels, p.heads = kv, make([][][]int32, len(m.Layers)), make([]labelHead, kv.Heads)
	for g := range p.heads {
		p.heads[g].chooser = p.chooser
	}
	if !p.sample {
		p.shares = make([][]float64, len(m.Layers))
		return nil
	}
	var ok bool
	if p.order, ok = Seen[*Decomposition](m.Observed, ChannelOrder{}); !ok {
		return fmt.Errorf("policy: double_sparsity: calibrate=model: the order of the model's channels is missing: %w", ErrModel)
	}
	return p.order.Fits(m)
}

// channels is how many labels a key has; before a model is known, 0.
func (p *doubleSparsity) channels() int {
	if p.kv.KeyDim == 0 {
		return 0
	}
	return p.rank.Tokens(p.kv.KeyDim, 1)
}

func (p *doubleSparsity) Needs() Needs {
	n := Needs{TokenGranularity: true, Sketch: Sketch{Kind: SketchInt4, Scale: ScaleToken, Rank: p.channels()}}
	if p.half {
		n.Sketch = Sketch{Kind: SketchProjected, Rank: p.channels()}
	}
	if p.sample {
		n.OfModel = []Observation{ChannelOrder{}}
	}
	return n
}

// Watches implements [Watcher]: channels of a sample are known before.
func (p *doubleSparsity) Watches() bool { return !p.sample }

// WatchPrompt adds up |q·k| of each channel over the rows, each of which sees its own key: row by row in order, so that how a prompt is
// cut changes no bit.
func (p *doubleSparsity) WatchPrompt(l *Layer, first int, q []float32, rows int) {
	if p.shares == nil {
		return
	}
	d, group := l.KeyDim, l.Group()
	if p.shares[l.Index] == nil || first == 0 {
		p.shares[l.Index] = make([]float64, l.KVHeads*d)
	}
	for g := range l.KVHeads {
		at, _ := slices.BinarySearch(l.Pos[g], int32(first))
		if last := at + rows - 1; last >= l.Tokens(g) || int(l.Pos[g][last]) != first+rows-1 {
			continue // not all of their keys are here
		}
		p.keys = sized(p.keys, rows*d)
		l.KV.Keys(g, at, at+rows, p.keys)
		for r := range rows {
			addShares(p.shares[l.Index][g*d:(g+1)*d], q[(r*l.Heads+g*group)*d:][:group*d], p.keys[r*d:(r+1)*d])
		}
	}
}

// addShares adds |q·k| of each channel to share [KeyDim], for queries [group, KeyDim] of one token and its key.
func addShares(share []float64, q, key []float32) {
	for at := 0; at < len(q); at += len(key) {
		for c, k := range key {
			share[c] += math.Abs(float64(q[at+c]) * float64(k))
		}
	}
}

// byShare are the channels from the largest share down, equal ones from the lowest.
func byShare(share []float64) []int32 {
	order := span(nil, 0, len(share))
	sort.SliceStable(order, func(a, b int) bool { return share[order[a]] > share[order[b]] })
	return order
}

// Project takes the label channels of a KV head: each row of dst is 1 at one of them.
func (p *doubleSparsity) Project(l *Layer, kvHead int, dst []float32) {
	d := l.KeyDim
	var order []int32
	switch {
	case p.sample:
		order = p.order.channels(l.Index, kvHead)
	case p.shares[l.Index] == nil: // no row was seen
		order = span(nil, 0, d)
	default:
		order = byShare(p.shares[l.Index][kvHead*d : (kvHead+1)*d])
	}
	if p.labels[l.Index] == nil {
		p.labels[l.Index] = make([][]int32, l.KVHeads)
	}
	labels := slices.Clone(order[:p.channels()])
	p.labels[l.Index][kvHead] = labels
	clear(dst)
	for i, c := range labels {
		dst[i*d+int(c)] = 1
	}
}

// Select ranks the tokens of each KV head by its labels.
func (p *doubleSparsity) Select(l *Layer, read *Selection) {
	target, ok := p.start(l, read)
	if !ok {
		return
	}
	if p.labels[l.Index] == nil {
		read.All = true
		return
	}
	l.each(l.KVHeads, func(_, g int) {
		h := &p.heads[g]
		labels, n, group := p.labels[l.Index][g], l.Tokens(g), l.Group()
		h.q, h.scores = sized(h.q, group*len(labels)), sized(h.scores, group*n)
		scale := float32(math.Sqrt(float64(l.KeyDim) / float64(len(labels)))) // scores are over √rank where others' are over √KeyDim
		queries := l.queries(g)
		for r := range group {
			for i, c := range labels {
				h.q[r*len(labels)+i] = scale * queries[r*l.KeyDim+int(c)]
			}
		}
		l.Scores.Approx(g, h.q, group, h.scores)
		read.Heads[g] = h.choose(read.Heads[g], h.merge(l, g, n), target)
	})
}

// ChannelOrder is the [Observation] of a model's channels by Σ|q·k| over a sample text, each token's query and key multiplied with each
// other (Double Sparsity): a *Decomposition whose rows are 1 at one channel, the largest share first.
type ChannelOrder struct{}

// Key implements [Observation]; it is a part of the file name of what is kept.
func (ChannelOrder) Key() string    { return "channels" }
func (ChannelOrder) String() string { return "order of the model's channels" }

// SetChannels fills a layer of a decomposition with the order of its channels, from queries [rows, heads·KeyDim] and keys [rows,
// KVHeads·KeyDim] of the same tokens, after RoPE.
func (d *Decomposition) SetChannels(layer int, queries, keys []float32, rows, heads int) {
	l := &d.layers[layer]
	if l.heads == 0 {
		return
	}
	dim, group := l.dim, heads/l.heads
	for g := range l.heads {
		share := make([]float64, dim)
		for r := range rows {
			addShares(share, queries[(r*heads+g*group)*dim:][:group*dim], keys[(r*l.heads+g)*dim:][:dim])
		}
		basis := d.Head(layer, g)
		for i, c := range byShare(share) {
			basis[i*dim+int(c)] = 1
		}
	}
}

// channels are those whose rows are 1, in order.
func (d *Decomposition) channels(layer, kvHead int) (order []int32) {
	dim := d.layers[layer].dim
	basis := d.Head(layer, kvHead)
	for i := range dim {
		order = append(order, int32(max(slices.Index(basis[i*dim:(i+1)*dim], 1), 0)))
	}
	return order
}
