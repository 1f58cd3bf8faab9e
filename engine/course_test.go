package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/policy"
)

// foretold is a text of a setting: what is said beforehand of the memory that it needs, and what it then needs.
type foretold struct {
	m      *model.Model
	o      Options
	prompt []int
	answer int
	peak   int64  // of the last run
	ssd    string // folder of a tier below; "" = there is none
}

func (f *foretold) under(bytes int64) Options {
	o := f.o
	o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: bytes}}
	if f.ssd != "" {
		o.Tiers = append(o.Tiers, tier.Tier{Kind: tier.SSD, Place: f.ssd, CapacityBytes: 64 << 20})
	}
	return o
}

// said reports whether the text is said to fit so many bytes; the context may be longer.
func (f *foretold) said(t *testing.T, bytes int64) bool {
	if f.o.Context == len(f.prompt)+f.answer {
		n, err := Longest(f.m, f.under(bytes), f.answer)
		if err != nil {
			t.Fatal(err)
		}
		return n == f.o.Context
	}
	e, err := Open(f.m, f.under(bytes))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.holds(len(f.prompt), f.answer-1) == nil
}

// runs reports whether it does; a refusal comes before the prompt is read where there is no tier below.
func (f *foretold) runs(t *testing.T, bytes int64) bool {
	e, err := Open(f.m, f.under(bytes))
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	_, err = e.Generate(t.Context(), Request{IDs: f.prompt, MaxTokens: f.answer, IgnoreEOS: true, OnPrefill: func(done, _ int) { read = done }})
	if err != nil && !errors.Is(err, kvmanager.ErrBudget) && !errors.Is(err, ErrContext) {
		t.Fatal(err)
	}
	f.peak = e.KV().PeakBytes
	if cerr := e.Close(); cerr != nil {
		t.Fatal(cerr)
	}
	if err != nil && f.answer == 1 && f.ssd == "" && read > 0 {
		t.Errorf("%d bytes: refused after %d tokens: %v", bytes, read, err)
	}
	return err == nil
}

// least is the smallest number of bytes that ok is true of, to a step.
func least(ok func(bytes int64) bool) int64 {
	const step = 512
	low, high := int64(0), int64(1)<<32/step
	for high-low > 1 {
		if middle := (low + high) / 2; ok(middle * step) {
			high = middle
		} else {
			low = middle
		}
	}
	return high * step
}

// TestMoreThanForetold: what suffices does with more memory too, where a prompt's rows are then kept between two layers, behind windows of quantised KV.
func TestMoreThanForetold(t *testing.T) {
	t.Parallel()
	f := foretold{m: sharedModel(t, fakes.Small(t)), prompt: fakes.IDs(133, 1), answer: 1, ssd: t.TempDir(),
		o: Options{Threads: 1, Policy: "criticalkv", KVTypeSet: true, KType: kvpage.I3, VType: kvpage.I3, KVWindowSet: true, ChunkTokens: 64, Context: 134}}
	said := least(func(bytes int64) bool { return f.said(t, bytes) })
	for more := range int64(12) {
		if bytes := said + more*4096; !f.runs(t, bytes) {
			t.Errorf("%d bytes are said to suffice, and %d do not", said, bytes)
		}
	}
}

// TestForetold: the memory that is said to suffice does, with random policies, types of KV, sizes and models, with a tier below and without;
// and where nothing is dropped and all of the answer is one token, less is refused. Texts whose answer is longer never need more.
func TestForetold(t *testing.T) {
	t.Parallel()
	policies := strings.Fields("full full h2o snapkv:budget=100 adakv kvzip:chunk_size=128 kvcompose quest:budget=64 magicpig:tables=20 sparq:sketch=storage topk pqcache retroinfer:cluster=8,update=8 tailcodes " +
		"leoam:sketch=storage hillinfer kvswap minference flexprefill lazyllm decoding finch")
	types := strings.Fields("f16 f16 f16 f32 int8 int4 int3 k=int8,v=f16 k=int2,v=int8")
	models := []*model.Model{sharedModel(t, fakes.Small(t)), sharedModel(t, fakes.Small(t)), sharedModel(t, fakes.Windowed(t)), fakes.Mixed(3)}
	cases := 60
	if golden.Thorough() {
		cases = 600
	}
	ran := 0
	for i := range cases {
		rng := rand.New(rand.NewPCG(uint64(i), 11))
		n := func(list ...int) int { return list[rng.IntN(len(list))] }
		f := foretold{m: models[rng.IntN(len(models))], answer: n(1, 1, 20), prompt: fakes.IDs(n(20, 60, 130, 250)+rng.IntN(20), 1)}
		kv, err := kvpage.ParseTypes(types[rng.IntN(len(types))])
		if err != nil {
			t.Fatal(err)
		}
		f.o = Options{Threads: 1, Policy: policies[rng.IntN(len(policies))], KType: kv.K, VType: kv.V, KVTypeSet: true, KVWindow: n(0, 0, 32), ChunkTokens: n(64, 64, 128), Calibration: fakes.IDs(64, 4),
			Repeat: &RepeatText{First: fakes.IDs(9, 3), Next: fakes.IDs(12, 3), Suffix: fakes.IDs(3, 3)}}
		f.o.KVWindowSet = f.o.KVWindow > 0
		if rng.IntN(2) == 0 {
			f.ssd = t.TempDir()
		}
		f.o.Context = len(f.prompt) + f.answer
		spec, err := policy.Parse(f.o.Policy)
		if err != nil {
			t.Fatal(err)
		}
		f.o.WindowOnly = spec.Lossless()
		t.Run(fmt.Sprint(i, f.o.Policy, f.o.KType, f.o.VType, f.o.KVWindow, len(f.prompt), f.answer, f.ssd != ""), func(t *testing.T) {
			if _, err := Longest(f.m, f.under(1<<30), 1); err != nil {
				return // options that exclude each other
			}
			if ran++; strings.HasPrefix(f.o.Policy, "kvzip") || f.o.Policy == "kvcompose" {
				if 2*len(f.prompt) > f.o.Context && (f.said(t, 1<<30) || f.runs(t, 1<<30)) {
					t.Errorf("a context of %d holds the prompt of %d and its repetition", f.o.Context, len(f.prompt))
				}
				f.o.Context = 2*len(f.prompt) + 80
			}
			said := least(func(bytes int64) bool { return f.said(t, bytes) })
			if !f.runs(t, said) {
				t.Errorf("%d bytes are said to suffice, and do not", said)
			}
			if f.o.Policy == "full" && f.ssd == "" && f.peak <= said-512 {
				t.Errorf("%d bytes are said to be needed, and %d are", said, f.peak)
			}
			drops := !slices.Contains(strings.Fields("full quest:budget=64 topk pqcache hillinfer minference flexprefill"), f.o.Policy)
			if less := said - 512 - said/200; f.answer == 1 && !drops && f.runs(t, less) {
				t.Errorf("%d bytes are said to suffice, and %d do", said, less)
			}
		})
	}
	if ran < cases/2 {
		t.Errorf("%d of %d settings were possible", ran, cases)
	}
}

// TestStepMost: what steps have taken of a session's own is what the cache has had at most, where nobody else has any.
func TestStepMost(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"plain": {}, "drops": {Policy: "h2o:budget=64"}, "selects": {Policy: "quest:budget=64"}, "int8": {KVTypeSet: true, KType: kvpage.I8, VType: kvpage.I8, KVWindow: 32}} {
		for _, m := range []*model.Model{sharedModel(t, fakes.Small(t)), fakes.Mixed(3)} {
			if o.KVTypeSet && m.Cache().StateBytes() > 0 {
				continue // its latent keys have no such type
			}
			o.Threads, o.ChunkTokens = 1, 64
			e := openOn(t, m, o)
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Prefill(t.Context(), fakes.IDs(100, 1), PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			e.ResetKVPeak()
			for _, id := range fakes.IDs(50, 2) {
				if err := s.Decode(id); err != nil {
					t.Fatal(err)
				}
			}
			if own, all := s.KVUse().StepMost, e.KV().PeakBytes; own != all {
				t.Errorf("%s: steps took %d bytes, the cache had %d", name, own, all)
			}
		}
	}
}
