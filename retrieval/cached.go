package retrieval

import (
	"terrace/attention"
	"terrace/internal/trace"
	"terrace/kvmanager"
	"terrace/kvmanager/tokencache"
	"terrace/policy"
)

// cached has hot single tokens of a selecting policy in a token cache in host memory, and the rest on the backing store. A
// decode step reads the selected tokens alone; what of them is not hot is fetched, a layer ahead where the policy scores with
// a query that is known before the layer's own.
type cached struct {
	streamed
	cache  *tokencache.Cache // nil until the prompt's end
	layers []cachedLayer
	fresh  []int32 // [Layers] the first position that was computed late and that a policy has not seen; -1 = none
	moves  policy.Moves
	drive  *driveScoring // the drive scores what is cold; nil = the host scores all
	budget cacheBudget

	weighing weighing

	scratch []tokencache.Scratch
	tiles   int // of what finish has picked together, to be laid out
}

// cachedLayer is a layer's state.
type cachedLayer struct {
	selects  bool // the policy selects in it
	whole    bool // the last step read it whole
	prepared bool // what this step reads is chosen already
}

// cacheable reports whether a policy's selections can be read from a token cache.
func (t *Sequence) cacheable() bool {
	n := &t.obs.needs
	_, rows := t.set.Selector.(policy.RowSelector)
	if t.sel == nil || t.set.Dropper != nil || t.set.Pruner != nil && !t.cachesPruned() || quantised(t.f.o.KV.Format()) {
		return false
	}
	if n.Sketch.Listed == policy.ListedExact || rows { // a token cache always reads the newest token, an indexer need not
		return false
	}
	switch n.Sketch.Kind {
	case policy.SketchNone, policy.SketchExact, policy.SketchDims: // they read every key
		return t.sel.below != nil
	}
	return true
}

func newCached(t *Sequence, hostScores bool) *cached {
	c := &cached{streamed: streamed{resident{t}}, layers: make([]cachedLayer, len(t.f.o.Shape.Layers)), scratch: make([]tokencache.Scratch, t.f.o.Threads)}
	for layer := range c.layers {
		c.layers[layer].selects = t.Acts(layer)
		c.fresh = append(c.fresh, -1)
	}
	c.budget.c, c.weighing.c = c, c
	c.drive = newDriveScoring(c, hostScores)
	return c
}

func (c *cached) settling() *driveScoring { return c.drive }

// growth says which layers a pass leaves to the token cache.
func (c *cached) growth(x kvmanager.Growth) kvmanager.Growth {
	decode := c.cache != nil && x.Tokens == 0
	x.Cached = make([]bool, len(c.layers))
	for layer, l := range c.layers {
		x.Cached[layer] = l.selects && !(decode && l.whole)
	}
	if x.Beside = c.budget.beside(&x); x.Tokens == 0 {
		x.Beside += c.budget.late(max(int(c.t.read), x.Had)) + max(c.budget.grouped(&x), c.budget.grouping(x.Had))
	}
	return x
}

// serves reports whether a decode step asks the policy what it reads of a layer, and reads that from the cache.
func (c *cached) serves(layer int) bool { return c.cache != nil && c.layers[layer].selects }

func (c *cached) caches(layer int) bool {
	return c.cache != nil && c.cache.Serves(layer) && !c.layers[layer].whole
}

func (c *cached) step() {
	if c.cache == nil {
		return
	}
	if c.budget.sharers != c.t.f.caches {
		c.budget.share(int(c.t.read))
	}
	c.cache.Step()
	for i := range c.layers {
		c.layers[i].prepared = false
	}
	c.drive.step(int(c.t.read) + 1)
}

func (c *cached) open(layer int, pos int32) error {
	if c.serves(layer) {
		return nil
	}
	return c.whole(layer, pos)
}

func (c *cached) prefetch(layer int, pos int32, step bool) {
	if !step || !c.serves(layer) {
		c.streamed.prefetch(layer, pos, step)
	}
}

// begin brings the layer's index up to date and selects, unless that was prepared.
func (c *cached) begin(layer int, q []float32, seq *attention.Seq) error {
	owner := c.t.f.o.Shape.owner(layer)
	switch {
	case !c.serves(owner):
		return c.streamed.begin(layer, q, seq)
	case owner != layer:
		return c.again(owner)
	}
	sel, shown := c.t.sel, c.t.Layer(layer, 1)
	l := &sel.layers[layer]
	if c.drive.serves(layer) {
		sel.refreshHot(l, seq.Views, shown, c.drive.layers[layer].hot)
	} else {
		if err := ungrouped(c, l, shown); err != nil {
			return err
		}
		if err := sel.refresh(l, seq.Views, shown); err != nil {
			return err
		}
	}
	if !c.layers[layer].prepared {
		if err := c.choose(layer, l.query(c.t.obs.needs.QueryOf(layer), q)); err != nil {
			return err
		}
	}
	sel.remember(l, q)
	return nil
}

// ungrouped brings into host memory what the index is about to read of a layer's earlier tokens.
func ungrouped(c *cached, l *selected, shown *policy.Layer) error {
	first := int32(-1)
	for g, pos := range shown.Pos {
		if from := l.readsFrom(g, pos, 0); from < len(pos) && (first < 0 || pos[from] < first) {
			first = pos[from]
		}
	}
	if first < 0 {
		return nil
	}
	return c.t.f.storeError(c.t.seq.Acquire(shown.Index, first))
}

// again reads once more what was chosen of a layer whose keys and values another reads too.
func (c *cached) again(owner int) error {
	if c.layers[owner].whole {
		return nil
	}
	return c.cache.Begin(owner, c.t.sel.layers[owner].kept, nil)
}

// prepare selects with a query that is known before the layer's own.
func (c *cached) prepare(layer int) error {
	kind := c.t.obs.needs.QueryOf(layer)
	if !c.serves(layer) || kind == policy.QueryExact || c.t.afterSwaps(layer) {
		return nil
	}
	q := c.t.sel.layers[layer].query(kind, nil)
	if q == nil {
		return nil
	}
	defer c.t.f.o.Trace.Layer(trace.Score, "choose", layer).End()
	return c.choose(layer, q)
}

// choose asks the policy for a layer and begins to fetch; where a drive scores, it is asked, and settle does the rest.
func (c *cached) choose(layer int, q []float32) error {
	c.layers[layer].prepared = true
	if c.drive.serves(layer) {
		return c.drive.ask(layer, q)
	}
	if err := c.rank(layer, q); err != nil {
		return err
	}
	return c.fetch(layer)
}

// rank asks the policy for a layer.
func (c *cached) rank(layer int, q []float32) error {
	return c.t.sel.ask(&c.t.sel.layers[layer], c.t.obs.reader.views, c.ranking(layer, q))
}

// ranking is a layer as the policy that is to rank its tokens by a query sees it.
func (c *cached) ranking(layer int, q []float32) *policy.Layer {
	shown := c.t.Layer(layer, 1)
	c.layers[layer].prepared = true
	shown.Queries, shown.Rows, shown.Scores = q, 1, c.t.sel.layers[layer].index
	return shown
}

// settle decides on a layer with the drive's answer and begins to fetch.
func (c *cached) settle(layer int) error {
	sel := c.t.sel
	sel.picks.Reset(c.t.f.o.Shape.kv(layer).Heads)
	sel.ranks = sel.ranks[:0]
	if err := c.drive.settle(layer, &sel.picks); err != nil {
		return err
	}
	return c.fetch(layer)
}

// fetch begins to read what was picked of a layer.
func (c *cached) fetch(layer int) error {
	sel := c.t.sel
	l := &sel.layers[layer]
	l.share = append(l.share[:0], sel.picks.Share...)
	if sel.picks.All {
		c.layers[layer].whole = true
		c.t.seq.Prefetch(layer, 0)
		return nil
	}
	c.layers[layer].whole = false
	l.kept = copyPicks(l.kept, sel.picks.Heads)
	countGroups(c, layer, l.kept[0])
	return c.cache.Begin(layer, l.kept, sel.ranks)
}

// ready reports whether what was picked of a layer is in host memory.
func (c *cached) ready(layer int) bool {
	return !c.serves(layer) || c.layers[layer].whole || !c.drive.asking(layer) && c.cache.Ready(layer)
}

// finish plans the views of a layer's selection, the newest token in them: tiles of them are to be laid out before they are read.
func (c *cached) finish(layer int, seq *attention.Seq) error {
	if !c.serves(layer) {
		return nil
	}
	c.layers[layer].prepared = false
	if c.drive.asking(layer) {
		if err := c.settle(layer); err != nil {
			return err
		}
	}
	if c.layers[layer].whole {
		return c.t.seq.Acquire(layer, 0)
	}
	if err := c.cache.Finish(layer); err != nil {
		return err
	}
	views, sel, tiles, err := c.cache.Views(layer)
	if err != nil {
		return err
	}
	c.tiles = tiles
	c.t.f.gathered(layer, sel, views)
	seq.Views, seq.Select = views, sel
	return nil
}

// attended takes what is newly complete into the cache.
func (c *cached) attended(layer int) error {
	if !c.serves(layer) {
		return nil
	}
	c.cache.Done(layer)
	return c.cache.Absorb(layer, 0)
}

// prompted builds the layer's index and takes its newest tokens into the cache.
func (c *cached) prompted(layer, rows int) error {
	c.weighing.decide(c.t.seq.Tokens(layer, 0))
	if !c.drive.serves(layer) {
		if err := c.t.sel.prompted(layer, rows); err != nil {
			return err
		}
	}
	if err := c.charge(); err != nil {
		return err
	}
	n := c.t.seq.Tokens(layer, 0)
	if c.cache == nil {
		if err := c.openCache(n); err != nil {
			return err
		}
	}
	if c.drive.serves(layer) {
		c.drive.prompted(layer, n, c.t.set.Placer.HotTokens(n, c.budget.hotCapacity(n)))
		if err := c.charge(); err != nil {
			return err
		}
	}
	if c.t.set.Pruner != nil { // the layers to come have fewer tokens, and what they lack is for the others
		c.budget.share(int(c.t.read) + rows)
	}
	c.t.f.o.KV.Release() // what left memory makes room for the cache
	return c.cache.Absorb(layer, int32(n-min(n, c.budget.fill(n))))
}

// stepped ends a decode step: the policy says what is hot from now on.
func (c *cached) stepped(n int) error {
	if c.cache == nil {
		return nil
	}
	if pl := c.t.set.Placer; pl != nil {
		pl.EndStep(n, c.budget.hotCapacity(n), c.budget.hitRate(), &c.moves)
		if c.drive != nil {
			c.drive.stepped(n, c.budget.hotCapacity(n), &c.moves)
			c.rebalance(n)
		} else if c.weighing.use != nil {
			c.weighing.noteAlone(n)
		}
		if pl.Decides() {
			c.t.f.accounts.pools.add(n, &c.moves, c.t.f.kvBytesPerToken())
			for _, pos := range c.moves.Demote {
				c.cache.Forget(pos) // what was promoted is kept when it is read next
			}
		}
	}
	if n%limitStep == 0 && c.budget.buffer(n) >= 0 { // a share of a text that has grown
		c.budget.share(n)
	}
	return c.charge()
}

func (c *cached) cut(n int32) error {
	if c.cache == nil {
		return nil
	}
	for i := range c.layers {
		c.layers[i].prepared = false
	}
	c.drive.cut(int(n))
	c.cache.Cut(n)
	return c.cache.Abandon()
}

// free gives the cache and the charges back.
func (c *cached) free() error {
	c.drive.end()
	c.t.sel.refund()
	err := c.cache.Free()
	if c.cache != nil {
		c.t.f.caches--
	}
	c.cache = nil
	return err
}
