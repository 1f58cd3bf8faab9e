package policy

import "slices"

// lazyLLM prunes tokens of the prompt while it is being read (Fu et al. 2024, arXiv 2407.14057; algorithms.md 5.9): at each
// pruning layer the tokens that the last token attends to least, by the mean weight over all heads, skip the later layers.
// A share is of the tokens still alive. The last token always goes on. While decoding, each step chooses again by its own
// attention among the prompt's tokens; one that was pruned comes back from its hidden row (the paper's Aux cache).
type lazyLLM struct {
	base
	blocks
	revive Revive
	scores []float32
	picks  []int32
	pick   picker
}

func init() {
	register(Info{
		Name:    "lazyllm",
		Summary: "prunes single tokens of the prompt by the last token's attention",
		Paper:   "LazyLLM: Dynamic Token Pruning for Efficient Long Context LLM Inference, arXiv 2407.14057",
		Phase:   PhasePrefill,
		Params:  append(pruneParams("50%", "part of the tokens alive that goes on after each of them: a share or a count"), reviveParam),
	}, func(a *args) Policy { return &lazyLLM{base: a.base(), blocks: newBlocks(a), revive: reviveOf(a)} })
}

// Bind settles the pruning layers on a model.
func (p *lazyLLM) Bind(m Model) error { return p.blocks.bind(p.Name(), m) }

func (p *lazyLLM) Needs() Needs {
	n := Needs{PromptSums: 1, WholePrompt: true}
	if p.revive != ReviveNone {
		n.StepSums = 1
	}
	return n
}

// Revives says whether tokens that were pruned may come back.
func (p *lazyLLM) Revives() Revive { return p.revive }

// PruneLayers lists the 0-based pruning layers.
func (p *lazyLLM) PruneLayers() []int { return p.layers }

// Leaving follows the shares from layer to layer.
func (p *lazyLLM) Leaving(n, kvBytes int) int {
	stay := n
	for _, b := range p.budgets {
		stay = min(stay, b.Tokens(stay, kvBytes))
	}
	return n - stay
}

// target is how many of n tokens stay at a pruning layer; with fewer than all, the scores are cleared.
func (p *lazyLLM) target(l *Layer, n int, keep *Rows) int {
	keep.All, keep.Pos = false, keep.Pos[:0]
	target := p.budgets[slices.Index(p.layers, l.Index)].Tokens(n, l.KVBytes)
	if keep.All = target >= n; !keep.All {
		p.scores = sized(p.scores, n)
		clear(p.scores)
	}
	return target
}

// KeepRows keeps the tokens with the largest mean weight from the last token.
func (p *lazyLLM) KeepRows(l *Layer, alive []int32, keep *Rows) {
	target := p.target(l, len(alive), keep)
	if keep.All {
		return
	}
	for _, row := range l.ColumnSums {
		for i, w := range row[:len(alive)] {
			p.scores[i] += w
		}
	}
	p.picks = append(p.pick.best(p.picks[:0], p.scores[:len(alive)-1], target-1, 0), int32(len(alive)-1))
	for _, i := range p.picks {
		keep.Pos = append(keep.Pos, alive[i])
	}
}

// KeepStep keeps the tokens with the largest mean weight from the step's token.
func (p *lazyLLM) KeepStep(l *Layer, alive []int32, keep *Rows) {
	target := p.target(l, len(alive), keep)
	if keep.All {
		return
	}
	for h, row := range l.ColumnSums {
		at, pos := 0, l.Pos[h/l.Group()]
		for i, want := range alive {
			for pos[at] != want { // both ascend, and alive is part of what the layer holds
				at++
			}
			p.scores[i] += row[at]
		}
	}
	p.picks = p.pick.best(p.picks[:0], p.scores, target, 0)
	for _, i := range p.picks {
		keep.Pos = append(keep.Pos, alive[i])
	}
}
