package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"terrace/internal/kernels"
)

// qfilter keeps the tokens whose keys point against their head's filter (Godey et al. 2025, arXiv 2503.02812; kvpress's QFilterPress):
// a token's score is -filter·k, the key after RoPE. Filters are trained once for a model, one vector a layer and KV head, and come from
// a file; no token has a right to stay, neither sinks nor the newest.
//
// Files have a head's numbers in the order of Hugging Face's checkpoints. GGUF files of some architectures keep the pairs that rotate
// as neighbours ([Model].Interlaced); filters are put in that order there.
type qfilter struct {
	scored
	file    string    // whose filters Model.Filters has; "" = values are given
	values  []float32 // [Layers, KVHeads, KeyDim], or one number for all
	filters []float32 // [Layers, KVHeads, KeyDim] in the order of the model's keys
	first   []int     // where each layer's begin
	buf     []float32
}

// FilterFile is the ending of files of filters: they are no text, [ExpandFiles] leaves their names in the specification.
const FilterFile = ".safetensors"

func init() {
	register(Info{
		Name:          "qfilter",
		Ranked:        true,
		Summary:       "scores keys by filters trained for the model, from a file",
		Paper:         "Q-Filters: Leveraging QK Geometry for Efficient KV Cache Compression, arXiv 2503.02812",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Example:       "filters=1",
		Params: append(budgetParams("50%"),
			Param{Name: "filters", Doc: "@FILE.safetensors with q_filters [layers, KV heads, head width] (model.safetensors of nthngdy/MODEL_qfilt), @FILE with the numbers, or the numbers, divided by /; one alone is every number; must be given"}),
	}, newQFilter)
}

func newQFilter(a *args) Policy {
	p := &qfilter{scored: scored{base: a.base(), budget: a.budget()}}
	if !a.has("filters") {
		a.errs = append(a.errs, fmt.Errorf("policy: qfilter: filters is missing: want filters=@FILE%s, the model's filters (kvpress's are model.safetensors of nthngdy/MODEL_qfilt on the hub): %w", FilterFile, ErrParam))
		return p
	}
	if name, ok := strings.CutPrefix(a.raw("filters"), "@"); ok {
		p.file = name
		return p
	}
	for _, text := range a.list("filters") {
		x, err := strconv.ParseFloat(text, 32)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			a.errs = append(a.errs, fmt.Errorf("policy: qfilter: filters holds %q, want @FILE%s or numbers: %w", text, FilterFile, ErrParam))
			break
		}
		p.values = append(p.values, float32(x))
	}
	return p
}

// Bind takes the model's filters; those of another model are refused.
func (p *qfilter) Bind(m Model) error {
	n, values := 0, p.values
	p.first = make([]int, len(m.Layers))
	for i := range m.Layers {
		p.first[i] = n
		n += m.Layers[i].KV.Heads * m.Layers[i].KV.KeyDim
	}
	_, kv, same := m.Layers.Same()
	if p.file != "" {
		f := m.Filters[p.file]
		if f == nil {
			return fmt.Errorf("policy: qfilter: filters=@%s was not read: an engine reads what its own policy names, no request's: %w", p.file, ErrModel)
		}
		if !same {
			return fmt.Errorf("policy: qfilter: %s has filters of one shape, and the model's layers differ: %w", p.file, ErrModel)
		}
		if f.Layers != len(m.Layers) || f.KVHeads != kv.Heads || f.KeyDim != kv.KeyDim || len(f.Values) != n {
			return fmt.Errorf("policy: qfilter: %s has filters of %d layers, %d KV heads of %d: want %d, %d of %d: %w", p.file, f.Layers, f.KVHeads, f.KeyDim, len(m.Layers), kv.Heads, kv.KeyDim, ErrModel)
		}
		values = f.Values
	}
	if len(values) == 1 {
		values = slices.Repeat(values, n)
	}
	if len(values) != n {
		return fmt.Errorf("policy: qfilter: filters has %d numbers, the keys of the model's %d layers want %d: %w", len(values), len(m.Layers), n, ErrModel)
	}
	if p.filters = values; m.Interlaced {
		p.filters = slices.Clone(values)
		for i := range m.Layers {
			if kv := m.Layers[i].KV; kv.Heads > 0 {
				copy(p.filters[p.first[i]:], interlaced(values[p.first[i]:][:kv.Heads*kv.KeyDim], kv.KeyDim))
			}
		}
	}
	return nil
}

// interlaced puts the numbers of each head, whose halves rotate together, side by side: i and i + dim/2 become 2i and 2i + 1.
func interlaced(values []float32, dim int) []float32 {
	out := make([]float32, len(values))
	for at := 0; at < len(values); at += dim {
		for i := range dim / 2 {
			out[at+2*i], out[at+2*i+1] = values[at+i], values[at+i+dim/2]
		}
	}
	return out
}

func (p *qfilter) Needs() Needs { return Needs{Keys: true, OwnChannels: true, Filters: p.file} }

func (p *qfilter) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// filter is that of a layer's KV head [KeyDim].
func (p *qfilter) filter(l *Layer, kvHead int) []float32 {
	return p.filters[p.first[l.Index]+kvHead*l.KeyDim:][:l.KeyDim]
}

// Score is -filter·k.
func (p *qfilter) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		filter := p.filter(l, g)
		eachKey(l, g, &p.buf, func(i int, key []float32) { row[i] = -kernels.Dot(filter, key) })
	}
}

// loneScore implements loneScorer.
func (p *qfilter) loneScore(l *Layer, kvHead, i int) float32 {
	p.buf = sized(p.buf, l.KeyDim)
	l.KV.Keys(kvHead, i, i+1, p.buf)
	return -kernels.Dot(p.filter(l, kvHead), p.buf)
}

// Filters are what a file has that was trained for a model: the vectors that qfilter scores its keys with, the maps of kvzap, or where
// triattention's queries stand.
type Filters struct {
	Layers, KVHeads, KeyDim int
	Values                  []float32  // [Layers, KVHeads, KeyDim], in the order of Hugging Face's checkpoints
	Scores                  *ScoreMap  // instead of those
	Centers                 []*Centers // instead of those: by layer, nil where the file has none, counts of 1
}
