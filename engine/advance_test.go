package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
)

// riders opens sessions that decode and prompts that are read, all of which may share passes.
func riders(t *testing.T, e *Engine, decoding, reading [][]int) (sessions []*Session, prompts []*PromptReading) {
	t.Helper()
	for _, ids := range reading {
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		r, err := s.BeginPrompt(ids, PrefillHooks{})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Rides() {
			t.Fatal("the prompt does not ride")
		}
		prompts = append(prompts, r)
	}
	for _, ids := range decoding {
		s := opened(t, e, "full", ids)
		if !s.Rides() {
			t.Fatal("a prompt rides and a session does not")
		}
		sessions = append(sessions, s)
	}
	return sessions, prompts
}

// TestSharedPasses: steps of three sessions and parts of two prompts in one pass leave the logits that each has alone, bit for bit, in
// every form of KV, and so does what follows.
func TestSharedPasses(t *testing.T) {
	t.Parallel()
	next := fakes.IDs(40, 9)
	for name, o := range map[string]Options{
		"f16": {}, "exact": {Exact: true}, "rotated": {Rotate: RotateBoth},
		"int8": {KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true, KVWindow: 32, KVWindowSet: true},
		"int3": {KType: kvpage.I3, VType: kvpage.I2, KVTypeSet: true, KVWindow: 32, KVWindowSet: true},
	} {
		for _, open := range []func(testing.TB, Options) *Engine{small, windowed, withExperts} {
			o.Threads, o.Context, o.ChunkTokens = 2, 700, 64
			t.Run(fmt.Sprint(name, " ", open(t, o).m.Arch), func(t *testing.T) {
				t.Parallel()
				decoding, reading := [][]int{fakes.IDs(70, 1), fakes.IDs(33, 2), fakes.IDs(5, 3)}, [][]int{fakes.IDs(300, 4), fakes.IDs(600, 5)}
				var alone [][][]float32
				for _, ids := range slices.Concat(decoding, reading) {
					alone = append(alone, forced(t, open(t, o), ids, next))
				}
				e := open(t, o)
				sessions, prompts := riders(t, e, decoding, reading)
				step, steps := 0, []int{0, 0, 0, -1, -1}
				all := append(slices.Clone(sessions), prompts[0].s, prompts[1].s)
				for live := sessions; step < 12 || prompts[1].Left() > 0; step++ {
					var parts []Part
					for i, r := range prompts {
						if r.Left() > 0 {
							parts = append(parts, Part{r, []int{17, 3, 64, 40}[(step+i)%4]})
						}
					}
					var ids []int
					for i, s := range all {
						if slices.Contains(live, s) {
							ids = append(ids, next[steps[i]])
							steps[i]++
						}
					}
					if err := errors.Join(e.Advance(live, ids, parts)...); err != nil {
						t.Fatal(err)
					}
					for i, r := range prompts { // who has read its prompt goes on with steps
						if r.Left() == 0 && steps[3+i] < 0 {
							steps[3+i], live = 0, append(slices.Clone(live), r.s)
						}
					}
					for i, s := range all {
						if steps[i] >= 0 && !slices.Equal(s.Logits(), alone[i][steps[i]]) {
							t.Fatalf("pass %d: session %d after %d steps: logits differ by %g", step, i, steps[i], fakes.Worst([][]float32{s.Logits()}, alone[i][steps[i]:]))
						}
					}
				}
				if steps[3] < 1 {
					t.Error("no prompt went on: the test sees less than it should")
				}
			})
		}
	}
}

// TestFailingInASharedPass: a session whose context is full and a prompt for which memory is short leave the pass as they were, and the others compute what
// they compute without them.
func TestFailingInASharedPass(t *testing.T) {
	t.Parallel()
	const token = 3 * 2 * 32 * 2 * 2 // 3 layers, 2 heads of 32, K and V in f16
	o := Options{Threads: 2, Context: 120, ChunkTokens: 128, KVBudgetBytes: token * (128 + 96 + 48 + 16)}
	next := fakes.IDs(20, 9)
	decoding, reading := [][]int{fakes.IDs(120, 1), fakes.IDs(80, 2)}, [][]int{fakes.IDs(40, 3), fakes.IDs(100, 4)}
	want := [][][]float32{forced(t, small(t, o), decoding[1], next[1:2]), forced(t, small(t, o), reading[0], nil), forced(t, small(t, o), reading[1], nil)}
	e := small(t, o)
	sessions, prompts := riders(t, e, decoding, reading)
	errs := e.Advance(sessions, next[:2], []Part{{prompts[0], 40}, {prompts[1], 96}})
	if !errors.Is(errs[0], ErrContext) || errs[1] != nil || errs[2] != nil || !errors.Is(errs[3], kvmanager.ErrBudget) {
		t.Fatalf("errors %v", errs)
	}
	if sessions[0].Tokens() != 120 || prompts[1].Left() != 100 || prompts[0].Left() != 0 {
		t.Errorf("%d tokens, %d and %d left", sessions[0].Tokens(), prompts[1].Left(), prompts[0].Left())
	}
	if !slices.Equal(sessions[1].Logits(), want[0][1]) || !slices.Equal(prompts[0].s.Logits(), want[1][0]) {
		t.Error("others' logits are not what they are alone")
	}
	sessions[0].Close() // now there is room
	if err := errors.Join(e.Advance(sessions[1:], next[2:3], []Part{{prompts[1], 50}})...); err != nil {
		t.Fatal(err)
	}
	if err := prompts[1].Read(t.Context(), 100); err != nil || !slices.Equal(prompts[1].s.Logits(), want[2][0]) {
		t.Errorf("the prompt that had no room: %v", err)
	}
}

// TestWhoDoesNotRide: policies and tiers keep sessions out of shared passes.
func TestWhoDoesNotRide(t *testing.T) {
	if opened(t, small(t, Options{}), "h2o:budget=30%", fakes.IDs(50, 1)).Rides() {
		t.Error("a session under h2o rides")
	}
	o := Options{}
	o.Store, o.KVBudgetBytes = below(t, o), 200*4096
	if opened(t, small(t, o), "full", fakes.IDs(50, 1)).Rides() {
		t.Error("a session above a tier rides")
	}
}
