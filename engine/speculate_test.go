package engine

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"terrace/engine/draft"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
)

// oracle guesses what a run without guesses chose, with some guesses spoiled, so that passes of every length are taken back in part.
type oracle struct {
	ids   []int // prompt and answer
	spoil float64
	rng   *rand.Rand
	at    int
}

func (o *oracle) Name() string { return "oracle" }
func (o *oracle) Close() error { return nil }

func (o *oracle) Look(tokens []int) int {
	o.at = len(tokens)
	return o.rng.IntN(draft.Kinds+1) - 1
}

func (o *oracle) Draft(dst []int, n int) ([]int, error) {
	for i := range n {
		id := 7
		if o.at+i < len(o.ids) && o.rng.Float64() >= o.spoil {
			id = o.ids[o.at+i]
		}
		dst = append(dst, id)
	}
	return dst, nil
}

// TestSpeculationChangesNothing: tokens, the logits after them and what a later prompt makes of the session are those of decoding
// token by token, bit for bit, however many guesses are wrong.
func TestSpeculationChangesNothing(t *testing.T) {
	prompt, more := slices.Concat(fakes.IDs(60, 1), fakes.IDs(60, 1), fakes.IDs(23, 2)), fakes.IDs(5, 3)
	for _, c := range []struct {
		name   string
		open   func(testing.TB, Options) *Engine
		o      Options
		policy string
		sample model.SamplerOptions
		tokens int
	}{
		{name: "f16", o: Options{}},
		{name: "exact", o: Options{Exact: true}},
		{name: "seeded", o: Options{}, sample: model.SamplerOptions{Temperature: 1.1, TopK: 20, Seed: 3, RepeatPenalty: 1.2, PenaltyLast: 20, PenaltyLastSet: true}},
		{name: "mirostat", sample: model.SamplerOptions{Temperature: 1, Mirostat: 2, MirostatTau: 4, MirostatEta: 0.2, Seed: 5}},
		{name: "typical, XTC and DRY", sample: model.SamplerOptions{Temperature: 1, TypicalP: 0.9, XTCProbability: 0.5, XTCThreshold: 0.05, DRY: model.DRY{Multiplier: 0.8, Base: 1.75, AllowedLength: 2, Last: -1}, Seed: 6}},
		{name: "int8", o: Options{KType: kvpage.I8, VType: kvpage.I8, KVTypeSet: true}},
		{name: "int4 without a window", o: Options{KType: kvpage.I4, VType: kvpage.I4, KVTypeSet: true, KVWindowSet: true}},
		{name: "int3", o: Options{KType: kvpage.I3, VType: kvpage.I3, KVTypeSet: true, KVWindow: 20, KVWindowSet: true}},
		{name: "int3, a layer in int4", o: Options{KType: kvpage.I3, VType: kvpage.I3, KVTypeSet: true, KVWindow: 20, KVWindowSet: true, KVOwn: []kvpage.Own{{First: 1, Last: 1, Elem: kvpage.I4}}}},
		{name: "windows only", open: windowed, o: Options{WindowOnly: true}, tokens: 440},
		{name: "compressed prompt", o: Options{}, policy: "snapkv:budget=40%"},
		{name: "small pages", o: Options{PageTokens: 16, ChunkTokens: 48}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.open == nil {
				c.open = small
			}
			if c.tokens == 0 {
				c.tokens = 80
			}
			c.o.Threads, c.o.Context = 2, 1024
			e := c.open(t, c.o)
			request := Request{IDs: prompt, MaxTokens: c.tokens, Sampler: c.sample}
			plain, after := speculated(t, e, c.policy, request, more)
			all := slices.Concat(prompt, plain.IDs)
			for name, d := range map[string]draft.Drafter{
				"ngram": draft.NewNGram(), "right": &oracle{ids: all, rng: rand.New(rand.NewPCG(1, 1))},
				"mixed": &oracle{ids: all, spoil: 0.25, rng: rand.New(rand.NewPCG(2, 2))}, "wrong": &oracle{ids: all, spoil: 1, rng: rand.New(rand.NewPCG(3, 3))},
			} {
				request.Speculate = d
				got, then := speculated(t, e, c.policy, request, more)
				if !slices.Equal(got.IDs, plain.IDs) {
					t.Errorf("%s: other tokens: %v, want %v", name, got.IDs, plain.IDs)
				}
				if !reflect.DeepEqual(then, after) {
					t.Errorf("%s: the session goes on otherwise", name)
				}
				u := got.Speculation
				if name == "right" && (u.Accepted == 0 || u.Accepted < u.Drafted) || u.Accepted > u.Drafted { // how many are read is a matter of time
					t.Errorf("%s: %d of %d guesses accepted in %d passes", name, u.Accepted, u.Drafted, u.Passes)
				}
				if u.Passes+u.Accepted != len(got.IDs)-1 {
					t.Errorf("%s: %d passes and %d accepted guesses read %d tokens", name, u.Passes, u.Accepted, len(got.IDs)-1)
				}
			}
		})
	}
}

// speculated generates, then reads more in the same session; it returns the logits after both.
func speculated(t *testing.T, e *Engine, spec string, r Request, more []int) (*Result, [][]float32) {
	t.Helper()
	under, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.NewSession(under)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	res, err := s.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	out := [][]float32{slices.Clone(s.Logits())}
	for _, id := range more {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return res, out
}

// TestSpeculationOnTiers: KV that streams through a small host tier is the same too.
func TestSpeculationOnTiers(t *testing.T) {
	prompt := fakes.IDs(700, 4)
	o := Options{Threads: 2, Context: 1024, PageTokens: 16}
	plain := generated(t, small(t, o), Request{IDs: prompt, MaxTokens: 40})
	o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 500 << 10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 64 << 20}}
	e := small(t, o)
	all := slices.Concat(prompt, plain.IDs)
	got := generated(t, e, Request{IDs: prompt, MaxTokens: 40, Speculate: &oracle{ids: all, spoil: 0.3, rng: rand.New(rand.NewPCG(5, 5))}})
	if !slices.Equal(got.IDs, plain.IDs) {
		t.Errorf("%v, want %v", got.IDs, plain.IDs)
	}
	if e.KV().PeakBytes >= int64(len(all)*e.KVBytesPerToken()) {
		t.Error("nothing left host memory")
	}
}

func generated(t *testing.T, e *Engine, r Request) *Result {
	t.Helper()
	res, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestSpeculationRefused(t *testing.T) {
	for _, spec := range []string{"quest:budget=32", "h2o:budget=32", "streaming_llm:budget=32"} {
		e := small(t, Options{Threads: 2, Policy: spec})
		_, err := e.Generate(t.Context(), Request{IDs: fakes.IDs(40, 1), MaxTokens: 4, Speculate: draft.NewNGram()})
		if set, _ := policy.Parse(spec); err == nil && !set.Lossless() {
			t.Errorf("%s: speculates although it acts while decoding", spec)
		}
	}
}

// TestDraftModel: a model that drafts for itself is right unless a guess is cut.
func TestDraftModel(t *testing.T) {
	e, prompt := small(t, Options{Threads: 2, Context: 256}), fakes.IDs(50, 8)
	plain := generated(t, e, Request{IDs: prompt, MaxTokens: 60})
	d, err := NewDraftModel("itself", small(t, Options{Threads: 2, Context: 100}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	got := generated(t, e, Request{IDs: prompt, MaxTokens: 60, Speculate: d})
	if !slices.Equal(got.IDs, plain.IDs) {
		t.Errorf("other tokens: %v, want %v", got.IDs, plain.IDs)
	}
	// The draft's context ends after 100 tokens; until then its guesses are the model's own.
	if u := got.Speculation; u.Drafted == 0 || u.Accepted < u.Drafted-draft.Most {
		t.Errorf("%d of %d guesses accepted", u.Accepted, u.Drafted)
	}
}

// TestTogether: so many tokens at once leave a quantized cache as one at a time does.
func TestTogether(t *testing.T) {
	for _, c := range []struct {
		k      kvpage.Elem
		window int
	}{{kvpage.I8, 0}, {kvpage.I8, 5}, {kvpage.I8, 32}, {kvpage.I3, 20}} {
		window := c.window
		e := small(t, Options{Threads: 1, KType: c.k, VType: kvpage.I8, KVTypeSet: true, KVWindow: window, KVWindowSet: true})
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 5*c.k.KeyGroup(); n++ {
			if err := s.Prefill(t.Context(), []int{n % 200}, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			settled := func(n int) int { return max(0, n-window) / c.k.KeyGroup() }
			want := 1
			for want < 16 && settled(n+want+1) == settled(n+1) {
				want++
			}
			if got := s.Sequence().Together(16); got != want {
				t.Errorf("window %d, %d tokens: %d together, want %d", window, n, got, want)
			}
		}
		s.Close()
	}
}
