package kvmanager

import (
	"errors"
	"fmt"
	"slices"

	"terrace/offload"
)

// staging is buffers for records on their way to a pool.
type staging struct {
	arena []byte
	size  int
	free  []int32
	all   int
}

func (g *staging) init(arena []byte, size int) {
	g.arena, g.size, g.all = arena, size, len(arena)/size
	for i := range int32(g.all) {
		g.free = append(g.free, i)
	}
}

func (g *staging) buffer(i int32) []byte {
	return g.arena[int(i)*g.size : int(i+1)*g.size : int(i+1)*g.size]
}

func (g *staging) close() {
	offload.FreeAligned(g.arena)
	g.arena, g.free = nil, nil
}

// poolWork is what one layer's selection has set going.
type poolWork struct {
	active  bool
	picks   [][]int32 // [lanes] indices of tokens
	missing []missed  // groups to be read, in order of lane and group
	asked   int       // of them that are being read or were
	reads   []poolRead
	pinned  []*block
	single  tokenWork
	worth   []float32 // of the first lane's picks, where they were made from scores
}

type missed struct {
	lane  int
	group int32
}

type poolRead struct {
	t        Transfer
	from, to int // of missing
	buffers  []int32
}

func (p *Pool) inUse(laneIndex int) bool {
	for layer, at := range p.lanesOf {
		if at >= 0 && laneIndex >= at && laneIndex < at+p.m.o.KVHeads/p.heads {
			return p.work[layer].active
		}
	}
	return false
}

// Step begins a decode step: what it uses is not displaced in it.
func (p *Pool) Step() { p.step++ }

// Begin notes what a layer will read, indices of tokens for each KV head, ascending (of lanes that heads share the first
// head's), and begins to fetch what is not in host memory. scores are those that the selection was made from, one a token,
// nil where there are none: they decide what gives way to what is fetched, and are not kept.
func (p *Pool) Begin(layer int, picks [][]int32, scores []float32) error {
	w := &p.work[layer]
	w.release()
	w.active, w.asked = true, 0
	for len(w.picks) < p.m.o.KVHeads/p.heads {
		w.picks = append(w.picks, nil)
	}
	for i := range w.picks {
		w.picks[i] = append(w.picks[i][:0], picks[i*p.heads]...)
	}
	w.missing, w.reads = w.missing[:0], w.reads[:0]
	w.single = tokenWork{tokens: w.single.tokens[:0]}
	w.worth = w.worth[:0]
	blocks, t := p.s.tiers[layer].blocks, int32(p.m.o.Layout.Tokens)
	lanes := p.layerLanes(layer)
	if len(lanes) == 1 && p.unit == 1 {
		p.weigh(&lanes[0], w, scores)
	}
	for i := range lanes {
		ln, last := &lanes[i], int32(-1)
		if err := p.cover(ln, (len(blocks)+1)*int(t)/p.unit); err != nil { // the newest token may begin a block after this
			return err
		}
		ln.forgetLeaving()
		before := p.stats.Missed
		for _, index := range w.picks[i] {
			unit := index / int32(p.unit)
			if p.unit > 1 && unit == last {
				continue
			}
			last = unit
			p.stats.Picked++
			p.m.asked += int64(p.unit * p.heads)
			if s := ln.at[unit]; s >= 0 {
				ln.stamp[s] = p.step
				if !ln.scored {
					ln.worth[s] = float32(p.step)
				}
				continue
			}
			b := blocks[index/t]
			if b.data != nil && (b.move == nil || b.move.write) {
				p.pin(w, b)
				continue
			}
			p.stats.Missed++
			p.m.fetched += int64(p.unit * p.heads)
			if p.gathers(b) {
				w.single.tokens = append(w.single.tokens, index)
				continue
			}
			if n := len(w.missing); n == 0 || w.missing[n-1] != (missed{i, index / t}) {
				w.missing = append(w.missing, missed{i, index / t})
			}
		}
		ln.misses = int(p.stats.Missed - before)
	}
	p.stats.Groups += int64(len(w.missing))
	p.ask(layer, p.stage.all/2)
	p.askTokens(layer)
	return nil
}

// weigh takes the scores of a selection into account.
func (p *Pool) weigh(ln *lane, w *poolWork, scores []float32) {
	by := weigh(scores, w.picks[0])
	ln.scored = by.scores != nil
	if !ln.scored {
		return
	}
	ln.age(&by)
	for _, index := range w.picks[0] {
		w.worth = append(w.worth, by.of(index))
	}
}

// worthOf is the worth of pick i of a lane.
func (p *Pool) worthOf(w *poolWork, i int) float32 {
	if i < len(w.worth) {
		return w.worth[i]
	}
	return float32(p.step)
}

func (p *Pool) pin(w *poolWork, b *block) {
	if n := len(w.pinned); n > 0 && w.pinned[n-1] == b {
		return
	}
	b.pins++
	w.pinned = append(w.pinned, b)
}

// ask begins to read the next missing groups, leaving some staging to others.
func (p *Pool) ask(layer, leave int) {
	w := &p.work[layer]
	n := min(len(w.missing)-w.asked, len(p.stage.free)-leave)
	if n <= 0 {
		return
	}
	r := poolRead{from: w.asked, to: w.asked + n}
	recs := make([]offload.Record, 0, n)
	for _, x := range w.missing[r.from:r.to] {
		i := p.stage.free[len(p.stage.free)-1]
		p.stage.free = p.stage.free[:len(p.stage.free)-1]
		r.buffers = append(r.buffers, i)
		rec := p.s.tiers[layer].blocks[x.group].key(p.stage.buffer(i))
		if p.o.ByHead {
			rec.Part = offload.Part{First: int32(x.lane), N: 1}
		}
		recs = append(recs, rec)
	}
	w.asked += n
	r.t = p.m.lower.Read(false, recs)
	w.reads = append(w.reads, r)
}

// key is a record of a block's bytes with a buffer for some of them.
func (b *block) key(buffer []byte) offload.Record {
	return offload.Record{Key: offload.Key{Seq: b.home.seq, Layer: b.layer, Group: b.group}, Data: buffer}
}

// Finish waits for what Begin has set going and lists where every picked token lies; it stays there until Done. The newest
// token, by index in each KV head, is read in any case.
func (p *Pool) Finish(layer int) error {
	w := &p.work[layer]
	if !w.active {
		return fmt.Errorf("kvmanager: layer %d: nothing was picked: %w", layer, ErrPlan)
	}
	p.addNewest(layer)
	if err := p.sizeLoose(w); err != nil {
		return errors.Join(err, p.abandon(layer))
	}
	for len(w.reads) > 0 || w.asked < len(w.missing) {
		if len(w.reads) == 0 {
			p.ask(layer, 0)
			if len(w.reads) == 0 {
				return errors.Join(fmt.Errorf("kvmanager: layer %d: no staging is free: %w", layer, ErrBudget), p.abandon(layer))
			}
		}
		r := w.reads[0]
		if err := p.m.awaitRead(r.t, len(r.buffers)); err != nil {
			return errors.Join(fmt.Errorf("kvmanager: layer %d: %w", layer, err), p.abandon(layer))
		}
		w.reads = w.reads[1:]
		for i, x := range w.missing[r.from:r.to] {
			p.take(layer, x, p.stage.buffer(r.buffers[i]))
		}
		p.stage.free = append(p.stage.free, r.buffers...)
		p.ask(layer, 0)
	}
	if err := p.finishTokens(layer); err != nil {
		return errors.Join(err, p.abandon(layer))
	}
	p.list(layer)
	return nil
}

// addNewest adds each head's newest token to its picks: its block has room, so it is in memory.
func (p *Pool) addNewest(layer int) {
	w := &p.work[layer]
	for len(p.out.rows) < len(w.picks) {
		p.out.rows = append(p.out.rows, nil)
	}
	for i := range w.picks {
		newest := int32(len(p.s.at(layer, i*p.heads).pos) - 1)
		if n := len(w.picks[i]); n == 0 || w.picks[i][n-1] < newest {
			w.picks[i] = append(w.picks[i], newest)
		}
	}
}

// sizeLoose makes room for every pick that is fetched, were none of them kept.
func (p *Pool) sizeLoose(w *poolWork) error {
	n := 0
	for _, idx := range w.picks {
		n += len(idx)
	}
	if p.o.Pages {
		n = len(w.missing)
	}
	need := n * p.slotBytes
	if need > cap(p.out.loose) {
		if err := p.charge(int64(need + need/8 - cap(p.out.loose))); err != nil {
			return err
		}
		p.out.loose = make([]byte, need+need/8)
	}
	p.out.loose = p.out.loose[:0]
	for i, idx := range w.picks {
		p.out.rows[i] = sizedRows(p.out.rows[i], len(idx))
	}
	return nil
}

func sizedRows(rows []poolRow, n int) []poolRow {
	rows = slices.Grow(rows[:0], n)[:n]
	clear(rows)
	return rows
}

// take copies the picked tokens of a group that was read: to slots where they may stay, else beside the pool.
func (p *Pool) take(layer int, x missed, data []byte) {
	w, t := &p.work[layer], int32(p.m.o.Layout.Tokens)
	ln := &p.layerLanes(layer)[x.lane]
	picks := w.picks[x.lane]
	from, _ := slices.BinarySearch(picks, x.group*t)
	for i := from; i < len(picks) && picks[i] < (x.group+1)*t; i++ {
		if ln.at[picks[i]/int32(p.unit)] < 0 {
			p.out.rows[x.lane][i] = poolRow{data: p.keep(layer, ln, picks[i], data, int(picks[i]%t), p.worthOf(w, i)), slot: -1}
		}
		if p.unit > 1 {
			break
		}
	}
}

// keep copies a token (or its page) out of the place of a record's bytes where it lies, to a slot if it can have one; it
// returns the copy.
func (p *Pool) keep(layer int, ln *lane, index int32, data []byte, place int, worth float32) []byte {
	unit := index / int32(p.unit)
	var dst []byte
	if s := int32(-1); p.hot == nil || p.hot(p.s.at(layer, 0).pos[index]) {
		if s = p.place(ln, unit, worth); s >= 0 {
			dst = p.slot(ln, s)
		}
	}
	if dst == nil {
		n := len(p.out.loose)
		p.out.loose = p.out.loose[:n+p.slotBytes]
		dst = p.out.loose[n : n+p.slotBytes : n+p.slotBytes]
	}
	p.copyUnit(dst, data, place)
	return dst
}

// copyUnit copies a token's rows of every head, or a page, from a record's bytes.
func (p *Pool) copyUnit(dst, data []byte, slot int) {
	if p.unit > 1 {
		copy(dst, data)
		return
	}
	l := p.m.o.Layout
	size, k := l.PageBytes(), p.keyBytes
	for h := range p.heads {
		page := data[h*size : (h+1)*size]
		row := dst[h*p.rowBytes : (h+1)*p.rowBytes]
		copy(row[:k], l.KRow(page, slot))
		copy(row[k:], l.VRow(page, slot))
	}
}

// list fills the rows of what was in host memory: in slots, or in blocks.
func (p *Pool) list(layer int) {
	t, size := int32(p.m.o.Layout.Tokens), p.heads*p.m.o.Layout.PageBytes()
	lanes, blocks := p.layerLanes(layer), p.s.tiers[layer].blocks
	for i, picks := range p.work[layer].picks {
		ln := &lanes[i]
		for j, index := range picks {
			if p.out.rows[i][j].data != nil {
				continue
			}
			if p.unit > 1 && j > 0 && picks[j-1]/t == index/t {
				p.out.rows[i][j] = p.out.rows[i][j-1]
				continue
			}
			if s := ln.at[index/int32(p.unit)]; s >= 0 {
				p.out.rows[i][j] = poolRow{data: p.slot(ln, s), slot: -1}
				continue
			}
			p.out.rows[i][j] = poolRow{data: blocks[index/t].data[i*size : (i+1)*size], slot: index % t}
		}
	}
}

// Done lets go of a layer's selection, once its attention is computed.
func (p *Pool) Done(layer int) { p.work[layer].release() }

func (w *poolWork) release() {
	for _, b := range w.pinned {
		b.pins--
	}
	w.pinned, w.active = w.pinned[:0], false
}

// abandon waits for what is under way for a layer and forgets it.
func (p *Pool) abandon(layer int) error {
	w := &p.work[layer]
	var err error
	for _, r := range w.reads {
		if werr := p.m.awaitRead(r.t, len(r.buffers)); errors.Is(werr, ErrStalled) {
			err = werr
			continue // the tier may still write there: the buffers are lost rather than reused
		}
		p.stage.free = append(p.stage.free, r.buffers...)
	}
	w.reads = w.reads[:0]
	if w.single.t != nil {
		if werr := p.endTokens(&w.single); errors.Is(werr, ErrStalled) {
			err = werr
		}
	}
	w.single.tokens, w.single.asked = w.single.tokens[:0], 0
	w.release()
	return err
}

// Abandon waits for what is under way and forgets every selection that was begun.
func (p *Pool) Abandon() error {
	var err error
	for layer := range p.work {
		err = errors.Join(err, p.abandon(layer))
	}
	return err
}

// freshWorth is the worth of a token that nothing is known of: as if it had just been needed.
func (p *Pool) freshWorth(ln *lane) float32 {
	if ln.scored {
		return 0
	}
	return float32(p.step)
}

// Absorb takes the tokens of a layer's newly complete blocks into the pool: the newest are hot. first says from which index
// on, for a prompt whose older tokens are not to be kept.
func (p *Pool) Absorb(layer int, first int32) error {
	blocks, t := p.s.tiers[layer].blocks, p.m.o.Layout.Tokens
	lanes := p.layerLanes(layer)
	for i := range lanes {
		ln := &lanes[i]
		if err := p.cover(ln, len(blocks)*t/p.unit); err != nil {
			return err
		}
		for ; ln.tail < len(blocks) && blocks[ln.tail].open == 0; ln.tail++ {
			b := blocks[ln.tail]
			if b.data == nil || (ln.tail+1)*t <= int(first) {
				continue
			}
			data := b.data[i*p.heads*p.m.o.Layout.PageBytes():][:p.heads*p.m.o.Layout.PageBytes()]
			for slot := 0; slot < t; slot += p.unit {
				index := int32(ln.tail*t + slot)
				if index < first && p.unit == 1 || ln.at[index/int32(p.unit)] >= 0 {
					continue
				}
				if p.hot != nil && !p.hot(p.s.at(layer, 0).pos[index]) {
					continue
				}
				if s := p.place(ln, index/int32(p.unit), p.freshWorth(ln)); s >= 0 {
					p.copyUnit(p.slot(ln, s), data, slot)
				}
			}
		}
	}
	return nil
}
