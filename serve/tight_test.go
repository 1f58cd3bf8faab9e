package serve

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/kernels/quant"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
	"terrace/tokenizer"
	"terrace/weights/convert"
)

// repeatText asks the small model to say a prompt again.
var repeatText = &engine.RepeatText{First: []int{40, 41, 42}, Next: []int{43, 44}, Suffix: []int{45}}

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

// recurrentModel is the file of a model with three recurrent layers and one that attends.
func recurrentModel(t *testing.T) string {
	t.Helper()
	spec := convert.Spec{Arch: "qwen35", Layers: 4, Hidden: 64, HeadDim: 32, Vocab: 300, Context: 400, Seed: 9}
	spec.SetDefaults()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhoBeginsFreesNothing: a text that found no room to begin gives none to others when it leaves, so that the one that cannot go on
// does not wait for it step after step; a text with a session does.
func TestWhoBeginsFreesNothing(t *testing.T) {
	b := newBenchOn(t, recurrentModel(t), func(*tokenizer.Vocab) {}, func() engine.Options { return engine.Options{Context: 400} }, Options{}, func(*engine.Engine) {})
	for _, begun := range []bool{false, true} {
		older, q := &sequence{id: 1, job: &job{}}, &sequence{id: 2, job: &job{}}
		if begun {
			var err error
			if q.session, err = b.alone.NewSession(b.alone.Policy()); err != nil {
				t.Fatal(err)
			}
		}
		l := &loop{m: b.loop.m, o: b.loop.o, running: []*sequence{older, q}}
		l.trouble(q, kvmanager.ErrBudget)
		if len(l.swapped) != 1 || l.swapped[0] != q || l.freed != begun {
			t.Errorf("session %t: %d texts were swapped out, room was given back: %t", begun, len(l.swapped), l.freed)
		}
	}
}

// TestRecurrentPressure: texts of a model with recurrent layers, for half of whose states there is room, leave it and come back, with KV in
// memory and with an SSD below it; each is what it is alone.
func TestRecurrentPressure(t *testing.T) {
	path := recurrentModel(t)
	const (
		states = 2 * 3 * 4 * (128*128 + 3*3*128) // of a text, twice over: three layers, float32
		tokens = 2 * 2 * 32                      // bytes of one: K and V, f16, of one layer
	)
	for name, ssd := range map[string]int64{"host alone": 0, "SSD": 8 << 20, "SSD for one state": states/2 + 96<<10} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, path, func(*tokenizer.Vocab) {}, func() engine.Options {
				eo := engine.Options{Context: 400, KVBudgetBytes: 3*states + 330*tokens}
				if ssd > 0 {
					eo.KVBudgetBytes = 0
					eo.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: 3*states + 64<<10}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: ssd}}
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
			if n := valueIn(t, b, "terrace_num_suspensions_total"); (n > 0) != (ssd > 0) {
				t.Errorf("%v of those swapped out stayed on the tier below", n)
			}
		})
	}
}

// TestFullTier: where the tier below is full nobody is suspended to it, and the text that runs goes on in the room that a suspended one has
// there, which is read again then.
func TestFullTier(t *testing.T) {
	for name, errs := range map[string][2]error{"room in memory is short, then the tier full": {kvmanager.ErrBudget, offload.ErrFull}, "the tier is full": {offload.ErrFull, nil}} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, recurrentModel(t), func(*tokenizer.Vocab) {}, func() engine.Options {
				return engine.Options{Context: 400, Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 4 << 20}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 8 << 20}}}
			}, Options{Batch: 2, Queue: 16}, func(*engine.Engine) {})
			together, alone := 0, 0
			b.loop.batch = func(sessions []*engine.Session, ids []int) error {
				switch {
				case len(sessions) == 2:
					if together++; together == 4 {
						if err := b.loop.e.DecodeBatch(sessions[1:], ids[1:]); err != nil {
							return err
						}
						return &engine.BatchError{Errors: []error{errs[0], nil}}
					}
				case together > 0:
					if alone++; alone == 3 && errs[1] != nil {
						return errs[1]
					}
				}
				return b.loop.e.DecodeBatch(sessions, ids)
			}
			prompt := strings.Repeat("a request; ", 3)
			want, _, err := b.fitsAlone("full", prompt, 60)
			if err != nil {
				t.Fatal(err)
			}
			status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %s, "max_tokens": 60, "temperature": 0, "n": 2}`, jsonText(prompt)))
			var reply struct{ Choices []struct{ Text string } }
			if err := json.Unmarshal([]byte(out), &reply); err != nil || status != 200 || len(reply.Choices) != 2 || reply.Choices[0].Text != want || reply.Choices[1].Text != want {
				t.Errorf("%d %.500s, want twice %q", status, out, want)
			}
			suspended := 0.0
			if errs[1] != nil {
				suspended = 1
			}
			if together < 4 || valueIn(t, b, "terrace_num_suspensions_total") != suspended || valueIn(t, b, "terrace_num_preemptions_total") != 1 {
				t.Errorf("%d steps together; %v suspended of %v swapped out", together, valueIn(t, b, "terrace_num_suspensions_total"), valueIn(t, b, "terrace_num_preemptions_total"))
			}
		})
	}
}

// TestCut: who asks for as much as there is room for is told what ended the text, by every API in its own words: the context, or memory;
// who asked for fewer tokens, or ended the text by a string, is told that.
func TestCut(t *testing.T) {
	path, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []Cut{CutContext, CutMemory} {
		eo := engine.Options{Context: 120}
		if want == CutMemory {
			eo.KVBudgetBytes = kvBytesOf(t, path, eo, 96)
		}
		b := newBench(t, eo, Options{Batch: 2, Queue: 4})
		ask := func(route, body string) string {
			t.Helper()
			status, out := b.post(route, strings.TrimSuffix(body, "}")+`, "temperature": 0, "ignore_eos": true}`)
			if status != 200 {
				t.Fatalf("%s: %s: %d %s", want, route, status, out)
			}
			return out
		}
		const chat, text = `{"messages": [{"role": "user", "content": "the tide"}], "max_tokens": -1}`, `{"prompt": "the tide takes", "max_tokens": -1}`
		says := `"stop_reason":"` + string(want) + `"`
		whole := ask("/v1/completions", text)
		for route, body := range map[string]string{"/v1/completions": `{"stream": true, ` + text[1:], "/v1/chat/completions": chat, "/v1/chat/completions?": `{"stream": true, ` + chat[1:]} {
			if out := ask(route, body); !strings.Contains(out, says) || !strings.Contains(whole, says) || !strings.Contains(out, `"finish_reason":"length"`) {
				t.Errorf("%s: %s: %.900s", want, route, out)
			}
		}
		if out := ask("/completion", `{"prompt": "the tide takes", "n_predict": -1}`); !strings.Contains(out, `"truncated":true`) || !strings.Contains(out, `"stop_type":"limit"`) {
			t.Errorf("%s: %s", want, out)
		}
		if want == CutContext { // elsewhere so many tokens are refused
			if out := ask("/v1/messages", `{"messages": [{"role": "user", "content": "the tide"}], "max_tokens": 500}`); !strings.Contains(out, `"stop_reason":"model_context_window_exceeded"`) {
				t.Error(out)
			}
		}
		few := ask("/v1/completions", `{"prompt": "the tide takes", "max_tokens": 8}`)
		if strings.Contains(few, "stop_reason") || !strings.Contains(few, `"finish_reason":"length"`) {
			t.Error(few)
		}
		end := ""
		for _, r := range textOf(t, few) {
			if r != utf8.RuneError {
				end = string(r)
			}
		}
		if out := ask("/v1/completions", fmt.Sprintf(`{"prompt": "the tide takes", "max_tokens": 8, "stop": %s}`, jsonText(end))); !strings.Contains(out, `"finish_reason":"stop"`) || !strings.Contains(out, `"stop_reason":`+jsonText(end)) {
			t.Errorf("ended by %q: %s", end, out)
		}
		if out := ask("/v1/messages", `{"messages": [{"role": "user", "content": "the tide"}], "max_tokens": 8}`); !strings.Contains(out, `"stop_reason":"max_tokens"`) {
			t.Error(out)
		}
		if out := ask("/completion", `{"prompt": "the tide takes", "n_predict": 8}`); !strings.Contains(out, `"truncated":false`) {
			t.Error(out)
		}
	}
}
