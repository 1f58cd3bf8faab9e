package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"terrace/internal/kvpage"
)

// activePositions is what a stage's layers are to show of a prompt.
func activePositions(s *Session, st *pruneStage) (out []int) {
	if s.text.Policy().Swapper == nil {
		for _, p := range st.active {
			out = append(out, int(p))
		}
		return out
	}
	size := s.text.Policy().Swapper.BlockTokens()
	for _, b := range st.swap.Active {
		for p := int(b) * size; p < min(int(b+1)*size, int(st.prompt)); p++ {
			out = append(out, p)
		}
	}
	return out
}

// reach lists what a row of a layer attends to after a prompt of n tokens and some generated ones, with these active sets.
func reach(s *Session, layer, n, generated int) []int {
	out := rowsOf(n)
	for _, st := range s.revival.stages {
		if st.layer < layer && layer <= st.until {
			out = activePositions(s, st)
		}
	}
	for i := range generated {
		out = append(out, n+i)
	}
	return out
}

// step is one decoded token in plain loops: at each pruning layer the tokens that have no keys in the stage's layers, and are
// active after the step, go through them first.
func (p *plain) step(t *testing.T, s *Session, id, n, generated int) []float64 {
	t.Helper()
	x, pos := slices.Clone(values(t, p.m.Params.Embed)[id]), n+generated-1
	for layer := range p.m.Layers {
		q := p.keys(t, layer, pos, x)
		if st := s.revival.stage(layer); st != nil {
			rows := map[int][]float64{}
			var late []int
			for _, at := range activePositions(s, st) {
				if _, there := p.kv[st.until][at]; !there {
					late, rows[at] = append(late, at), slices.Clone(p.inputs[layer][at])
				}
			}
			p.bring(t, s, st, late, rows, n)
		}
		p.row(t, layer, pos, x, q, reach(s, layer, n, generated))
	}
	return times(values(t, p.m.Params.Output), p.norm(t, x, p.m.Params.FinalNorm))
}

// bring takes late rows through a stage.
func (p *plain) bring(t *testing.T, s *Session, st *pruneStage, late []int, rows map[int][]float64, n int) {
	t.Helper()
	for layer := st.layer; layer <= st.until; layer++ {
		queries := map[int][]float64{}
		for _, at := range late {
			queries[at] = p.keys(t, layer, at, rows[at])
		}
		if layer == st.until {
			return
		}
		for _, at := range late {
			p.row(t, layer, at, rows[at], queries[at], reach(s, layer, n, 0))
		}
	}
}

// TestFollowingMatchesPlainLoops: decoded logits under swapped blocks and returning tokens are those of loops that recompute
// what comes back and read what is active.
func TestFollowingMatchesPlainLoops(t *testing.T) {
	t.Parallel()
	e := small(t, Options{})
	const n = 101
	ids := someIDs(n, 70)
	for spec, prune := range map[string]func(int, []int, [][]float64, [][]float64, [][]float64) []int{
		"sliminfer:layers=1/2,keep=64/48,block=16,unit=4,window=3,gamma=1": slimReference(e.m, map[int]int{0: 64, 1: 48}, 16, 4, 3),
		"lazyllm:layers=1/2,keep=40%":                                      lazyReference(e.m, []int{0, 1}, 0.4),
		"lazyllm:layers=2,keep=20%":                                        lazyReference(e.m, []int{1}, 0.2),
	} {
		t.Run(spec[:9], func(t *testing.T) {
			want := plain{m: e.m, prune: prune}
			want.run(t, ids)
			s := prefilled(t, small(t, Options{Exact: true, Policy: spec, ChunkTokens: 32}), ids)
			for i, id := range someIDs(8, 71) {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
				logits := want.step(t, s, id, n, i+1)
				for j, x := range s.Logits() {
					if math.Abs(float64(x)-logits[j]) > 2e-4*math.Abs(logits[j])+2e-4 {
						t.Fatalf("step %d: logit %d is %g, want %g", i, j, x, logits[j])
					}
				}
				for layer := range e.m.Layers {
					if err := showsActive(s, layer, n, i+1); err != nil {
						t.Fatal(err)
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

// showsActive checks what a layer's views hold: the active prompt tokens (under LazyLLM among others, which are not read).
func showsActive(s *Session, layer, n, generated int) error {
	want := reach(s, layer, n, generated)
	for g := range s.e.m.KVHeads {
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
	prompt, next := someIDs(300, 80), someIDs(12, 81)
	for _, spec := range []string{"sliminfer:layers=1/2,keep=128/96,block=32,gamma=1", "lazyllm:layers=1/2", "sliminfer:layers=1,keep=128,block=32,gamma=1+quest:budget=48"} {
		e := small(t, Options{Threads: 1, Policy: spec})
		want := forced(t, e, prompt, next)
		for _, o := range []Options{{ChunkTokens: 48, PageTokens: 32}, {Threads: 2}} {
			o.Policy = spec
			if d := worst(want, forced(t, small(t, o), prompt, next)); d != 0 {
				t.Errorf("%s, passes of %d: logits differ by %g", spec, o.ChunkTokens, d)
			}
		}
		if d := worst(want, inBatch(t, e, prompt, next)); d != 0 {
			t.Errorf("%s in a batch: logits differ by %g", spec, d)
		}
		o := Options{Threads: 2, Policy: spec, ChunkTokens: 32, KVBudgetBytes: 44 * 4096}
		o.Store = below(t, o)
		tiered := small(t, o)
		if d := worst(want, forced(t, tiered, prompt, next)); d != 0 {
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
		if worst(want[:1], none[:1]) != 0 || worst(want, none) == 0 {
			t.Errorf("%s: revive=none is %g from the prompt's logits and %g from the decoded ones", spec, worst(want[:1], none[:1]), worst(want, none))
		}
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
