package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
)

// follower is what a policy makes active after a pruning layer at a decode step, from the formulas: pos are the prompt's
// positions that the layer shows, k their keys, q the newest queries, w [head][pos] the step's softmax weights, active what
// was active before.
type follower func(layer int, pos []int, q, k, w [][]float64, active []int) []int

// slimFollower is Algorithm 1 of SlimInfer over its choice of blocks: a swap where wanted and active blocks overlap by less
// than gamma.
func slimFollower(m *model.Model, keep map[int]int, block, unit, window int, gamma float64) follower {
	choose := slimReference(m, keep, block, unit, window)
	blocksOf := func(pos []int) map[int]bool {
		set := map[int]bool{}
		for _, p := range pos {
			set[p/block] = true
		}
		return set
	}
	return func(layer int, pos []int, q, k, w [][]float64, active []int) []int {
		var wanted []int
		for _, i := range choose(layer, pos, q, k, w) {
			wanted = append(wanted, pos[i])
		}
		now, both := blocksOf(active), 0
		for b := range blocksOf(wanted) {
			if now[b] {
				both++
			}
		}
		if float64(both)/float64(len(blocksOf(wanted))) < gamma {
			return wanted
		}
		return active
	}
}

// lazyFollower is LazyLLM's choice at a decode step: the best share of what the layer reads of the prompt, by the step's
// weights.
func lazyFollower(share float64) follower {
	return func(_ int, pos []int, _, _, w [][]float64, _ []int) []int {
		order := rowsOf(len(pos))
		score := func(i int) (s float64) {
			for _, head := range w {
				s += head[i]
			}
			return s
		}
		sort.SliceStable(order, func(i, j int) bool { return score(order[i]) > score(order[j]) })
		var out []int
		for _, i := range order[:int(share*float64(len(pos)))] {
			out = append(out, pos[i])
		}
		slices.Sort(out)
		return out
	}
}

// followed is a plain forward pass that goes on decoding while tokens of its prompt of n tokens come and go.
type followed struct {
	plain
	n      int
	layers []int         // pruning layers
	active map[int][]int // by pruning layer: prompt positions active in the layers behind it
	choose follower
	recent map[int][][]float64 // queries of each pruning layer, the newest last
}

// until is the last layer of a stage: the next pruning layer, or the last of all.
func (f *followed) until(layer int) int {
	for _, next := range f.layers {
		if next > layer {
			return next
		}
	}
	return f.m.Layers - 1
}

// begin takes over what the prompt has left.
func (f *followed) begin() {
	f.active, f.recent = map[int][]int{}, map[int][][]float64{}
	for _, layer := range f.layers {
		f.active[layer] = f.held[layer+1]
		f.recent[layer] = slices.Clone(f.queries[layer])
	}
}

// reach lists what a row of a layer attends to after some generated tokens.
func (f *followed) reach(layer, generated int) []int {
	out := rowsOf(f.n)
	for _, pruning := range f.layers {
		if pruning < layer && layer <= f.until(pruning) {
			out = slices.Clone(f.active[pruning])
		}
	}
	for i := range generated {
		out = append(out, f.n+i)
	}
	return out
}

// follow is what the policy makes active at a pruning layer.
func (f *followed) follow(layer, generated int, q []float64) {
	f.recent[layer] = append(f.recent[layer], q)
	pos := f.reach(layer, 0)
	all := f.reach(layer, generated)
	var k, w [][]float64
	for _, at := range all {
		k = append(k, f.kv[layer][at][0])
	}
	for h := range f.m.Layer[0].Heads {
		w = append(w, f.weights(q, k, h, nil)[:len(pos)])
	}
	f.active[layer] = f.choose(layer, pos, f.recent[layer], k[:len(pos)], w, f.active[layer])
}

// step is one decoded token in plain loops: at each pruning layer the tokens that have no keys in the stage's layers, and are
// active after the step, go through them first.
func (f *followed) step(t *testing.T, id, generated int) []float64 {
	t.Helper()
	x, pos := slices.Clone(values(t, f.m.Params.Embed)[id]), f.n+generated-1
	for layer := range f.m.Layers {
		q := f.keys(t, layer, pos, x)
		if slices.Contains(f.layers, layer) {
			f.follow(layer, generated, q)
			rows := map[int][]float64{}
			var late []int
			for _, at := range f.active[layer] {
				if _, there := f.kv[f.until(layer)][at]; !there {
					late, rows[at] = append(late, at), slices.Clone(f.inputs[layer][at])
				}
			}
			f.bring(t, layer, late, rows)
		}
		f.row(t, layer, pos, x, q, f.reach(layer, generated))
	}
	return times(values(t, f.m.Params.Output), f.norm(t, x, f.m.Params.FinalNorm))
}

// bring takes late rows through the stage of a pruning layer.
func (f *followed) bring(t *testing.T, from int, late []int, rows map[int][]float64) {
	t.Helper()
	for layer := from; layer <= f.until(from); layer++ {
		queries := map[int][]float64{}
		for _, at := range late {
			queries[at] = f.keys(t, layer, at, rows[at])
		}
		if layer == f.until(from) {
			return
		}
		for _, at := range late {
			f.row(t, layer, at, rows[at], queries[at], f.reach(layer, 0))
		}
	}
}

// TestFollowingMatchesPlainLoops: decoded logits under swapped blocks and returning tokens, and what every layer shows, are
// those of loops that choose by the papers' formulas in every stage, recompute what comes back, and read what is active.
func TestFollowingMatchesPlainLoops(t *testing.T) {
	t.Parallel()
	e := small(t, Options{})
	const n = 101
	ids := fakes.IDs(n, 70)
	two := map[int]int{0: 64, 1: 48}
	for _, c := range []struct {
		spec   string
		layers []int
		prune  func(int, []int, [][]float64, [][]float64, [][]float64) []int
		follow follower
	}{
		{"sliminfer:layers=1/2,keep=64/48,block=16,unit=4,window=3,gamma=1", []int{0, 1}, slimReference(e.m, two, 16, 4, 3), slimFollower(e.m, two, 16, 4, 3, 1)},
		{"sliminfer:layers=1/2,keep=64/48,block=16,unit=4,window=3,gamma=0.7", []int{0, 1}, slimReference(e.m, two, 16, 4, 3), slimFollower(e.m, two, 16, 4, 3, 0.7)},
		{"lazyllm:layers=1/2,keep=40%", []int{0, 1}, lazyReference(e.m, []int{0, 1}, 0.4), lazyFollower(0.4)},
		{"lazyllm:layers=2,keep=20%", []int{1}, lazyReference(e.m, []int{1}, 0.2), lazyFollower(0.2)},
	} {
		t.Run(strings.ReplaceAll(c.spec, "/", "-"), func(t *testing.T) {
			want := followed{plain: plain{m: e.m, prune: c.prune}, n: n, layers: c.layers, choose: c.follow}
			want.run(t, ids)
			want.begin()
			s := prefilled(t, small(t, Options{Exact: true, Policy: c.spec, ChunkTokens: 32}), ids)
			for i, id := range fakes.IDs(8, 71) {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
				logits := want.step(t, id, i+1)
				for layer := range e.m.Layers {
					if err := showsActive(s, layer, want.reach(layer, i+1)); err != nil {
						t.Fatalf("step %d: %v", i, err)
					}
				}
				for j, x := range s.Logits() {
					if math.Abs(float64(x)-logits[j]) > 2e-4*math.Abs(logits[j])+2e-4 {
						t.Fatalf("step %d: logit %d is %g, want %g", i, j, x, logits[j])
					}
				}
			}
			u := s.KVUse().Swaps
			if u.Swaps == 0 || u.Revived == 0 || u.AuxBytes == 0 || (s.text.Policy().Swapper != nil) != (u.ParkedBytes > 0) {
				t.Errorf("nothing came back: %+v", u)
			}
		})
	}
}

// showsActive checks what a layer's views hold: the wanted positions (under LazyLLM among others, which are not read).
func showsActive(s *Session, layer int, want []int) error {
	for g := range s.e.m.Layer[0].KVHeads {
		var got []int
		for _, p := range s.text.Seq().PositionList(layer, g) {
			if s.text.Policy().Swapper != nil || slices.Contains(want, int(p)) {
				got = append(got, int(p))
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("layer %d head %d shows %v, want %v", layer, g, got, want)
		}
	}
	return nil
}

// TestFollowingDoesNotDependOnTheMachine: threads, page size, pass size and the other sequences of a batch change no bit of
// what is decoded while tokens come and go; a selecting policy sees the swapped blocks; rewinding reads again.
func TestFollowingDoesNotDependOnTheMachine(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 80), fakes.IDs(12, 81)
	const block, row = 4096, 4 * 128 // host memory holds pages, and rows that may come back
	for spec, host := range map[string]int64{"sliminfer:layers=1/2,keep=128/96,block=32,gamma=1": 32*block + 224*row, "lazyllm:layers=1/2": 36*block + 225*row,
		"sliminfer:layers=1,keep=128,block=32,gamma=1+quest:budget=48": 44*block + 192*row} {
		e := small(t, Options{Threads: 1, Policy: spec})
		want := forced(t, e, prompt, next)
		for _, o := range []Options{{ChunkTokens: 48, PageTokens: 32}, {Threads: 2}} {
			o.Policy = spec
			if d := fakes.Worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("%s, passes of %d: logits differ by %g", spec, o.ChunkTokens, d)
			}
		}
		if d := fakes.Worst(want, inBatch(t, e, prompt, next)); d != 0 {
			t.Errorf("%s in a batch: logits differ by %g", spec, d)
		}
		o := Options{Threads: 2, Policy: spec, ChunkTokens: 32, KVBudgetBytes: host}
		o.Store = below(t, o)
		tiered := small(t, o)
		if d := fakes.Worst(want, forced(t, tiered, prompt, next)); d != 0 {
			t.Errorf("%s with KV below host memory: logits differ by %g", spec, d)
		}
		if st := o.Store.Stats(); st.Reads == 0 || tiered.KV().PeakBytes > o.KVBudgetBytes {
			t.Errorf("%s: %+v with %d bytes in host memory", spec, st, tiered.KV().PeakBytes)
		}
		s := prefilled(t, e, prompt)
		for _, id := range next {
			if err := s.Decode(id); err != nil {
				t.Fatal(err)
			}
		}
		if s.KVUse().Swaps.Swaps == 0 {
			t.Errorf("%s never swapped", spec)
		}
		if err := s.Rewind(len(prompt)); err != nil || !slices.Equal(s.Logits(), want[0]) {
			t.Errorf("%s rewound: %v", spec, err)
		}
		none := forced(t, small(t, Options{Policy: revived(spec, "none")}), prompt, next)
		if fakes.Worst(want[:1], none[:1]) != 0 || fakes.Worst(want, none) == 0 {
			t.Errorf("%s: revive=none is %g from the prompt's logits and %g from the decoded ones", spec, fakes.Worst(want[:1], none[:1]), fakes.Worst(want, none))
		}
	}
}

// TestRowsThatMayComeBackAreHeld: what a text holds counts the rows that left at each pruning layer, and nothing more where none
// may come back; as rows come back, pages that are parked for them count.
func TestRowsThatMayComeBackAreHeld(t *testing.T) {
	const n, left = 101, 3*16 + 16 // blocks of 16 and a last one of 5: four of seven stay, then three
	spec, held := "sliminfer:layers=1/2,keep=64/48,block=16,unit=4,gamma=1", map[string]int64{}
	for _, revive := range []string{"aux", "none"} {
		e := small(t, Options{Policy: revived(spec, revive)})
		s := prefilled(t, e, fakes.IDs(n, 70))
		held[revive] = s.KVUse().HeldBytes()
		for i := range 4 {
			if err := s.Decode(i); err != nil {
				t.Fatal(err)
			}
		}
		if u := s.KVUse(); revive == "aux" && (u.Swaps.ParkedBytes == 0 || u.HeldBytes() != e.KV().InUseBytes) {
			t.Errorf("%d bytes are held, %d are charged to host memory, %+v", u.HeldBytes(), e.KV().InUseBytes, u.Swaps)
		}
		s.Close()
		if n := e.KV().InUseBytes; n != 0 {
			t.Errorf("%d bytes are charged when no text is left", n)
		}
	}
	if got, want := held["aux"]-held["none"], int64(4*left*128); got != want {
		t.Errorf("%d bytes more are held where rows may come back, want %d", got, want)
	}
}

// revived gives the first policy of a specification a revive parameter.
func revived(spec, how string) string {
	for i, c := range spec {
		if c == '+' {
			return spec[:i] + ",revive=" + how + spec[i:]
		}
	}
	return spec + ",revive=" + how
}

// TestRowsThatMayComeBackNeedRoom: a budget in host memory that has room for the pages and not for the rows is refused, with the
// way out; with it the prompt is read.
func TestRowsThatMayComeBackNeedRoom(t *testing.T) {
	spec := "sliminfer:layers=1,keep=64,block=16"
	for revive, fits := range map[string]bool{"aux": false, "none": true} {
		e := small(t, Options{Policy: revived(spec, revive), KVBudgetBytes: 400 * 2 * 2 * 2 * 32 * 3 / 2})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		err = s.Prefill(t.Context(), fakes.IDs(400, 1), PrefillHooks{})
		if fits && err != nil || !fits && (!errors.Is(err, kvmanager.ErrBudget) || !strings.Contains(err.Error(), "revive=none")) {
			t.Errorf("revive=%s: %v", revive, err)
		}
		s.Close()
		if n := e.KV().InUseBytes; n != 0 {
			t.Errorf("revive=%s: %d bytes are charged when no text is left", revive, n)
		}
	}
}

// TestFollowingRefusals: what cannot come back is refused with the reason.
func TestFollowingRefusals(t *testing.T) {
	m := small(t, Options{}).m
	for _, o := range []Options{
		{Policy: "sliminfer", KVTypeSet: true, KType: kvpage.I8, VType: kvpage.I8},
		{Policy: "sliminfer:block=48", PageTokens: 32},
	} {
		if _, err := Open(m, o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	for _, spec := range []string{"sliminfer:revive=aux+h2o", "lazyllm:revive=aux+quest", "lazyllm:revive=aux+tova"} {
		if _, err := Open(m, Options{Policy: spec}); err == nil {
			t.Errorf("%s was taken", spec)
		}
	}
}
