package policy

// streamingLLM keeps the first n_sink tokens, which attention leans on whatever they say, and the newest ones (Xiao et al.
// 2023, arXiv 2309.17453). Positions are kept as they are.
type streamingLLM struct {
	scored
	sinks int
}

// streamingDecoder goes on dropping while decoding, the oldest token after the sinks at each step.
type streamingDecoder struct{ streamingLLM }

// decodeParam is shared by the methods that work on the prompt (as kvpress has them) and at every step.
var decodeParam = Param{Name: "decode", Default: "auto", Doc: "go on dropping while decoding: true, false, or auto = with budget yes (it holds at any time), with ratio no (it removes part of the prompt once)"}

// decodes reads decodeParam.
func (a *args) decodes(b Budget) bool {
	switch a.choice("decode", "auto", "true", "false") {
	case 0:
		return !b.Removes()
	case 1:
		return true
	}
	return false
}

func init() {
	register(Info{
		Name:    "streaming_llm",
		Summary: "keeps the first tokens (sinks) and the newest ones",
		Paper:   "Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453",
		Phase:   PhasePrompt,
		Params: append(budgetParams("50%"),
			Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that always stay"}, decodeParam),
	}, func(a *args) Policy {
		p := streamingLLM{scored{base: a.base(), budget: a.budget()}, a.int("n_sink", 0, maxTokens)}
		if a.decodes(p.budget) {
			return &streamingDecoder{p}
		}
		return &p
	})
}

// maxTokens bounds counts of tokens in parameters.
const maxTokens = 1 << 30

func (p *streamingLLM) Needs() Needs { return Needs{} }

func (p *streamingLLM) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is 1 for the sinks and the newest, 0 for those between that have to go.
func (p *streamingLLM) Score(_ *Layer, target int, dst [][]float32) {
	for _, row := range dst {
		from, to := gap(len(row), target, min(p.sinks, target))
		for i := range row {
			row[i] = 1
			if i >= from && i < to {
				row[i] = 0
			}
		}
	}
}

// gap is the range of indices that goes when target of n tokens stay, the first sinks among them.
func gap(n, target, sinks int) (from, to int) { return sinks, sinks + max(n-target, 0) }

// DropStep drops the oldest tokens behind the sinks. The newest always stays here; after the prompt a target that the sinks
// fill leaves it out, as kvpress does.
func (p *streamingDecoder) DropStep(l *Layer, drop *Selection) {
	drop.Reset(l.KVHeads)
	target := p.Target(l)
	for g := range l.KVHeads {
		from, to := gap(l.Tokens(g), target, min(p.sinks, target-1))
		drop.Heads[g] = span(drop.Heads[g], from, to)
	}
}
