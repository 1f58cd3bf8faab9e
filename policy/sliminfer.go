package policy

import (
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
// than gamma with those active, they become the active ones (Algorithm 1), and the engine loads and offloads KV. What it
// chooses from are the blocks that the layer shows by then: what the stage before has made active.
type slimInfer struct {
	base
	blocks
	window int
	gamma  float64
	scorer slimScorer
	revive Revive
	waits  bool // async=false

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

// slimStage is one pruning layer: the representatives of the blocks that have reached it, and which are active after it.
type slimStage struct {
	blocks []int32             // block numbers to choose from, ascending
	reps   map[int32][]float32 // of each block that has been one of them: [representatives, KVHeads*KeyDim]
	active []int32
	target int // blocks that fit the budget
}

func init() {
	register(Info{
		Name:    "sliminfer",
		Summary: "prunes blocks of hidden states while the prompt is read, swaps their KV while decoding",
		Paper:   "SlimInfer: Accelerating Long-Context LLM Inference via Dynamic Token Pruning, AAAI 2026, arXiv 2508.06447",
		Phase:   PhasePrefill,
		Params: append(pruneParams("", "tokens that go on after each of them: counts or shares of the prompt; empty: 8k/4k/2k or 12k/6k/4k for the paper's models, otherwise 25%/12.5%/6.25%"),
			Param{Name: "preset", Default: "paper", Doc: "where layers and keep are not given: paper, or early (50%/25%/12.5% after 1/5, 3/10 and 5/8 of the layers: found by a search on SmolLM2, less work at no more loss)"},
			Param{Name: "block", Default: "64", Doc: "tokens of a block"},
			Param{Name: "unit", Default: "8", Doc: "tokens of a unit, whose keys are averaged"},
			Param{Name: "window", Aliases: []string{"w"}, Default: "4", Doc: "newest queries that are averaged"},
			Param{Name: "scorer", Default: "unit", Doc: "a block's score: unit (its best unit's), avg (its mean key's) or max (its element-wise largest key's)"},
			Param{Name: "gamma", Default: "0.9", Doc: "while decoding, swap where wanted and active blocks overlap by less"},
			Param{Name: "async", Default: "true", Doc: "blocks that come and go between tiers move while layers compute, and are waited for where they are read; false: at once"},
			reviveParam),
	}, func(a *args) Policy {
		p := &slimInfer{
			base: a.base(), blocks: newBlocks(a), window: a.int("window", 1, 4096), gamma: a.float("gamma", 0, 1),
			scorer: slimScorer(a.choice("scorer", "unit", "avg", "max")), revive: reviveOf(a), waits: !a.bool("async"),
			stages: map[int]*slimStage{},
		}
		p.size, p.unit = a.int("block", 1, 1<<20), a.int("unit", 1, 1<<20)
		p.early = a.choice("preset", "paper", "early") == 1
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

// Waits says that swaps are not to overlap compute.
func (p *slimInfer) Waits() bool { return p.waits }

// Revives says whether blocks that were pruned may become active again.
func (p *slimInfer) Revives() Revive { return p.revive }

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

// Leaving is what no block of the smallest budget holds.
func (p *slimInfer) Leaving(n, kvBytes int) int {
	stay := n
	for _, layer := range p.layers {
		blocks := p.blockBudget(&Layer{Index: layer, N: n, KVBytes: kvBytes})
		stay = min(stay, (min(blocks, n)-1)*p.size+(n-1)%p.size+1)
	}
	return n - stay
}

// stage starts a pruning layer: representatives of every block that reached it.
func (p *slimInfer) stage(l *Layer, alive []int32) *slimStage {
	s := &slimStage{reps: map[int32][]float32{}}
	p.stages[l.Index] = s
	p.candidates(l, s, alive)
	s.target = p.blockBudget(l)
	return s
}

// candidates makes the blocks of the given positions, which are the first that the layer shows, those to choose from.
func (p *slimInfer) candidates(l *Layer, s *slimStage, alive []int32) {
	s.blocks = s.blocks[:0]
	for from := 0; from < len(alive); {
		b, to := alive[from]/int32(p.size), from+1
		for to < len(alive) && alive[to]/int32(p.size) == b {
			to++
		}
		if s.blocks = append(s.blocks, b); s.reps[b] == nil {
			s.reps[b] = p.represent(l, alive, from, to)
		}
		from = to
	}
}

// represent is the representatives of a block, the tokens at indices from..to-1.
func (p *slimInfer) represent(l *Layer, alive []int32, from, to int) (reps []float32) {
	width, unit := l.KVHeads*l.KeyDim, int32(p.unit)
	if p.scorer != slimUnit {
		unit = int32(p.size)
	}
	count := 0
	for i := from; i < to; i++ {
		if i > from && alive[i]/unit != alive[i-1]/unit {
			average(reps, width, count, p.scorer)
			count = 0
		}
		if count == 0 {
			reps = append(reps, make([]float32, width)...)
		}
		p.add(reps[len(reps)-width:], l, i, count == 0)
		count++
	}
	average(reps, width, count, p.scorer)
	return reps
}

// add puts one token's keys into a representative.
func (p *slimInfer) add(rep []float32, l *Layer, i int, first bool) {
	p.buf = sized(p.buf, l.KeyDim)
	for g := range l.KVHeads {
		l.KV.Keys(g, i, i+1, p.buf)
		for d, v := range p.buf {
			at := g*l.KeyDim + d
			switch {
			case p.scorer != slimMax:
				rep[at] += v
			case first || v > rep[at]:
				rep[at] = v
			}
		}
	}
}

// average finishes the newest representative of count tokens.
func average(reps []float32, width, count int, scorer slimScorer) {
	if scorer == slimMax {
		return
	}
	rep := reps[len(reps)-width:]
	for i := range rep {
		rep[i] /= float32(count)
	}
}

// want makes the best blocks for the newest queries the wanted ones; the first time they become active.
func (p *slimInfer) want(l *Layer, s *slimStage) {
	p.meanQuery(l)
	width := l.KVHeads * l.KeyDim
	p.scores = sized(p.scores, len(s.blocks))
	for i, b := range s.blocks {
		best := -infinity
		for reps := s.reps[b]; len(reps) > 0; reps = reps[width:] {
			best = max(best, kernels.Dot(p.query, reps[:width]))
		}
		p.scores[i] = best
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
	if p.revive != ReviveNone {
		n, _ := slices.BinarySearch(l.Pos[0], int32(l.Prompt))
		p.candidates(l, s, l.Pos[0][:n])
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
