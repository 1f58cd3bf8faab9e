package attend

import (
	"terrace/attention"
	"terrace/csdshim"
	"terrace/csdshim/flash"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Engine computes attention over what a drive reads. It implements csdshim.Attention.
type Engine struct {
	pool  *kernels.Pool
	pos   []int32 // 0, 1, 2, …
	score scorer
	sparF policy.SparF // what pick selects by
	pick  policy.Selector
	picks policy.Selection
	layer policy.Layer
	data  []byte // keys and values of the tokens attended to, as one page
	view  [1]attention.View
	page  [1]attention.Page
	norm  attention.Norm
}

// New is an engine on one core.
func New() *Engine {
	return &Engine{pool: kernels.NewPool(1)}
}

// Attend implements csdshim.Attention.
func (e *Engine) Attend(shape *csdshim.AttendShape, m *csdshim.AttendQuery, n int, sums []float32, r *csdshim.HeadReader, out *csdshim.Attended) error {
	for len(e.pos) < n {
		e.pos = append(e.pos, int32(len(e.pos)))
	}
	group := len(m.Q) / shape.KeyDim / shape.Heads
	for h := range shape.Heads {
		o := csdshim.Attended{Out: out.Out[h*group*shape.ValueDim : (h+1)*group*shape.ValueDim], Max: out.Max[h*group : (h+1)*group], LogSum: out.LogSum[h*group : (h+1)*group]}
		task := headTask{e: e, shape: shape, m: m, r: r, head: h, n: n, q: m.Q[h*group*shape.KeyDim : (h+1)*group*shape.KeyDim], out: &o}
		if err := task.run(sums[h*shape.ValueDim : (h+1)*shape.ValueDim]); err != nil {
			return err
		}
	}
	return nil
}

// headTask is the attention of one KV head's group of query heads.
type headTask struct {
	e     *Engine
	shape *csdshim.AttendShape
	m     *csdshim.AttendQuery
	r     *csdshim.HeadReader
	head  int
	n     int       // tokens of the layer
	q     []float32 // [group, KeyDim]
	out   *csdshim.Attended
}

func (t *headTask) run(sum []float32) error {
	e := t.e
	e.picks.Reset(1)
	e.picks.All = true
	e.score.reset()
	if t.m.Dims > 0 && t.m.Window == 0 {
		if err := t.choose(); err != nil {
			return err
		}
	}
	tokens := e.picks.Heads[0]
	if e.picks.All {
		first := 0
		if w := t.m.Window; w > 0 && w < t.n {
			first = (t.n - w) / kvpage.Tile * kvpage.Tile // whole tiles, as a view has them
		}
		tokens = e.pos[first:t.n]
	}
	if err := t.load(tokens); err != nil {
		return err
	}
	t.attend(tokens)
	for i, share := range e.picks.Share {
		attention.MixMean(t.out.Out[i*len(sum):(i+1)*len(sum)], share, sum, t.n)
	}
	return nil
}

// choose lets SparF select: steps 1 to 7 of the algorithm.
func (t *headTask) choose() error {
	e := t.e
	e.score.task = t
	e.layer = policy.Layer{Layers: 1, Heads: len(t.q) / t.shape.KeyDim, KVHeads: 1, KeyDim: t.shape.KeyDim, ValueDim: t.shape.ValueDim, Scale: t.m.Scale,
		N: t.n, Pos: [][]int32{e.pos[:t.n]}, Queries: t.q, Rows: 1, Scores: &e.score}
	if f := (policy.SparF{Dims: t.m.Dims, Tokens: t.m.Best, Local: t.m.Local}); e.pick == nil || f != e.sparF {
		e.sparF, e.pick = f, f.Selector()
	}
	e.pick.Select(&e.layer, &e.picks)
	e.score.task = nil
	return e.score.err
}

// load reads the keys and values of tokens into one page, keys token by token; keys that were read to be scored are at hand.
func (t *headTask) load(tokens []int32) error {
	e, shape := t.e, t.shape
	l := kvpage.Layout{K: shape.Elem, V: shape.Elem, KeyDim: shape.KeyDim, ValueDim: shape.ValueDim, Tokens: (len(tokens) + kvpage.Tile - 1) / kvpage.Tile * kvpage.Tile, TokenMajor: true}
	if need := l.PageBytes(); cap(e.data) < need {
		e.data = make([]byte, need+need/4)
	}
	e.data = e.data[:l.PageBytes()]
	row := shape.KeyRowBytes()
	from := len(tokens) // the first whose key is at hand
	if e.score.has {
		for from > 0 && int(tokens[from-1]) >= e.score.embedded {
			from--
		}
		for i, token := range tokens[from:] {
			copy(e.data[(from+i)*row:][:row], e.score.keys[(int(token)-e.score.embedded)*row:])
		}
		t.r.Want(flash.KVKeys, tokens[from:])
	}
	if err := t.read(tokens, from, e.data[:from*row], e.data[l.KBytes():][:len(tokens)*shape.ValueRowBytes()]); err != nil {
		return err
	}
	e.page[0] = attention.Page{Data: e.data, Pos: tokens, N: len(tokens)}
	e.view[0] = attention.View{Layout: l, Pages: e.page[:]}
	return nil
}

// read reads the keys of the first tokens, up to from, and the values of all; those of the others came with their keys where they share
// pages.
func (t *headTask) read(tokens []int32, from int, keys, values []byte) error {
	if !t.shape.Paired {
		if err := t.r.Read(csdshim.ReadToAttend, t.head, flash.KVKeys, tokens[:from], keys, true); err != nil {
			return err
		}
		return t.r.Read(csdshim.ReadToAttend, t.head, flash.KVValues, tokens, values, true)
	}
	row, s := t.shape.ValueRowBytes(), &t.e.score
	for i, token := range tokens[from:] {
		copy(values[(from+i)*row:][:row], s.values[(int(token)-s.embedded)*row:])
	}
	return t.r.ReadPairs(csdshim.ReadToAttend, t.head, tokens[:from], keys, values[:from*row], true)
}

// attend is steps 10 and 11 without the mean, over what was loaded.
func (t *headTask) attend(tokens []int32) {
	e, shape := t.e, t.shape
	heads := len(t.q) / shape.KeyDim
	p := attention.Params{Heads: heads, KVHeads: 1, KeyDim: shape.KeyDim, ValueDim: shape.ValueDim, Scale: t.m.Scale, Softcap: t.m.Softcap, Window: t.m.Window}
	phase := kernels.Decode
	if t.m.Exact {
		phase = kernels.Exact
	}
	e.norm = attention.Norm{Max: t.out.Max, LogSum: t.out.LogSum}
	attention.Attend(e.pool, phase, p, []attention.Seq{{Q: t.q, Pos: []int32{int32(t.n - 1)}, Views: e.view[:], Out: t.out.Out, Norm: &e.norm}})
	attended := len(tokens)
	if w := t.m.Window; w > 0 {
		attended = min(attended, w)
	}
	t.r.Attended(t.head, attended, attended*(shape.KeyDim+shape.ValueDim))
}
