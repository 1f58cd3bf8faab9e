package main

import (
	"encoding/json"
	"strings"
	"testing"

	"terrace/internal/golden"
)

// TestSamplerFlags: flags of llama.cpp's samplers change the text, those that are off do not, and bad values are wrong usage that names them.
func TestSamplerFlags(t *testing.T) {
	model := golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf")
	gen := func(args ...string) (text string) {
		t.Helper()
		code, out, errs := inferWith(t, "", append([]string{"generate", "-q", "-m", model, "--raw", "--ignore-eos", "--json", "-n", "40", "--seed", "3", strings.Repeat("the tide takes the terrace ", 12)}, args...)...)
		var g generation
		if err := json.Unmarshal([]byte(out), &g); code != 0 || err != nil {
			t.Fatalf("%v: exit %d %s %v", args, code, errs, err)
		}
		return g.Text
	}
	plain, greedy := gen(), gen("--temperature", "0")
	if got := gen("--typical-p", "1", "--top-n-sigma", "0", "--xtc-probability", "0", "--dry-multiplier", "0", "--dry-base", "9", "--mirostat", "0", "--mirostat-ent", "1"); got != plain {
		t.Errorf("samplers that are off: %q, want %q", got, plain)
	}
	for _, flags := range []string{"--typical-p 0.2", "--top-nsigma 0.5", "--xtc-probability 1 --xtc-threshold 0.01", "--dry-multiplier 50 --dry-allowed-length 0 --dry-sequence-breaker none", "--mirostat 1 --mirostat-ent 2", "--mirostat 2 --mirostat-lr 0.9"} {
		if got := gen(strings.Fields(flags)...); got == plain {
			t.Errorf("%s changes nothing", flags)
		}
	}
	dry := strings.Fields("--temperature 0 --dry-multiplier 50 --dry-allowed-length 0 --dry-sequence-breaker")
	if none := gen(append(dry, "none")...); gen(append(dry, "e")...) == none || none == greedy {
		t.Error("breakers change nothing")
	}
	for flags, name := range map[string]string{"--typical-p 2": "typical-p", "--typical-p 0": "typical-p", "--xtc-probability -1": "xtc-probability", "--dry-multiplier 1 --dry-base 0.5": "dry-base", "--dry-penalty-last-n -2": "dry-penalty-last-n",
		"--mirostat 3": "mirostat", "--mirostat-lr NaN": "mirostat-lr", "--dry-sequence-breaker " + strings.Repeat("x", 41): "dry-sequence-breaker"} {
		for _, command := range []string{"generate", "chat"} {
			if code, _, errs := inferWith(t, "", append([]string{command, "-m", model}, strings.Fields(flags)...)...); code != exitUsage || !strings.Contains(errs, name) {
				t.Errorf("%s %s: exit %d %s", command, flags, code, errs)
			}
		}
	}
}
