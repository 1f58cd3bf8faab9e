package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kvzap keeps the tokens that a small map, trained for the model, gives the highest scores, by the row that the layer's attention projects
// from (Jégou and Jeblick 2026, arXiv 2601.07891; kvpress's KVzapPress): what kvzip_plus finds by reading the prompt twice, guessed in one
// pass. Maps are a matrix, two with GELU between them, or Fast KVzip's gates (Kim et al. 2026, arXiv 2601.17668; [ScoreMap]), from a file:
// published ones, or what `infer fit-scores` writes. Under dms with a threshold it is used as its authors do, while decoding too.
//
// Tokens that an earlier prompt has kept, and generated ones, stay.
type kvzap struct {
	scored
	mapped
}

// kvzapShared is kvzap with one budget for a layer, or for all: it decides when all layers have read the prompt, as kvzip does, without its
// second pass. That is Fast KVzip's form (kvpress's FastKVzipPress).
type kvzapShared struct {
	kvzip
	mapped
}

// mapped is what the forms share.
type mapped struct {
	file   string
	value  float32 // of every weight, where there is no file
	by     *ScoreMap
	first  int
	window Budget
	auto   bool // the window is Fast KVzip's
}

// HiddenScores is the [PromptObservation] of the scores that a map gives to tokens: a [HiddenScorer].
type HiddenScores struct{ By *ScoreMap }

// Key implements [Observation].
func (HiddenScores) Key() string    { return "hidden_scores" }
func (HiddenScores) String() string { return "hidden rows' scores" }

// OfPrompt implements [PromptObservation].
func (HiddenScores) OfPrompt() {}

// HiddenScorer tells the scores of cached tokens; +Inf of those that were cached before the prompt.
type HiddenScorer interface {
	// Layer fills dst [KVHeads][tokens], in cache order.
	Layer(layer int, dst [][]float32)
	// Cached makes dst fit a layer: [KVHeads][tokens]; nil where policies do not act on it.
	Cached(layer int) [][]float32
	// Token is the score of one position in a KV head.
	Token(layer, kvHead int, pos int32) float32
}

func init() {
	register(Info{
		Name:          "kvzap",
		Summary:       "keeps what a small map of hidden states, trained for the model, takes for kvzip's choice",
		Paper:         "KVzap: Fast, Adaptive, and Faithful KV Cache Pruning, arXiv 2601.07891",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Example:       "weights=0.1",
		Systems:       []System{{Name: "fastkvzip", Params: "budgets=global,window=auto", Doc: "Fast KVzip, arXiv 2601.17668"}},
		Params: append(budgetParams("50%"),
			Param{Name: "weights", Doc: "@FILE.safetensors: model.safetensors of nvidia/KVzap-FORM-MODEL, Fast KVzip's gates (layers.N.q_proj.weight …), or what infer fit-scores has written; or a number, every weight of a matrix; must be given"},
			Param{Name: "budgets", Default: "head", Doc: "what shares the budget: head (every KV head the same number), layer, or global (all layers and heads)"},
			Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that always stay (kvpress's KVzapPress: 0)"},
			Param{Name: "window", Default: "0", Doc: "newest tokens that always stay, or their share; auto: 2 % of fewer than 32,000 tokens, else 4096"}),
	}, newKVzap)
}

func newKVzap(a *args) Policy {
	m := mapped{first: a.int("n_sink", 0, maxTokens)}
	switch text := a.raw("window"); text {
	case "auto":
		m.auto = true
	case "0":
	default:
		m.window = a.share("window")
	}
	text := a.raw("weights")
	if name, ok := strings.CutPrefix(text, "@"); ok {
		m.file = name
	} else if x, err := strconv.ParseFloat(text, 32); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		a.errs = append(a.errs, fmt.Errorf("policy: kvzap: weights=%s: want weights=@FILE%s, a map trained for the model (model.safetensors of nvidia/KVzap-mlp-MODEL on the hub, or made by infer fit-scores): %w", text, FilterFile, ErrParam))
	} else {
		m.value = float32(x)
	}
	share := a.choice("budgets", "head", "layer", "global")
	if share == 0 {
		return &kvzap{scored: scored{base: a.base(), budget: a.budget()}, mapped: m}
	}
	zip := kvzip{base: a.base(), budget: a.budget(), share: kvzipShare([]kvzipShare{zipHeadwise, zipLayerwise, zipGlobal}[share]), sinks: m.first}
	return &kvzapShared{zip, m}
}

// Bind takes the model's map; that of another model is refused.
func (p *mapped) Bind(m Model) error {
	if p.file == "" {
		p.by = evenMap(m, p.value)
		return nil
	}
	f := m.Filters[p.file]
	switch {
	case f == nil:
		return fmt.Errorf("policy: kvzap: weights=@%s was not read: an engine reads what its own policy names, no request's: %w", p.file, ErrModel)
	case f.Scores == nil:
		return fmt.Errorf("policy: kvzap: %s holds no map of hidden states: %w", p.file, ErrModel)
	}
	p.by = f.Scores
	return p.by.check(p.file, m)
}

func (p *mapped) Needs() Needs {
	return Needs{Observations: []Observation{HiddenScores{p.by}}, Filters: p.file}
}

// newest is how many of n tokens the window has.
func (p *mapped) newest(n, kvBytes int) int {
	switch {
	case p.auto && n < 32000:
		return n * 2 / 100
	case p.auto:
		return 4096
	case p.window.kind == budgetNone:
		return 0
	}
	return p.window.Tokens(n, kvBytes)
}

// protect gives first and newest tokens the score of those that must stay.
func (p *mapped) protect(l *Layer, dst [][]float32) {
	newest := p.newest(l.N, l.KVBytes)
	for _, row := range dst {
		for i := range row {
			if i < p.first || i >= len(row)-newest {
				row[i] = infinity
			}
		}
	}
}

func (p *kvzap) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the map's.
func (p *kvzap) Score(l *Layer, _ int, dst [][]float32) {
	scorer, _ := Seen[HiddenScorer](l.Observed, HiddenScores{p.by})
	scorer.Layer(l.Index, dst)
	p.protect(l, dst)
}

// loneScore implements loneScorer.
func (p *kvzap) loneScore(l *Layer, kvHead, i int) float32 {
	if i < p.first {
		return infinity
	}
	scorer, _ := Seen[HiddenScorer](l.Observed, HiddenScores{p.by})
	return scorer.Token(l.Index, kvHead, l.Pos[kvHead][i])
}

func (p *kvzapShared) Bind(m Model) error { return p.mapped.Bind(m) }

func (p *kvzapShared) Needs() Needs { return p.mapped.Needs() }

// Repeats asks for no second pass: the prompt's end is what it waits for.
func (p *kvzapShared) Repeats(int, int) Repeats { return Repeats{None: true} }

// ObserveRepeat is never called.
func (p *kvzapShared) ObserveRepeat(*Layer, *Repeat) {}

// KeepPrompt takes the scores of all layers with the first.
func (p *kvzapShared) KeepPrompt(l *Layer, keep *Selection) {
	if scorer, ok := Seen[HiddenScorer](l.Observed, HiddenScores{p.by}); ok && !p.cut {
		p.layers = p.layers[:0]
		for i := range l.Layers {
			dst := scorer.Cached(i)
			if dst != nil {
				scorer.Layer(i, dst)
				p.protect(l, dst)
			}
			p.layers = append(p.layers, zipLayer{scores: dst})
		}
	}
	p.kvzip.KeepPrompt(l, keep)
}
