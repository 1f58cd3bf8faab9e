package retrieval

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"terrace/csdshim"
	"terrace/internal/trace"
	"terrace/offload"
	"terrace/policy"
)

// scoreRequest is a request for the scores of a layer's tokens, under way.
type scoreRequest struct {
	below  int // tokens that are ranked
	cancel context.CancelFunc
	done   chan struct{} // nil = the drive was not asked
	err    error

	mu     sync.Mutex
	merger policy.Merger
	scored int   // tokens merged
	cold   int64 // of them, the drive's
	blocks int64 // bytes of score blocks
	timing csdshim.Timing
	pos    []int32 // scratch
	part   []float32
}

// ask broadcasts a layer's query: the drive begins, and the host scores its part meanwhile.
func (h *driveScoring) ask(layer int, q []float32) error {
	t, hl := h.c.t, &h.layers[layer]
	l := t.Layer(layer, 1)
	l.Queries, l.Rows, l.Scores = q, 1, t.sel.layers[layer].index
	k, below, _ := h.rank.Wanted(l)
	a := &hl.request
	hl.open, a.below, a.done, a.err, a.scored, a.cold, a.blocks = true, below, nil, nil, 0, 0, 0
	h.rank.Question(l, &hl.query)
	a.merger.Reset(k)
	if cold := min(h.hot.coldEnd, below); cold > 0 {
		if err := h.ready(layer, cold); err != nil {
			return err
		}
		h.send(layer, a, cold)
		if h.rank.Serial() {
			h.c.t.f.await(a.done)
		}
	}
	h.scoreHot(l, &hl.query, a)
	return nil
}

// send has the drive score the cold tokens below a limit.
func (h *driveScoring) send(layer int, a *scoreRequest, limit int) {
	hl := &h.layers[layer]
	q := &csdshim.Query{Codes: h.drive.Scores(), Int8: hl.query.Int8, Shift: hl.query.Shift, Block: h.rank.BlockLen(), Limit: limit}
	if q.Codes.Floats() {
		q.Float, q.Int8 = hl.query.Float, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done = cancel, make(chan struct{})
	home := h.c.t.seq.Home()
	h.use.Questions++
	h.c.t.f.begin(func() {
		defer close(a.done)
		defer cancel()
		span := h.c.t.f.o.Trace.Shared(trace.CSD, "score", layer)
		a.timing, a.err = h.drive.Score(ctx, home, layer, q, func(b *csdshim.Block) error { return h.merge(a, b) })
		span.EndBytes(a.blocks)
	})
}

// merge takes a block of the drive's scores; tokens that are hot are the host's.
func (h *driveScoring) merge(a *scoreRequest, b *csdshim.Block) error {
	a.pos, a.part = a.pos[:0], a.part[:0]
	for i, at := range b.Positions {
		if h.hot.Slot(int(at)) < 0 {
			a.pos, a.part = append(a.pos, at), append(a.part, b.Scores[i])
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.merger.Add(a.pos, a.part)
	a.scored += len(a.pos)
	a.cold += int64(len(a.pos))
	a.blocks += int64(4 * len(b.Positions))
	return nil
}

// scoreHot scores the tokens that the host holds keys of.
func (h *driveScoring) scoreHot(l *policy.Layer, q *policy.TokenQuery, a *scoreRequest) {
	defer h.c.t.f.o.Trace.Layer(trace.Score, "hot", l.Index).End()
	n := len(h.hot.index)
	h.scores = sized(h.scores, n)
	if sel := h.c.t.sel; sel.layers[l.Index].index.CanScan() {
		sel.tokens.scan.Score(sel.layers[l.Index].index, q, l.KeyDim, h.scores, h.c.t.f.o.Pool)
	} else {
		h.rank.Score(l, q, h.scores)
	}
	h.pos, h.part = h.pos[:0], h.part[:0]
	for slot, i := range h.hot.index {
		if i >= 0 && int(i) < a.below {
			h.pos, h.part = append(h.pos, i), append(h.part, h.scores[slot])
		}
	}
	h.c.t.f.scanned(len(h.pos))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.merger.Add(h.pos, h.part)
	a.scored += len(h.pos)
	h.use.HostTokens += int64(len(h.pos))
}

// answered reports whether a layer was asked and its outcome is there.
func (h *driveScoring) answered(layer int) bool {
	hl := &h.layers[layer]
	if !hl.open || hl.request.done == nil {
		return hl.open
	}
	select {
	case <-hl.request.done:
		return true
	default:
		return false
	}
}

// settle waits for a layer's answer and decides.
func (h *driveScoring) settle(layer int, picks *policy.Selection) error {
	t, hl := h.c.t, &h.layers[layer]
	a := &hl.request
	hl.open = false
	l := t.Layer(layer, 1)
	l.Rows, l.Scores = 1, t.sel.layers[layer].index
	if err := h.await(a); err != nil {
		return fmt.Errorf("retrieval: %w, layer %d: %w", errScoring, layer, err)
	}
	if a.scored != a.below {
		return fmt.Errorf("retrieval: %w: %w, layer %d: %d of %d tokens came", offload.ErrTier, errScoring, layer, a.scored, a.below)
	}
	h.best = a.merger.Best(h.best[:0])
	h.rank.Accept(l, h.best, picks)
	return nil
}

// errScoring: the drive does not score as it should; what it stores may be good.
var errScoring = errors.New("scores of the drive")

// await waits for the drive.
func (h *driveScoring) await(a *scoreRequest) error {
	if a.done == nil {
		return nil
	}
	h.c.t.f.await(a.done)
	h.use.BlockBytes += a.blocks
	h.use.ScanBytes += int64(a.timing.ScanBytes)
	h.use.DriveTokens += a.cold
	if f := h.c.t.f; a.err == nil {
		f.timed.add(a.timing, a.blocks/4*int64(f.kvBytesPerToken()/len(h.layers)))
	}
	return a.err
}

// abandon ends a layer's question, whose outcome nobody wants.
func (l *driveLayer) abandon(f *Floor) {
	if l.open && l.request.done != nil {
		l.request.cancel()
		f.await(l.request.done)
	}
	l.open = false
}
