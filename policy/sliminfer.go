package policy

import (
	"fmt"
	"slices"

	"terrace/internal/kernels"
)

// slimInfer prunes whole blocks of the prompt's hidden states while it is being read (SlimInfer, algorithms.md 3). After the
// attention of a pruning layer each block of 64 tokens is scored: the keys of its units of 8 tokens are averaged, the mean
// query of the newest 4 tokens is multiplied with them, averaged over the heads, and the block's score is its best unit's.
// Block 0 and the last block always go on, of the others the best that fit the layer's budget; positions stay as they are.
// Later pruning layers choose among what is left. Generated tokens are never pruned.
//
// While decoding, each pruning layer follows the wanted blocks: if the best blocks for the newest queries overlap by less
// than gamma with those active, they become the active ones (Algorithm 1), and the engine loads and offloads KV.
type slimInfer struct {
	base
	blocks
	window int
	gamma  float64
	scorer slimScorer
	revive bool

	stages map[int]*slimStage // by layer
	query  []float32
	buf    []float32
	scores []float32
	wanted []int32
	pick   picker
}

type slimScorer int

const (
	slimUnit slimScorer = iota // best of the units' mean keys
	slimAvg                    // mean key of the block
	slimMax                    // element-wise maximum of the block's keys
)

// slimStage is one pruning layer: the representatives of the blocks that reached it, and which are active after it.
type slimStage struct {
	blocks []int32   // block numbers that reached the layer, ascending
	starts []int32   // of each block: its first representative
	reps   []float32 // [representatives, KVHeads*KeyDim]
	active []int32
	target int // blocks that fit the budget
	last   int32
}

func init() {
	register(Info{
		Name:    "sliminfer",
		Summary: "prunes blocks of hidden states while the prompt is read, swaps their KV while decoding",
		Paper:   "SlimInfer: Accelerating Long-Context LLM Inference via Dynamic Token Pruning, AAAI 2026",
		Phase:   PhasePrefill,
		Params: append(pruneParams("", "tokens that go on after each of them: counts or shares of the prompt; empty: 8k/4k/2k or 12k/6k/4k for the paper's models, otherwise 25%/12.5%/6.25%"),
			Param{Name: "block", Default: "64", Doc: "tokens of a block"},
			Param{Name: "unit", Default: "8", Doc: "tokens of a unit, whose keys are averaged"},
			Param{Name: "window", Aliases: []string{"w"}, Default: "4", Doc: "newest queries that are averaged"},
			Param{Name: "scorer", Default: "unit", Doc: "a block's score: unit (its best unit's), avg (its mean key's) or max (its element-wise largest key's)"},
			Param{Name: "gamma", Default: "0.9", Doc: "while decoding, swap where wanted and active blocks overlap by less"},
			Param{Name: "revive", Default: "aux", Doc: "pruned blocks may come back: aux (from kept hidden states) or none"}),
	}, func(a *args) Policy {
		p := &slimInfer{
			base: a.base(), blocks: newBlocks(a), window: a.int("window", 1, 4096), gamma: a.float("gamma", 0, 1),
			scorer: slimScorer(a.choice("scorer", "unit", "avg", "max")), revive: a.choice("revive", "aux", "none") == 0,
			stages: map[int]*slimStage{},
		}
		p.size, p.unit = a.int("block", 1, 1<<20), a.int("unit", 1, 1<<20)
		if p.size%p.unit != 0 {
			a.fail("unit", "a divisor of block", nil)
		}
		return p
	})
}

// Bind settles the pruning layers on a model.
func (p *slimInfer) Bind(m Model) error { return p.blocks.bind(p.Name(), m) }

func (p *slimInfer) Needs() Needs {
	return Needs{Queries: p.window, Keys: true, WholePrompt: true}
}

// PruneLayers lists the 0-based pruning layers.
func (p *slimInfer) PruneLayers() []int { return p.layers }

// BlockTokens is the block size.
func (p *slimInfer) BlockTokens() int { return p.size }

// Revives reports whether blocks that were pruned may become active again.
func (p *slimInfer) Revives() bool { return p.revive }

// KeepRows scores the blocks that reached the layer and keeps the best.
func (p *slimInfer) KeepRows(l *Layer, alive []int32, keep *Rows) {
	keep.All, keep.Pos = false, keep.Pos[:0]
	s := p.stage(l, alive)
	p.want(l, s)
	if s.target >= len(s.blocks) {
		keep.All = true
		return
	}
	for _, pos := range alive {
		if _, ok := slices.BinarySearch(s.active, pos/int32(p.size)); ok {
			keep.Pos = append(keep.Pos, pos)
		}
	}
}

// stage starts a pruning layer: representatives of every block that reached it.
func (p *slimInfer) stage(l *Layer, alive []int32) *slimStage {
	s := &slimStage{}
	p.stages[l.Index] = s
	width := l.KVHeads * l.KeyDim
	unit := p.unit
	if p.scorer != slimUnit {
		unit = p.size
	}
	count := 0
	var previous int32 = -1
	for i, pos := range alive {
		if b := pos / int32(p.size); i == 0 || b != s.blocks[len(s.blocks)-1] {
			s.blocks, s.starts = append(s.blocks, b), append(s.starts, int32(len(s.reps)/width))
			previous = -1
		}
		if u := pos / int32(unit); u != previous {
			s.average(width, count, p.scorer)
			s.reps = append(s.reps, make([]float32, width)...)
			previous, count = u, 0
		}
		s.add(l, i, width, count == 0, p.scorer, &p.buf)
		count++
	}
	s.average(width, count, p.scorer)
	s.starts = append(s.starts, int32(len(s.reps)/width))
	s.last = s.blocks[len(s.blocks)-1]
	s.target = p.blockBudget(l)
	return s
}

// add puts one token's keys into the newest representative.
func (s *slimStage) add(l *Layer, i, width int, first bool, scorer slimScorer, buf *[]float32) {
	rep := s.reps[len(s.reps)-width:]
	*buf = sized(*buf, l.KeyDim)
	for g := range l.KVHeads {
		l.KV.Keys(g, i, i+1, *buf)
		for d, v := range *buf {
			at := g*l.KeyDim + d
			switch {
			case scorer != slimMax:
				rep[at] += v
			case first || v > rep[at]:
				rep[at] = v
			}
		}
	}
}

// average finishes the newest representative of count tokens.
func (s *slimStage) average(width, count int, scorer slimScorer) {
	if count == 0 || scorer == slimMax {
		return
	}
	rep := s.reps[len(s.reps)-width:]
	for i := range rep {
		rep[i] /= float32(count)
	}
}

// want makes the best blocks for the newest queries the wanted ones; the first time they become active.
func (p *slimInfer) want(l *Layer, s *slimStage) {
	p.meanQuery(l)
	width := l.KVHeads * l.KeyDim
	p.scores = sized(p.scores, len(s.blocks))
	for b := range s.blocks {
		best := -infinity
		for r := s.starts[b]; r < s.starts[b+1]; r++ {
			best = max(best, kernels.Dot(p.query, s.reps[int(r)*width:int(r+1)*width]))
		}
		p.scores[b] = best
	}
	n := len(s.blocks)
	picks := p.wanted[:0]
	if n <= s.target {
		picks = span(picks, 0, n)
	} else {
		picks = append(picks, 0)
		picks = p.pick.best(picks, p.scores[1:n-1], s.target-2, 1)
		picks = append(picks, int32(n-1))
	}
	for i, b := range picks {
		picks[i] = s.blocks[b]
	}
	p.wanted = picks
	if s.active == nil {
		s.active = slices.Clone(picks)
	}
}

// meanQuery fills p.query [KVHeads*KeyDim] with the mean over the newest rows of the sum over each group's heads, divided by
// the number of heads: the product with a representative is then the mean over heads of q·k.
func (p *slimInfer) meanQuery(l *Layer) {
	d, group := l.KeyDim, l.Group()
	p.query = sized(p.query, l.KVHeads*d)
	clear(p.query)
	rows := min(p.window, l.Rows)
	for r := l.Rows - rows; r < l.Rows; r++ {
		for h := range l.Heads {
			q := l.Queries[(r*l.Heads+h)*d : (r*l.Heads+h+1)*d]
			for i, v := range q {
				p.query[h/group*d+i] += v
			}
		}
	}
	for i := range p.query {
		p.query[i] /= float32(rows * l.Heads)
	}
}

// SwapBlocks is Algorithm 1: the wanted blocks replace the active ones where they overlap by less than gamma.
func (p *slimInfer) SwapBlocks(l *Layer, out *Swap) {
	s := p.stages[l.Index]
	out.Changed, out.Load, out.Offload, out.Overlap = false, out.Load[:0], out.Offload[:0], 1
	if s == nil {
		out.Active = out.Active[:0]
		return
	}
	if p.revive {
		p.want(l, s)
		out.Overlap = float64(common(p.wanted, s.active)) / float64(len(p.wanted))
		if out.Changed = out.Overlap < p.gamma; out.Changed {
			out.Load = without(out.Load, p.wanted, s.active)
			out.Offload = without(out.Offload, s.active, p.wanted)
			s.active = append(s.active[:0], p.wanted...)
		}
	}
	out.Active = append(out.Active[:0], s.active...)
}

// common counts the members of both ascending lists.
func common(a, b []int32) int {
	n := 0
	for _, x := range a {
		if _, ok := slices.BinarySearch(b, x); ok {
			n++
		}
	}
	return n
}

// without appends the members of a that are not in b.
func without(dst, a, b []int32) []int32 {
	for _, x := range a {
		if _, ok := slices.BinarySearch(b, x); !ok {
			dst = append(dst, x)
		}
	}
	return dst
}

// blocks are pruning layers with their budgets, shared by the row pruners.
type blocks struct {
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
		if l >= m.Layers {
			return fmt.Errorf("policy: %s: pruning layer %d of a model with %d layers: want one before the last: %w", name, l, m.Layers, ErrModel)
		}
		if !m.Global(l - 1) {
			return fmt.Errorf("policy: %s: layer %d has a sliding window of %d: want a layer that attends to everything: %w", name, l, m.Window[l-1], ErrModel)
		}
		b.layers[i] = l - 1
	}
	return nil
}

// pruning is a preset of 1-based layers and budgets.
type pruning struct {
	layers  []int
	budgets []Budget
}

// presetOf gives the paper's settings for its two models, known by their shape, and the first one's proportions otherwise.
func presetOf(m Model) pruning {
	counts := func(n ...int) (out []Budget) {
		for _, x := range n {
			out = append(out, TokensBudget(x<<10))
		}
		return out
	}
	switch {
	case m.Layers == 32 && m.Hidden == 4096 && m.KVHeads == 8: // Llama 3.1 8B
		return pruning{[]int{10, 20, 30}, counts(8, 4, 2)}
	case m.Layers == 28 && m.Hidden == 3584 && m.KVHeads == 4: // Qwen 2.5 7B
		return pruning{[]int{9, 18, 26}, counts(12, 6, 4)}
	}
	var p pruning
	for i, share := range []string{"25%", "12.5%", "6.25%"} {
		layer := max((10*(i+1)*m.Layers+16)/32, 1)
		for layer < m.Layers && !m.Global(layer-1) { // scores are taken at global layers only
			layer++
		}
		if layer < m.Layers && (len(p.layers) == 0 || layer > p.layers[len(p.layers)-1]) {
			budget, err := ParseBudget(share)
			if err != nil {
				panic("policy: preset: " + err.Error())
			}
			p.layers, p.budgets = append(p.layers, layer), append(p.budgets, budget)
		}
	}
	return p
}

// blockBudget is the number of blocks that go on after a pruning layer, those that fit whole: block 0 and the last in any
// case, all of them where the budget covers the prompt.
func (b *blocks) blockBudget(l *Layer) int {
	tokens := b.budgets[slices.Index(b.layers, l.Index)].Tokens(l.N, l.KVBytes)
	if tokens >= l.N {
		return maxTokens
	}
	return max(tokens/b.size, 2)
}
