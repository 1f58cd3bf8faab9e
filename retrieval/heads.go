package retrieval

import (
	"fmt"
	"sync/atomic"

	"terrace/attention"
	"terrace/policy"
)

// headSelector asks a separate instance of a policy for each KV head, at the same time (policy.HeadSelector).
type headSelector struct {
	s     *selector
	each  []headChoice // empty = the policy decides all heads of a layer together; else as many as the layer with most heads has
	heads []headChoice // of them, those of the layer in progress
	scans []scanTask
	on    *selected // the layer in progress

	selectHead, scanHead func(worker, i int) // built once, so that a step allocates nothing
}

// headChoice is the instance of one KV head, and what it is shown.
type headChoice struct {
	selector policy.Selector
	layer    policy.Layer
	reader   rowReader
	picks    policy.Selection
	waits    atomic.Int32 // scan tasks that must be done before it decides: its index, and its decision where that is a task
}

// scanTask is one chunk of a KV head's index, or the head's decision.
type scanTask struct{ head, chunk int }

const decide = -1

func (h *headSelector) init(s *selector, spec *policy.Spec) error {
	h.s, h.selectHead, h.scanHead = s, h.selectOne, h.scanOne
	if _, ok := s.t.set.Selector.(policy.HeadSelector); !ok {
		return nil
	}
	most := 0
	for layer := range s.t.f.o.Shape.Layers {
		if s.t.Acts(layer) {
			most = max(most, s.t.f.o.Shape.kv(layer).Heads)
		}
	}
	for range most {
		set, err := spec.New(s.t.f.o.Shape.Model)
		if err != nil {
			return fmt.Errorf("retrieval: %w", err)
		}
		h.each = append(h.each, headChoice{selector: set.Selector})
	}
	return nil
}

// ask fills the selector's picks.
func (h *headSelector) ask(l *selected, views []attention.View, shown *policy.Layer) {
	pool, group := h.s.t.pool(), shown.Group()
	width := group * shown.KeyDim
	h.on, h.heads = l, h.each[:len(views)]
	for g := range h.heads {
		c := &h.heads[g]
		c.layer = *shown
		c.reader.views, c.reader.shape = views[g:g+1], &h.s.t.f.o.Shape
		c.layer.KV, c.layer.Scores = &c.reader, l.index.Head(g)
		c.layer.Heads, c.layer.KVHeads, c.layer.Pos = group, 1, shown.Pos[g:g+1]
		if shown.Sinks != nil {
			c.layer.Sinks = shown.Sinks[g*group : (g+1)*group]
		}
		c.layer.Queries, c.layer.Rows = shown.Queries[g*width:(g+1)*width], 1
		c.picks.Reset(1)
	}
	if tasks := h.scanTasks(pool.Threads()); tasks > 0 {
		pool.Run(tasks, h.scanHead)
	} else {
		pool.Run(len(h.heads), h.selectHead)
	}
	h.unite(shown.Index)
}

// unite puts the heads' picks together.
func (h *headSelector) unite(layer int) {
	picks := &h.s.picks
	picks.All = true
	for g := range h.heads {
		picks.All = picks.All && h.each[g].picks.All
	}
	for g := range h.heads {
		p := &h.each[g].picks
		picks.Share = append(picks.Share, p.Share...)
		picks.Scanned += p.Scanned
		picks.Estimates.LogSum = append(picks.Estimates.LogSum, p.Estimates.LogSum...)
		picks.Estimates.Values = append(picks.Estimates.Values, p.Estimates.Values...)
		if p.All && !picks.All {
			for i := range h.s.t.seq.Tokens(layer, g) {
				picks.Heads[g] = append(picks.Heads[g], int32(i))
			}
			continue
		}
		picks.Heads[g] = append(picks.Heads[g], p.Heads[0]...)
	}
}

// scanTasks lists the chunks to scan before the heads decide; none where a head does not ask for a scan. To decide is one thread's
// work, so a head's decision is listed only once as many heads as there are threads are scanned, itself among them: else the last
// would decide alone, and other threads look on.
func (h *headSelector) scanTasks(threads int) int {
	h.scans = h.scans[:0]
	for g := range h.heads {
		c := &h.each[g]
		scanner, ok := c.selector.(policy.Scanner)
		if !ok || !scanner.Scans(&c.layer) {
			return 0
		}
		for chunk := range h.on.index.Head(g).Begin(c.layer.Queries, c.layer.Heads) {
			h.scans = append(h.scans, scanTask{g, chunk})
		}
		if g >= threads-1 {
			h.scans = append(h.scans, scanTask{g - threads + 1, decide})
		}
		c.waits.Store(2)
	}
	for g := max(0, len(h.heads)-threads+1); g < len(h.heads); g++ {
		h.scans = append(h.scans, scanTask{g, decide})
	}
	return len(h.scans)
}

// scanOne runs a task; whoever does the last that a head waits for decides for it.
func (h *headSelector) scanOne(worker, i int) {
	t := h.scans[i]
	if done := t.chunk == decide || h.on.index.Head(t.head).Chunk(t.chunk); done && h.each[t.head].waits.Add(-1) == 0 {
		h.selectOne(worker, t.head)
	}
}

func (h *headSelector) selectOne(_, g int) {
	c := &h.each[g]
	c.selector.Select(&c.layer, &c.picks)
}
