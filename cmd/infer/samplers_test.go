package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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

// TestSamplersOfRows: a row's samplers are those of the flags, for this row alone.
func TestSamplersOfRows(t *testing.T) {
	model, in := synthModel(t), filepath.Join(t.TempDir(), "in.jsonl")
	const common = "--raw --ignore-eos -n 20 --seed 5"
	flags := map[string]string{
		"--typical-p 0.3":                       `"typical_p":0.3`,
		"--top-n-sigma 0.7":                     `"top_n_sigma":0.7`,
		"--xtc-probability 1 --xtc-threshold 0": `"xtc_probability":1,"xtc_threshold":0`,
		"--dry-multiplier 40 --dry-base 2 --dry-allowed-length 0 --dry-penalty-last-n 9": `"dry_multiplier":40,"dry_base":2,"dry_allowed_length":0,"dry_penalty_last_n":9`,
		"--mirostat 2 --mirostat-ent 2 --mirostat-lr 0.5":                                `"mirostat":2,"mirostat_tau":2,"mirostat_eta":0.5`,
		"": `"typical_p":1`,
	}
	rows, want := "", map[int]string{}
	for args, fields := range flags {
		code, out, errs := runCommand(append(append([]string{"generate", "-q", "-m", model, "abcabc"}, strings.Fields(common)...), strings.Fields(args)...)...)
		if code != exitDone {
			t.Fatal(errs)
		}
		rows += `{"prompt":"abcabc","seed":5,` + fields + "}\n"
		want[len(want)+1] = strings.TrimSuffix(out, "\n")
	}
	rows += `{"prompt":"abc","typical_p":0}` + "\n" + `{"prompt":"abc","min_tokens":21}` + "\n" + `{"prompt":"abc","stop_token_ids":[-1]}` + "\n"
	if err := os.WriteFile(in, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runCommand(append([]string{"generate", "-m", model, "--jsonl", in}, strings.Fields(common)...)...)
	if code != exitFailed {
		t.Fatalf("exit %d: %s", code, errs)
	}
	got := rowAnswers(t, out)
	for row, text := range want {
		if strings.TrimSuffix(got[row].Text, "\n") != text {
			t.Errorf("row %d: %q, want %q", row, got[row].Text, text)
		}
	}
	for i, name := range []string{"typical_p", "min_tokens", "stop_token_ids"} {
		if e := got[len(want)+1+i].Error; !strings.Contains(e, name) {
			t.Errorf("%q does not name %s", e, name)
		}
	}
}
