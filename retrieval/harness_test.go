package retrieval

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"terrace/attention"
	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/kvmanager/fakes"
	"terrace/offload"
	"terrace/policy"
)

// setup is what a scenario stands on. The zero value is three equal layers of 4 heads over 2 KV heads of 32 in f16, in host memory.
type setup struct {
	blocks int              // of host memory above a backing store; 0 = all is in host memory
	layers cacheshape.Model // nil = three equal ones
	codes  csdshim.Codes    // by which the backing store scores keys
	bare   bool             // not in a bubble of synctest: what is under way is waited for where it is needed
	edit   func(o *Options, ko *kvmanager.Options)
}

// scenario is sequences without a model: random keys, values and queries.
type scenario struct {
	shared *Shared
	store  *fakes.Store // nil = all is in host memory
	drive  *fakeDrive   // the store, where it scores keys
	queue  *offload.Queue
	pool   *kernels.Pool // of attention, one thread
	texts  map[string]*scenarioText
	bare   bool
	beside int           // decisions made beside attention
	pause  time.Duration // behind each layer
	waits  int64
	broken func(layer int, p *Pass) // called after Select of each layer
	early  map[*Sequence]error      // of those that failed before the pass ended
}

// scenarioText is a sequence and what its random numbers come from.
type scenarioText struct {
	*Sequence
	seed  uint64
	seen  []string    // what the last step read of each layer
	picks [][][]int32 // [layer][KV head] positions
	out   []float32   // attention output of all rows of the last pass, layer by layer
}

// fixedRope rotates nothing: positions do not matter to random keys.
type fixedRope struct{}

func (fixedRope) Rotate([]float32, int)   {}
func (fixedRope) Unrotate([]float32, int) {}

// equalLayers are those of the zero setup.
func equalLayers(n int) cacheshape.Model {
	return cacheshape.Equal(n, 4, cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32})
}

func scenarioShape(layers cacheshape.Model) Shape {
	if layers == nil {
		layers = equalLayers(3)
	}
	return Shape{Model: policy.Model{Name: "none", Layers: layers, Hidden: 128, Context: 4096}, RowWidth: 128,
		Scores: slices.Repeat([]Score{{Scale: 0.18}}, len(layers)), Rope: func(int, bool) Rope { return fixedRope{} }}
}

// openScenario makes it for a policy, which decides how keys lie.
func openScenario(t testing.TB, spec *policy.Spec, with setup) *scenario {
	t.Helper()
	s := &scenario{texts: map[string]*scenarioText{}, pool: kernels.NewPool(1), bare: with.bare, early: map[*Sequence]error{}}
	shape := scenarioShape(with.layers)
	layout := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16, TokenMajor: spec.Needs().TokenGranularity}
	ko, o := kvmanager.Options{Layers: shape.Layers, Layout: layout}, Options{ChunkTokens: 64, Threads: 1, Shape: shape}
	if with.edit != nil {
		with.edit(&o, &ko)
	}
	block, first := 0, shape.Layers.Next(-1)
	for i := range shape.Layers {
		if shape.Layers.Keeps(i) {
			block = max(block, shape.kv(i).Heads*ko.Layout.Of(shape.kv(i)).PageBytes())
		}
		if shape.Acts(i) {
			o.Shape.KVBytes += shape.kv(i).Heads * ko.Layout.Of(shape.kv(i)).PageBytes() / 16
		}
	}
	if with.blocks > 0 {
		s.store = fakes.New(shape.Layers, ko.Layout)
		o.Store = s.store
		if with.codes != csdshim.CodesNone {
			s.drive = newFakeDrive(s.store, ko.Layout.Of(shape.kv(first)), shape.kv(first).Heads, with.codes)
			o.Store = s.drive
		}
		s.queue = offload.NewQueue(o.Store, offload.QueueOptions{})
		ko.Backing, ko.BudgetBytes = s.queue, int64(with.blocks)*int64(block)
		o.BudgetBytes = ko.BudgetBytes
		o.Record = offload.Shape{Layers: shape.Layers, Page: ko.Layout, GroupTokens: 16}
	}
	var err error
	if o.KV, err = kvmanager.New(ko); err != nil {
		t.Fatal(err)
	}
	if o.Pool != nil {
		s.pool = o.Pool
	}
	s.shared = NewShared(o)
	return s
}

// settle waits until nothing can go on by itself, so that what happens does not depend on the machine.
func (s *scenario) settle() {
	if !s.bare {
		synctest.Wait()
	}
}

func (s *scenario) text(t testing.TB, name string, spec *policy.Spec) *scenarioText {
	t.Helper()
	x, err := s.shared.NewSequence(SequenceOptions{Policy: spec})
	if err != nil {
		t.Fatal(err)
	}
	s.texts[name] = &scenarioText{Sequence: x, seed: uint64(len(s.texts)) + 1}
	return s.texts[name]
}

// under is a sequence under policies of a test's own.
func (s *scenario) under(t testing.TB, name string, set *policy.Set, spec *policy.Spec) *scenarioText {
	t.Helper()
	x, err := s.shared.newSequence(s.shared.o.KV.NewSequence(), 0, set, SequenceOptions{Policy: spec})
	if err != nil {
		t.Fatal(err)
	}
	s.texts[name] = &scenarioText{Sequence: x, seed: uint64(len(s.texts)) + 1}
	return s.texts[name]
}

// numbered names random numbers.
type numbered struct {
	seed, kind   uint64
	layer, n, kv int
	pos          int32
}

// made are the numbers that were asked for lately.
var made = map[numbered][]float32{}

// numbers are n random ones of a row of a layer, the same whenever they are asked for. Nobody changes them.
func (x *scenarioText) numbers(kind uint64, layer int, pos int32, n int) []float32 {
	name := numbered{x.seed, kind, layer, n, x.f.o.Shape.kv(layer).Index, pos}
	if made[name] == nil {
		if len(made) > 1<<15 {
			clear(made)
		}
		made[name] = x.make(kind, layer, pos, n)
	}
	return made[name]
}

func (x *scenarioText) make(kind uint64, layer int, pos int32, n int) []float32 {
	rng := rand.New(rand.NewPCG(x.seed<<8|kind, uint64(layer)<<32|uint64(pos)))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	if kv := x.f.o.Shape.kv(layer); kind == ofQueries && kv.Index > 0 { // where keys have a trained indexer's, queries have zeros
		for i := range out {
			if i%kv.KeyDim >= kv.KeyDim-kv.Index {
				out[i] = 0
			}
		}
	}
	return out
}

const (
	ofKeys = iota
	ofValues
	ofQueries
	ofIndex
)

// rows are such numbers of all rows of a pass.
func (s *scenario) rows(p *Pass, kind uint64, layer, width int) (all []float32) {
	for i := range p.Rows {
		for _, pos := range p.Rows[i].Pos {
			all = append(all, s.of(p.Rows[i].Sequence).numbers(kind, layer, pos, width)...)
		}
	}
	return all
}

func (s *scenario) of(q *Sequence) *scenarioText {
	for _, x := range s.texts {
		if x.Sequence == q {
			return x
		}
	}
	return nil
}

// pass takes rows through all layers in the order that the package comment gives. What failed is taken back; the error is that of the
// pass, or those of sequences that failed alone.
func (s *scenario) pass(phase kernels.Phase, rows ...Rows) error {
	var p Pass
	p.Open(s.shared)
	p.Rows = rows
	clear(s.early)
	err := s.layers(&p, phase)
	if err == nil {
		p.End()
	}
	p.Undo(err != nil)
	for i := range p.Rows {
		err = errors.Join(err, p.Rows[i].Err)
	}
	for _, failed := range s.early {
		err = errors.Join(err, failed)
	}
	return err
}

func (s *scenario) layers(p *Pass, phase kernels.Phase) error {
	if err := s.shared.Begin(p); err != nil {
		return err
	}
	m := &s.shared.o.Shape
	for i := range p.Rows {
		x := s.of(p.Rows[i].Sequence)
		x.seen, x.picks, x.out = nil, nil, nil
	}
	for layer := range m.Layers {
		if !m.Layers.Reads(layer) {
			continue
		}
		if err := s.layer(p, layer, phase); err != nil {
			return err
		}
		if len(p.Rows) == 0 {
			return nil
		}
	}
	return p.Join()
}

// layer is one of them. Layers that read an earlier one's keys and values have no Append, Observe and Prepare.
func (s *scenario) layer(p *Pass, layer int, phase kernels.Phase) error {
	m := &s.shared.o.Shape
	kv, width := m.kv(layer), m.queryWidth(layer)
	q := s.rows(p, ofQueries, layer, width)
	if m.Layers.Keeps(layer) {
		if p.Indexes(layer) {
			p.Index(s.rows(p, ofIndex, layer, m.Index.Heads*(m.Index.Dim+1)))
		}
		if err := p.Append(layer, s.rows(p, ofKeys, layer, kv.Heads*kv.KeyDim), s.rows(p, ofValues, layer, kv.Heads*kv.ValueDim)); err != nil {
			return err
		}
		s.settle()
		p.Observe(layer, q)
	}
	p.Select(layer, q)
	if s.broken != nil {
		s.broken(layer, p)
	}
	if m.Layers.Keeps(layer) {
		guess := func(layer int) ([]float32, error) { return s.rows(p, ofQueries, layer, m.queryWidth(layer)), nil }
		if err := p.Prepare(layer+1, guess); err != nil {
			return err
		}
	}
	s.settle() // what was begun is under way
	seqs := p.Fetch(layer)
	if err := s.mask(p); err != nil {
		return err
	}
	out, row := make([]float32, len(q)/width*m.outWidth(layer)), 0
	for i := range p.Rows {
		r, n := &p.Rows[i], len(p.Rows[i].Pos)
		seqs[i].Q, seqs[i].Out = q[row*width:][:n*width], out[row*m.outWidth(layer):][:n*m.outWidth(layer)]
		if r.Reading == Step && r.Err == nil {
			r.Sequence.CountReads(layer, &seqs[i])
			s.of(r.Sequence).read(layer, &seqs[i])
		}
		row += n
	}
	before := s.decided(p, layer+1)
	p.BeginBeside()
	attention.Attend(s.pool, phase, m.params(layer), seqs)
	p.EndBeside()
	s.beside += s.decided(p, layer+1) - before
	p.Attended(layer, out)
	for i := range p.Rows {
		switch r := &p.Rows[i]; {
		case r.Err == nil:
			x := s.of(r.Sequence)
			x.out = append(x.out, seqs[i].Out...)
		case s.early[r.Sequence] == nil:
			return r.Err
		}
	}
	p.Rows = slices.DeleteFunc(p.Rows, func(r Rows) bool { return r.Err != nil }) // the layer's border
	p.Overlap(layer + 1)
	s.settle()
	if s.pause > 0 {
		<-time.After(s.pause) // of the bubble
	}
	return nil
}

// decided is how many of a pass's texts have chosen what they read of a layer, or scored their part where a drive scores too.
func (s *scenario) decided(p *Pass, layer int) (n int) {
	for i := range p.Rows {
		if c, ok := p.Rows[i].Sequence.res.(*cached); ok && layer < len(c.layers) && c.layers[layer].prepared && !(c.drive.asking(layer) && c.drive.layers[layer].request.unscored) {
			n++
		}
	}
	return n
}

// params are those of a layer's attention.
func (s *Shape) params(layer int) attention.Params {
	kv, score := s.kv(layer), s.Scores[layer]
	return attention.Params{Heads: s.Layers[layer].Heads, KVHeads: kv.Heads, KeyDim: kv.KeyDim, ValueDim: kv.ValueDim, Scale: score.Scale,
		Softcap: score.Softcap, Sinks: score.Sinks, Window: kv.Window}
}

// mask takes back what sequences with an error have added, as who runs layers does. Their rows stay until the layer's border.
func (s *scenario) mask(p *Pass) error {
	if !p.Failed() {
		return nil
	}
	if err := p.Join(); err != nil {
		return err
	}
	p.Undo(false)
	for i := range p.Rows {
		if err := p.Rows[i].Err; err != nil {
			s.early[p.Rows[i].Sequence] = err
		}
	}
	return nil
}

// read notes which positions a step attends to in a layer.
func (x *scenarioText) read(layer int, seq *attention.Seq) {
	heads := make([][]int32, len(seq.Views))
	for g := range seq.Views {
		var all []int32
		for _, page := range seq.Views[g].Pages {
			all = append(all, page.Pos[:page.N]...)
		}
		heads[g] = all
		if seq.Select != nil && seq.Select[g] != nil {
			heads[g] = nil
			for _, i := range seq.Select[g] {
				heads[g] = append(heads[g], all[i])
			}
		}
	}
	x.picks = append(x.picks, heads)
	var line strings.Builder
	fmt.Fprintf(&line, "layer %d reads", layer)
	for g, pos := range heads {
		fmt.Fprintf(&line, " %d of head %d %v", len(pos), g, pos[:min(6, len(pos))])
	}
	x.seen = append(x.seen, line.String())
}

// prompt reads n tokens in passes of chunk.
func (s *scenario) prompt(x *scenarioText, n, chunk int) error {
	total := int(x.Read()) + n
	for left := n; left > 0; {
		take, reading := x.ChunkRows(left, chunk), Chunk
		if take == left {
			reading = LastChunk
		}
		if err := s.pass(kernels.Prefill, Rows{Sequence: x.Sequence, Reading: reading, New: take, Pos: x.next(take), Len: total}); err != nil {
			return err
		}
		left -= take
	}
	return nil
}

// next are the next n positions.
func (x *scenarioText) next(n int) []int32 {
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = x.Read() + int32(i)
	}
	return pos
}

// step takes a decode step of sequences together.
func (s *scenario) step(texts ...*scenarioText) error {
	var rows []Rows
	for _, x := range texts {
		rows = append(rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: int(x.Read()) + 1})
	}
	return s.pass(kernels.Decode, rows...)
}

func (s *scenario) names() (names []string) {
	for n := range s.texts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func parsed(t testing.TB, text string) *policy.Spec {
	t.Helper()
	spec, err := policy.Parse(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// close frees what is open; nothing is left.
func (s *scenario) close(t testing.TB) {
	t.Helper()
	if s.shared == nil {
		return
	}
	s.pool.Close()
	var err error
	for _, x := range s.texts {
		err = errors.Join(err, x.Free())
	}
	clear(s.texts)
	s.check(t)
	kv := s.shared.o.KV
	charged := s.shared.StoreBytes()
	if err = errors.Join(err, kv.Check(), kv.Close()); err != nil || kv.Stats().InUseBytes != charged {
		t.Errorf("%v, %d bytes in use, %d charged", err, kv.Stats().InUseBytes, charged)
	}
	if s.store != nil {
		if n, _ := s.store.Records(); n > 0 {
			t.Errorf("%d records are left", n)
		}
		if err := s.queue.Close(); err != nil {
			t.Error(err)
		}
	}
}
