package retrieval

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"terrace/kvmanager"
	"terrace/policy"
)

// keptTokens is what a policy that drops leaves of a layer, step by step, by the formulas of its paper: per KV head, positions.
type keptTokens interface {
	// prompt is called with the positions of the whole prompt; step with the position of a decode step, whose token is in the list. Both
	// return what stays.
	prompt(s *slow, g int, n int32) []int32
	step(s *slow, g int, kept []int32, at int32) []int32
}

// slowH2O keeps half of the budget as heavy hitters by their column sums over all queries, half as the newest.
type slowH2O struct {
	budget int
	sums   map[[2]int]map[int32]float64 // by layer and KV head, by position
}

func (p *slowH2O) sum(s *slow, g int) map[int32]float64 {
	at := [2]int{s.layer, g}
	if p.sums[at] == nil {
		p.sums[at] = map[int32]float64{}
	}
	return p.sums[at]
}

func (p *slowH2O) add(s *slow, g int, tokens []int32, at int32) {
	sum := p.sum(s, g)
	for h := g * s.group(); h < (g+1)*s.group(); h++ {
		for i, w := range s.weights(h, at, tokens) {
			sum[tokens[i]] += w
		}
	}
}

func (p *slowH2O) prompt(s *slow, g int, n int32) []int32 {
	for at := range n {
		p.add(s, g, upTo(at+1), at)
	}
	return p.keep(s, g, upTo(n))
}

func (p *slowH2O) step(s *slow, g int, kept []int32, at int32) []int32 {
	p.add(s, g, kept, at)
	return p.keep(s, g, kept)
}

func (p *slowH2O) keep(s *slow, g int, tokens []int32) []int32 {
	recent := p.budget / 2
	old := tokens[:len(tokens)-recent]
	scores := make([]float64, len(old))
	for i, pos := range old {
		scores[i] = p.sum(s, g)[pos]
	}
	var out []int32
	for _, i := range best(scores, p.budget-recent) {
		out = append(out, old[i])
	}
	return append(out, tokens[len(old):]...)
}

// slowSnap keeps of the prompt what its last 64 queries attend to, pooled over five neighbours, and those 64.
type slowSnap struct{ budget int }

func (p *slowSnap) prompt(s *slow, g int, n int32) []int32 {
	const window, kernel = 64, 5
	old := int(n) - window
	mean := make([][]float64, s.group())
	for h := range mean {
		mean[h] = make([]float64, old)
		for at := n - window; at < n; at++ {
			for i, w := range s.weights(g*s.group()+h, at, upTo(at+1))[:old] {
				mean[h][i] += w / window
			}
		}
	}
	scores := make([]float64, old)
	for h := range mean {
		for i := range scores {
			for j := max(i-kernel/2, 0); j <= min(i+kernel/2, old-1); j++ {
				scores[i] += mean[h][j] / kernel / float64(s.group())
			}
		}
	}
	var out []int32
	for _, i := range best(scores, p.budget-window) {
		out = append(out, int32(i))
	}
	return append(out, upTo(n)[old:]...)
}

func (p *slowSnap) step(_ *slow, _ int, kept []int32, _ int32) []int32 { return kept }

// slowStreaming keeps four sinks and the newest.
type slowStreaming struct{ budget int }

func (p *slowStreaming) prompt(_ *slow, _ int, n int32) []int32 { return p.keep(upTo(n)) }

func (p *slowStreaming) step(_ *slow, _ int, kept []int32, _ int32) []int32 { return p.keep(kept) }

func (p *slowStreaming) keep(tokens []int32) []int32 {
	return slices.Concat(tokens[:4], tokens[len(tokens)-p.budget+4:])
}

// slowTOVA keeps what the newest query attends to, over all heads of the layer, and the newest token.
type slowTOVA struct{ budget int }

func (p *slowTOVA) prompt(s *slow, _ int, n int32) []int32 { return p.keep(s, upTo(n), n-1) }

func (p *slowTOVA) step(s *slow, _ int, kept []int32, at int32) []int32 { return p.keep(s, kept, at) }

func (p *slowTOVA) keep(s *slow, tokens []int32, at int32) []int32 {
	scores := make([]float64, len(tokens)-1)
	for h := range s.shape.Layers[s.layer].Heads {
		for i, w := range s.weights(h, at, tokens)[:len(scores)] {
			scores[i] += w
		}
	}
	var out []int32
	for _, i := range best(scores, p.budget-1) {
		out = append(out, tokens[i])
	}
	return append(out, tokens[len(tokens)-1])
}

// TestDroppingIsTheFormulas: after the prompt and after each step every layer and head holds what the reference does, in host memory and on
// tiers, in one chunk and in several.
func TestDroppingIsTheFormulas(t *testing.T) {
	const prompt, steps = 140, 5
	for name, reference := range map[string]func() keptTokens{
		"h2o:budget=60":           func() keptTokens { return &slowH2O{60, map[[2]int]map[int32]float64{}} },
		"snapkv:budget=90":        func() keptTokens { return &slowSnap{90} },
		"streaming_llm:budget=40": func() keptTokens { return &slowStreaming{40} },
		"tova:budget=40":          func() keptTokens { return &slowTOVA{40} },
	} {
		for _, with := range []setup{{}, {blocks: 60}} {
			bubble(t, fmt.Sprintf("%s, %d blocks", name, with.blocks), func(t *testing.T) {
				s := openScenario(t, parsed(t, name), with)
				defer s.close(t)
				x := s.text(t, "a", parsed(t, name))
				if err := s.prompt(x, prompt, 64); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				ref, kept := reference(), map[[2]int][]int32{}
				each := func(do func(s *slow, g int)) {
					for layer := range s.shared.o.Shape.Layers {
						for g := range s.shared.o.Shape.kv(layer).Heads {
							do(slowly(x, layer), g)
						}
					}
				}
				each(func(l *slow, g int) {
					kept[[2]int{l.layer, g}] = ref.prompt(l, g, prompt)
					l.holds(t, g, kept[[2]int{l.layer, g}])
				})
				for range steps {
					at := x.Read()
					if err := s.step(x); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					each(func(l *slow, g int) {
						had := append(kept[[2]int{l.layer, g}], at)
						if !slices.Equal(x.picks[l.layer][g], had) {
							t.Fatalf("layer %d head %d read %v, want %v", l.layer, g, x.picks[l.layer][g], had)
						}
						kept[[2]int{l.layer, g}] = ref.step(l, g, had, at)
						l.holds(t, g, kept[[2]int{l.layer, g}])
					})
				}
			})
		}
	}
}

// holds compares what the sequence has of a layer and head.
func (s *slow) holds(t *testing.T, g int, want []int32) {
	t.Helper()
	if got := s.x.Positions(s.layer, g); !slices.Equal(got, want) {
		t.Fatalf("after %d tokens layer %d head %d holds %v, want %v", s.x.Read(), s.layer, g, got, want)
	}
	if n := s.x.Held(s.layer, g); n != len(want) {
		t.Fatalf("layer %d head %d: %d tokens held, %d positions", s.layer, g, n, len(want))
	}
}

// testKeeper is a policy of a test's own: it keeps, drops and changes what the test says.
type testKeeper struct {
	needs    policy.Needs
	seen     func(l *policy.Layer)
	keep     func(l *policy.Layer, keep *policy.Selection)
	drop     func(l *policy.Layer, drop *policy.Selection)
	due      func(n, prompt int) bool
	channels func(l *policy.Layer, zero *policy.Selection)
	closes   bool
}

func (p *testKeeper) Name() string        { return "test" }
func (p *testKeeper) String() string      { return "test" }
func (p *testKeeper) Needs() policy.Needs { return p.needs }
func (p *testKeeper) ClosesGaps() bool    { return p.closes }

func (p *testKeeper) KeepPrompt(l *policy.Layer, keep *policy.Selection) {
	if p.seen != nil {
		p.seen(l)
	}
	if keep.All = p.keep == nil; !keep.All {
		p.keep(l, keep)
	}
}

func (p *testKeeper) DropStep(l *policy.Layer, drop *policy.Selection) {
	if p.seen != nil {
		p.seen(l)
	}
	p.drop(l, drop)
}

func (p *testKeeper) Due(n, prompt int) bool { return p.due == nil || p.due(n, prompt) }

func (p *testKeeper) ZeroChannels(l *policy.Layer, zero *policy.Selection) { p.channels(l, zero) }

// set is the policies that the test has said something of.
func (p *testKeeper) set() *policy.Set {
	s := &policy.Set{Parts: []policy.Policy{p}, Keeper: p}
	if p.drop != nil {
		s.Dropper = p
	}
	if p.channels != nil {
		s.Channels = p
	}
	return s
}

// TestStepDropsWhatIsNamed: indices name tokens in the order of the cache, a head that names none keeps all, and who drops everything at
// once is refused; the schedule says when it is asked.
func TestStepDropsWhatIsNamed(t *testing.T) {
	bubble(t, "steps", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		all, asked := false, 0
		p := &testKeeper{due: func(n, prompt int) bool {
			if prompt != 20 {
				t.Errorf("a prompt of %d tokens", prompt)
			}
			return n%2 == 0
		}}
		p.drop = func(l *policy.Layer, drop *policy.Selection) {
			asked++
			if drop.All = all; !all {
				drop.Heads[0] = append(drop.Heads[0], 0, 2, int32(l.Tokens(0)-1))
			}
		}
		x := s.under(t, "a", p.set(), spec)
		if err := s.prompt(x, 20, 64); err != nil {
			t.Fatal(err)
		}
		want := upTo(20)
		for step := range 4 {
			if err := s.step(x); err != nil {
				t.Fatal(err)
			}
			s.check(t)
			want = append(want, int32(20+step))
			if (21+step)%2 == 0 {
				want = slices.Concat(want[1:2], want[3:len(want)-1])
			}
			for layer := range 3 {
				if got := x.Positions(layer, 0); !slices.Equal(got, want) {
					t.Fatalf("step %d, layer %d: %v, want %v", step, layer, got, want)
				}
				if got := x.Positions(layer, 1); !slices.Equal(got, upTo(int32(21+step))) {
					t.Fatalf("step %d, layer %d: the other head lost tokens: %v", step, layer, got)
				}
			}
		}
		if asked != 2*3 {
			t.Errorf("asked %d times, want at two steps in three layers", asked)
		}
		all = true
		if err := errors.Join(s.step(x), s.step(x)); !errors.Is(err, kvmanager.ErrPlan) {
			t.Errorf("dropping everything: %v", err)
		}
	})
}

// TestGapsAreClosed: tokens that stay of a prompt move to the positions before its end, in their order.
func TestGapsAreClosed(t *testing.T) {
	bubble(t, "gaps", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testKeeper{closes: true, keep: func(l *policy.Layer, keep *policy.Selection) {
			keep.Heads[0] = append(keep.Heads[0], 3, 7, 30, 49)
			keep.Heads[1] = append(keep.Heads[1], upTo(50)[10:]...)
		}}
		x := s.under(t, "a", p.set(), spec)
		if err := s.prompt(x, 50, 64); err != nil {
			t.Fatal(err)
		}
		s.check(t)
		for layer := range 3 {
			if got := x.Positions(layer, 0); !slices.Equal(got, []int32{46, 47, 48, 49}) {
				t.Errorf("layer %d: %v", layer, got)
			}
			if got := x.Positions(layer, 1); !slices.Equal(got, upTo(50)[10:]) {
				t.Errorf("layer %d, without gaps: %v", layer, got)
			}
			l, moved := x.Layer(layer, 0), make([]float32, 4*32)
			l.KV.Keys(0, 0, 4, moved)
			for i, pos := range []int32{3, 7, 30, 49} { // this rope turns nothing: keys are those of the old positions
				for d, k := range slowly(x, layer).key(0, pos) {
					if float64(moved[i*32+d]) != k {
						t.Fatalf("layer %d, token %d: its key changed", layer, i)
					}
				}
			}
		}
	})
}

// TestChannelsAreZeroed: the channels that are named of each head are 0 in every key of the prompt that stays, and in no other.
func TestChannelsAreZeroed(t *testing.T) {
	bubble(t, "channels", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testKeeper{channels: func(l *policy.Layer, zero *policy.Selection) { zero.Heads[1] = append(zero.Heads[1], 0, 31) }}
		x := s.under(t, "a", p.set(), spec)
		if err := errors.Join(s.prompt(x, 40, 64), s.step(x)); err != nil {
			t.Fatal(err)
		}
		for layer := range 3 {
			keys := x.Keys(layer)
			if len(keys) != 41*2*32 {
				t.Fatalf("%d numbers of keys", len(keys))
			}
			for i := range 41 {
				for g := range 2 {
					for d, want := range slowly(x, layer).key(g, int32(i)) {
						if g == 1 && (d == 0 || d == 31) && i < 40 {
							want = 0
						}
						if got := keys[(i*2+g)*32+d]; float64(got) != want {
							t.Fatalf("layer %d, token %d, head %d, channel %d: %g, want %g", layer, i, g, d, got, want)
						}
					}
				}
			}
		}
	})
}
