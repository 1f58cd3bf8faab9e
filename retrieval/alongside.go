package retrieval

import (
	"sync/atomic"

	"terrace/internal/trace"
	"terrace/policy"
)

// alongside is what is decided of the next layer while this one's attention is computed, on the same threads: each text's selection, or the
// host's part of the scores where a drive has the others. Its tasks go first in attention's section of the pool; who ends the last begins
// to fetch, while the others attend.
type alongside struct {
	pass  *Pass
	layer int // of those that wait; 0 = none do (a first layer is never chosen ahead)
	texts []rankedText
	leave []atomic.Int32 // tasks of each text that have not ended, by row
	left  atomic.Int32   // texts that have not been decided
	span  trace.Span
	run   func(worker, i int)
}

// rankedText is a text's part: chunks of a scan, or all of it as one task.
type rankedText struct {
	c     *cached
	shown *policy.Layer
	hot   *scoreRequest // not nil: the host scores the tokens that are hot
	first int           // task
	n     int           // of them
	scans bool
	left  *atomic.Int32
	err   error
}

// waits reports whether what a pass reads of a layer is decided beside the attention of the one before: where threads share work, on the
// machine's own clock, and where that one's tokens are here. Else the scores are made at once: they cover the wait.
func (w *together) waits(current int) bool {
	f := w.pass.f
	if f.o.Pool.Threads() < 2 || f.o.Clock != nil {
		return false
	}
	for i := range w.pass.Rows {
		r := &w.pass.Rows[i]
		if c, ok := r.Sequence.res.(*cached); r.Err == nil && ok && current >= 0 && !c.ready(f.o.Shape.owner(current)) {
			return false
		}
	}
	return true
}

// BeginBeside has a layer's attention, which is computed next, share its threads with what is known of the next layer's selections; EndBeside
// follows it, whatever came of it.
func (p *Pass) BeginBeside() {
	if n := p.all.along.begin(); n > 0 {
		p.f.o.Pool.Beside(n, p.all.along.run)
	}
}

// EndBeside is when the next layer's selections are made, where attention has not shared its threads.
func (p *Pass) EndBeside() {
	if a := &p.all.along; len(a.texts) > 0 {
		p.f.o.Pool.Join()
		a.end()
	}
}

// begin readies what waits and returns its tasks.
func (a *alongside) begin() (tasks int) {
	p, layer := a.pass, a.layer
	a.texts = a.texts[:0]
	if layer == 0 {
		return 0
	}
	if a.run == nil {
		a.run = a.task
	}
	a.layer = 0
	if len(a.leave) < len(p.Rows) {
		a.leave = make([]atomic.Int32, len(p.Rows))
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		x := rankedText{first: tasks, left: &a.leave[i]}
		if d := r.Sequence.res.settling(); r.Err == nil && d.asking(layer) && d.layers[layer].request.unscored {
			x.hot, x.c = &d.layers[layer].request, d.c
			x.shown = d.shown(layer)
			x.n, x.scans = beginHot(d, layer)
		} else if x.c = r.ahead(layer); x.c != nil && !x.c.layers[layer].prepared {
			x.shown = x.c.ranking(layer, r.Sequence.sel.ahead(layer))
			x.n, x.scans = beginTokens(r.Sequence.sel, &r.Sequence.sel.layers[layer], x.shown)
		} else {
			continue
		}
		x.c.t.apart = true
		x.left.Store(int32(x.n))
		tasks += x.n
		a.texts = append(a.texts, x)
	}
	a.left.Store(int32(len(a.texts)))
	if tasks > 0 {
		a.span = p.f.o.Trace.Layer(trace.Score, "beside", layer)
	}
	return tasks
}

// task does one: of the text that it belongs to, which the last of its own decides.
func (a *alongside) task(worker, i int) {
	at := 0
	for i >= a.texts[at].first+a.texts[at].n {
		at++
	}
	x := &a.texts[at]
	sel := x.c.t.sel
	if x.scans {
		sel.tokens.scan.Chunk(worker, i-x.first)
	}
	if x.left.Add(-1) > 0 {
		return
	}
	switch {
	case x.hot != nil:
		endHot(x.c.drive, x.shown, x.scans)
	case x.scans:
		endTokens(sel, &sel.layers[x.shown.Index], x.shown)
	default:
		x.err = sel.ask(&sel.layers[x.shown.Index], x.c.t.obs.reader.views, x.shown)
	}
	if a.left.Add(-1) == 0 {
		a.fetchAll()
	}
}

// fetchAll begins to read what was chosen, text after text: they share the queue and the budget.
func (a *alongside) fetchAll() {
	for i := range a.texts {
		if x := &a.texts[i]; x.hot == nil && x.err == nil {
			x.err = x.c.fetch(x.shown.Index)
		}
	}
}

// end notes whose selection has failed.
func (a *alongside) end() {
	a.span.End()
	for i := range a.texts {
		x := &a.texts[i]
		x.c.t.apart = false
		if x.hot != nil {
			x.c.drive.counted(x.hot)
		}
		for j := range a.pass.Rows {
			if a.pass.Rows[j].Sequence == x.c.t {
				a.pass.fail(j, x.err)
			}
		}
	}
	clear(a.texts)
	a.texts = a.texts[:0]
}
