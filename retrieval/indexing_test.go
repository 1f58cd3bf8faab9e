package retrieval

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/kvmanager"
	"terrace/policy"
)

// indexedSetup is three layers whose keys have a trained indexer's 16 numbers behind them, 8 in each of two KV heads.
func indexedSetup(block int) setup {
	kv := cacheshape.KV{Heads: 2, KeyDim: 40, ValueDim: 32, Index: 8}
	return setup{layers: cacheshape.Equal(3, 4, kv), edit: func(o *Options, _ *kvmanager.Options) {
		o.Shape.Index = &policy.Index{Heads: 3, Dim: 16, TopK: 24 / block, Block: block, Finish: func(_, position int, x []float32) {
			x[0] += float32(position) / 1000
		}}
	}}
}

// indexed are the tokens that the row at a position reads, by the indexer's formula in float64: Σ_h w_h·max(q_h·k, 0).
func (s *slow) indexed(at int32, block int) []int32 {
	x, kv := s.shape.Index, s.shape.kv(s.layer)
	units := (int(at) + 1) / block
	if units <= x.TopK {
		return upTo(at + 1)
	}
	q := s.x.numbers(ofIndex, s.layer, at, x.Heads*(x.Dim+1))
	scores := make([]float64, units)
	for unit := range scores {
		key := make([]float32, x.Dim)
		for i := range block {
			for g := range kv.Heads {
				for d, v := range s.key(g, int32(unit*block+i))[kv.KeyDim-kv.Index:] {
					key[g*kv.Index+d] += float32(v)
				}
			}
		}
		if block > 1 {
			for d := range key {
				key[d] *= 1 / float32(block)
			}
			x.Finish(s.layer, unit*block, key)
		}
		for h := range x.Heads {
			sum := 0.0
			for d, k := range key {
				sum += float64(q[h*x.Dim+d]) * float64(kernels.RoundHalf(k))
			}
			scores[unit] += float64(q[x.Heads*x.Dim+h]) * max(sum, 0)
		}
	}
	var out []int32
	for _, unit := range best(scores, x.TopK) {
		for i := range block {
			out = append(out, int32(unit*block+i))
		}
	}
	for i := units * block; i <= int(at); i++ {
		out = append(out, int32(i))
	}
	return out
}

// TestIndexerChoosesForEveryRow: rows of a prompt and steps attend to what the model's indexer chooses for each, of tokens and of blocks, in
// any chunks and behind rows that were taken back.
func TestIndexerChoosesForEveryRow(t *testing.T) {
	for _, block := range []int{1, 4} {
		for _, chunk := range []int{64, 23} {
			bubble(t, fmt.Sprint(block, chunk), func(t *testing.T) {
				spec := parsed(t, "indexer")
				s := openScenario(t, spec, indexedSetup(block))
				defer s.close(t)
				x := s.text(t, "a", spec)
				const prompt = 100
				if err := s.prompt(x, prompt, chunk); err != nil {
					t.Fatal(err)
				}
				s.check(t)
				s.expectPromptRows(t, x, prompt, block)
				for step := range 5 {
					if step == 2 { // a step that fails, and one that is taken back
						s.broken = func(layer int, p *Pass) { p.Fail(0, errTest) }
						if err := s.step(x); !errors.Is(err, errTest) {
							t.Fatal(err)
						}
						s.broken = nil
						if err := x.Truncate(x.Read() - 1); err != nil {
							t.Fatal(err)
						}
					}
					at := x.Read()
					if err := s.step(x); err != nil {
						t.Fatal(err)
					}
					s.check(t)
					for layer := range 3 {
						ref := slowly(x, layer)
						want := ref.indexed(at, block)
						if !slices.Equal(x.picks[layer][0], want) || !slices.Equal(x.picks[layer][1], want) {
							t.Fatalf("position %d, layer %d reads %v, want %v", at, layer, x.picks[layer][0], want)
						}
						ref.compareOutput(t, x.layerOut(layer), at, [][]int32{want, want}, nil)
					}
				}
				if x.Causal() != true || x.Plain() || !x.Indexes(1) || x.IndexBytes(0, prompt, prompt)+x.IndexBytes(1, prompt, prompt)+x.IndexBytes(2, prompt, prompt) < x.SketchBytes() {
					t.Error("what a text under the indexer is")
				}
			})
		}
	}
}

// expectPromptRows compares the attention of the last chunk's rows.
func (s *scenario) expectPromptRows(t *testing.T, x *scenarioText, prompt, block int) {
	t.Helper()
	m := &s.shared.o.Shape
	rows := len(x.out) / 3 / m.outWidth(0)
	for layer := range 3 {
		ref, pairs := slowly(x, layer), 0
		for i := range rows {
			at := int32(prompt - rows + i)
			want := ref.indexed(at, block)
			pairs += len(want)
			out := x.out[(layer*rows+i)*m.outWidth(layer):][:m.outWidth(layer)]
			ref.compareRow(t, out, at, want)
		}
		if layer == 2 && x.MaskedPairs() != pairs {
			t.Errorf("%d pairs of rows and keys, want %d", x.MaskedPairs(), pairs)
		}
	}
}

// compareRow is compareOutput in the coarser arithmetic of prompts.
func (s *slow) compareRow(t *testing.T, out []float32, at int32, read []int32) {
	t.Helper()
	dim := s.shape.kv(s.layer).ValueDim
	for h := range s.shape.Layers[s.layer].Heads {
		for d, w := range s.attention(h, at, read) {
			if got := float64(out[h*dim+d]); got-w > 0.02 || w-got > 0.02 {
				t.Fatalf("position %d, layer %d head %d, number %d: %g, want %g", at, s.layer, h, d, got, w)
			}
		}
	}
}

// TestEstimatesStandForTheRest: what a policy says of tokens that are not read is added by its share of the attention.
func TestEstimatesStandForTheRest(t *testing.T) {
	bubble(t, "estimates", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testSelector{needs: policy.Needs{Estimates: true}, choose: func(l *policy.Layer, read *policy.Selection) {
			for g := range read.Heads {
				read.Heads[g] = append(read.Heads[g], 3, 8, 20)
			}
			for h := range l.Heads {
				read.Estimates.LogSum = append(read.Estimates.LogSum, float32(h)-1)
				for d := range l.ValueDim {
					read.Estimates.Values = append(read.Estimates.Values, float32(h*100+d))
				}
			}
			read.Scanned += 11
		}}
		x := s.under(t, "a", &policy.Set{Parts: []policy.Policy{p}, Selector: p}, spec)
		if err := errors.Join(s.prompt(x, 30, 64), s.step(x)); err != nil {
			t.Fatal(err)
		}
		s.check(t)
		for layer := range 3 {
			ref, out := slowly(x, layer), x.layerOut(layer)
			read := []int32{3, 8, 20, 30}
			for h := range 4 {
				sum := ref.sumOfExponents(h, 30, read)
				rest := expOf(float64(h) - 1)
				for d, v := range ref.attention(h, 30, read) {
					want := (v*sum + float64(h*100+d)*rest) / (sum + rest)
					if got := float64(out[h*32+d]); got-want > 1e-2*(1+want) || want-got > 1e-2*(1+want) {
						t.Fatalf("layer %d head %d, number %d: %g, want %g", layer, h, d, got, want)
					}
				}
			}
		}
		if _, scanned := x.StepBytes(); scanned != 3*11 {
			t.Errorf("%d bytes scanned", scanned)
		}
	})
}

// TestReadsAreCounted: tokens, heads and bytes that steps attend to.
func TestReadsAreCounted(t *testing.T) {
	bubble(t, "counted", func(t *testing.T) {
		spec := parsed(t, "full")
		s := openScenario(t, spec, setup{})
		defer s.close(t)
		p := &testSelector{choose: func(l *policy.Layer, read *policy.Selection) {
			if read.All = l.Index == 1; !read.All {
				read.Heads[0], read.Heads[1] = append(read.Heads[0], 1), append(read.Heads[1], 4, 5, 6)
			}
		}}
		x := s.under(t, "a", &policy.Set{Parts: []policy.Policy{p}, Selector: p}, spec)
		if err := errors.Join(s.prompt(x, 30, 64), s.step(x)); err != nil {
			t.Fatal(err)
		}
		tokens, heads := x.StepReads()
		kv, _ := x.StepBytes()
		if want := int64(2*(2+4) + 2*31); tokens != want || heads != 3*2 || kv != want*128 {
			t.Errorf("%d tokens of %d heads in %d bytes, want %d of 6 in %d", tokens, heads, kv, want, want*128)
		}
	})
}

// testSelector chooses as a test says.
type testSelector struct {
	needs  policy.Needs
	choose func(l *policy.Layer, read *policy.Selection)
}

func (p *testSelector) Name() string        { return "test" }
func (p *testSelector) String() string      { return "test" }
func (p *testSelector) Needs() policy.Needs { return p.needs }

func (p *testSelector) Select(l *policy.Layer, read *policy.Selection) {
	read.Reset(l.KVHeads)
	p.choose(l, read)
}
