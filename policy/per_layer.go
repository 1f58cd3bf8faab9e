package policy

import (
	"fmt"
	"strings"
)

// perLayer gives each layer its own budget, from a list (or a file, which the command line expands), or one that falls
// like PyramidKV's. Scores are those of the policy it wraps.
type perLayer struct {
	scored
	inner   Scored
	budgets []Budget
	shape   int
	beta    int
}

func init() {
	register(Info{
		Name:    "per_layer",
		Aliases: []string{"PerLayerCompressionPress"},
		Summary: "gives each layer its own budget; wraps a scorer",
		Phase:   PhaseWrapper,
		Wraps:   "snapkv",
		Params: []Param{
			{Name: "budgets", Doc: "one budget a layer, divided by / (50%/25%/1k), or @FILE with one a line"},
			{Name: "shape", Default: "uniform", Doc: "uniform or pyramid: how the wrapped policy's budget is spread where no list is given"},
			{Name: "beta", Default: "20", Doc: "steepness of the pyramid"},
		},
	}, func(a *args) Policy {
		return &perLayer{
			scored: scored{base: a.base()}, inner: a.wrapped(), budgets: a.budgets("budgets"),
			shape: a.choice("shape", "uniform", "pyramid"), beta: a.int("beta", 1, maxTokens),
		}
	})
}

// Bind refuses a list that is not as long as the model is deep.
func (p *perLayer) Bind(m Model) error {
	if n := len(p.budgets); n > 0 && n != len(m.Layers) {
		return fmt.Errorf("policy: per_layer: %d budgets for a model of %d layers: want one a layer: %w", n, len(m.Layers), ErrModel)
	}
	return bind(p.inner, m)
}

func (p *perLayer) Needs() Needs { return p.inner.Needs() }

func (p *perLayer) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Target is the layer's own budget.
func (p *perLayer) Target(l *Layer) int {
	switch {
	case len(p.budgets) > 0:
		return p.budgets[l.Index].Of(l, l.N)
	case p.shape == 1:
		return pyramid(float64(p.inner.Target(l)), l.N, 0, p.beta, l.Index, l.Layers)
	}
	return p.inner.Target(l)
}

// Score is the wrapped policy's.
func (p *perLayer) Score(l *Layer, target int, dst [][]float32) { p.inner.Score(l, target, dst) }

// Cut is the wrapped policy's.
func (p *perLayer) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	p.inner.Cut(l, scores, target, keep)
}

// ExpandFiles replaces every value `@PATH` of a specification by the content of the file, lines joined with /; names of files that are
// no text ([FilterFile]) stay as they are. The reading is the caller's: this package touches no file.
func ExpandFiles(text string, read func(path string) ([]byte, error)) (string, error) {
	var b strings.Builder
	for {
		at := strings.Index(text, "=@")
		if at < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:at+1])
		path, after := text[at+2:], ""
		if end := strings.IndexAny(path, ",+"); end >= 0 {
			path, after = path[:end], path[end:]
		}
		if strings.HasSuffix(path, FilterFile) {
			b.WriteString("@" + path)
			text = after
			continue
		}
		content, err := read(path)
		if err != nil {
			return "", fmt.Errorf("policy: values of %s: %w", path, err)
		}
		b.WriteString(strings.Join(strings.Fields(string(content)), "/"))
		text = after
	}
}
