package engine

import (
	"context"
	"fmt"
	"math"

	"slices"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/model"
	"terrace/policy"
	"terrace/retrieval"
)

// RepeatText is how a model is asked to say its context again (KVzip), as ids without special tokens of their own.
type RepeatText struct {
	Prefix []int // what the chat template puts before the user's words: no part of the context where a prompt begins with it
	First  []int // asks for the first chunk
	Next   []int // asks for a later one; the last tokens of the chunk before follow it
	Suffix []int // what the template puts between the user's words and the answer
}

// RepeatUse is what second passes over prompts cost.
type RepeatUse struct {
	Tokens int // read in them
	Time   time.Duration
	FLOPs  int64
}

// reread is a second pass in progress: the text forked under full attention, so that nothing of it stays.
type reread struct {
	s       *Session
	fork    *Session
	ask     policy.Repeats
	from    int32 // the chunk's positions
	to      int32
	begins  int32       // first position of the repetition
	layers  []repeatSum // by layer, of this chunk
	norms   []float32   // of the rows of a pass
	outputs map[int][]float32
}

// repeatSum is a layer's part of a chunk: nil where the policy does not act on it.
type repeatSum struct{ r *policy.Repeat }

// rereads reports whether a prompt is read a second time before its policy decides.
func (s *Session) rereads() bool { return s.text.Policy().Rereader != nil }

// reconstruct has the policy look at the prompt a second time, and decide. Until dropping is set nothing has changed.
func (s *Session) reconstruct(ctx context.Context, dropping *bool) error {
	begun, rereader, n := time.Now(), s.text.Policy().Rereader, len(s.tokens)
	rereader.BeginRepeats()
	if ask := rereader.Repeats(n, s.e.ActingBytesPerToken()); !ask.None {
		if err := s.repeatAll(ctx, ask); err != nil {
			return err
		}
	}
	s.repeats.Time += time.Since(begun)
	return s.endReread(dropping)
}

// repetition is a part of a prompt that is read again behind it: the tokens at positions from to to-1, in so many rows.
type repetition struct{ from, to, rows int }

// repetitions are those of a prompt of n tokens whose first prefix are no part of the context; none where nothing would be dropped.
func (s *Session) repetitions(n, prefix int) (list []repetition) {
	ask, text := s.asks(n)
	if ask.None {
		return nil
	}
	for a := prefix; a < n; a += ask.ChunkTokens {
		b := min(a+ask.ChunkTokens, n)
		rows := len(text.First)
		if a > prefix {
			rows = len(text.Next) + a - max(a-ask.Postfix, prefix)
		}
		list = append(list, repetition{a, b, rows + len(text.Suffix) + b - a})
	}
	return list
}

// asks is what the policy wants of a second pass over n tokens, and the words that ask the model for it.
func (s *Session) asks(n int) (policy.Repeats, RepeatText) {
	ask := s.text.Policy().Rereader.Repeats(n, s.e.ActingBytesPerToken())
	if ask.Plain || s.e.o.Repeat == nil {
		return ask, RepeatText{}
	}
	return ask, *s.e.o.Repeat
}

// before is how many of a prompt's first tokens the template puts there.
func (t *RepeatText) before(ids []int) int {
	if n := len(t.Prefix); n < len(ids) && slices.Equal(ids[:n], t.Prefix) {
		return n
	}
	return 0
}

// fitsAgain refuses a prompt whose second pass does not fit the context, before it is read once.
func (s *Session) fitsAgain(more []int) error {
	if !s.rereads() {
		return nil
	}
	ids := slices.Concat(s.tokens, more)
	ask, text := s.asks(len(ids))
	for _, r := range s.repetitions(len(ids), text.before(ids)) {
		if len(ids)+r.rows > s.e.o.Context {
			less := "a smaller chunk_size takes less"
			if ask.Plain {
				less = "want room for the prompt twice"
			}
			return fmt.Errorf("engine: policy %s repeats %d tokens behind the prompt's %d, which do not fit the context of %d; %s: %w",
				s.policy, r.rows, len(ids), s.e.o.Context, less, ErrContext)
		}
	}
	return nil
}

// repeatAll reads chunk after chunk again.
func (s *Session) repeatAll(ctx context.Context, ask policy.Repeats) error {
	_, text := s.asks(len(s.tokens))
	if !ask.Plain && s.e.o.Repeat == nil {
		return fmt.Errorf("engine: policy %s reads the prompt again and there are no words to ask for that: %w", s.policy, ErrOption)
	}
	prefix := text.before(s.tokens)
	for _, r := range s.repetitions(len(s.tokens), prefix) {
		ids := slices.Clone(text.First)
		if r.from > prefix {
			ids = append(slices.Clone(text.Next), s.tokens[max(r.from-ask.Postfix, prefix):r.from]...)
		}
		ids = append(append(ids, text.Suffix...), s.tokens[r.from:r.to]...)
		if err := s.repeatChunk(ctx, ids, ask, int32(r.from), int32(r.to)); err != nil {
			return err
		}
	}
	return nil
}

// repeatChunk reads one repetition behind the cache and shows the policy what it attended to.
func (s *Session) repeatChunk(ctx context.Context, ids []int, ask policy.Repeats, a, b int32) error {
	text, err := s.text.Fork(retrieval.SequenceOptions{Policy: s.e.full})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	fork, err := s.e.session(text, s.e.full)
	if err != nil {
		return err
	}
	defer fork.Close()
	fork.setLong(s.long)
	fork.tokens = slices.Clone(s.tokens)
	w := &reread{s: s, fork: fork, ask: ask, from: a, to: b, begins: int32(len(s.tokens)), layers: make([]repeatSum, s.e.m.Layers), outputs: map[int][]float32{}}
	for first := 0; first < len(ids); first += s.e.o.ChunkTokens {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := ids[first:min(first+s.e.o.ChunkTokens, len(ids))]
		p := &s.e.pass
		p.open(s.e, s.e.phase(true))
		p.watch = w.watch
		p.add(fork, retrieval.Chunk, part, len(s.tokens)+len(ids))
		_, err := s.e.run(p)
		p.watch = nil
		if err != nil {
			return err
		}
		fork.tokens = append(fork.tokens, part...)
	}
	s.repeats.Tokens += len(ids)
	s.repeats.FLOPs += fork.flops.Total()
	for layer := range w.layers {
		if r := w.layers[layer].r; r != nil {
			s.text.Policy().Rereader.ObserveRepeat(s.text.Layer(layer, 0), r)
		}
	}
	return nil
}

// watch looks at what the rows of a pass ask of a layer, whose pages are in host memory.
func (w *reread) watch(layer int, p *pass, q *tensor.Dense, views []attention.View) error {
	e := w.s.e
	if !w.s.text.Acts(layer) {
		return nil
	}
	if err := e.device.landed(); err != nil {
		return err
	}
	if w.layers[layer].r == nil {
		w.layers[layer].r = w.begin(layer)
	}
	r, seq, queries := w.layers[layer].r, w.fork.text.Seq(), floats(q)
	switch {
	case w.ask.Weighed:
		if err := w.weigh(layer, p, views); err != nil {
			return err
		}
	case w.ask.ValueNorms && r.Norms == nil:
		r.Norms = valueNorms(&e.m.Layer[layer].Attention, r, views)
	}
	params, err := e.m.AttentionParams(layer)
	if err != nil {
		return err
	}
	params.Window, params.Chunk = 0, 0
	for g := range views {
		pos := seq.PositionList(layer, g)
		own, _ := slices.BinarySearch(pos, w.begins)
		sinks, _ := slices.BinarySearch(pos, min(int32(w.ask.Sinks), w.from))
		rep := attention.Repetition{Q: queries, Pos: p.rows.Pos, Sinks: sinks, From: r.From[g], To: r.To[g], Own: own, OwnPos: pos[own:]}
		if w.ask.Weighed {
			rep.RowScale = w.norms
		}
		rep.Sum = w.ask.Summed
		attention.MaxWeights(e.pool, params, &views[g], g, rep, r.Weights)
	}
	return nil
}

// begin is an empty observation of a layer.
func (w *reread) begin(layer int) *policy.Repeat {
	a, r := &w.s.e.m.Layer[layer].Attention, &policy.Repeat{}
	for g := range a.KVHeads {
		pos := w.s.text.Seq().PositionList(layer, g)
		from, _ := slices.BinarySearch(pos, w.from)
		to, _ := slices.BinarySearch(pos, w.to)
		r.From, r.To = append(r.From, from), append(r.To, to)
		for range a.Group() {
			r.Weights = append(r.Weights, make([]float32, to-from))
		}
	}
	return r
}

// weigh fills the norms of the rows of a pass, and once a layer those of what its values bring.
func (w *reread) weigh(layer int, p *pass, views []attention.View) error {
	m := w.s.e.m
	x, err := normedRows(p, layer)
	if err != nil {
		return err
	}
	w.norms = w.norms[:0]
	for i := range p.rows.Pos {
		row := x[i*m.Hidden : (i+1)*m.Hidden]
		w.norms = append(w.norms, float32(1/math.Sqrt(float64(kernels.Dot(row, row)))))
	}
	r := w.layers[layer].r
	if r.Norms != nil {
		return nil
	}
	values, err := w.s.e.outputOfValues(layer) // [Hidden, Heads·StoredValue]
	if err != nil {
		return err
	}
	a := &m.Layer[layer].Attention
	dim := a.StoredValue()
	r.Norms = make([][]float32, a.Heads)
	w.s.e.pool.Run(a.Heads, func(_, h int) {
		g := h / a.Group()
		r.Norms[h] = attention.OutputNorms(values[h*dim:], a.Heads*dim, &views[g], r.From[g], r.To[g])
	})
	return nil
}

// valueNorms are the norms of a chunk's values, the same for all heads of a group.
func valueNorms(a *model.Attention, r *policy.Repeat, views []attention.View) (norms [][]float32) {
	var reader attention.Reader
	v := make([]float32, views[0].Layout.ValueDim)
	for g := range views {
		row := make([]float32, r.To[g]-r.From[g])
		for i := range row {
			reader.Values(&views[g], r.From[g]+i, r.From[g]+i+1, v)
			row[i] = float32(math.Sqrt(float64(kernels.Dot(v, v))))
		}
		for range a.Group() {
			norms = append(norms, row)
		}
	}
	return norms
}

// endReread has the policy decide what stays of each layer.
func (s *Session) endReread(dropping *bool) error {
	n := len(s.tokens)
	p := &s.e.pass
	p.open(s.e, s.e.phase(true))
	p.kv.Rows = append(p.kv.Rows, retrieval.Rows{Sequence: s.text, Reading: retrieval.LastBlock, Pos: []int32{int32(n - 1)}, Len: n})
	if err := s.e.retrieval.Begin(&p.kv); err != nil {
		return err
	}
	*dropping = true
	for layer := range s.e.m.Layers {
		if err := s.text.EndReread(layer); err != nil {
			return err
		}
	}
	s.e.kv.Release()
	return nil
}
