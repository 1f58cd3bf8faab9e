package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights"
)

func runCommand(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// TestSynthAndQuantize writes a random model, quantises it, and generates with both.
func TestSynthAndQuantize(t *testing.T) {
	dir := t.TempDir()
	f32, q8 := filepath.Join(dir, "f32.gguf"), filepath.Join(dir, "q8.gguf")
	code, _, errs := runCommand("synth", f32, "--arch", "qwen3", "--layers", "2", "--hidden", "128", "--head-dim", "32", "--vocab", "400", "--type", "F32", "--seed", "3")
	if code != exitDone || !strings.Contains(errs, "f32.gguf") {
		t.Fatalf("synth: exit %d, %s", code, errs)
	}
	code, _, errs = runCommand("quantize", f32, q8, "--type", "q8_0")
	if code != exitDone {
		t.Fatalf("quantize: exit %d, %s", code, errs)
	}
	m, err := weights.Open(q8)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if x, err := m.Tensor("blk.0.ffn_up.weight"); err != nil || x.Type != quant.Q8_0 {
		t.Errorf("ffn_up: %v", err)
	}
	for _, path := range []string{f32, q8} {
		code, out, errs := runCommand("generate", "--model", path, "--json", "-n", "4", "--temp", "0", "hello")
		var result struct {
			TokenIDs []int `json:"token_ids"`
		}
		if err := json.Unmarshal([]byte(out), &result); code != exitDone || err != nil || len(result.TokenIDs) == 0 {
			t.Errorf("generate with %s: exit %d, %v, %q %q", filepath.Base(path), code, err, out, errs)
		}
	}
}

// TestWiden: the wider model says the same, and has the bytes asked for; what cannot be done is wrong usage.
func TestWiden(t *testing.T) {
	dir := t.TempDir()
	model, out := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "wide.gguf")
	if code, _, errs := runCommand("synth", model, "--layers", "2", "--hidden", "128", "--head-dim", "32", "--vocab", "400", "--type", "Q8_0"); code != exitDone {
		t.Fatal(errs)
	}
	if code, _, errs := runCommand("widen", model, out, "--kv-heads", "8", "--head-dim", "64"); code != exitDone || !strings.Contains(errs, "wide.gguf") {
		t.Fatalf("exit %d, %s", code, errs)
	}
	var texts [2]string
	for i, path := range []string{model, out} {
		_, texts[i], _ = runCommand("generate", "--model", path, "--raw", "-n", "8", "--temp", "0", "--exact", "hello")
	}
	if texts[0] != texts[1] || texts[0] == "" {
		t.Errorf("%q becomes %q", texts[0], texts[1])
	}
	if _, shown, _ := runCommand("show", out); !strings.Contains(shown, "8 KV heads of 64") {
		t.Errorf("shown: %s", shown)
	}
	for name, args := range map[string][]string{
		"no output":    {model},
		"there":        {model, out, "--kv-heads", "8"},
		"over itself":  {model, model, "--kv-heads", "8", "--force"},
		"fewer heads":  {model, filepath.Join(dir, "x"), "--head-dim", "16"},
		"no heads":     {model, filepath.Join(dir, "x"), "--kv-heads", "0"},
		"minus layers": {model, filepath.Join(dir, "x"), "--layers", "-1"},
	} {
		if code, _, errs := runCommand(append([]string{"widen"}, args...)...); code != exitUsage || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, stderr %q", name, code, errs)
		}
	}
}

// TestQuantizeExitCodes: usage, model and system errors have their codes, and nothing is left behind.
func TestQuantizeExitCodes(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	const tiny = "../../weights/gguf/testdata/tiny.gguf"
	bad := filepath.Join(dir, "bad.gguf")
	if err := os.WriteFile(bad, []byte("GGUF"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"no arguments":    {[]string{"quantize"}, exitUsage},
		"no type":         {[]string{"quantize", tiny, out}, exitUsage},
		"unknown type":    {[]string{"quantize", tiny, out, "--type", "Q9"}, exitUsage},
		"unwritable type": {[]string{"quantize", tiny, out, "--type", "MXFP4"}, exitUsage},
		"target a folder": {[]string{"quantize", tiny, dir, "--type", "F16"}, exitUsage},
		"bad source":      {[]string{"quantize", bad, out, "--type", "F16"}, exitData},
		"no folder":       {[]string{"quantize", tiny, filepath.Join(dir, "no", "x"), "--type", "F16"}, exitFailed},
		"synth nothing":   {[]string{"synth"}, exitUsage},
		"synth arch":      {[]string{"synth", out, "--arch", "banana", "--layers", "1", "--hidden", "64"}, exitUsage},
		"synth no shape":  {[]string{"synth", out}, exitUsage},
		"synth type":      {[]string{"synth", out, "--layers", "1", "--hidden", "64", "--type", "MXFP4"}, exitUsage},
		"synth unknown":   {[]string{"synth", out, "--layers", "1", "--hidden", "64", "--type", "x"}, exitUsage},
		"synth a folder":  {[]string{"synth", dir, "--layers", "1", "--hidden", "64"}, exitUsage},
	} {
		if code, _, errs := runCommand(c.args...); code != c.code || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, want %d; stderr %q", name, code, c.code, errs)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
