package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/engine/waiting"
	"terrace/policy"
	"terrace/retrieval"
)

// pruneStage is what a session remembers of one pruning layer, to follow its active tokens while decoding: the inputs of the
// pruning layer of the rows that left there (SlimInfer's and LazyLLM's auxiliary cache), and which positions' KV exists in the layers after it. A wanted token without KV goes through those layers once, from its
// stored row on (it is recomputed); then its KV is cached as any other's.
//
// A recomputed row attends to what is active then, in the pruning layer as in the later ones.
type pruneStage struct {
	layer, until int           // the pruning layer; the next one, or the last layer: its keys are the stage's last
	prompt       int32         // tokens of the prompt; later ones are never pruned
	left         *waiting.Rows // as they reached the layer
	active       []int32       // prompt positions, of a policy that follows tokens
	swap         policy.Swap
	keep         policy.Rows
}

// SwapUse counts what following the prompt's active tokens cost a session.
type SwapUse struct {
	Steps       int           // pruning layers and decode steps looked at
	Swaps       int           // of them, those that changed the active set
	Loaded      int           // blocks (SlimInfer) or tokens (LazyLLM) that became active
	Revived     int           // tokens recomputed from their stored rows
	AuxBytes    int64         // stored rows now
	ParkedBytes int64         // bytes of inactive pages, out of the attention's sight now
	Waited      time.Duration // for inactive tokens on their way to the tier below or back
}

// revival follows the active tokens of a session's pruned prompt while decoding, and recomputes what has no KV yet.
type revival struct {
	s         *Session
	stages    []*pruneStage // empty = the policy does not follow
	selection [][][]int32   // [Layers][KVHeads] what steps read of the stages' layers
	use       SwapUse
}

// stage is the stage of a pruning layer that is followed; nil for others.
func (r *revival) stage(layer int) *pruneStage {
	for _, st := range r.stages {
		if st.layer == layer {
			return st
		}
	}
	return nil
}

// open prepares the stages at the beginning of a prompt.
func (r *revival) open(prompt int) {
	r.drop()
	set := r.s.text.Policy()
	if !set.Follows() {
		return
	}
	layers := set.Pruner.PruneLayers()
	for i, layer := range layers {
		until := r.s.e.m.Layers - 1
		if i+1 < len(layers) {
			until = layers[i+1]
		}
		r.stages = append(r.stages, &pruneStage{layer: layer, until: until, prompt: int32(prompt), left: waiting.New(r.s.e.kv, r.s.e.m.RowWidth())})
	}
}

// drop forgets the stages, with what they hold.
func (r *revival) drop() {
	for _, st := range r.stages {
		st.left.Free()
	}
	r.stages = nil
}

// follow runs after the attention of a decode step's pruning layer: the policy says what is active in the layers after it,
// and what has no KV there yet gets it. What the backend gave moves out of the places that recomputed rows use: the attention output and,
// on a device, the rows themselves.
func (p *pass) follow(layer int, attended *tensor.Dense) (*tensor.Dense, error) {
	own := false
	for i, s := range p.sessions {
		st := s.revival.stage(layer)
		if st == nil || p.kv.Rows[i].Err != nil || p.kv.Rows[i].Reading != retrieval.Step {
			continue
		}
		if !own {
			attended, own = copied(attended), true
			if p.e.device.keeper != nil {
				p.hidden = copied(p.hidden)
			}
		}
		if s.text.Policy().Swapper != nil {
			p.kv.Fail(i, s.revival.swapBlocks(st))
		} else {
			p.kv.Fail(i, s.revival.followTokens(st))
		}
	}
	return attended, nil
}

// swapBlocks follows SlimInfer's active blocks: those that leave become inactive, those that come are activated or computed.
func (r *revival) swapBlocks(st *pruneStage) error {
	set := r.s.text.Policy()
	if err := r.s.text.ShowFresh(st.layer); err != nil {
		return err
	}
	set.Swapper.SwapBlocks(r.s.text.Layer(st.layer, 1), &st.swap)
	if err := r.s.text.Release(st.layer); err != nil {
		return err
	}
	r.use.Steps++
	if !st.swap.Changed {
		return nil
	}
	r.use.Swaps++
	r.use.Loaded += len(st.swap.Load)
	size := int32(set.Swapper.BlockTokens())
	var want []int32
	for _, b := range st.swap.Load {
		for p := b * size; p < (b+1)*size; p++ {
			want = append(want, p)
		}
	}
	swapping := r.s.text.BeginSwap(st.layer+1, st.until)
	if err := r.move(st, size); err != nil {
		return err
	}
	if err := r.recompute(st, want, swapping); err != nil {
		return err
	}
	r.s.text.Prefetch(st.layer + 1) // on tiers: under this layer's feed-forward network and the next queries
	return nil
}

// move makes blocks of the stage's layers inactive and active; layers that read an earlier one's keys and values follow it. On tiers the
// former go down and the latter come up while the layers
// compute, each of which waits for what it reads; a policy that waits stands still for both here.
func (r *revival) move(st *pruneStage, size int32) (err error) {
	text, seq, layers := r.s.text, r.s.text.Seq(), r.s.e.cache
	for layer := layers.Next(st.layer); layer >= 0 && layer <= st.until && err == nil; layer = layers.Next(layer) {
		for _, b := range st.swap.Offload {
			err = errors.Join(err, seq.Swaps().Deactivate(layer, b*size, (b+1)*size))
		}
	}
	waits := text.Policy().Swapper.Waits()
	if waits && err == nil {
		err = text.AwaitSwaps()
	}
	for layer := layers.Next(st.layer); layer >= 0 && layer <= st.until && err == nil; layer = layers.Next(layer) {
		for _, b := range st.swap.Load {
			if seq.Swaps().Inactive(layer, b*size) {
				err = errors.Join(err, seq.Swaps().Activate(layer, b*size))
			}
		}
		text.Bring(layer)
	}
	if waits && err == nil {
		err = text.AwaitSwaps()
	}
	if err != nil {
		return fmt.Errorf("engine: policy %s: %w", text.Policy(), err)
	}
	return nil
}

// recompute takes the stored rows of the wanted positions through the stage's layers, and their keys and values into the
// cache. What is kept beside the layers follows, where blocks came and went.
func (r *revival) recompute(st *pruneStage, want []int32, swapping *retrieval.Swapping) error {
	e := r.s.e
	pos, rows := st.left.Take(want)
	if len(pos) == 0 {
		return swapping.Layers(st.layer+1, st.until)
	}
	r.use.Revived += len(pos)
	w := &wholePrompt{e: e, s: r.s, ctx: context.Background(), hidden: rows, pos: pos, lens: slices.Repeat([]int32{int32(r.s.turnLength(int(st.prompt)))}, len(pos)), promptSpan: promptSpan{late: true, total: int(st.prompt)}}
	for layer := st.layer; layer <= st.until; layer++ {
		if layer > st.layer {
			if err := w.blocks(0, func(p *pass) error { return w.through(p, layer, keysOnly) }); err != nil {
				return err
			}
		}
		if layer < st.until {
			if err := w.blocks(0, func(p *pass) error { return w.through(p, layer, afterKeys) }); err != nil {
				return err
			}
		}
		if err := swapping.Layer(layer, pos); err != nil {
			return err
		}
		w.pass.kv.Release(layer)
		if err := border(&w.pass); err != nil {
			return err
		}
	}
	var next *waiting.Rows
	if st := r.stage(st.until); st != nil {
		next = st.left // they reached the next pruning layer, and wait there
	}
	st.left.PassOn(next, pos, w.hidden)
	return nil
}

// usage is what following has cost, with what is stored now.
func (r *revival) usage() SwapUse {
	u := r.use
	u.ParkedBytes, u.Waited = r.s.text.Seq().Swaps().Bytes(), r.s.text.Seq().Swaps().Waited()
	for _, st := range r.stages {
		u.AuxBytes += st.left.Bytes()
	}
	return u
}

// followTokens follows LazyLLM's tokens: the prompt positions that this step reads in the layers after a pruning layer are
// the best of those that it read in the pruning layer itself.
func (r *revival) followTokens(st *pruneStage) error {
	l := r.s.text.Layer(st.layer, 1)
	alive := r.alive(st, l)
	st.keep.All, st.keep.Pos = false, st.keep.Pos[:0]
	r.s.text.Policy().Stepper.KeepStep(l, alive, &st.keep)
	r.use.Steps++
	next := st.keep.Pos
	if st.keep.All {
		next = alive
	}
	came := 0
	for _, p := range next {
		if _, was := slices.BinarySearch(st.active, p); !was {
			came++
		}
	}
	if came > 0 {
		r.use.Swaps++
		r.use.Loaded += came
	}
	st.active = append(st.active[:0], next...)
	return r.recompute(st, st.active, nil)
}

// alive is the prompt's positions that this step read in a pruning layer: all that it holds, or what the stage before made
// active.
func (r *revival) alive(st *pruneStage, l *policy.Layer) []int32 {
	for i, other := range r.stages {
		if other == st && i > 0 {
			return r.stages[i-1].active
		}
	}
	n, _ := slices.BinarySearch(l.Pos[0], st.prompt)
	return l.Pos[0][:n]
}

// readActive restricts the attention of a decode step, and of recomputed rows, to the active tokens of a layer's stage, where a
// policy follows tokens.
func (r *revival) readActive(layer int, reading retrieval.Reading, seq *attention.Seq) {
	if len(r.stages) == 0 || r.s.text.Policy().Stepper == nil || reading != retrieval.Step && reading != retrieval.Late || !r.s.text.Acts(layer) && reading == retrieval.Step {
		return
	}
	var st *pruneStage
	for _, x := range r.stages {
		if x.layer < layer && layer <= x.until {
			st = x
		}
	}
	if st == nil {
		return
	}
	for len(r.selection) <= layer {
		r.selection = append(r.selection, nil)
	}
	if r.selection[layer] == nil {
		r.selection[layer] = make([][]int32, r.s.e.m.Layer[layer].KVHeads)
	}
	kept := r.selection[layer]
	for g := range kept {
		kept[g] = indices(kept[g][:0], r.s.text.Seq().PositionList(layer, g), st.active, st.prompt)
	}
	seq.Select = kept
}

// indices lists where the wanted positions, and all from prompt on, stand in a list of positions; both ascend.
func indices(dst, pos, want []int32, prompt int32) []int32 {
	at := 0
	for i, p := range pos {
		for at < len(want) && want[at] < p {
			at++
		}
		if p >= prompt || at < len(want) && want[at] == p {
			dst = append(dst, int32(i))
		}
	}
	return dst
}
