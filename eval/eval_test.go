package eval_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"terrace/eval"
	"terrace/eval/fakes"
)

func TestTook(t *testing.T) {
	var o eval.Outcome
	ms := time.Millisecond
	o.Took(2*ms, eval.Cost{Prefill: 30 * ms, Shared: true, KVBytes: map[string]int64{"host": 7}, KVHeld: map[string]int64{"host": 6}, Kept: 5}, &eval.Generation{IDs: []int{1, 2, 3}, First: ms, Gaps: []time.Duration{9 * ms, ms, 4 * ms}, Finish: "stop"})
	if o.TTFT != 33 || o.ITL != 4 || o.Prefill != 30 || o.Generated != 3 || !o.Shared || o.KVPeak["host"] != 7 || o.KVHeld["host"] != 6 || o.Kept != 5 || o.Finish != "stop" {
		t.Errorf("%+v", o)
	}
}

func TestCheckTasks(t *testing.T) {
	known := []string{"a", "b", "c"}
	if got, err := eval.CheckTasks("s", known, []string{"c", "a"}); err != nil || !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%v %v: tasks come in the suite's order", got, err)
	}
	if got, err := eval.CheckTasks("s", known, nil); err != nil || !slices.Equal(got, known) {
		t.Errorf("%v %v", got, err)
	}
	if _, err := eval.CheckTasks("s", known, []string{"d"}); !errors.Is(err, eval.ErrOption) {
		t.Errorf("%v", err)
	}
}

// A prompt that does not fit with its answer is refused before it is read; one failing policy leaves the others alone.
func TestAsk(t *testing.T) {
	ctx, x := context.Background(), eval.Sample{Task: "t", ID: "1"}
	one := 1.0
	q := eval.Question{IDs: []int{65, 66, 67}, Cut: 4, Gen: eval.Generate{MaxTokens: 5}, Score: func(o *eval.Outcome) error { o.Score = &one; return nil }}
	small := &fakes.Runner{Context: 7}
	if err := eval.Ask(ctx, small, x, q, []string{"full"}, nil); !errors.Is(err, eval.ErrTooLong) || small.Prefills != 0 {
		t.Errorf("%v", err)
	}
	r := &fakes.Runner{Fail: func(_, policy string) error {
		if policy == "few" {
			return errors.New("refuses")
		}
		return nil
	}}
	var got []eval.Outcome
	err := eval.Ask(ctx, r, x, q, []string{"full", "few", "other"}, func(o eval.Outcome) error { got = append(got, o); return nil })
	for _, o := range got { // the failed one too: it counts 0, and is paired
		if o.PromptHash == "" || o.PromptHash != got[0].PromptHash {
			t.Errorf("%s: hash %q of the prompt, the first has %q", o.Policy, o.PromptHash, got[0].PromptHash)
		}
	}
	if err != nil || len(got) != 3 || got[0].Score == nil || got[1].Score != nil || got[1].Error != "refuses" || got[2].Score == nil || got[0].Cut != 4 || got[0].Prompt != 3 {
		t.Errorf("%v %+v", err, got)
	}
	stop := errors.New("disk full")
	if err := eval.Ask(ctx, r, x, q, []string{"full", "other"}, func(eval.Outcome) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
}

// Prompts are the same where ids and options are, and only there.
func TestHashPrompt(t *testing.T) {
	ids := []int{1, 2, 3}
	seen := map[string]int{}
	for i, h := range []string{
		eval.HashPrompt(ids, eval.Generate{MaxTokens: 5}), eval.HashPrompt([]int{1, 2, 4}, eval.Generate{MaxTokens: 5}), eval.HashPrompt(ids[:2], eval.Generate{MaxTokens: 5}),
		eval.HashPrompt(ids, eval.Generate{MaxTokens: 6}), eval.HashPrompt(ids, eval.Generate{MaxTokens: 5, StopIDs: []int{7}}), eval.HashPrompt(ids, []int{4}), eval.HashPrompt([]int{1, 2, 3, 4}),
		eval.HashPrompt(ids, eval.Generate{MaxTokens: 5, Stops: []string{"a", "b"}}), eval.HashPrompt(ids, eval.Generate{MaxTokens: 5, Stops: []string{"a b"}}),
	} {
		if j, ok := seen[h]; ok || len(h) != 24 {
			t.Errorf("hash %d is %q, as %d", i, h, j)
		}
		seen[h] = i
	}
	if eval.HashPrompt(ids, []int{4}, 9) != eval.HashPrompt(append([]int{}, ids...), []int{4}, 9) {
		t.Error("one prompt, two hashes")
	}
	// Runs made before answers could end at texts hashed these three fields.
	if eval.HashPrompt(ids, eval.Generate{MaxTokens: 5, StopIDs: []int{7}}) != eval.HashPrompt(ids, struct {
		MaxTokens, MinTokens int
		StopIDs              []int
	}{5, 0, []int{7}}) {
		t.Error("a prompt without stop texts has another hash than before")
	}
}
