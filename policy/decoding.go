package policy

import "fmt"

// decoding re-applies a prompt policy while tokens are generated: every compression_interval steps the cache of each
// layer is cut to target_size tokens per KV head by the wrapped policy's score (kvpress's DecodingPress). Between two cuts
// the cache grows. The wrapped policy's own budget is not used.
type decoding struct {
	scored
	inner    Scored
	interval int
	target   int
}

func init() {
	register(Info{
		Name:    "decoding",
		Summary: "re-applies another policy's score every few steps while decoding, down to a fixed size",
		Phase:   PhaseWrapper,
		Wraps:   "knorm",
		Params: []Param{
			{Name: "compression_interval", Aliases: []string{"interval"}, Default: "512", Doc: "decode steps between two cuts"},
			{Name: "target_size", Aliases: []string{"target"}, Default: "2048", Doc: "tokens per KV head after a cut"},
		},
	}, func(a *args) Policy {
		p := &decoding{
			scored: scored{base: a.base()}, inner: a.wrapped(),
			interval: a.int("compression_interval", 1, maxTokens), target: a.int("target_size", 1, maxTokens),
		}
		if p.inner != nil && p.inner.Needs().PromptSums == AllRows {
			a.errs = append(a.errs, fmt.Errorf("policy: decoding: %s needs the attention of every query since the start: use h2o, which keeps running sums: %w",
				p.inner.Name(), ErrParam))
		}
		return p
	})
}

func (p *decoding) Bind(m Model) error { return bind(p.inner, m) }

// Needs are the wrapped policy's, per step instead of at the end of the prompt.
func (p *decoding) Needs() Needs {
	n := p.inner.Needs()
	n.StepSums, n.PromptSums = n.PromptSums, 0
	return n
}

// Due reports whether the step that brought the sequence to n tokens is one that cuts.
func (p *decoding) Due(n, prompt int) bool { return n > prompt && (n-prompt)%p.interval == 0 }

// DropStep cuts at every interval-th step.
func (p *decoding) DropStep(l *Layer, drop *Selection) {
	drop.Reset(l.KVHeads)
	if p.Due(l.N, l.Prompt) {
		p.dropWorst(p.inner, l, p.target, drop)
	}
}
