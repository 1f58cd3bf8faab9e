package policy

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/golden"
)

// TestConformance holds every registered method, and every method under every wrapper, to the package's invariants.
func TestConformance(t *testing.T) {
	var specs []string
	for _, info := range Infos() {
		specs = append(specs, info.Spec())
		if info.Wraps == "" {
			continue
		}
		for _, inner := range Infos() {
			spec := info.Name + ":" + inner.Name
			if info.Example != "" {
				spec = with(spec, info.Example)
			}
			if _, err := Parse(spec); err == nil {
				specs = append(specs, spec)
			}
		}
	}
	for _, spec := range specs {
		t.Run(strings.ReplaceAll(spec, ":", " of "), func(t *testing.T) { conform(t, spec) })
	}
}

// with adds parameters to a specification.
func with(spec, params string) string {
	if strings.Contains(spec, ":") {
		return spec + "," + params
	}
	return spec + ":" + params
}

func conform(t *testing.T, spec string) {
	if _, err := Parse(with(spec, "no_such_key=1")); !errors.Is(err, ErrParam) || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("an unknown key is not refused by name: %v", err)
	}
	parsed, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(parsed.String()); err != nil || again.String() != parsed.String() {
		t.Errorf("%s does not parse back: %v", parsed, err)
	}
	for i, budget := range []string{"25%", "70", "100%"} {
		if strings.Contains(spec, ":") && i != len(spec)%3 && !golden.Thorough() {
			continue // each method alone has all budgets
		}
		spec := spec
		if _, err := Parse(with(spec, "budget="+budget)); err == nil {
			spec = with(spec, "budget="+budget)
		} else if _, err := Parse(with(spec, "alpha="+budget)); err == nil {
			spec = with(spec, "alpha="+budget)
		}
		whole := budget == "100%" && !strings.Contains(spec, "topp") && !strings.Contains(spec, "magicpig") // which read a part of everything
		conformPlans(t, spec, uint64(i), whole)
	}
}

// conformPlans runs a prompt and a few steps twice and looks at every plan.
func conformPlans(t *testing.T, spec string, seed uint64, whole bool) {
	t.Helper()
	first := conformRun(t, spec, seed, whole)
	if second := conformRun(t, spec, seed, whole); !reflect.DeepEqual(first, second) {
		t.Errorf("%s: the same observations gave another plan", spec)
	}
}

// conformRun returns the picks of every decision.
func conformRun(t *testing.T, spec string, seed uint64, whole bool) [][][]int32 {
	t.Helper()
	s := randomScene(seed, 280, 4, 2, 16)
	s.fill()
	s.index, s.layers = 2, 4
	d := NewDecomposition(Model{Layers: cacheshape.Equal(4, 2, cacheshape.KV{Heads: 2, KeyDim: 16})})
	if err := d.SetLayer(2, slices.Concat(s.q...), 280, 4); err != nil {
		t.Fatal(err)
	}
	set := mustSetWith(t, spec, s, d)
	r := rand.New(rand.NewPCG(seed, 3))
	var plans [][][]int32
	record := func(p *Selection, what string) {
		if p.All {
			p.Heads = [][]int32{span(nil, 0, len(s.pos[0])), span(nil, 0, len(s.pos[1]))}
		}
		for g, idx := range p.Heads {
			for i, x := range idx {
				if x < 0 || int(x) >= len(s.pos[g]) || i > 0 && idx[i-1] >= x {
					t.Fatalf("%s: %s: index %d of head %d is %d: want ascending, unique, inside the cache", spec, what, i, g, x)
				}
			}
		}
		plans = append(plans, clonePicks(p.Heads))
	}
	var picks Selection
	if o, ok := set.Selector.(PromptObserver); ok {
		l := s.shown(o)
		before := snapshot(l)
		o.ObservePrompt(l)
		unchanged(t, spec, before, l)
	}
	if set.Rereader != nil {
		repeat(set.Rereader, s, r)
	}
	if set.Keeper != nil {
		l := s.shown(set.Keeper)
		before := snapshot(l)
		set.Keeper.KeepPrompt(l, &picks)
		unchanged(t, spec, before, l)
		record(&picks, "keep")
		checkKept(t, spec, set, s, picks.Heads, whole)
		s.keep(&picks)
	}
	if set.Channels != nil {
		l := s.shown(set.Channels)
		before := snapshot(l)
		set.Channels.ZeroChannels(l, &picks)
		unchanged(t, spec, before, l)
		for g, channels := range picks.Heads {
			if n := len(channels); n == 0 || n >= s.dim || !slices.IsSorted(channels) || len(slices.Compact(slices.Clone(channels))) != n || channels[0] < 0 || int(channels[n-1]) >= s.dim {
				t.Errorf("%s: head %d loses channels %v of %d", spec, g, channels, s.dim)
			}
		}
		plans = append(plans, clonePicks(picks.Heads))
	}
	if set.Projector != nil {
		project(s, set.Projector)
	}
	conformPrefill(t, spec, set, s)
	for range 5 {
		s.step(r)
		if set.Selector != nil {
			read := conformSelect(t, spec, set, s, whole)
			record(read, "select")
		}
		if set.Dropper != nil {
			l := s.shown(set.Dropper)
			set.Dropper.DropStep(l, &picks)
			record(&picks, "drop")
			for g, idx := range picks.Heads {
				if n := len(idx); n > 0 && int(idx[n-1]) == len(s.pos[g])-1 {
					t.Errorf("%s: the newest token was dropped", spec)
				}
			}
			s.evict(&picks)
		}
	}
	return plans
}

// repeat shows a Reconstructor what the repetition of two chunks attended to.
func repeat(p Reconstructor, s *scene, r *rand.Rand) {
	l := s.shown(p)
	p.BeginRepeats()
	for from := 0; from < l.N; from += 200 {
		to := min(from+200, l.N)
		rep := &Repeat{From: []int{from, from}, To: []int{to, to}}
		for range l.Heads {
			weights, norms := make([]float32, to-from), make([]float32, to-from)
			for i := range weights {
				weights[i], norms[i] = r.Float32(), 1+r.Float32()
			}
			rep.Weights, rep.Norms = append(rep.Weights, weights), append(rep.Norms, norms)
		}
		p.ObserveRepeat(l, rep)
	}
}

// conformPrefill looks at what a pruner or masker decides about the prompt.
func conformPrefill(t *testing.T, spec string, set *Set, s *scene) {
	t.Helper()
	n := len(s.q)
	if set.Pruner != nil {
		alive := span(nil, 0, n)
		l := s.shown(set.Pruner)
		before := snapshot(l)
		var rows Rows
		set.Pruner.KeepRows(l, alive, &rows)
		unchanged(t, spec, before, l)
		if len(rows.Pos) == 0 || rows.Pos[len(rows.Pos)-1] != int32(n-1) || !slices.IsSorted(rows.Pos) || len(slices.Compact(slices.Clone(rows.Pos))) != len(rows.Pos) {
			t.Errorf("%s: rows that go on: %v", spec, rows.Pos)
		}
		if float64(len(rows.Pos)) > float64(n)/2 {
			t.Errorf("%s: %d of %d rows go on", spec, len(rows.Pos), n)
		}
	}
	if set.Masker != nil {
		l := s.weighted(s.layer(0, AllRows), set.Masker.Needs().Weights)
		before := snapshot(l)
		var m Mask
		set.Masker.MaskPrompt(l, &m)
		unchanged(t, spec, before, l)
		checkPairs(t, &m)
	}
}

func conformSelect(t *testing.T, spec string, set *Set, s *scene, whole bool) *Selection {
	t.Helper()
	l := s.layer(0, 1)
	if set.Projector != nil {
		l.Scores = project(s, set.Projector)
	}
	before := snapshot(l)
	var read Selection
	set.Selector.Select(l, &read)
	unchanged(t, spec, before, l)
	if whole && !read.All {
		t.Errorf("%s: a budget of everything doesn't read everything", spec)
	}
	for g, idx := range read.Heads {
		limit := 0.25*float64(l.N) + 1
		if strings.HasSuffix(spec, "budget=100%") {
			limit = float64(l.N)
		}
		if strings.HasSuffix(spec, "budget=70") {
			limit = 70
		}
		if strings.HasPrefix(spec, "kvswap") { // the rolling buffer comes on top of the budget
			limit += 4
		}
		if strings.Contains(spec, "budget=") && !read.All && float64(len(idx)) > limit {
			t.Errorf("%s: head %d reads %d of at most %g", spec, g, len(idx), limit)
		}
		if r, ok := set.Selector.(Reader); ok {
			if most, _ := r.Most(l); len(idx) > most {
				t.Errorf("%s: head %d reads %d, at most %d were said", spec, g, len(idx), most)
			}
		}
	}
	return &read
}

// declares reports whether a method that a specification names says so.
func declares(spec string, says func(Info) bool) bool {
	for _, word := range strings.FieldsFunc(spec, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		if e := registry[plain(word)]; e != nil && says(e.info) {
			return true
		}
	}
	return false
}

// checkKept looks at what stays after the prompt: the budget, and the newest token.
func checkKept(t *testing.T, spec string, set *Set, s *scene, kept [][]int32, whole bool) {
	t.Helper()
	total, n := 0, len(s.q)
	mayDropNewest := declares(spec, func(i Info) bool { return i.MayDropNewest })
	mayDropSinks := declares(spec, func(i Info) bool { return i.MayDropSinks })
	for g, idx := range kept {
		total += len(idx)
		if len(idx) == 0 {
			t.Fatalf("%s: head %d keeps nothing", spec, g)
		}
		if !mayDropNewest && int(idx[len(idx)-1]) != n-1 {
			t.Errorf("%s: head %d loses the newest token", spec, g)
		}
		for _, sinks := range []string{"streaming_llm", "expected_attention", "lagkv", "cur", "kvzip"} {
			if !mayDropSinks && strings.Contains(spec, sinks) && !slices.Equal(idx[:4], []int32{0, 1, 2, 3}) {
				t.Errorf("%s: head %d loses a sink: %v", spec, g, idx[:4])
			}
		}
	}
	switch {
	case strings.HasPrefix(spec, "dms"): // a threshold decides, not the budget
	case strings.HasPrefix(spec, "rocketkv") && !whole: // its budget is what is read; TestRocketKVAgainstReference looks at what stays
	case whole && total != 2*n:
		t.Errorf("%s: a budget of everything keeps %d of %d", spec, total, 2*n)
	case strings.HasSuffix(spec, "budget=25%") && !strings.Contains(spec, "pyramid") && total > 2*n/4:
		t.Errorf("%s: keeps %d of at most %d", spec, total, 2*n/4)
	case strings.HasSuffix(spec, "budget=70") && !strings.Contains(spec, "pyramid") && total > 140:
		t.Errorf("%s: keeps %d of at most %d", spec, total, 140)
	}
}

// TestPyramidMean checks that the layers of a pyramid together keep the budget.
func TestPyramidMean(t *testing.T) {
	for _, n := range []int{100, 256, 1000} {
		for _, window := range []int{4, 16} {
			for _, share := range []float64{0.1, 0.3, 0.5, 0.9} {
				total, mean := 0, share*float64(n)
				for layer := range 6 {
					total += pyramid(mean, n, window, 8, layer, 6)
				}
				if d := float64(total) - 6*mean; d > 3 || d < -3 {
					t.Errorf("%d tokens, window %d, share %g: the layers keep %d, want about %g", n, window, share, total, 6*mean)
				}
			}
		}
	}
}

// snapshot copies what a policy was shown.
func snapshot(l *Layer) Layer {
	c := *l
	c.Pos = clonePicks(l.Pos)
	c.Queries = slices.Clone(l.Queries)
	c.ColumnSums = nil
	for _, row := range l.ColumnSums {
		c.ColumnSums = append(c.ColumnSums, slices.Clone(row))
	}
	return c
}

func unchanged(t *testing.T, spec string, before Layer, l *Layer) {
	t.Helper()
	if !reflect.DeepEqual(before.Pos, l.Pos) || !reflect.DeepEqual(before.Queries, l.Queries) || !reflect.DeepEqual(before.ColumnSums, l.ColumnSums) {
		t.Errorf("%s: changed what it was shown", spec)
	}
}

func clonePicks(x [][]int32) [][]int32 {
	out := make([][]int32, len(x))
	for i := range x {
		out[i] = slices.Clone(x[i])
	}
	return out
}

// TestNames checks that every name, alias and kvpress class name finds its policy, and that a miss lists the names.
func TestNames(t *testing.T) {
	for _, name := range []string{
		"SnapKVPress", "StreamingLLMPress", "KnormPress", "KeyDiffPress", "TOVAPress", "ObservedAttentionPress",
		"PyramidKVPress", "AdaKVPress", "ChunkKVPress", "CriticalKVPress", "ThinKPress", "FinchPress", "DuoAttentionPress:pattern=0.5", "QFilterPress:filters=1", "ExpectedAttentionPress", "LagKVPress", "SimLayerKVPress", "KVzapPress:weights=1", "FastKVzipPress:weights=1", "CompactorPress", "LeverageScorePress:sketch_dimension=8", "NonCausalAttnPress", "CURPress:use_local_approximation=false", "RandomPress", "DecodingPress", "PerLayerCompressionPress",
	} {
		if _, err := Parse(name); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{"QFilterPress": "qfilter", "duo-attention:pattern=1": "duo_attention", "snapkv": "snapkv", "none": "full"} {
		if name, err := Canonical(text); name != want || err != nil {
			t.Errorf("%s: %q, %v", text, name, err)
		}
	}
	_, err := Parse("snap")
	for _, name := range Names() {
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), name) {
			t.Fatalf("%v: want the list of names with %s", err, name)
		}
	}
	for _, info := range Infos() {
		if info.Summary == "" || len(info.Can) == 0 && info.Name != "full" {
			t.Errorf("%s: no summary or no capability", info.Name)
		}
		for _, p := range info.Params {
			if p.Doc == "" {
				t.Errorf("%s: %s has no description", info.Name, p.Name)
			}
		}
	}
}
