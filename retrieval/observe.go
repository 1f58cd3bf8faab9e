package retrieval

import (
	"slices"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/policy"
)

// Reading is how rows of a text are read, which decides what a policy sees and does.
type Reading uint8

const (
	Step      Reading = iota // a generated token; where no policy acts while decoding, guesses of those behind it too
	Chunk                    // rows of a prompt, more follow
	LastChunk                // the prompt's last rows
	Block                    // rows of a prompt that passes layer by layer, more follow
	LastBlock                // the last of them
	Again                    // rows of such a prompt whose keys are cached and whose attention the policy has seen
	Late                     // rows of a prompt that were pruned and are computed now, between others
)

// Prompt reports whether the rows are a prompt's.
func (r Reading) Prompt() bool { return r != Step }

// byLayer reports whether the caller ends each layer of the prompt itself (EndPrompt, Release).
func (r Reading) byLayer() bool { return r >= Block }

// observer keeps what the policy has asked to see of one text, layer by layer, and shows it to the policy.
type observer struct {
	t         *Sequence
	needs     policy.Needs
	layers    []observed
	view      policy.Layer // refilled for each question
	reader    rowReader
	pos       [][]int32
	each      []Observer        // of needs.Observations
	hidden    []HiddenObserver  // those of them that are
	shown     []policy.Observed // refilled for each decision
	prompt    int               // positions of the prompt
	scheduler policy.Scheduler  // of a dropping policy that acts at some steps only
}

// observed is what was seen of one layer.
type observed struct {
	sums    [][]float32 // [Heads][tokens] attention column sums over sumRows queries
	sumRows int
	rowsOf  [][]float32 // [Heads][sumRows, tokens], where the policy wants the rows
	sumsAt  int         // tokens at the decode step that was last added; 0 = none since the prompt or the last drop
	out     attention.ColumnSums
	queries []float32 // [rows, Heads·KeyDim] of the newest tokens, oldest first
	rows    int
}

func (o *observer) init(t *Sequence) {
	*o = observer{t: t, needs: t.set.Needs(), layers: make([]observed, len(t.f.o.Shape.Layers))}
	if t.set.Stepper != nil && !t.set.Follows() && t.set.Dropper == nil {
		o.needs.StepSums = 0
	}
	o.scheduler, _ = t.set.Dropper.(policy.Scheduler)
	o.beginObserving()
}

// window is a layer's, in tokens; 0 = global.
func (o *observer) window(layer int) int {
	return o.t.f.o.Shape.kv(layer).Window
}

// Acts reports whether policies act on a layer: those with a sliding window, that share the keys of another, or that keep none are left
// alone.
func (t *Sequence) Acts(layer int) bool { return t.f.o.Shape.Acts(layer) }

// ChunkRows is how many of the left rows of a prompt the next pass takes, size at most: the policy sees the last rows in one.
func (t *Sequence) ChunkRows(left, size int) int {
	last := max(1, t.obs.needs.PromptSums)
	if left <= max(last, size) {
		return left
	}
	return max(1, min(size, left-last))
}

// wantsSums reports whether attention column sums are needed of the pass that brings the text to n tokens. A policy that
// drops at some steps only is shown the last StepSums queries up to such a step, and costs nothing at the others.
func (o *observer) wantsSums(reading Reading, n int) bool {
	switch {
	case reading >= Again:
		return false
	case reading.Prompt():
		return o.needs.PromptSums == policy.AllRows || (reading == LastChunk || reading == LastBlock) && o.needs.PromptSums > 0
	case o.needs.StepSums == 0 || o.scheduler == nil:
		return o.needs.StepSums != 0
	}
	for ahead := range o.needs.StepSums {
		if o.scheduler.Due(n+ahead, o.prompt) {
			return true
		}
	}
	return false
}

// Observe keeps what the policy has asked for of a layer's queries q [rows, Heads·KeyDim] at positions pos.
func (t *Sequence) Observe(layer int, q []float32, pos []int32) {
	if t.Acts(layer) {
		t.obs.queries(layer, q, len(pos))
		for _, each := range t.obs.each {
			each.Rows(layer, q, pos)
		}
		t.obs.watch(t.set, layer, q, pos)
		t.show(layer, q, pos)
	}
}

// watch shows the rows to policies that add something up over all of them.
func (o *observer) watch(set *policy.Set, layer int, q []float32, pos []int32) {
	if set.Watcher != nil {
		l := o.t.Layer(layer, len(pos))
		l.Spread, l.Workers = o.t.pool().Run, o.t.pool().Threads()
		set.Watcher.WatchPrompt(l, int(pos[0]), q, len(pos))
	}
}

// queries keeps the newest rows.
func (o *observer) queries(layer int, q []float32, rows int) {
	want, width := o.needs.Queries, o.width(layer)
	if want == 0 {
		return
	}
	l := &o.layers[layer]
	l.queries = append(l.queries, q[:rows*width]...)
	l.rows += rows
	if want > 0 && l.rows > want {
		n := copy(l.queries, l.queries[(l.rows-want)*width:])
		l.queries, l.rows = l.queries[:n], want
	}
}

// width is the length of a row of a layer's queries.
func (o *observer) width(layer int) int { return o.t.f.o.Shape.queryWidth(layer) }

// KeepQueries replaces what is kept of a layer's queries by rows that the caller holds; nil = the newest that the policy has
// asked for, of those that it holds now.
func (t *Sequence) KeepQueries(layer int, q []float32, rows int) {
	l, width := &t.obs.layers[layer], t.obs.width(layer)
	if q != nil {
		l.queries, l.rows = q, rows
		return
	}
	if l.queries != nil {
		few := max(0, min(l.rows, t.obs.needs.Queries))
		l.queries, l.rows = slices.Clone(l.queries[(l.rows-few)*width:]), few
	}
}

// Sums is where attention adds up its column sums for a pass of rows of a layer; nil where the policy does not ask. n is the
// number of tokens that the pass brings the text to.
func (t *Sequence) Sums(layer, rows, n int, reading Reading) *attention.ColumnSums {
	o := &t.obs
	if !t.Acts(layer) || !o.wantsSums(reading, n) {
		return nil
	}
	l := &o.layers[layer]
	if l.sums == nil {
		l.sums = make([][]float32, t.f.o.Shape.Layers[layer].Heads)
	}
	fresh := reading == Step && (o.needs.StepSums == 1 || l.sumsAt != n-1)
	for h := range l.sums {
		tokens := t.seq.Tokens(layer, h/o.group(layer))
		if fresh {
			l.sums[h] = l.sums[h][:0]
		}
		had := len(l.sums[h])
		l.sums[h] = slices.Grow(l.sums[h], tokens-had)[:tokens]
		clear(l.sums[h][had:])
	}
	l.out = attention.ColumnSums{Sum: l.sums}
	switch {
	case fresh:
		l.sumRows, l.sumsAt = 1, n
	case reading == Step:
		l.sumRows, l.sumsAt = l.sumRows+1, n
	case o.needs.PromptSums == policy.AllRows:
		l.sumRows += rows
	default:
		l.out.FromRow = max(0, rows-o.needs.PromptSums)
		l.sumRows = min(rows, o.needs.PromptSums)
		l.out.Rows = l.rowWeights(o)
	}
	return &l.out
}

// rowWeights is room for the weights of each row that counts; nil where the policy does not want them.
func (l *observed) rowWeights(o *observer) [][]float32 {
	if !o.needs.PromptRows {
		return nil
	}
	l.rowsOf = make([][]float32, len(l.sums))
	for h := range l.rowsOf {
		l.rowsOf[h] = make([]float32, l.sumRows*len(l.sums[h]))
	}
	return l.rowsOf
}

// group is the number of query heads that share a KV head.
func (o *observer) group(layer int) int { return o.t.f.o.Shape.Layers.Group(layer) }

// forget frees what only the end of the prompt needed.
func (o *observer) forget(layer int) {
	l, set := &o.layers[layer], o.t.set
	l.rowsOf = nil
	if set.Dropper == nil {
		for _, each := range o.each {
			each.Forget(layer)
		}
	}
	if o.needs.StepSums == 0 {
		l.sums = nil
	}
	for h := range l.sums {
		l.sums[h] = l.sums[h][:0]
	}
	if set.Dropper == nil && set.Swapper == nil {
		l.queries, l.rows = nil, 0
	}
}

// Layer shows the policy a layer of the text to which a pass of rows adds; it holds until the next call.
func (t *Sequence) Layer(layer, rows int) *policy.Layer {
	o, shape, l := &t.obs, &t.f.o.Shape, &t.obs.layers[layer]
	kv, score := shape.kv(layer), shape.Scores[layer]
	o.pos = o.pos[:0]
	for g := range kv.Heads {
		o.pos = append(o.pos, t.seq.PositionList(layer, g))
	}
	o.reader.views, o.reader.shape = t.seq.Views(layer), shape
	o.view = policy.Layer{Index: layer, Layers: len(shape.Layers), Heads: shape.Layers[layer].Heads, KVHeads: kv.Heads, KeyDim: kv.KeyDim, ValueDim: kv.ValueDim,
		Scale: score.Scale, Sinks: score.Sinks, Window: o.window(layer), N: int(t.read) + rows, Prompt: o.prompt, KVBytes: t.f.kvBytesPerToken(),
		Pos: o.pos, KV: &o.reader, Rope: t.f.rope(layer, t.long), Queries: l.queries, Rows: l.rows, ColumnSums: l.sums, SumRows: l.sumRows, PromptRows: l.rowsOf}
	return &o.view
}

// Keys are those of a layer's tokens, all KV heads of a token side by side [tokens, KVHeads·KeyDim], where the layer is in host memory:
// as many tokens as all heads have.
func (t *Sequence) Keys(layer int) []float32 {
	l := t.Layer(layer, 0)
	n := l.Tokens(0)
	for g := range l.KVHeads {
		n = min(n, l.Tokens(g))
	}
	head, out := make([]float32, n*l.KeyDim), make([]float32, n*l.KVHeads*l.KeyDim)
	for g := range l.KVHeads {
		l.KV.Keys(g, 0, n, head)
		for i := range n {
			copy(out[(i*l.KVHeads+g)*l.KeyDim:], head[i*l.KeyDim:(i+1)*l.KeyDim])
		}
	}
	return out
}

// SetPrompt says how long the prompt is that is about to be read layer by layer.
func (t *Sequence) SetPrompt(tokens int) { t.obs.prompt = tokens }

// rowReader gives policies float32 rows of cached keys and values.
type rowReader struct {
	views []attention.View
	bulk  attention.Reader
	shape *Shape
}

// Keys implements policy.KV.
func (k *rowReader) Keys(kvHead, from, to int, dst []float32) {
	k.bulk.Keys(&k.views[kvHead], from, to, dst)
}

// Values implements policy.KV.
func (k *rowReader) Values(kvHead, from, to int, dst []float32) {
	v := &k.views[kvHead]
	k.bulk.Values(v, from, to, dst)
	if k.shape.Turned {
		kernels.Rotate(dst[:(to-from)*v.Layout.ValueDim], kernels.RotateBlock(v.Layout.ValueDim))
	}
}

// sized returns buf with length n, its memory reused where it is large enough; the content is arbitrary.
func sized(buf []float32, n int) []float32 {
	if cap(buf) < n {
		buf = make([]float32, n+n/4)
	}
	return buf[:n]
}
