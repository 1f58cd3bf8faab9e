package retrieval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/kvmanager/fakes"
	"terrace/offload"
	"terrace/policy"
)

// TestScenarios runs testdata/NAME: texts without a model, of random keys, values and queries, and what is picked, read and
// waited for in each pass.
//
//	open [blocks=B]              a cache of 3 layers, 2 KV heads and 4 heads; with B blocks of host memory and a backing store. The
//	                             policy that decides how keys lie is the input
//	text NAME | fork NAME TO     under the policy that is the input
//	prompt NAME n=N [chunk=C]    reads N tokens, C in a pass
//	step NAME... [n=N]           decode steps of these texts together; picks and records of the last one are shown
//	cut NAME n=N | free NAME
//	wait                         until nothing is under way
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s scenario
				datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
				s.close(t)
			})
		})
	}
}

// scenario is what an engine's texts share, without a model, and its texts.
type scenario struct {
	shared *Shared
	store  *fakes.Store // nil = all is in host memory
	queue  *offload.Queue
	pool   *kernels.Pool // of attention, one thread
	texts  map[string]*scenarioText
	waits  int64
}

// scenarioText is a text and what its random numbers come from.
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

func scenarioShape() Shape {
	return Shape{Model: policy.Model{Name: "none", Layers: cacheshape.Equal(3, 4, cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 32}), Hidden: 128, Context: 4096}, RowWidth: 128,
		Scores: slices.Repeat([]Score{{Scale: 0.18}}, 3), Rope: func(int, bool) Rope { return fixedRope{} }}
}

// openScenario makes it for a policy; blocks of host memory, 0 = all is resident.
func openScenario(t *testing.T, spec *policy.Spec, blocks int) *scenario {
	t.Helper()
	s := &scenario{texts: map[string]*scenarioText{}, pool: kernels.NewPool(1)}
	shape := scenarioShape()
	layout := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16, TokenMajor: spec.Needs().TokenGranularity}
	block := shape.kv(0).Heads * layout.Of(shape.kv(0)).PageBytes()
	ko := kvmanager.Options{Layers: shape.Layers, Layout: layout}
	o := Options{ChunkTokens: 64, Threads: 1}
	if blocks > 0 {
		s.store = fakes.New(shape.Layers, layout)
		s.queue = offload.NewQueue(s.store, offload.QueueOptions{})
		ko.Backing, ko.BudgetBytes = s.queue, int64(blocks)*int64(block)
		o.Store, o.BudgetBytes = s.store, ko.BudgetBytes
		o.Record = offload.Shape{Layers: shape.Layers, Page: layout, GroupTokens: 16}
	}
	m, err := kvmanager.New(ko)
	if err != nil {
		t.Fatal(err)
	}
	shape.KVBytes = len(shape.Layers) * block / 16
	o.KV, o.Shape = m, shape
	s.shared = NewShared(o)
	return s
}

func (s *scenario) text(t *testing.T, name string, spec *policy.Spec) *scenarioText {
	t.Helper()
	x, err := s.shared.NewSequence(SequenceOptions{Policy: spec})
	if err != nil {
		t.Fatal(err)
	}
	s.texts[name] = &scenarioText{Sequence: x, seed: uint64(len(s.texts)) + 1}
	return s.texts[name]
}

// numbers are n random ones of a row of a layer, the same whenever they are asked for.
func (x *scenarioText) numbers(kind uint64, layer int, pos int32, n int) []float32 {
	rng := rand.New(rand.NewPCG(x.seed<<8|kind, uint64(layer)<<32|uint64(pos)))
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

const (
	ofKeys = iota
	ofValues
	ofQueries
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

func (s *scenario) of(text *Sequence) *scenarioText {
	for _, x := range s.texts {
		if x.Sequence == text {
			return x
		}
	}
	return nil
}

// pass takes rows through all layers in the order that the package comment gives.
func (s *scenario) pass(phase kernels.Phase, rows ...Rows) error {
	var p Pass
	p.Open(s.shared)
	p.Rows = rows
	err := s.layers(&p, phase)
	if err == nil {
		p.End()
		for i := range p.Rows {
			err = errors.Join(err, p.Rows[i].Err)
		}
	}
	p.Undo(err != nil)
	return err
}

func (s *scenario) layers(p *Pass, phase kernels.Phase) error {
	if err := s.shared.Begin(p); err != nil {
		return err
	}
	m := s.shared.o.Shape
	for i := range p.Rows {
		x := s.of(p.Rows[i].Sequence)
		x.seen, x.picks, x.out = nil, nil, nil
	}
	for layer := range m.Layers {
		heads, kv, width := m.Layers[layer].Heads, m.kv(layer), m.queryWidth(layer)
		q := s.rows(p, ofQueries, layer, width)
		if err := p.Append(layer, s.rows(p, ofKeys, layer, kv.Heads*kv.KeyDim), s.rows(p, ofValues, layer, kv.Heads*kv.ValueDim)); err != nil {
			return err
		}
		synctest.Wait()
		p.Observe(layer, q)
		p.Select(layer, q)
		guess := func(layer int) ([]float32, error) { return s.rows(p, ofQueries, layer, m.queryWidth(layer)), nil }
		if err := p.Prepare(layer+1, guess); err != nil {
			return err
		}
		synctest.Wait() // what was begun is under way, in an order that is not the machine's
		seqs := p.Fetch(layer)
		out, row := make([]float32, len(q)), 0
		for i := range p.Rows {
			r := &p.Rows[i]
			if r.Err != nil {
				return r.Err
			}
			n := len(r.Pos)
			seqs[i].Q, seqs[i].Out = q[row*width:][:n*width], out[row*m.outWidth(layer):][:n*m.outWidth(layer)]
			if r.Reading == Step {
				r.Sequence.CountReads(layer, &seqs[i])
				s.of(r.Sequence).read(layer, &seqs[i])
			}
			row += n
		}
		attention.Attend(s.pool, phase, attention.Params{Heads: heads, KVHeads: kv.Heads, KeyDim: kv.KeyDim, ValueDim: kv.ValueDim, Scale: m.Scores[layer].Scale}, seqs)
		p.Attended(layer, out)
		for i := range p.Rows {
			x := s.of(p.Rows[i].Sequence)
			x.out = append(x.out, seqs[i].Out...)
		}
		p.Overlap(layer + 1)
		synctest.Wait()
	}
	return p.Join()
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

// summary takes what was moved so far out of the log, and says how much that was.
func (s *scenario) summary(out *strings.Builder, say bool) {
	if s.store == nil || !say {
		return
	}
	synctest.Wait()
	reads, writes := 0, 0
	for line := range strings.Lines(s.store.Log()) {
		if strings.HasPrefix(line, "write") {
			writes++
		} else {
			reads++
		}
	}
	fmt.Fprintf(out, "steps before the last: %d runs of records read, %d written\n", reads, writes)
}

// next are the next n positions.
func (x *scenarioText) next(n int) []int32 {
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = x.Read() + int32(i)
	}
	return pos
}

// step takes a decode step of texts together.
func (s *scenario) step(texts ...*scenarioText) error {
	var rows []Rows
	for _, x := range texts {
		rows = append(rows, Rows{Sequence: x.Sequence, Reading: Step, New: 1, Pos: x.next(1), Len: int(x.Read()) + 1})
	}
	return s.pass(kernels.Decode, rows...)
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	if d.Cmd == "open" {
		s.close(t)
		*s = *openScenario(t, parsed(t, d.Input), number(t, d, "blocks", 0))
	} else if err := s.command(t, d, &out); err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	synctest.Wait()
	if s.store != nil {
		out.WriteString(s.store.Log())
		if n := s.queue.Stats().Waits; n > s.waits {
			out.WriteString("waited\n") // how often depends on which of two transfers that end together is seen first
			s.waits = n
		}
	}
	for _, name := range s.names() {
		x := s.texts[name]
		fmt.Fprintf(&out, "%s: %d read", name, x.Read())
		if n := x.SketchBytes(); n > 0 {
			fmt.Fprintf(&out, ", %d bytes to scan", n)
		}
		if c, ok := x.res.(*cached); ok && c.cache != nil {
			st := c.cache.Stats()
			fmt.Fprintf(&out, ", cache of %d slots a shard: %d picked, %d missed, %d bytes", c.budget.limit, st.Picked, st.Missed, st.Bytes)
		}
		out.WriteString("\n")
	}
	fmt.Fprintf(&out, "%d bytes in use\n", s.shared.o.KV.Stats().InUseBytes)
	if err := s.shared.o.KV.Check(); err != nil {
		t.Error(err)
	}
	return out.String()
}

func (s *scenario) names() (names []string) {
	for n := range s.texts {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func parsed(t *testing.T, text string) *policy.Spec {
	t.Helper()
	spec, err := policy.Parse(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// number is an argument, or a default.
func number(t *testing.T, d *datadriven.TestData, name string, or int) int {
	if d.HasArg(name) {
		d.ScanArgs(t, name, &or)
	}
	return or
}

func (s *scenario) command(t *testing.T, d *datadriven.TestData, out *strings.Builder) error {
	n, chunk := number(t, d, "n", 1), number(t, d, "chunk", 64)
	if d.Cmd == "wait" {
		_ = clock.Real().Sleep(context.Background(), time.Second)
		return nil
	}
	name := d.CmdArgs[0].Key
	x := s.texts[name]
	switch d.Cmd {
	case "text":
		s.text(t, name, parsed(t, d.Input))
	case "fork":
		f, err := x.Fork(SequenceOptions{Policy: parsed(t, d.Input)})
		if err != nil {
			return err
		}
		s.texts[d.CmdArgs[1].Key] = &scenarioText{Sequence: f, seed: x.seed}
	case "prompt":
		return s.prompt(x, n, chunk)
	case "step":
		var texts []*scenarioText
		for _, a := range d.CmdArgs {
			if y := s.texts[a.Key]; y != nil {
				texts = append(texts, y)
			}
		}
		for i := range n {
			s.summary(out, i == n-1 && n > 1)
			if err := s.step(texts...); err != nil {
				return err
			}
		}
		for _, y := range texts {
			for _, line := range y.seen {
				fmt.Fprintln(out, line)
			}
		}
	case "cut":
		return x.Truncate(int32(n))
	case "free":
		delete(s.texts, name)
		return x.Free()
	default:
		t.Fatalf("%s: command %q is not known", d.Pos, d.Cmd)
	}
	return nil
}

// close frees what is open; nothing is left.
func (s *scenario) close(t *testing.T) {
	t.Helper()
	if s.shared == nil {
		return
	}
	s.pool.Close()
	var err error
	for _, x := range s.texts {
		err = errors.Join(err, x.Free())
	}
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

// TestResidencyChangesNothing: what steps read and what attention gives do not depend on where tokens lie.
func TestResidencyChangesNothing(t *testing.T) {
	for _, name := range []string{"full", "h2o:budget=100", "snapkv:budget=100", "quest:budget=96", "hillinfer:alpha=0.2", "sparq:budget=64"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := parsed(t, name)
				var steps []string
				for _, blocks := range []int{0, 300, 72} {
					s := openScenario(t, spec, blocks)
					steps = append(steps, s.readAndStep(t, spec)...)
					if reads := s.reads(); blocks == 72 && reads == 0 {
						t.Errorf("nothing was read from the backing store")
					}
					s.close(t)
				}
				for i, got := range steps {
					if got != steps[i%scenarioSteps] {
						t.Errorf("store %d, step %d: picks or outputs differ from those in host memory", i/scenarioSteps, i%scenarioSteps)
					}
				}
				if len(steps) != 3*scenarioSteps {
					t.Errorf("%d steps", len(steps))
				}
			})
		})
	}
}

// scenarioSteps are taken after a prompt.
const scenarioSteps = 24

// readAndStep reads a prompt, takes steps, and returns what each picked and computed.
func (s *scenario) readAndStep(t *testing.T, spec *policy.Spec) (steps []string) {
	t.Helper()
	x := s.text(t, "a", spec)
	if err := s.prompt(x, 400, 64); err != nil {
		t.Error(err)
		return nil
	}
	for i := range scenarioSteps {
		if err := s.step(x); err != nil {
			t.Errorf("step %d: %v", i, err)
			return steps
		}
		steps = append(steps, fmt.Sprint(x.picks, x.out))
	}
	if c, ok := x.res.(*cached); ok && c.cache == nil {
		t.Error("no token cache")
	}
	return steps
}

// reads is how many records came from the backing store.
func (s *scenario) reads() int {
	if s.store == nil {
		return 0
	}
	n, _ := s.store.Moved()
	return n
}
