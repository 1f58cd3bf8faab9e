package retrieval

import (
	"context"
	"slices"

	"terrace/csdshim"
	"terrace/offload"
	"terrace/policy"
)

// migration moves whole tokens between hot and cold in the background (HillInfer's bidirectional pools, algorithms.md 1.6): keys
// of promoted tokens are gathered from the drive in every layer, and the drive is told what it need not score any more, or
// has to score again. The host takes over a token only once it has its keys, and gives one up only once the drive knows.
type migration struct {
	h      *driveScoring
	want   map[int32]bool // by token, what the policy decided last: true = hot
	next   int            // tokens from here on were never in untold
	untold []int32        // tokens that the host has taken over and the drive does not know of
	run    *migrationRound
}

// migrationRound is one round under way.
type migrationRound struct {
	promote, demote, fresh []int32 // fresh: those that the host has already
	layers                 []int
	data                   [][]byte // by place in layers: promoted tokens as gathered records
	bytes                  int64    // of data, charged
	cancel                 context.CancelFunc
	done                   chan struct{}
	err                    error
}

// migrate notes a step's moves, takes in what has arrived, and begins the next round. A round that fails is forgotten: its
// tokens stay where they are.
func (x *migration) migrate(n int, m *policy.Moves) {
	if x.want == nil {
		x.want = map[int32]bool{}
	}
	for _, i := range m.Promote {
		x.want[i] = true
	}
	for _, i := range m.Demote {
		x.want[i] = false
	}
	if x.run != nil {
		select {
		case <-x.run.done:
			x.moved(x.run)
			x.h.c.t.f.o.KV.Refund(x.run.bytes)
			x.run = nil
		default:
			return
		}
	}
	x.move(n)
}

// moved takes the outcome of a round in.
func (g *migration) moved(x *migrationRound) {
	h := g.h
	if x.err != nil {
		return
	}
	for _, i := range x.demote {
		h.hot.release(int(i))
	}
	for _, i := range x.promote {
		h.hot.hold(int(i))
	}
	g.untold = append(g.untold, x.promote...)
	for at, layer := range x.layers {
		shape := h.c.t.f.o.Record
		h.c.t.sel.layers[layer].index.PutRecords(x.promote, x.data[at], shape.PageOf(layer), shape.HeadBytes(layer))
		h.c.cache.Insert(layer, x.promote, x.data[at])
	}
}

// move begins a round with what is to change.
func (g *migration) move(n int) {
	h := g.h
	x, t := &migrationRound{done: make(chan struct{})}, h.c.t.f.blockTokens()
	complete := n / t * t
	for i, hot := range g.want {
		switch held := h.hot.Slot(int(i)) >= 0; {
		case int(i) >= complete:
			continue // its block is not on the drive yet
		case hot && !held:
			x.promote = append(x.promote, i)
		case !hot && held:
			x.demote = append(x.demote, i)
		}
		delete(g.want, i)
	}
	for ; g.next < complete; g.next++ {
		g.untold = append(g.untold, int32(g.next))
	}
	for _, i := range g.untold {
		if h.hot.Slot(int(i)) >= 0 && !slices.Contains(x.demote, i) {
			x.fresh = append(x.fresh, i)
		}
	}
	g.untold = g.untold[:0]
	if len(x.promote)+len(x.demote)+len(x.fresh) == 0 {
		return
	}
	slices.Sort(x.promote)
	slices.Sort(x.demote)
	slices.Sort(x.fresh)
	for layer, l := range h.c.layers {
		if l.selects && h.serves(layer) {
			x.layers = append(x.layers, layer)
		}
	}
	shape, home := h.c.t.f.o.Record, h.c.t.seq.Home()
	x.bytes = 0
	for _, layer := range x.layers {
		x.bytes += int64(gatheredBytes(shape, layer, len(x.promote)))
	}
	if h.c.t.f.o.KV.Charge(x.bytes) != nil {
		return // no room: another time, if they are wanted still
	}
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	g.run = x
	inBackground(h.c.t.f, func() {
		defer close(x.done)
		defer cancel()
		x.err = x.carry(ctx, h.drive, shape, home)
	})
}

// carry does a round's messages.
func (x *migrationRound) carry(ctx context.Context, drive offload.Scorer, shape offload.Shape, home uint64) error {
	for _, layer := range x.layers {
		data := make([]byte, gatheredBytes(shape, layer, len(x.promote)))
		if len(x.promote) > 0 {
			if _, err := drive.Gather(ctx, home, layer, x.promote, data); err != nil {
				return err
			}
		}
		x.data = append(x.data, data)
	}
	if len(x.demote) > 0 {
		if err := drive.Place(ctx, home, x.demote, false); err != nil {
			return err
		}
	}
	if len(x.fresh) > 0 {
		return drive.Place(ctx, home, x.fresh, true)
	}
	return nil
}

// gatheredBytes is the size of n tokens of a layer as gathered records.
func gatheredBytes(s offload.Shape, layer, n int) int {
	return (n + csdshim.GroupTokens - 1) / csdshim.GroupTokens * s.RecordBytes(layer)
}

// abandon ends a round whose outcome nobody wants.
func (g *migration) abandon() {
	if x := g.run; x != nil {
		x.cancel()
		waitFor(g.h.c.t.f, x.done)
		g.h.c.t.f.o.KV.Refund(x.bytes)
		g.run = nil
	}
}
