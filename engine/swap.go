package engine

import (
	"context"
	"fmt"
	"slices"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// pruneStage is what a session remembers of one pruning layer, to follow its active tokens while decoding: the inputs of the
// pruning layer of the rows that left there (SlimInfer's and LazyLLM's auxiliary cache: 4·D bytes a row of host memory), and
// which positions' KV exists in the layers after it. A wanted token without KV goes through those layers once, from its
// stored row on; then its KV is cached as any other's.
//
// A row brought back attends to what is active then, in the pruning layer as in the later ones.
type pruneStage struct {
	layer, until int       // the pruning layer; the next one, or the last layer: its keys are the stage's last
	prompt       int32     // tokens of the prompt; later ones are never pruned
	auxPos       []int32   // ascending
	aux          []float32 // [len(auxPos), D]
	active       []int32   // prompt positions, of a policy that follows tokens
	swap         policy.Swap
	keep         policy.Rows
}

// SwapUse counts what following the prompt's active tokens cost a session.
type SwapUse struct {
	Steps       int   // pruning layers and decode steps looked at
	Swaps       int   // of them, those that changed the active set
	Loaded      int   // blocks (SlimInfer) or tokens (LazyLLM) that became active
	Revived     int   // tokens computed late, from their stored rows
	AuxBytes    int64 // stored rows now
	ParkedBytes int64 // bytes of pages out of the attention's sight now
}

// stage is the stage of a pruning layer that is followed; nil for others.
func (r *policyRun) stage(layer int) *pruneStage {
	for _, st := range r.stages {
		if st.layer == layer {
			return st
		}
	}
	return nil
}

// openStages prepares the stages at the beginning of a prompt.
func (r *policyRun) openStages(prompt int) {
	r.stages = r.stages[:0]
	if !r.set.Follows() {
		return
	}
	layers := r.set.Pruner.PruneLayers()
	for i, layer := range layers {
		until := r.m.Layers - 1
		if i+1 < len(layers) {
			until = layers[i+1]
		}
		r.stages = append(r.stages, &pruneStage{layer: layer, until: until, prompt: int32(prompt)})
	}
}

// store keeps rows that leave, by position; rows of other positions may be there.
func (st *pruneStage) store(pos []int32, rows []float32, d int) {
	for i, p := range pos {
		row := rows[i*d : (i+1)*d]
		at, found := slices.BinarySearch(st.auxPos, p)
		if !found {
			st.auxPos = slices.Insert(st.auxPos, at, p)
			st.aux = slices.Insert(st.aux, at*d, row...)
		}
	}
}

// take moves the stored rows of the wanted positions out; those without one are not in the result.
func (st *pruneStage) take(want []int32, d int) (pos []int32, rows []float32) {
	left, kept := 0, 0
	for i, p := range st.auxPos {
		for left < len(want) && want[left] < p {
			left++
		}
		if left < len(want) && want[left] == p {
			pos, rows = append(pos, p), append(rows, st.aux[i*d:(i+1)*d]...)
			continue
		}
		copy(st.aux[kept*d:(kept+1)*d], st.aux[i*d:(i+1)*d])
		st.auxPos[kept] = p
		kept++
	}
	st.auxPos, st.aux = st.auxPos[:kept], st.aux[:kept*d]
	if cap(st.aux) > 2*len(st.aux)+d {
		st.aux = slices.Clone(st.aux)
	}
	return pos, rows
}

// follow runs after the attention of a decode step's pruning layer: the policy says what is active in the layers after it,
// and what has no KV there yet gets it. attended is kept from the scratch that late rows use.
func (e *Engine) follow(sessions []*Session, layer int, attended *tensor.Dense) (*tensor.Dense, error) {
	pass, copied := e.pass, false
	for _, s := range sessions {
		if s.policy == nil {
			continue
		}
		st := s.policy.stage(layer)
		if st == nil {
			continue
		}
		if !copied {
			attended, copied = tensor.New(tensor.WithShape(attended.Shape()...), tensor.WithBacking(slices.Clone(floats(attended)))), true
		}
		var err error
		if s.policy.set.Swapper != nil {
			err = s.swapBlocks(st)
		} else {
			err = s.followTokens(st)
		}
		e.pass = pass
		if err != nil {
			return nil, err
		}
	}
	return attended, nil
}

// swapBlocks follows SlimInfer's active blocks: those that leave are parked, those that come are put back or computed.
func (s *Session) swapBlocks(st *pruneStage) error {
	r := s.policy
	r.set.Swapper.SwapBlocks(r.observe(s, st.layer, 1), &st.swap)
	s.swaps.Steps++
	if !st.swap.Changed {
		return nil
	}
	s.swaps.Swaps++
	s.swaps.Loaded += len(st.swap.Load)
	size := int32(r.set.Swapper.BlockTokens())
	for layer := st.layer + 1; layer <= st.until; layer++ {
		for _, b := range st.swap.Offload {
			if err := s.seq.Park(layer, b*size, (b+1)*size); err != nil {
				return fmt.Errorf("engine: policy %s: %w", r.set, err)
			}
		}
		for _, b := range st.swap.Load {
			if !s.seq.Parked(layer, b*size) {
				continue
			}
			if err := s.seq.Unpark(layer, b*size); err != nil {
				return fmt.Errorf("engine: policy %s: %w", r.set, err)
			}
		}
		r.forgetSketch(layer)
	}
	var want []int32
	for _, b := range st.swap.Load {
		for p := b * size; p < (b+1)*size; p++ {
			want = append(want, p)
		}
	}
	if err := s.revive(st, want); err != nil {
		return err
	}
	s.seq.Prefetch(st.layer+1, s.e.lowest(st.layer+1, s.next)) // on tiers: under this layer's feed-forward network and the next queries
	return nil
}

// forgetSketch makes a selecting policy's sketch of a layer be built anew: tokens changed in its middle.
func (r *policyRun) forgetSketch(layer int) {
	if x := r.state[layer].index; x != nil {
		x.Reset()
	}
}

// revive takes the stored rows of the wanted positions through the stage's layers, and their keys and values into the cache.
func (s *Session) revive(st *pruneStage, want []int32) error {
	e := s.e
	pos, rows := st.take(want, e.m.Hidden)
	if len(pos) == 0 {
		return nil
	}
	s.swaps.Revived += len(pos)
	p := &promptPass{e: e, s: s, ctx: context.Background(), late: true, hidden: rows, pos: pos, lens: slices.Repeat([]int32{st.prompt}, len(pos)), total: int(st.prompt)}
	for layer := st.layer; layer <= st.until; layer++ {
		if layer > st.layer {
			if err := p.insert(layer); err != nil {
				return err
			}
		}
		if layer < st.until {
			if err := p.goOn(layer, nil, 0); err != nil {
				return err
			}
		}
		if err := e.releaseTiers([]*Session{s}, layer); err != nil {
			return err
		}
	}
	if next := s.policy.stage(st.until); next != nil && s.policy.set.Stepper != nil {
		next.store(pos, p.hidden, e.m.Hidden) // they reached the next pruning layer, and wait there
	}
	return nil
}

// insert caches the rows' keys and values between those of other positions.
func (p *promptPass) insert(layer int) error {
	e, m := p.e, p.e.m
	k, v := make([]float32, 0, len(p.pos)*m.KVHeads*m.KeyDim), make([]float32, 0, len(p.pos)*m.KVHeads*m.ValDim)
	for lo := 0; lo < len(p.pos); lo += e.o.ChunkTokens {
		hi := min(lo+e.o.ChunkTokens, len(p.pos))
		_, kt, vt, err := e.backend.Project(p.pass(lo, hi), layer, p.rows(lo, hi))
		if err != nil {
			return err
		}
		if e.o.Rotate {
			rotate(model.WritableFloat32s(kt), m.KeyDim)
		}
		k, v = append(k, floats(kt)...), append(v, floats(vt)...)
		p.s.work.projected(m, layer, hi-lo)
	}
	return p.s.seq.Insert(layer, k, v, p.pos)
}

// leave keeps what leaves at a pruning layer that is followed: rows not among keep.
func (p *promptPass) leave(layer int, keep []int) {
	st, d := p.s.policy.stage(layer), p.e.m.Hidden
	if st == nil {
		return
	}
	if keep == nil {
		st.active = slices.Clone(p.pos)
		return
	}
	st.aux = make([]float32, 0, (len(p.pos)-len(keep))*d)
	at := 0
	for i, pos := range p.pos {
		if at < len(keep) && keep[at] == i {
			st.active = append(st.active, pos)
			at++
			continue
		}
		st.auxPos, st.aux = append(st.auxPos, pos), append(st.aux, p.hidden[i*d:(i+1)*d]...)
	}
}

// swapUse is what following has cost, with what is stored now.
func (s *Session) swapUse() SwapUse {
	u := s.swaps
	u.ParkedBytes = s.seq.ParkedBytes()
	if s.policy != nil {
		for _, st := range s.policy.stages {
			u.AuxBytes += int64(4 * len(st.aux))
		}
	}
	return u
}

// followTokens follows LazyLLM's tokens: the prompt positions that this step reads in the layers after a pruning layer are
// the best of those that it read in the pruning layer itself.
func (s *Session) followTokens(st *pruneStage) error {
	r := s.policy
	l := r.observe(s, st.layer, 1)
	alive := r.alive(st, l)
	st.keep.All, st.keep.Pos = false, st.keep.Pos[:0]
	r.set.Stepper.KeepStep(l, alive, &st.keep)
	s.swaps.Steps++
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
		s.swaps.Swaps++
		s.swaps.Loaded += came
	}
	st.active = append(st.active[:0], next...)
	return s.revive(st, st.active)
}

// alive is the prompt's positions that this step read in a pruning layer: all that it holds, or what the stage before made
// active.
func (r *policyRun) alive(st *pruneStage, l *policy.Layer) []int32 {
	for i, other := range r.stages {
		if other == st && i > 0 {
			return r.stages[i-1].active
		}
	}
	n, _ := slices.BinarySearch(l.Pos[0], st.prompt)
	return l.Pos[0][:n]
}

// readActive restricts a decode step's attention to the active tokens of a layer's stage, where a policy follows tokens.
func (r *policyRun) readActive(s *Session, layer int, seq *attention.Seq) {
	if r.set.Stepper == nil || len(r.stages) == 0 {
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
	state := &r.state[layer]
	for len(state.kept) < r.m.KVHeads {
		state.kept = append(state.kept, nil)
	}
	for g := range r.m.KVHeads {
		state.kept[g] = indices(state.kept[g][:0], s.seq.PositionList(layer, g), st.active, st.prompt)
	}
	seq.Select = state.kept
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

// checkFollow refuses what cannot be followed.
func (o *Options) checkFollow(spec *policy.Spec) error {
	block, ok := spec.Follows()
	if !ok {
		return nil
	}
	if o.KType.Quantised() || o.VType.Quantised() {
		return fmt.Errorf("engine: policy %s brings tokens back between others, which %v keys and %v values do not allow; use f16 KV, or revive=none: %w", spec, o.KType, o.VType, model.ErrUnsupported)
	}
	if page := max(o.PageTokens, kvpage.Tile); block > 1 && block%page != 0 {
		return fmt.Errorf("engine: policy %s swaps blocks of %d tokens, want a multiple of the page's %d, or revive=none: %w", spec, block, page, model.ErrUnsupported)
	}
	return nil
}
