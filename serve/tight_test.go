package serve

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/tokenizer"
	"terrace/weights/convert"
)

// repeatText asks the small model to say a prompt again.
var repeatText = &engine.RepeatText{First: []int{40, 41, 42}, Next: []int{43, 44}, Suffix: []int{45}}

// TestTightTier: many texts at a time under policies of all kinds, on tiers that do not hold them together: each answer is the one
// that the text has alone, or a refusal that says why where it does not fit alone either; and nothing is left (newBench looks).
func TestTightTier(t *testing.T) {
	once := []string{"full", "full", "full", "snapkv:budget=60%", "kvzip:budget=50%", "expected_attention:budget=50%", "quest:budget=48"} // what int8 KV takes
	each := slices.Concat(once, []string{"streaming_llm:budget=50%", "h2o:budget=40%", "sliminfer", "tova:budget=60", "kvzip:budget=30%"})
	for seed := range uint64(max(8, *soak/40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 25))
			eo := engine.Options{Context: 400, ChunkTokens: 32 << rnd.IntN(3), Repeat: repeatText}
			policies, bytes := each, 256 // bytes a token
			if rnd.IntN(2) == 0 {
				eo.KVTypeSet, eo.KType, eo.VType, bytes, policies = true, kvpage.I8, kvpage.I8, 144, once
				eo.KVWindowSet, eo.KVWindow = true, 32*rnd.IntN(5)
			}
			eo.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: int64(bytes * (200 + rnd.IntN(300)))}}
			if seed%4 == 3 {
				eo.Tiers[0].CapacityBytes += 128 << 10 // what is on its way
				eo.Tiers = append(eo.Tiers, tier.Tier{Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20})
			}
			var paths int
			b := newBenchEach(t, func() engine.Options {
				o := eo
				if len(o.Tiers) > 1 {
					paths++
					o.Tiers = []tier.Tier{o.Tiers[0], {Kind: tier.SSD, Place: fmt.Sprint(o.Tiers[1].Place, "/", paths), CapacityBytes: o.Tiers[1].CapacityBytes}}
				}
				return o
			}, Options{Batch: 2 + rnd.IntN(7), Queue: 200}, func(*engine.Engine) {})
			type question struct {
				policy, prompt, want string
				tokens, read         int
				fits                 bool
			}
			var questions []question
			const texts = 40
			answered := 0
			for i := range texts {
				q := question{policy: policies[rnd.IntN(len(policies))], tokens: 1 + rnd.IntN(40)}
				q.prompt = strings.Repeat(fmt.Sprintf("text %d of many; ", i), 24)[:1+rnd.IntN(330)]
				want, read, err := b.fitsAlone(q.policy, q.prompt, q.tokens)
				if q.want, q.read, q.fits = want, read, err == nil; q.fits {
					answered++
				} else if !short(err) {
					t.Logf("request %d under %s: %v", i, q.policy, err)
				}
				questions = append(questions, q)
			}
			if answered < texts/8 {
				t.Fatalf("%d texts fit alone: the test sees little", answered)
			}
			var wg sync.WaitGroup
			for i, q := range questions {
				wg.Go(func() {
					status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": %d, "temperature": 0, "kv_policy": %q}`, jsonText(q.prompt), q.tokens, q.policy))
					var c completion
					switch {
					case status == 400 && !q.fits:
					case status != 200 || json.Unmarshal([]byte(out), &c) != nil:
						t.Errorf("request %d under %s, %d and %d tokens, fits alone %t: %d %.300s", i, q.policy, len(q.prompt), q.tokens, q.fits, status, out)
					case q.fits && c.Choices[0].Text != q.want:
						t.Errorf("request %d under %s, %d and %d tokens: %q, want %q", i, q.policy, len(q.prompt), q.tokens, c.Choices[0].Text, q.want)
					case c.Usage.PromptTokens != q.read:
						t.Errorf("request %d: %d prompt tokens, want %d", i, c.Usage.PromptTokens, q.read)
					}
				})
			}
			wg.Wait()
			until(t, "nothing runs or waits", b.stand(0, 0))
			t.Logf("%d of %d fit alone; %g were swapped out; %d bytes of host, %d tiers, %v, window of %d, chunks of %d, batch of %d",
				answered, texts, b.m.preemptions.Value(), eo.Tiers[0].CapacityBytes, len(eo.Tiers), eo.KType, eo.KVWindow, eo.ChunkTokens, b.o.Batch)
		})
	}
}

// fitsAlone is what the engine says alone on its tiers and how many tokens the prompt has, or why it says nothing.
func (b *bench) fitsAlone(policy, prompt string, n int) (text string, read int, err error) {
	b.t.Helper()
	ids, err := b.tok.Encode(prompt, true, true)
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := b.alone.NewSession(mustPolicy(b.t, policy))
	if err != nil {
		return "", len(ids), err
	}
	defer s.Close()
	res, err := s.Generate(b.t.Context(), engine.Request{IDs: ids, MaxTokens: n, Sampler: model.SamplerOptions{}, IsEnd: b.tok.IsEOG, Text: b.tok.NewDetokenizer()})
	if err != nil {
		return "", len(ids), err
	}
	return res.Text, len(ids), nil
}

// TestRecurrentPressure: texts of a model with recurrent layers, for half of whose states there is room, leave it and come back, with KV in
// memory and with an SSD below it; each is what it is alone.
func TestRecurrentPressure(t *testing.T) {
	spec := convert.Spec{Arch: "qwen35", Layers: 4, Hidden: 64, HeadDim: 32, Vocab: 300, Context: 400, Seed: 9}
	spec.SetDefaults()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	const (
		states = 2 * 3 * 4 * (128*128 + 3*3*128) // of a text, twice over: three layers, float32
		tokens = 2 * 2 * 32                      // bytes of one: K and V, f16, of one layer
	)
	for _, ssd := range []bool{false, true} {
		t.Run(fmt.Sprint(ssd), func(t *testing.T) {
			b := newBenchOn(t, path, func(*tokenizer.Vocab) {}, func() engine.Options {
				eo := engine.Options{Context: 400, KVBudgetBytes: 3*states + 330*tokens}
				if ssd {
					eo.KVBudgetBytes = 0
					eo.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 3*states + 64<<10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}
				}
				return eo
			}, Options{Batch: 6, Queue: 16}, func(*engine.Engine) {})
			calls := 0
			b.loop.batch = func(sessions []*engine.Session, ids []int) error {
				if calls++; calls%5 == 0 && len(sessions) > 1 { // besides, so that somebody leaves in the midst of decoding
					if err := b.loop.e.DecodeBatch(sessions[1:], ids[1:]); err != nil {
						return err
					}
					return &engine.BatchError{Errors: append([]error{kvmanager.ErrBudget}, make([]error, len(sessions)-1)...)}
				}
				return b.loop.e.DecodeBatch(sessions, ids)
			}
			var wg sync.WaitGroup
			var prompts, wants [6]string
			for i := range prompts {
				prompts[i] = strings.Repeat(fmt.Sprintf("request %d; ", i), 6)
				var err error
				if wants[i], _, err = b.fitsAlone("full", prompts[i], 80); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range wants {
				wg.Go(func() {
					status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 80, "temperature": 0}`, jsonText(prompts[i])))
					if status != 200 || textOf(t, out) != want {
						t.Errorf("request %d: %d %.300s, want %q", i, status, out, want)
					}
				})
			}
			wg.Wait()
			if n := valueIn(t, b, "terrace_num_preemptions_total"); n == 0 {
				t.Error("nothing was swapped out: the test sees nothing")
			}
		})
	}
}
