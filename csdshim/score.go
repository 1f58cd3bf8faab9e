package csdshim

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"terrace/csdshim/hardware"
	"terrace/csdshim/wire"
	"terrace/internal/kernels"
)

// scoring is the engine's scratch; one core scores, so there is one.
type scoring struct {
	tiles     []tile
	keys      [][]byte
	masks     []uint16
	query     []float32
	codes     []int8 // the integer query, each KV head's part padded to whole groups of a code tile
	part      []float32
	sums      []int32
	floats    []float32
	tables    []float32 // of product codes
	positions []int32
	scores    []float32
}

// Score scores the cold tokens of a layer that are stored, and hands out blocks of at most query.Block tokens, positions
// rising, each with the modelled time at which the host has it. emit must not wait: the engine serves nobody else
// meanwhile. The block's slices are the drive's again when it returns. Score itself returns when all of it has arrived.
func (s *Session) Score(ctx context.Context, number uint64, layer int, query *Query, emit func(b *Block, at time.Duration) error) (Timing, error) {
	q, err := s.find(number)
	if err != nil {
		return Timing{}, err
	}
	if err := s.checkQuery(q, layer, query); err != nil {
		return Timing{}, err
	}
	d := s.d
	t := d.begin(32 + len(query.Int8) + 2*len(query.Float))
	done, err := d.scoreAlone(ctx, t, q, layer, query, emit)
	if err != nil {
		return Timing{}, err
	}
	if err := t.until(ctx, done); err != nil {
		return Timing{}, err
	}
	return t.end(done), nil
}

// answers takes what several questions are answered with, in their order, each with the modelled time at which the host has it. A
// block's slices are the drive's again when add returns.
type answers interface {
	add(question int, b *Block, at time.Duration)
	answer(question int, at time.Duration, outcome func() wire.Answered)
}

// scoreMany answers questions in their order and waits until the host has all of it. The timing is that of the last.
func (s *Session) scoreMany(ctx context.Context, questions []wire.Score, out answers) (last Timing, err error) {
	t, end, err := s.answerMany(ctx, questions, out)
	if err == nil {
		err = t.until(ctx, end)
	}
	if err != nil {
		return Timing{}, err
	}
	return Timing{TotalNs: uint64(max(end-t.arrived, 0)), MeasuredNs: uint64(time.Since(t.began))}, nil
}

// answerMany answers questions in their order. All have come with one message, so that their modelled times are those of
// questions asked one right behind the other; one that fails is answered by why. It returns the last one's account, and when the host has
// the last answer. The error is that of ctx.
func (s *Session) answerMany(ctx context.Context, questions []wire.Score, out answers) (last *task, end time.Duration, err error) {
	tasks := make([]*task, len(questions))
	for i := range questions {
		q := &questions[i].Query
		tasks[i] = s.d.begin(32 + len(q.Int8) + 2*len(q.Float))
	}
	for i := range questions {
		m, t := &questions[i], tasks[i]
		done, err := s.scoreOne(ctx, t, m, func(b *Block, at time.Duration) error {
			out.add(i, b, at)
			return nil
		})
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		if err != nil {
			out.answer(i, t.ready, func() wire.Answered { return wire.Answered{Failed: true, Failure: failure(err)} })
			continue
		}
		end = max(end, done)
		out.answer(i, done, func() wire.Answered { return wire.Answered{Timing: t.end(done)} })
	}
	return tasks[len(tasks)-1], end, nil
}

// told are the answers to questions that were asked in this process.
type told []toldAnswer

// toldAnswer is a block, or the question's outcome.
type toldAnswer struct {
	question int
	at       time.Duration
	block    Block
	outcome  func() wire.Answered
}

func (l *told) add(question int, b *Block, at time.Duration) {
	*l = append(*l, toldAnswer{question: question, at: at, block: Block{Positions: slices.Clone(b.Positions), Scores: slices.Clone(b.Scores)}})
}

func (l *told) answer(question int, at time.Duration, outcome func() wire.Answered) {
	*l = append(*l, toldAnswer{question: question, at: at, outcome: outcome})
}

// ScoreMany answers several questions that have come in one message, as Client.ScoreMany asks them: each hears of its blocks and of its
// outcome in the caller's goroutine, when the drive's clock has come to their modelled times.
func (s *Session) ScoreMany(ctx context.Context, questions []Question) {
	list, asks, heard := make([]wire.Score, len(questions)), make([]asked, len(questions)), told{}
	for i, q := range questions {
		list[i], asks[i] = wire.Score{Seq: q.Seq, Layer: q.Layer, Query: *q.Query}, asked{Question: q}
	}
	if len(list) == 0 {
		return
	}
	last, _, err := s.answerMany(ctx, list, &heard)
	for i := 0; err == nil && i < len(heard); i++ {
		if err = last.until(ctx, heard[i].at); err == nil {
			asks[heard[i].question].hear(&heard[i])
		}
	}
	for i := range asks {
		asks[i].end(Timing{}, err)
	}
}

// hear hands a question what it is answered.
func (a *asked) hear(x *toldAnswer) {
	switch {
	case x.outcome == nil:
		if a.err == nil {
			a.err = a.Each(&x.block)
		}
		return
	case a.err != nil:
		a.end(Timing{}, fmt.Errorf("csdshim: score: %w", a.err))
		return
	}
	if m := x.outcome(); m.Failed {
		a.end(Timing{}, fmt.Errorf("csdshim: score: %w", remote(m.Failure)))
	} else {
		a.end(m.Timing, nil)
	}
}

// scoreOne is a question of several.
func (s *Session) scoreOne(ctx context.Context, t *task, m *wire.Score, emit func(*Block, time.Duration) error) (time.Duration, error) {
	q, err := s.find(m.Seq)
	if err == nil {
		err = s.checkQuery(q, m.Layer, &m.Query)
	}
	if err != nil {
		return 0, err
	}
	return s.d.scoreAlone(ctx, t, q, m.Layer, &m.Query, emit)
}

// scoreAlone waits for the engine and scores.
func (d *Drive) scoreAlone(ctx context.Context, t *task, q *sequence, layer int, query *Query, emit func(*Block, time.Duration) error) (time.Duration, error) {
	d.engine.Lock()
	defer d.engine.Unlock()
	began := time.Now()
	defer func() { d.counts.engineNs.Add(uint64(time.Since(began))) }()
	return d.scoreLayer(ctx, t, q, layer, query, emit)
}

func (s *Session) checkQuery(q *sequence, layer int, query *Query) error {
	shape := q.layout.shape
	if s.d.opts.Profile.Engine.None || !q.layout.canEncode() {
		return fmt.Errorf("csdshim: drive %q, sequence of %v keys with %v codes: nothing can be scored: %w", s.d.opts.Profile.Name, shape.Page.K, shape.Codes, ErrUnsupported)
	}
	if _, err := q.key(layer, 0); err != nil {
		return err
	}
	n := len(query.Int8)
	if shape.Codes.Floats() {
		n = len(query.Float)
	}
	if query.Codes != shape.Codes || n != shape.Width() || query.Shift < 0 || query.Shift > 31 || query.Block < 1 || query.Block > wire.MaxBlockTokens || query.Limit < 0 {
		return fmt.Errorf("csdshim: query of %d numbers for %v, shift %d, blocks of %d, limit %d: want %d for %v: %w", n, query.Codes, query.Shift, query.Block, query.Limit, shape.Width(), shape.Codes, ErrRequest)
	}
	return nil
}

// scoreLayer scores block after block and reserves, for each, flash or DRAM, engine and link. It returns the modelled time
// of the last byte. The engine is held.
func (d *Drive) scoreLayer(ctx context.Context, t *task, q *sequence, layer int, query *Query, emit func(*Block, time.Duration) error) (time.Duration, error) {
	e, shape := &d.score, q.layout.shape
	tiles, err := d.codes.tiles(q, layer, query.Limit, e.tiles[:0])
	if err != nil {
		return 0, err
	}
	tiles, pages, err := d.codes.loadCodes(q, layer, tiles)
	if err != nil {
		return 0, err
	}
	e.tiles = tiles
	e.prepare(shape, query)
	if shape.Codes == CodesProduct {
		centroids, err := d.codes.scales(q, layer)
		if err != nil {
			return 0, err
		}
		e.pairTables(shape, centroids)
	}
	ready := d.flashReady(t, pages)
	bytesEach := shape.ScanBytes()
	perBlock := (query.Block + wire.GroupTokens - 1) / wire.GroupTokens
	done := ready
	e.positions, e.scores = e.positions[:0], e.scores[:0]
	for from := 0; from < len(tiles); from += perBlock {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		part := tiles[from:min(from+perBlock, len(tiles))]
		e.block(shape, query, part)
		start := t.ready
		if len(pages) > 0 {
			start = ready
		}
		scored := d.model.scan(start, len(part)*bytesEach, len(pages) == 0)
		t.ScanBytes += uint64(len(part) * bytesEach)
		t.EngineNs += uint64(hardware.Crossing(len(part)*bytesEach, d.opts.Profile.ScanBytesPerS()))
		if done, err = e.emit(d, t, query, scored, from+perBlock >= len(tiles), emit); err != nil {
			return 0, err
		}
	}
	return max(done, ready), nil
}

// flashReady charges the flash for the keys that are scored from it and returns when they are there.
func (d *Drive) flashReady(t *task, pages []uint32) time.Duration {
	if len(pages) == 0 {
		return t.ready
	}
	ready := d.model.read(t.ready, pages)
	t.NANDNs, t.NANDBytes = uint64(ready-t.ready), t.NANDBytes+uint64(len(pages)*d.opts.Profile.NAND.PageBytes)
	return ready
}

// emit hands out the scores at hand in blocks of query.Block; all of them at the end.
func (e *scoring) emit(d *Drive, t *task, query *Query, scored time.Duration, last bool, emit func(*Block, time.Duration) error) (done time.Duration, err error) {
	done = scored
	at := 0
	for len(e.positions)-at >= query.Block || last && at < len(e.positions) {
		n := min(query.Block, len(e.positions)-at)
		for int(e.positions[at+n-1])-int(e.positions[at]) > 0xffff {
			n-- // positions of a block are 16 bits above its first
		}
		b := Block{Positions: e.positions[at : at+n], Scores: e.scores[at : at+n]}
		bytes := wire.BlockBytes(n)
		done = d.model.send(scored, bytes) + hardware.Micros(d.opts.Profile.Link.LatencyUs)
		t.LinkNs += uint64(hardware.Crossing(bytes, d.opts.Profile.Link.ToHostBytesPerS))
		t.LinkBytes += uint64(bytes)
		d.counts.linkOut.Add(uint64(bytes))
		d.counts.scoreBlocks.Add(1)
		d.counts.tokensScored.Add(uint64(n))
		if err := emit(&b, done); err != nil {
			return 0, err
		}
		at += n
	}
	e.positions = e.positions[:copy(e.positions, e.positions[at:])]
	e.scores = e.scores[:copy(e.scores, e.scores[at:])]
	return done, nil
}

// codeElem is the kernels' name of integer codes.
func codeElem(c Codes) kernels.CodeElem {
	if c == CodesInt4 {
		return kernels.Codes4
	}
	return kernels.Codes8
}

// prepare lays the query out as the codes lie: the code tiles of a token's KV heads, one after another, are the code tile
// of all of them as one long vector.
func (e *scoring) prepare(shape Shape, query *Query) {
	e.query, e.codes = append(e.query[:0], query.Float...), e.codes[:0]
	if shape.Codes.Floats() {
		return
	}
	dim := shape.Page.KeyDim
	padding := codeElem(shape.Codes).CodeDim(dim) - dim
	for g := range shape.KVHeads {
		e.codes = append(e.codes, query.Int8[g*dim:(g+1)*dim]...)
		for range padding {
			e.codes = append(e.codes, 0)
		}
	}
}

// block adds the scores of some tiles to those at hand.
func (e *scoring) block(shape Shape, query *Query, tiles []tile) {
	n := len(tiles) * wire.GroupTokens
	if cap(e.part) < n {
		e.part, e.sums, e.floats = make([]float32, n), make([]int32, n), make([]float32, n)
		e.keys, e.masks = make([][]byte, len(tiles)), make([]uint16, len(tiles))
	}
	sums, floats := e.sums[:n], e.floats[:n]
	switch shape.Codes {
	case CodesHalf:
		e.halves(shape, tiles, floats)
	case CodesProduct:
		e.pairs(shape, tiles, floats)
	default:
		for from := 0; from < len(tiles); {
			codes, to := adjacent(tiles[from:])
			to += from
			part := sums[from*wire.GroupTokens : to*wire.GroupTokens]
			kernels.DotCodes(codeElem(shape.Codes), part, len(part), e.codes, codes, 1, len(e.codes))
			from = to
		}
		for i, s := range sums {
			floats[i] = float32(s)
		}
	}
	scale := float32(math.Ldexp(1, -query.Shift))
	e.positions, e.scores = slices.Grow(e.positions, n), slices.Grow(e.scores, n)
	for i, t := range tiles {
		part, first := floats[i*wire.GroupTokens:(i+1)*wire.GroupTokens], int32(t.group*wire.GroupTokens)
		for j, s := range part {
			if t.mask>>j&1 != 0 {
				e.positions, e.scores = append(e.positions, first+int32(j)), append(e.scores, kernels.RoundHalf(s*scale))
			}
		}
	}
}

// adjacent is the codes of the first tiles that lie one after another in memory, and how many these are: at least one.
func adjacent(tiles []tile) (codes []byte, n int) {
	codes, size := tiles[0].codes, len(tiles[0].codes)
	for n = 1; n < len(tiles); n++ {
		next := tiles[n].codes
		if cap(codes) < len(codes)+size || len(next) != size || &codes[:len(codes)+1][len(codes)] != &next[0] {
			break
		}
		codes = codes[:len(codes)+size]
	}
	return codes, n
}

// halves scores keys in half precision: float32 sums of each KV head, added in their order.
func (e *scoring) halves(shape Shape, tiles []tile, floats []float32) {
	dim, size := shape.Page.KeyDim, shape.CodeTileBytes()
	part, keys, masks := e.part[:len(floats)], e.keys[:len(tiles)], e.masks[:len(tiles)]
	clear(floats)
	for i := range tiles {
		masks[i] = 0xffff
	}
	for g := range shape.KVHeads {
		for i, t := range tiles {
			keys[i] = t.codes[g*size : (g+1)*size]
		}
		kernels.ScoreTiles(kernels.KVF16, part, e.query[g*dim:(g+1)*dim], keys, masks, 1, dim)
		for i, v := range part {
			floats[i] += v
		}
	}
}
