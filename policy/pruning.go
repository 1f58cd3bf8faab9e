package policy

import (
	"fmt"
	"slices"
)

// blocks are pruning layers with their budgets, shared by the row pruners.
type blocks struct {
	early   bool  // preset=early
	layers  []int // 0-based after bind; as given (1-based) before
	budgets []Budget
	size    int // tokens of a block
	unit    int
}

// pruneParams are the parameters of [blocks].
func pruneParams(keep, keepDoc string) []Param {
	return []Param{
		{Name: "layers", Doc: "pruning layers, 1-based, divided by /; empty: 10/20/30 of 32 and 9/18/26 of 28 as in the paper, in proportion for other depths"},
		{Name: "keep", Default: keep, Doc: keepDoc},
	}
}

// reviveParam is the row pruners' choice for decoding.
var reviveParam = Param{Name: "revive", Default: "auto", Doc: "what was pruned may come back while decoding: aux (from kept hidden states), none, or auto (aux, but none beside a policy that keeps or drops single tokens)"}

func reviveOf(a *args) Revive {
	return Revive(a.choice("revive", "auto", "aux", "none"))
}

func newBlocks(a *args) blocks {
	b := blocks{layers: a.ints("layers"), budgets: a.budgets("keep")}
	for i, l := range b.layers {
		if l < 1 || i > 0 && l <= b.layers[i-1] {
			a.fail("layers", "1-based layers in rising order", nil)
			break
		}
	}
	if len(b.layers) > 0 && len(b.budgets) > 1 && len(b.layers) != len(b.budgets) {
		a.fail("keep", fmt.Sprintf("one value a pruning layer (%d)", len(b.layers)), nil)
	}
	return b
}

// bind makes the layers 0-based and fits defaults to the model.
func (b *blocks) bind(name string, m Model) error {
	preset := presetOf(m)
	if b.early {
		preset = spread(m, []float64{0.2, 0.3, 0.625}, []string{"50%", "25%", "12.5%"})
	}
	if len(b.layers) == 0 {
		b.layers = preset.layers
	}
	switch {
	case len(b.budgets) == 0:
		b.budgets = preset.budgets
	case len(b.budgets) == 1:
		b.budgets = slices.Repeat(b.budgets, len(b.layers))
	}
	if len(b.budgets) != len(b.layers) {
		return fmt.Errorf("policy: %s: keep has %d values for %d pruning layers: want one a layer: %w", name, len(b.budgets), len(b.layers), ErrModel)
	}
	b.layers = slices.Clone(b.layers)
	for i, l := range b.layers {
		if l > len(m.Layers) {
			return fmt.Errorf("policy: %s: pruning layer %d of a model with %d layers: %w", name, l, len(m.Layers), ErrModel)
		}
		if !m.Acts(l - 1) {
			return fmt.Errorf("policy: %s: layer %d does not read all keys of its own (it has a window, shares keys, or keeps none): want a layer that attends to everything: %w", name, l, ErrModel)
		}
		if state := stateBehind(m, l-1); state >= 0 {
			return fmt.Errorf("policy: %s: layer %d keeps state of every row in order, and rows that leave at layer %d would be missing from it: %w", name, state+1, l, ErrModel)
		}
		b.layers[i] = l - 1
	}
	if last := len(b.layers) - 1; last >= 0 && b.layers[last] == len(m.Layers)-1 {
		b.layers, b.budgets = b.layers[:last], b.budgets[:last] // no layer lies behind it: nothing is there to be left out
	}
	return nil
}

// stateBehind is the first layer behind one that keeps state; -1 where none does.
func stateBehind(m Model, layer int) int {
	for i := layer + 1; i < len(m.Layers); i++ {
		if m.Layers[i].State.Bytes > 0 {
			return i
		}
	}
	return -1
}

// pruning is a preset of 1-based layers and budgets.
type pruning struct {
	layers  []int
	budgets []Budget
	paper   bool // of a model in the paper, by its shape
}

// presetOf gives the paper's settings for its two models, known by their shape, and the first one's proportions otherwise.
func presetOf(m Model) pruning {
	counts := func(n ...int) (out []Budget) {
		for _, x := range n {
			out = append(out, tokensBudget(x<<10))
		}
		return out
	}
	_, kv, _ := m.Layers.Same()
	switch {
	case len(m.Layers) == 32 && m.Hidden == 4096 && kv.Heads == 8: // Llama 3.1 8B
		return pruning{[]int{10, 20, 30}, counts(8, 4, 2), true}
	case len(m.Layers) == 28 && m.Hidden == 3584 && kv.Heads == 4: // Qwen 2.5 7B
		return pruning{[]int{9, 18, 26}, counts(12, 6, 4), true}
	}
	return spread(m, []float64{10. / 32, 20. / 32, 30. / 32}, []string{"25%", "12.5%", "6.25%"})
}

// spread gives shares of the prompt at depths of a model, or at the next global layers behind them.
func spread(m Model, depths []float64, shares []string) (p pruning) {
	for i, share := range shares {
		layer := max(int(depths[i]*float64(len(m.Layers))+0.5), 1)
		for layer < len(m.Layers) && !m.Acts(layer-1) { // scores are taken at layers that read all keys
			layer++
		}
		if layer < len(m.Layers) && (len(p.layers) == 0 || layer > p.layers[len(p.layers)-1]) {
			budget, err := parseBudget(share)
			if err != nil {
				panic("policy: preset: " + err.Error())
			}
			p.layers, p.budgets = append(p.layers, layer), append(p.budgets, budget)
		}
	}
	return p
}

// blockBudget is the number of blocks that go on after a pruning layer, those that fit whole beside the last, which may be
// short: block 0 and the last in any case, all of them where the budget covers the prompt.
func (b *blocks) blockBudget(l *Layer) int {
	tokens := b.budgets[slices.Index(b.layers, l.Index)].Tokens(l.N, l.KVBytes)
	if tokens >= l.N {
		return maxTokens
	}
	last := (l.N-1)%b.size + 1
	return max((tokens-last)/b.size+1, 2)
}
