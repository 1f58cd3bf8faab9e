package serve

import (
	"fmt"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/policy"
	"terrace/serve/meter/prom"
	"terrace/tokenizer"
)

func mustPolicy(t testing.TB, text string) *policy.Spec {
	t.Helper()
	spec, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestPolicyTime: what policies take to decide is counted by their names, and full attention takes nothing.
func TestPolicyTime(t *testing.T) {
	b := newBench(t, engine.Options{Context: 300}, Options{Batch: 2, Queue: 8})
	prompt := strings.Repeat("what is kept of this ", 6)
	for _, spec := range []string{"full", "snapkv:ratio=0.5,window_size=8", "quest:budget=48"} {
		if status, out := b.post("/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 4, "kv_policy": %q}`, prompt, spec)); status != 200 {
			t.Fatalf("%s: %d %s", spec, status, out)
		}
	}
	b.Close() // the loop counts when it is done
	spent := map[string]float64{}
	families, err := b.m.meter.(prom.Meter).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "terrace_policy_seconds_total" {
			for _, m := range f.GetMetric() {
				spent[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if len(spent) != 2 || spent["snapkv"] <= 0 || spent["quest"] <= 0 {
		t.Errorf("%v, want times of snapkv and quest", spent)
	}
}

// TestPolicyThatDoesNotFit: a policy of which only a session knows that it does not fit the model is the request's fault, which is named.
func TestPolicyThatDoesNotFit(t *testing.T) {
	b := newBenchOn(t, stressModel(t, "gemma3"), func(*tokenizer.Vocab) {}, func() engine.Options {
		return engine.Options{Context: 300, Calibration: make([]int, 300)}
	}, Options{Queue: 8}, func(*engine.Engine) {})
	status, out := b.post("/v1/completions", `{"prompt": "a", "max_tokens": 4, "kv_policy": "infinigen:sample=8"}`)
	if status != 400 || !strings.Contains(out, "kv_policy") || !strings.Contains(out, "no layer reads all keys") {
		t.Errorf("%d %s", status, out)
	}
}
