package retrieval

import (
	"slices"

	"terrace/internal/kernels"
	"terrace/policy"
)

func init() {
	policyChunks := policy.ChunkAttention{}
	RegisterObserver(policyChunks.Key(), func(t *Sequence, o policy.Observation) Observer {
		return &chunkAttention{t: t, ask: o.(policy.ChunkAttention), layers: make([]chunkLayer, len(t.f.o.Shape.Layers))}
	})
}

// chunkAttention adds up what tokens get from the queries of their own chunk (policy.ChunkAttention). The rows of the chunk in progress,
// and of the Last behind it, wait with their queries and keys: 4·(Chunk+Last)·(Heads+KVHeads)·KeyDim bytes a layer, and of a pass.
type chunkAttention struct {
	t      *Sequence
	ask    policy.ChunkAttention
	layers []chunkLayer
	heads  [][]float32 // [Heads][Chunk] of the chunk that is computed
	scores [][]float32 // [threads][Chunk]
	shown  [][]float32
}

// chunkLayer is what was seen of a layer.
type chunkLayer struct {
	pos  []int32     // of the rows that were added up, and of those that wait
	sums [][]float32 // [KVHeads][rows that were added up]
	q, k []float32   // of the rows that wait: [rows, Heads·KeyDim], [rows, KVHeads·KeyDim]
}

// Rows implements Observer.
func (c *chunkAttention) Rows(layer int, q []float32, pos []int32) {
	shape, l := &c.t.f.o.Shape, &c.layers[layer]
	kv, width := shape.kv(layer), shape.queryWidth(layer)
	if l.sums == nil {
		l.sums = make([][]float32, kv.Heads)
	}
	skip, _ := slices.BinarySearch(pos, int32(c.ask.First))
	q, pos = q[skip*width:], pos[skip:]
	if len(pos) == 0 {
		return
	}
	at, row := len(l.k), kv.Heads*kv.KeyDim
	l.pos, l.q = append(l.pos, pos...), append(l.q, q[:len(pos)*width]...)
	l.k = slices.Grow(l.k, len(pos)*row)[:at+len(pos)*row]
	shown, keys := c.t.Layer(layer, len(pos)), make([]float32, len(pos)*kv.KeyDim)
	for g := range kv.Heads {
		n := shown.Tokens(g)
		shown.KV.Keys(g, n-len(pos), n, keys)
		for i := range pos {
			copy(l.k[at+i*row+g*kv.KeyDim:], keys[i*kv.KeyDim:(i+1)*kv.KeyDim])
		}
	}
	done := 0
	for waiting := len(l.k) / row; waiting-done >= c.ask.Chunk+c.ask.Last; done += c.ask.Chunk {
		c.add(layer, done, c.ask.Chunk, l.sums)
	}
	l.q, l.k = slices.Delete(l.q, 0, done*width), slices.Delete(l.k, 0, done*row)
}

// add appends to sums [KVHeads] those of one chunk: rows of those that wait, from the first on.
func (c *chunkAttention) add(layer, first, rows int, sums [][]float32) {
	shape, l, pool := &c.t.f.o.Shape, &c.layers[layer], c.t.pool()
	kv, heads := shape.kv(layer), shape.Layers[layer].Heads
	group, d := heads/kv.Heads, kv.KeyDim
	c.heads, c.scores = room(c.heads, heads, rows), room(c.scores, pool.Threads(), c.ask.Chunk)
	pool.Run(heads, func(worker, h int) {
		sum, score := c.heads[h][:rows], c.scores[worker][:c.ask.Chunk]
		for i := range sum {
			sum[i] = float32(c.ask.Chunk-rows) / float32(c.ask.Chunk) // of the queries that fill the chunk up
		}
		for i := range rows {
			q := l.q[((first+i)*heads+h)*d:][:d]
			for j := range rows {
				score[j] = kernels.Dot(q, l.k[((first+j)*kv.Heads+h/group)*d:][:d])
			}
			clear(score[rows:])
			kernels.Softmax(score)
			kernels.Add(sum, score[:rows])
		}
	})
	for g := range sums {
		at := len(sums[g])
		sums[g] = append(sums[g], make([]float32, rows)...)
		for h := g * group; h < (g+1)*group; h++ {
			kernels.Axpy(sums[g][at:], 1/float32(group), c.heads[h][:rows])
		}
	}
}

// room is rows of width numbers each, their memory reused.
func room(rows [][]float32, n, width int) [][]float32 {
	for len(rows) < n {
		rows = append(rows, nil)
	}
	for i := range rows {
		rows[i] = sized(rows[i], width)
	}
	return rows
}

// Value implements Observer.
func (c *chunkAttention) Value(layer int) (any, error) {
	l, kv := &c.layers[layer], c.t.f.o.Shape.kv(layer)
	sums, pos := make([][]float32, kv.Heads), l.pos
	copy(sums, l.sums) // what is appended here is overwritten by the chunk once it is whole
	if rows := len(l.k)/(kv.Heads*kv.KeyDim) - c.ask.Last; rows > 0 {
		c.add(layer, 0, rows, sums)
	}
	c.shown = c.shown[:0]
	for g := range sums {
		cached := c.t.seq.PositionList(layer, g)
		row, at, first := make([]float32, len(cached)), 0, int32(0)
		if len(pos) > 0 {
			first = pos[0]
		}
		for i, p := range cached {
			for at < len(pos) && pos[at] < p {
				at++
			}
			switch {
			case at < len(sums[g]) && pos[at] == p:
				row[i] = sums[g][at]
			case p < first && int(p) >= c.ask.First:
				row[i] = 1 // read before the prompt
			}
		}
		c.shown = append(c.shown, row)
	}
	return c.shown, nil
}

// Forget implements Observer.
func (c *chunkAttention) Forget(layer int) { c.layers[layer] = chunkLayer{} }
