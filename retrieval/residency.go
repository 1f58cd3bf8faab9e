package retrieval

import (
	"terrace/attention"
	"terrace/kvmanager"
)

// residency is where a text's tokens lie, and what a decode step has to fetch: all in host memory (resident), whole layers
// that come and go (streamed), or single hot tokens with the rest on the backing store (cached).
type residency interface {
	// growth completes what a pass does to the text's pages.
	growth(x kvmanager.Growth) kvmanager.Growth
	// step begins a decode step.
	step()
	// whole brings all of a layer into host memory for rows at positions from pos on; open does so for a decode step, where
	// it does not read single tokens.
	whole(layer int, pos int32) error
	open(layer int, pos int32) error
	// begin lets the policy select in a layer for a decode step; q is the step's query. A layer that reads another's keys and values
	// reads what was selected there.
	begin(layer int, q []float32, seq *attention.Seq) error
	// prefetch begins to bring all of a layer into host memory; step says that a decode step reads it next.
	prefetch(layer int, pos int32, step bool)
	// prepare selects in a layer ahead of its turn, with the query known by now, where that saves time.
	prepare(layer int) error
	// finish waits for what a decode step reads of a layer and fills in the views.
	finish(layer int, seq *attention.Seq) error
	// caches reports whether a decode step leaves a layer to a token cache.
	caches(layer int) bool
	// attended follows a decode step's attention; release lets go of a layer's pages.
	attended(layer int) error
	release(layer int) error
	// prompted takes a layer in at the end of the prompt; rows are not counted as read yet.
	prompted(layer, rows int) error
	// stepped ends a decode step that brought the text to n tokens; cut forgets what a pass that failed has left.
	stepped(n int) error
	cut(n int32) error
	// settling is the drive's part, where there is one; nil = none.
	settling() *driveScoring
	free() error
}

// newResidency chooses by what there is and what the policy reads.
func newResidency(t *Sequence, hostScores bool) residency {
	r := resident{t}
	switch {
	case !t.f.Tiered():
		return r
	case !t.cacheable():
		return streamed{r}
	}
	return newCached(t, hostScores)
}

// resident has all pages in host memory.
type resident struct{ t *Sequence }

func (r resident) growth(x kvmanager.Growth) kvmanager.Growth { return x }
func (r resident) step()                                      {}
func (r resident) whole(int, int32) error                     { return nil }
func (r resident) prefetch(int, int32, bool)                  {}
func (r resident) open(int, int32) error                      { return nil }
func (r resident) prepare(int) error                          { return nil }
func (r resident) finish(int, *attention.Seq) error           { return nil }
func (r resident) caches(int) bool                            { return false }
func (r resident) attended(int) error                         { return nil }
func (r resident) release(int) error                          { return nil }
func (r resident) cut(int32) error                            { return nil }
func (r resident) settling() *driveScoring                    { return nil }

func (r resident) begin(layer int, q []float32, seq *attention.Seq) error {
	owner := r.t.f.o.Shape.owner(layer)
	switch {
	case r.t.sel == nil || !r.t.Acts(owner):
		return nil
	case owner != layer:
		r.t.sel.again(owner, seq)
		return nil
	}
	return r.t.sel.choose(layer, q, seq)
}

func (r resident) prompted(layer, rows int) error {
	if r.t.sel == nil {
		return nil
	}
	if err := r.t.sel.prompted(layer, rows); err != nil {
		return err
	}
	return r.t.sel.charge()
}

func (r resident) stepped(int) error { return r.t.sel.charge() }

func (r resident) free() error {
	r.t.sel.refund()
	return nil
}

// streamed has the pages of a few layers in host memory at a time.
type streamed struct{ resident }

func (r streamed) whole(layer int, pos int32) error {
	return r.t.f.storeError(r.t.seq.Acquire(layer, r.t.lowest(layer, pos)))
}

func (r streamed) growth(x kvmanager.Growth) kvmanager.Growth {
	x.Beside = r.t.sel.beside(r.t.tokensAfter(&x))
	return x
}

func (r streamed) open(layer int, pos int32) error { return r.whole(layer, pos) }

func (r streamed) prefetch(layer int, pos int32, _ bool) {
	r.t.seq.Prefetch(layer, r.t.lowest(layer, pos))
}

func (r streamed) release(layer int) error { return r.t.f.storeError(r.t.seq.Release(layer)) }

// InMemory reports whether a token of a KV head, by its index in the cache, is in host memory now; where drives attend, none is.
func (t *Sequence) InMemory(layer, kvHead, index int) bool {
	if c, ok := t.res.(*cached); ok && c.serves(layer) {
		return c.cache.Has(layer, kvHead, int32(index))
	}
	return !t.OnDrives() && t.seq.InMemory(layer, kvHead, index)
}
