package retrieval

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/csdshim"
	"terrace/kvmanager"
)

// swapPolicies choose single tokens where blocks of 32 come and go behind the first layer.
var swapPolicies = []string{
	"sliminfer:layers=1,keep=160,block=32,gamma=1+hillinfer:guess_from=1,alpha=0.3",
	"sliminfer:layers=1,keep=160,block=32,gamma=1+hillinfer:query=prev_step,alpha=0.2,recent_in_selection=true",
	"sliminfer:layers=1,keep=160,block=32,gamma=1+hillinfer:query=exact,scale=channel,score=int4,alpha=0.2,beta_mode=fixed,beta=0.2",
	"sliminfer:layers=1,keep=160,block=32,gamma=1+quest:budget=64,dense_layers=0",
}

// swap makes blocks of layers 1 and 2 inactive and active, as a policy would.
func (s *scenario) swap(x *scenarioText, off, on []int32) error {
	const size = 32
	swapping := x.BeginSwap(1, 2)
	var err error
	for layer := 1; layer <= 2; layer++ {
		for _, b := range off {
			err = errors.Join(err, x.Seq().Swaps().Deactivate(layer, b*size, (b+1)*size))
		}
	}
	for layer := 1; layer <= 2; layer++ {
		for _, b := range on {
			err = errors.Join(err, x.Seq().Swaps().Activate(layer, b*size))
		}
		x.Bring(layer)
	}
	return errors.Join(err, swapping.Layers(0, 2)) // layer 0 has nothing to follow
}

// TestSwapsAreFollowed: whatever blocks come and go, a step reads the best of the tokens that are active, the same in memory, on tiers and
// with a drive, which numbers tokens by their records; hot tokens stay hot.
func TestSwapsAreFollowed(t *testing.T) {
	const prompt, blocks = 320, 320 / 32
	for _, name := range swapPolicies {
		bubble(t, name, func(t *testing.T) {
			spec := parsed(t, name)
			codes := csdshim.CodesInt8
			if spec.Needs().Sketch.Kind.String() == "int4" {
				codes = csdshim.CodesInt4
			}
			var all []*scenario
			for _, with := range []setup{{}, {blocks: 260}, {blocks: 260, codes: codes}} {
				s := openScenario(t, spec, with)
				defer s.close(t)
				x := s.text(t, "a", spec)
				x.SetPrompt(prompt)
				if err := s.prompt(x, prompt, 64); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				all = append(all, s)
			}
			rng, active := rand.New(rand.NewPCG(1, 2)), make([]bool, blocks)
			for b := range active {
				active[b] = true
			}
			for step := range 24 {
				var off, on []int32
				for b := 1; b < blocks-1; b++ {
					if rng.IntN(4) > 0 {
						continue
					}
					if active[b] = !active[b]; active[b] {
						on = append(on, int32(b))
					} else {
						off = append(off, int32(b))
					}
				}
				for i, s := range all {
					x := s.texts["a"]
					if err := errors.Join(s.swap(x, off, on), x.AwaitSwaps(), x.ShowFresh(0), x.Release(0)); err != nil {
						t.Fatal(err)
					}
					if err := s.step(x); err != nil {
						t.Fatalf("setup %d, step %d: %v", i, step, err)
					}
					s.check(t)
					if x.outputs() != all[0].texts["a"].outputs() {
						t.Fatalf("setup %d, step %d reads or computes otherwise", i, step)
					}
					for layer := 1; layer <= 2; layer++ {
						x.expectActive(t, layer, active)
					}
				}
			}
		})
	}
}

// expectActive: a layer holds the tokens of active blocks, and a step has read none other.
func (x *scenarioText) expectActive(t *testing.T, layer int, active []bool) {
	t.Helper()
	var want []int32
	for pos := range x.Read() {
		if b := int(pos) / 32; b >= len(active) || active[b] {
			want = append(want, pos)
		}
	}
	if got := x.Positions(layer, 1); !slices.Equal(got, want) {
		t.Fatalf("layer %d holds %v, want %v", layer, got, want)
	}
	for _, pos := range x.picks[layer][0] {
		if _, found := slices.BinarySearch(want, pos); !found {
			t.Fatalf("layer %d reads position %d, which is inactive", layer, pos)
		}
	}
}

// TestWhoSwaps: what a policy may do to blocks says where choices are made ahead, what is followed, and whether a token cache can.
func TestWhoSwaps(t *testing.T) {
	bubble(t, "who", func(t *testing.T) {
		s := openScenario(t, parsed(t, "hillinfer"), setup{blocks: 260})
		defer s.close(t)
		for _, c := range []struct {
			policy                      string
			swaps, after, index, cached bool
		}{
			{"sliminfer:layers=1,keep=160,block=32+hillinfer", true, true, true, true},
			{"sliminfer:layers=1,keep=160,block=32+hillinfer:heads=kv_head", true, true, true, false},
			{"sliminfer:layers=1,keep=160,block=32,revive=none+hillinfer", false, false, false, true},
			{"sliminfer:layers=1,keep=160,block=32", true, true, true, false},
			{"hillinfer", false, false, false, true},
			{"h2o:budget=50", false, false, false, false},
		} {
			x := s.text(t, "a", parsed(t, c.policy))
			_, cached := x.res.(*cached)
			index := x.sel != nil && x.indexFollows()
			if x.swaps(0) != c.swaps || x.afterSwaps(1) != c.after || x.swaps(1) || x.afterSwaps(0) || cached != c.cached || index != (c.index && x.sel != nil) {
				t.Errorf("%s: swaps %v, chosen behind them %v, the index follows %v, cached %v: %+v", c.policy, x.swaps(0), x.afterSwaps(1), index, cached, c)
			}
			if err := x.Free(); err != nil {
				t.Fatal(err)
			}
			delete(s.texts, "a")
		}
	})
}

// TestRecordOrder: where blocks came and went in the middle the drive's numbers are records', and what is inactive has no place.
func TestRecordOrder(t *testing.T) {
	bubble(t, "order", func(t *testing.T) {
		name := swapPolicies[0]
		s := openScenario(t, parsed(t, name), setup{blocks: 260, codes: csdshim.CodesInt8})
		defer s.close(t)
		x := s.text(t, "a", parsed(t, name))
		if err := s.prompt(x, 160, 64); err != nil {
			t.Fatal(err)
		}
		var o recordOrder
		if err := o.of(x.Sequence, 1, 160); err != nil || o.limit(100) != 100 || o.token(77) != 77 {
			t.Errorf("records in their own order: %v, %+v", err, o)
		}
		if err := s.swap(x, []int32{1, 3}, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.swap(x, nil, []int32{3}); err != nil {
			t.Fatal(err)
		}
		if err := o.of(x.Sequence, 1, 128); err != nil {
			t.Fatal(err)
		}
		pos := x.Positions(1, 0)
		for stored := int32(0); stored < int32(o.limit(128)); stored++ {
			at, active := slices.BinarySearch(pos, stored) // the prompt's records lie by position
			want := int32(at)
			if !active {
				want = -1
			}
			if got := o.token(stored); got != want {
				t.Errorf("record place %d is token %d, want %d", stored, got, want)
			}
		}
		if n := o.limit(128); n != 160 {
			t.Errorf("the records of 128 tokens end before %d", n)
		}
	})
}

// TestLateTokensAreShown: tokens that are computed late come between others, and what the policy has not seen of them is brought in.
func TestLateTokensAreShown(t *testing.T) {
	bubble(t, "late", func(t *testing.T) {
		const prompt = 160
		name := swapPolicies[0]
		var out []string
		for _, with := range []setup{{}, {blocks: 260}, {blocks: 260, codes: csdshim.CodesInt8}} {
			s := openScenario(t, parsed(t, name), with)
			x := s.text(t, "a", parsed(t, name))
			x.SetPrompt(prompt)
			if err := s.prompt(x, prompt, 64); err != nil {
				t.Fatal(err)
			}
			if err := s.swap(x, []int32{2}, nil); err != nil {
				t.Fatal(err)
			}
			for layer := 1; layer <= 2; layer++ { // forgotten, and computed again
				if err := x.Seq().Swaps().Activate(layer, 64); err != nil {
					t.Fatal(err)
				}
				for g := range 2 {
					keep := slices.DeleteFunc(allOf(x.Seq().Tokens(layer, g)), func(i int) bool { return i >= 64 && i < 96 })
					if err := x.Seq().Keep(layer, g, keep); err != nil {
						t.Fatal(err)
					}
				}
			}
			swapping, fresh := x.BeginSwap(1, 2), upTo(96)[64:]
			var k, v []float32
			for layer := 1; layer <= 2; layer++ {
				k, v = nil, nil
				for _, pos := range fresh {
					k, v = append(k, x.numbers(ofKeys, layer, pos, 64)...), append(v, x.numbers(ofValues, layer, pos, 64)...)
				}
				if err := errors.Join(x.Seq().Insert(layer, k, v, fresh), swapping.Layer(layer, fresh), x.Release(layer), x.ShowFresh(layer)); err != nil {
					t.Fatal(err)
				}
				for i, page := range x.Seq().Views(layer)[1].Pages[4:6] {
					if page.Data == nil {
						t.Errorf("layer %d: page %d of what was computed late is not in memory", layer, i)
					}
				}
				if err := x.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.step(x); err != nil {
				t.Fatal(err)
			}
			s.check(t)
			out = append(out, x.outputs())
			s.close(t)
		}
		for i := range out {
			if out[i] != out[0] {
				t.Errorf("setup %d reads or computes otherwise", i)
			}
		}
	})
}

// allOf are the numbers below n.
func allOf(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestReuseIsCounted: of the groups that a policy asks for, those whole in host memory are found and the others read; both are all of them.
func TestReuseIsCounted(t *testing.T) {
	for _, blocks := range []int{150, 600} {
		bubble(t, fmt.Sprint(blocks, " blocks"), func(t *testing.T) {
			spec := parsed(t, "kvswap:budget=64,group=4,dense_layers=0,guess_from=0")
			s := openScenario(t, spec, setup{blocks: blocks, edit: func(o *Options, _ *kvmanager.Options) {
				o.Shape.Observed = unitBases(o.Shape.Model)
			}})
			defer s.close(t)
			x := s.text(t, "a", spec)
			if err := s.prompt(x, 400, 64); err != nil {
				t.Fatal(err)
			}
			for range 6 {
				before := s.shared.Accounts().Reuse()
				if err := s.step(x); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				u := s.shared.Accounts().Reuse().Minus(before)
				groups := int64(0)
				for layer := range 3 {
					whole := map[int32]int{}
					for _, pos := range x.picks[layer][0] {
						whole[pos/4]++
					}
					for group, n := range whole {
						if n == 4 && int(group)*4+4 <= int(x.Read()-1)/4*4 {
							groups++
						}
					}
				}
				if u.Asked != groups || u.Found+u.Read != u.Asked || u.GroupBytes != 4*2*128 {
					t.Errorf("%+v, want %d groups", u, groups)
				}
				if blocks == 600 && u.Read > 0 && before.Asked > 0 && u.Found == 0 {
					t.Errorf("nothing is found in a cache that holds all: %+v", u)
				}
			}
		})
	}
}
