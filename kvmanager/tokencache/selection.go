package tokencache

import (
	"errors"
	"fmt"
	"slices"

	"terrace/kvmanager"
	"terrace/offload"
)

// selection is what one layer's step reads, and what it has set going.
type selection struct {
	c          *Cache
	g          *geometry // nil = the layer is not served
	layer      int
	active     bool
	picks      [][]int32 // [shards] indices of tokens
	missing    []missed  // groups to be read, in order of shard and group
	asked      int       // of them that are being read or were
	reads      []groupRead
	pinned     []pinned
	single     tokenReads
	priorities [][]float32 // [shards] of the picks, none where they were not made from scores
}

type missed struct {
	shard int
	group int32
}

type groupRead struct {
	t        *offload.Ticket
	from, to int // of missing
	buffers  []int32
}

type pinned struct {
	group int32
	pin   kvmanager.Pin
}

// begin is Cache.Begin of the layer.
func (w *selection) begin(picks [][]int32, scores [][]float32) error {
	c := w.c
	w.release()
	w.active, w.asked = true, 0
	shards := c.shardsOf(w.layer)
	for len(w.picks) < len(shards) {
		w.picks, w.priorities = append(w.picks, nil), append(w.priorities, nil)
	}
	for i := range w.picks {
		w.picks[i], w.priorities[i] = append(w.picks[i][:0], picks[i*w.g.heads]...), w.priorities[i][:0]
	}
	w.missing, w.reads = w.missing[:0], w.reads[:0]
	w.single = tokenReads{tokens: w.single.tokens[:0], records: w.single.records[:0]}
	if c.granule == 1 && len(scores) == len(shards) {
		for i := range shards {
			w.weigh(i, &shards[i], scores[i])
		}
	}
	for i := range shards {
		s := &shards[i]
		if err := s.cover((c.blocks.Count(w.layer) + 1) * c.tokens / c.granule); err != nil { // the newest token may begin a block after this
			return err
		}
		s.forgetVictims()
		before := c.stats.Missed
		last := int32(-1)
		for _, index := range w.picks[i] {
			if granule := index / int32(c.granule); granule != last || c.granule == 1 {
				last = granule
				w.want(i, s, index)
			}
		}
		s.misses = int(c.stats.Missed - before)
	}
	w.sortTokens()
	c.stats.Groups += int64(len(w.missing))
	w.ask(c.stage.all / 2)
	w.askTokens()
	return nil
}

// want counts a pick and locates it.
func (w *selection) want(i int, s *shard, index int32) {
	c := w.c
	tokens := c.granule * w.g.heads
	c.stats.Picked++
	c.blocks.CountTokens(tokens, 0)
	if !w.locate(i, s, index) {
		c.stats.Missed++
		c.blocks.CountTokens(0, tokens)
	}
}

// locate makes sure that a pick is at hand once everything is read: it keeps it where it lies in host memory, or notes that it is
// to be read, which is false.
func (w *selection) locate(i int, s *shard, index int32) (here bool) {
	c, group := w.c, index/int32(w.c.tokens)
	if slot := s.at[index/int32(c.granule)]; slot >= 0 {
		s.used(slot)
		return true
	}
	switch {
	case c.blocks.Resident(w.layer, int(group)) != nil:
		w.pin(group)
		return true
	case c.gather.on && c.blocks.Gatherable(w.layer, int(group)):
		if n := len(w.single.tokens); n == 0 || w.single.tokens[n-1] != index { // the newest, which several shards may lack
			w.single.tokens = append(w.single.tokens, index)
		}
	case !slices.Contains(w.missing[max(len(w.missing)-1, 0):], missed{i, group}):
		w.missing = append(w.missing, missed{i, group})
	}
	return false
}

// weigh takes the scores of a shard's selection into account.
func (w *selection) weigh(i int, s *shard, scores []float32) {
	by := scaleOf(scores, w.picks[i])
	s.scored = by.scores != nil
	if !s.scored {
		return
	}
	s.age(&by)
	for _, index := range w.picks[i] {
		w.priorities[i] = append(w.priorities[i], by.of(index))
	}
}

// priorityOf is the priority of pick i of a shard.
func (w *selection) priorityOf(shard, i int) float32 {
	if i < len(w.priorities[shard]) {
		return w.priorities[shard][i]
	}
	return float32(w.c.slots.step)
}

func (w *selection) pin(group int32) {
	if n := len(w.pinned); n > 0 && w.pinned[n-1].group == group {
		return
	}
	w.pinned = append(w.pinned, pinned{group, w.c.blocks.Pin(w.layer, int(group))})
}

// ask begins to read the next missing groups, leaving some staging to others.
func (w *selection) ask(reserved int) {
	c := w.c
	n := min(len(w.missing)-w.asked, len(c.stage.free)-reserved)
	if n <= 0 {
		return
	}
	r := groupRead{from: w.asked, to: w.asked + n}
	recs := make([]offload.Record, 0, n)
	for _, x := range w.missing[r.from:r.to] {
		i := c.stage.take()
		r.buffers = append(r.buffers, i)
		rec := c.blocks.Record(w.layer, int(x.group), c.stage.buffer(i)[:w.g.recordBytes():w.g.recordBytes()])
		if c.o.ByHead {
			rec.Part = offload.Part{First: int32(x.shard), N: 1}
		}
		recs = append(recs, rec)
	}
	w.asked += n
	r.t = c.blocks.Read(recs)
	w.reads = append(w.reads, r)
}

// finish is Cache.Finish of the layer.
func (w *selection) finish() error {
	c := w.c
	if !w.active {
		return fmt.Errorf("tokencache: layer %d: nothing was picked: %w", w.layer, kvmanager.ErrPlan)
	}
	if err := errors.Join(w.addNewest(), w.sizeRows()); err != nil {
		return errors.Join(err, w.abandon())
	}
	for len(w.reads) > 0 || w.asked < len(w.missing) {
		if len(w.reads) == 0 {
			w.ask(0)
			if len(w.reads) == 0 {
				return errors.Join(w.noStaging(), w.abandon())
			}
		}
		r := w.reads[0]
		if err := c.blocks.Manager().Await(r.t, len(r.buffers)); err != nil {
			return errors.Join(fmt.Errorf("tokencache: layer %d: %w", w.layer, err), w.abandon())
		}
		w.reads = w.reads[1:]
		for i, x := range w.missing[r.from:r.to] {
			w.take(x, c.stage.buffer(r.buffers[i]))
		}
		c.stage.free = append(c.stage.free, r.buffers...)
		w.ask(0)
	}
	if err := w.finishTokens(); err != nil {
		return errors.Join(err, w.abandon())
	}
	w.list()
	return nil
}

func (w *selection) ready() bool {
	for _, r := range w.reads {
		if !r.t.Ready() {
			return false
		}
	}
	x := &w.single
	return w.asked == len(w.missing) && x.asked == len(x.tokens) && (x.t == nil || x.t.Ready())
}

func (w *selection) noStaging() error {
	return fmt.Errorf("tokencache: layer %d: no staging is free: %w", w.layer, kvmanager.ErrBudget)
}

// addNewest adds each head's newest token to its picks. Its block is in memory as a rule: it was written last, and it stays there
// while it has room; a full one may have left.
func (w *selection) addNewest() error {
	shards := w.c.shardsOf(w.layer)
	for i := range w.picks {
		newest := int32(len(w.c.blocks.PositionList(w.layer, i*w.g.heads)) - 1)
		if n := len(w.picks[i]); n > 0 && w.picks[i][n-1] >= newest {
			continue
		}
		if err := shards[i].cover(int(newest)/w.c.granule + 1); err != nil {
			return err
		}
		w.picks[i] = append(w.picks[i], newest)
		if g := (missed{i, newest / int32(w.c.tokens)}); !slices.Contains(w.missing, g) {
			w.locate(i, &shards[i], newest)
		}
	}
	w.sortTokens()
	return nil
}

// sizeRows makes room for every pick that is fetched, were none of them kept.
func (w *selection) sizeRows() error {
	c, o, n := w.c, &w.c.out, 0
	for _, picks := range w.picks {
		n += len(picks)
	}
	if c.o.Pages {
		n = len(w.missing)
	}
	if need := n * w.g.slotBytes; need > cap(o.loose) {
		if err := c.slots.charge(int64(need + need/8 - cap(o.loose))); err != nil {
			return err
		}
		o.loose = make([]byte, need+need/8)
	}
	o.loose = o.loose[:0]
	for len(o.rows) < len(w.picks) {
		o.rows = append(o.rows, nil)
	}
	for i, picks := range w.picks {
		o.rows[i] = slices.Grow(o.rows[i][:0], len(picks))[:len(picks)]
		clear(o.rows[i])
	}
	return nil
}

// take copies the picked tokens of a group that was read: to slots where they may stay, else beside them.
func (w *selection) take(x missed, data []byte) {
	c, t := w.c, int32(w.c.tokens)
	s, picks := &c.shardsOf(w.layer)[x.shard], w.picks[x.shard]
	from, _ := slices.BinarySearch(picks, x.group*t)
	for i := from; i < len(picks) && picks[i] < (x.group+1)*t; i++ {
		if !s.has(picks[i]) {
			c.out.rows[x.shard][i] = row{data: w.keep(s, picks[i], data, int(picks[i]%t), w.priorityOf(x.shard, i)), place: -1}
		}
		if c.granule > 1 {
			break
		}
	}
}

// keep copies a token (or its page) out of the place of a record's bytes where it lies, to a slot if it can have one; it
// returns the copy.
func (w *selection) keep(s *shard, index int32, data []byte, place int, priority float32) []byte {
	c := w.c
	var dst []byte
	if c.keeps(w.layer, index) {
		if slot := s.place(index/int32(c.granule), priority); slot >= 0 {
			dst = s.slot(slot)
		}
	}
	if dst == nil {
		n := len(c.out.loose)
		c.out.loose = c.out.loose[:n+w.g.slotBytes]
		dst = c.out.loose[n : n+w.g.slotBytes : n+w.g.slotBytes]
	}
	w.g.copyGranule(dst, data, place)
	return dst
}

// list fills the rows of what was in host memory: in slots, or in blocks.
func (w *selection) list() {
	c, t, size := w.c, int32(w.c.tokens), w.g.recordBytes()
	shards := c.shardsOf(w.layer)
	for i, picks := range w.picks {
		s, rows := &shards[i], c.out.rows[i]
		for j, index := range picks {
			if rows[j].data != nil {
				continue
			}
			if c.granule > 1 && j > 0 && picks[j-1]/t == index/t {
				rows[j] = rows[j-1]
				continue
			}
			if slot := s.at[index/int32(c.granule)]; slot >= 0 {
				rows[j] = row{data: s.slot(slot), place: -1}
				continue
			}
			rows[j] = row{data: c.blocks.Resident(w.layer, int(index/t))[i*size : (i+1)*size], place: index % t}
		}
	}
}

// release is Cache.Done of the layer.
func (w *selection) release() {
	for _, p := range w.pinned {
		p.pin.Unpin()
	}
	w.pinned, w.active = w.pinned[:0], false
}

// abandon waits for what is under way for a layer and forgets it.
func (w *selection) abandon() error {
	c := w.c
	var err error
	for _, r := range w.reads {
		if werr := c.blocks.Manager().Await(r.t, len(r.buffers)); errors.Is(werr, kvmanager.ErrStalled) {
			err = werr
			continue // the tier may still write there: the buffers are lost rather than reused
		}
		c.stage.free = append(c.stage.free, r.buffers...)
	}
	w.reads = w.reads[:0]
	if w.single.t != nil {
		if werr := w.single.end(c); errors.Is(werr, kvmanager.ErrStalled) {
			err = werr
		}
	}
	w.single.tokens, w.single.asked = w.single.tokens[:0], 0
	w.release()
	return err
}
