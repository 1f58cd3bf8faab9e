package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"terrace/internal/cacheshape"
)

// TestPolicies runs testdata/methods/NAME: what each method does, in a few lines of text.
//
//	observe [heads=H] [kvheads=G] [layer=I] [layers=L] [rows=R]
//	mass 9 1 1 2          softmax weights of one query head, summed over rows queries; a line a head
//	key 1,0 0,1 ...       keys of one KV head; likewise value; query of one head (newest row)
//	----
//	keep SPEC             plan after the prompt; the cache shrinks
//	step SPEC             (with a new mass line a head, or the new token's key and value a KV head) plan after a decode step; the cache shrinks
//	select SPEC           plan of a decode step's reading; the cache stays
//	project SPEC          (with the prompt's queries) the columns of an approximate key
//	prune SPEC            which hidden rows go on after this layer; only they remain
//	swap SPEC             (with the newest queries) which blocks are active after a decode step
//	mask SPEC             which part of the prompt's attention is computed, drawn
func TestPolicies(t *testing.T) {
	files, err := filepath.Glob("testdata/methods/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			var y toy
			datadriven.RunTest(t, f, func(t *testing.T, d *datadriven.TestData) string { return y.run(t, d) })
		})
	}
}

// toy is a layer written down by hand.
type toy struct {
	reached    [][]int32 // positions of the layer that pruned last
	l          Layer
	keys, vals [][][]float32 // [KVHeads][tokens of the text][dim]
	set        *Set
	spec       string
	matrix     []float32   // of a Projector, one KV head
	pre        *QueryStats // of the lines pre
}

func (y *toy) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "observe" {
		*y = toy{}
		y.observe(t, d)
		return fmt.Sprintf("%d tokens\n", y.l.N)
	}
	spec := "full"
	if len(d.CmdArgs) > 0 {
		spec = d.CmdArgs[0].String()
	}
	if err := y.bind(spec); err != nil {
		return "error: " + err.Error() + "\n"
	}
	y.l.Observed = observed(y.set.Needs(), y)
	switch d.Cmd {
	case "score":
		return y.score()
	case "keep":
		var keep Selection
		if y.set.Keeper == nil {
			return "keep all\n"
		}
		y.set.Keeper.KeepPrompt(&y.l, &keep)
		return y.report(&keep, true)
	case "step":
		y.step(t, d.Input)
		var drop Selection
		y.set.Dropper.DropStep(&y.l, &drop)
		return y.report(&drop, false)
	case "project":
		y.l.Queries = nil
		y.read(t, d.Input)
		y.l.Rows = len(y.l.Queries) / (y.l.Heads * y.l.KeyDim)
		if y.set.Watcher != nil { // in two parts
			q, width := y.l.Queries, y.l.Heads*y.l.KeyDim
			y.l.Queries = nil
			y.set.Watcher.WatchPrompt(&y.l, 0, q, 1)
			y.set.Watcher.WatchPrompt(&y.l, 1, q[width:], y.l.Rows-1)
		}
		y.matrix = make([]float32, y.set.Needs().Sketch.Rank*y.l.KeyDim)
		y.set.Projector.Project(&y.l, 0, y.matrix)
		return fmt.Sprintln("columns", y.matrix)
	case "select":
		y.l.Queries, y.l.Rows = nil, 1
		y.read(t, d.Input)
		var read Selection
		y.set.Selector.Select(&y.l, &read)
		return y.reads(&read)
	}
	return y.prefill(t, d)
}

// bind makes the policy at its first use; it lives until the next observe or another specification.
func (y *toy) bind(spec string) error {
	if y.spec == spec {
		return nil
	}
	s, err := Parse(spec)
	if err != nil {
		return err
	}
	m := Model{Layers: cacheshape.Equal(y.l.Layers, y.l.Heads, cacheshape.KV{Heads: y.l.KVHeads, KeyDim: y.l.KeyDim, ValueDim: y.l.ValueDim})}
	d := NewDecomposition(m) // the identity: columns are dimensions
	m.Observed = []Observed{{QueryBasis{}, d}}
	for i := range d.Basis {
		if at := i % (m.Layers[0].KV.KeyDim * m.Layers[0].KV.KeyDim); at/m.Layers[0].KV.KeyDim == at%m.Layers[0].KV.KeyDim {
			d.Basis[i] = 1
		}
	}
	set, err := s.New(m)
	if err != nil {
		return err
	}
	y.set, y.spec = set, spec
	return nil
}

func (y *toy) observe(t *testing.T, d *datadriven.TestData) {
	y.l = Layer{Heads: 1, KVHeads: 1, Layers: 1, Rows: 1, SumRows: 1, KVBytes: 1024, Scale: 1}
	for _, a := range d.CmdArgs {
		n, err := strconv.Atoi(a.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		switch a.Key {
		case "heads":
			y.l.Heads = n
		case "kvheads":
			y.l.KVHeads = n
		case "layer":
			y.l.Index = n
		case "layers":
			y.l.Layers = n
		case "rows":
			y.l.SumRows = n
		default:
			t.Fatalf("unknown argument %s", a.Key)
		}
	}
	y.l.Heads = max(y.l.Heads, y.l.KVHeads)
	y.read(t, d.Input)
	for range y.l.KVHeads {
		y.l.Pos = append(y.l.Pos, span(nil, 0, y.l.N))
	}
	y.l.Prompt = y.l.N
	y.l.KV, y.l.Scores, y.l.Rope = y, y, noRope{}
}

func (y *toy) stats(int) *QueryStats { return y.pre }

// outputNorms is of an output projection that is the identity.
func (y *toy) outputNorms(dst [][]float32) {
	for h, row := range dst {
		g := h / y.l.Group()
		for i, p := range y.l.Pos[g] {
			row[i] = 0
			for _, x := range y.vals[g][p] {
				row[i] += max(x, -x)
			}
		}
	}
}

// read takes lines of mass, key, value and query.
func (y *toy) read(t *testing.T, text string) {
	var mass [][]float32
	var queries []float32
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		kind, rest, _ := strings.Cut(line, " ")
		rows := vectors(t, rest)
		switch kind {
		case "":
		case "mass":
			mass = append(mass, flat(rows))
			y.l.N = max(y.l.N, len(rows))
		case "key":
			y.keys = append(y.keys, rows)
			y.l.N, y.l.KeyDim = max(y.l.N, len(rows)), len(rows[0])
		case "value":
			y.vals = append(y.vals, rows)
			y.l.ValueDim = len(rows[0])
		case "pre": // queries before RoPE of one head's tokens
			if y.pre == nil {
				y.pre = NewQueryStats(y.l.Heads, len(rows[0]))
			}
			y.pre.Add(flat(rows), len(rows)) // one head only
		case "query":
			queries = append(queries, flat(rows)...)
		default:
			t.Fatalf("unknown line %s", line)
		}
	}
	if mass != nil {
		y.l.ColumnSums = mass
	}
	if queries != nil {
		y.l.Queries = queries
	}
}

// step adds a token to every KV head.
func (y *toy) step(t *testing.T, text string) {
	for g := range y.l.Pos {
		y.l.Pos[g] = append(y.l.Pos[g], int32(y.l.N))
	}
	n := y.l.N + 1
	y.l.SumRows = 1
	keys, vals := y.keys, y.vals
	y.keys, y.vals = nil, nil
	y.read(t, text)
	for g := range y.keys {
		keys[g] = append(keys[g], y.keys[g]...)
	}
	for g := range y.vals {
		vals[g] = append(vals[g], y.vals[g]...)
	}
	y.keys, y.vals, y.l.N = keys, vals, n
}

func vectors(t *testing.T, text string) [][]float32 {
	var out [][]float32
	for _, field := range strings.Fields(text) {
		var row []float32
		for x := range strings.SplitSeq(field, ",") {
			v, err := strconv.ParseFloat(x, 32)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, float32(v))
		}
		out = append(out, row)
	}
	return out
}

func flat(rows [][]float32) []float32 { return slices.Concat(rows...) }

// report prints positions kept and evicted per KV head, and shrinks the cache.
func (y *toy) report(p *Selection, keeps bool) string {
	var b strings.Builder
	if p.All {
		return "keep all\n"
	}
	for g, picks := range p.Heads {
		keep, gone := picks, rest(nil, picks, len(y.l.Pos[g]))
		if !keeps {
			keep, gone = gone, picks
		}
		if len(p.Heads) > 1 {
			fmt.Fprintf(&b, "head %d: ", g)
		}
		var left []int32
		for _, i := range keep {
			left = append(left, y.l.Pos[g][i])
		}
		var evicted []int32
		for _, i := range gone {
			evicted = append(evicted, y.l.Pos[g][i])
		}
		fmt.Fprintf(&b, "keep %s evict %s\n", numbers(left), numbers(evicted))
		y.l.Pos[g] = left
	}
	return b.String()
}

func (y *toy) reads(p *Selection) string {
	if p.All {
		return "read all\n"
	}
	var b strings.Builder
	for g, picks := range p.Heads {
		if len(p.Heads) > 1 {
			fmt.Fprintf(&b, "head %d: ", g)
		}
		var pos []int32
		for _, i := range picks {
			pos = append(pos, y.l.Pos[g][i])
		}
		fmt.Fprintf(&b, "read %s\n", numbers(pos))
	}
	return b.String()
}

// Listed implements Scorer.
func (y *toy) Listed(g int, tokens []int32, q []float32, rows int, dst []float32) {
	all := make([]float32, rows*len(y.l.Pos[g]))
	y.Dot(g, q, rows, all)
	for r := range rows {
		for i, t := range tokens {
			dst[r*len(tokens)+i] = all[r*len(y.l.Pos[g])+int(t)]
		}
	}
}

// Colliding implements Scorer: nothing does.
func (y *toy) Colliding(int, []float32, []Collisions) {}

// Clusters implements Scorer.
func (y *toy) Clusters(int) *Clusters { return new(Clusters) }

// Tail implements Scorer: no values are known here.
func (y *toy) Tail(_ int, _ []float32, _ int, dst []float32) { clear(dst) }

// Trained implements Scorer.
func (y *toy) Trained(int) bool { return true }

func (y *toy) score() string {
	p := y.set.Keeper.(Scored)
	rows := heads(nil, &y.l)
	p.Score(&y.l, p.Target(&y.l), rows)
	var b strings.Builder
	for _, row := range rows {
		for i, s := range row {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strconv.FormatFloat(float64(s), 'g', 4, 32))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// prefill runs the methods that work while the prompt is read.
func (y *toy) prefill(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "prune":
		y.l.Rows = len(y.l.Queries) / (y.l.Heads * max(y.l.KeyDim, 1))
		var rows Rows
		alive := slices.Clone(y.l.Pos[0])
		y.set.Pruner.KeepRows(&y.l, alive, &rows)
		if rows.All {
			return "all go on\n"
		}
		y.reached = slices.Clone(y.l.Pos)
		for g := range y.l.Pos {
			y.l.Pos[g] = rows.Pos
		}
		return "go on " + numbers(rows.Pos) + "\n"
	case "swap":
		y.l.Queries = nil
		y.read(t, d.Input)
		y.l.Rows = len(y.l.Queries) / (y.l.Heads * y.l.KeyDim)
		var s Swap
		at := y.l
		at.Pos = y.reached // the pruning layer's own
		y.set.Swapper.SwapBlocks(&at, &s)
		return fmt.Sprintf("overlap %.2f active %s load %s offload %s\n", s.Overlap, numbers(s.Active), numbers(s.Load), numbers(s.Offload))
	case "mask":
		var s scene
		s = *y.scene()
		n := y.l.N
		for i := range n {
			s.q = append(s.q, y.l.Queries[i*y.l.KeyDim:(i+1)*y.l.KeyDim])
		}
		y.l.Rows = n
		s.weighted(&y.l, y.set.Masker.Needs().Weights)
		var m Mask
		y.set.Masker.MaskPrompt(&y.l, &m)
		var b strings.Builder
		for q := range n {
			for k := range q + 1 {
				b.WriteByte(".#"[map[bool]int{true: 1}[m.Sees(0, q, k)]])
			}
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%d of %d pairs\n", m.Pairs(0), n*(n+1)/2)
		return b.String()
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

// noRope leaves vectors as they are.
type noRope struct{}

func (noRope) Rotate([]float32, int)   {}
func (noRope) Unrotate([]float32, int) {}

func numbers(x []int32) string {
	if len(x) == 0 {
		return "-"
	}
	var b strings.Builder
	for i, v := range x {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(int(v)))
	}
	return b.String()
}

func (y *toy) Keys(g, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		copy(dst[(i-from)*y.l.KeyDim:], y.keys[g][y.l.Pos[g][i]])
	}
}

func (y *toy) Values(g, from, to int, dst []float32) {
	for i := from; i < to; i++ {
		copy(dst[(i-from)*y.l.ValueDim:], y.vals[g][y.l.Pos[g][i]])
	}
}

// scene shows the toy to the slow scorer.
func (y *toy) scene() *scene {
	s := &scene{heads: y.l.Heads, kvHeads: y.l.KVHeads, dim: y.l.KeyDim, pos: y.l.Pos, prompt: y.l.Prompt, levels: 127}
	for i := range y.keys[0] {
		var row []float32
		for g := range y.keys {
			row = append(row, y.keys[g][i]...)
		}
		s.k = append(s.k, row)
	}
	return s
}

func (y *toy) Dot(g int, q []float32, rows int, dst []float32) { y.scene().Dot(g, q, rows, dst) }
func (y *toy) Dims(g int, dims []int32, q []float32, rows int, dst []float32) {
	y.scene().Dims(g, dims, q, rows, dst)
}
func (y *toy) Bounds(g, block int, only []int32, q []float32, rows int, dst []float32) {
	y.scene().Bounds(g, block, only, q, rows, dst)
}
func (y *toy) SideDims(g, block int, dims []int32, low []bool, q []float32, rows int, dst []float32) {
	y.scene().SideDims(g, block, dims, low, q, rows, dst)
}
func (y *toy) Approx(g int, q []float32, rows int, dst []float32) {
	if y.matrix == nil {
		y.scene().Approx(g, q, rows, dst)
		return
	}
	x := projected{scene: y.scene(), rank: len(y.matrix) / y.l.KeyDim, matrix: [][]float32{y.matrix}}
	x.Approx(g, q, rows, dst)
}
func (y *toy) KeyScales(g int, dst []float32)        { y.scene().KeyScales(g, dst) }
func (y *toy) Products(g int, q []int8, dst []int32) { y.scene().Products(g, q, dst) }
