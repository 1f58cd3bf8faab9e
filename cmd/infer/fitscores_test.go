package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFitScores: a map is trained on a text, a policy reads the file, and another model refuses it.
func TestFitScores(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, hidden := range map[string]string{"m.gguf": "64", "wider.gguf": "128"} {
		if code, _, errs := runCommand("synth", at(name), "--layers", "2", "--hidden", hidden, "--head-dim", "32", "--ffn", "96", "--vocab", "300", "--type", "F32", "--seed", "3"); code != exitDone {
			t.Fatalf("synth: exit %d, %s", code, errs)
		}
	}
	if err := os.WriteFile(at("text.txt"), []byte(strings.Repeat("What is read here counts, and it counts twice. ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, width := range []string{"0", "3"} {
		map1 := at("w" + width + ".safetensors")
		code, out, errs := runCommand("fit-scores", at("m.gguf"), "--file", at("text.txt"), "--chunk", "40", "--chunks", "6", "--sample", "30", "--width", width, "--epochs", "2", "-o", map1, "--json")
		var said struct {
			Layers, Tokens int
			HeldOut        int `json:"held_out"`
			R2             float64
		}
		if err := json.Unmarshal([]byte(out), &said); code != exitDone || err != nil || said.Layers != 2 || said.Tokens != 150 || said.HeldOut != 30 || !(said.R2 < 1) {
			t.Fatalf("width %s: exit %d, %v, %q %q", width, code, err, out, errs)
		}
		policy := "kvzap:weights=@" + map1 + ",budget=12"
		code, out, errs = runCommand("generate", "-m", at("m.gguf"), "-f", at("text.txt"), "-n", "3", "--temperature", "0", "--policy", policy, "--json")
		var answer struct {
			Tokens int `json:"prompt_tokens"`
			KV     struct {
				Kept float64 `json:"kept_fraction"`
			}
		}
		if err := json.Unmarshal([]byte(out), &answer); code != exitDone || err != nil || answer.Tokens < 100 || answer.KV.Kept > 0.2 {
			t.Errorf("%s: exit %d, %v, %+v, %q", policy, code, err, answer, errs)
		}
		code, _, errs = runCommand("generate", "-m", at("wider.gguf"), "-p", "a", "-n", "1", "--policy", policy)
		if code == exitDone || !strings.Contains(errs, "a map of 64 numbers to") {
			t.Errorf("another model: exit %d, %q", code, errs)
		}
	}
	code, out, errs := runCommand("fit-scores", "-m", at("m.gguf"), "-f", at("text.txt"), "--for", "triattention", "--chunk", "40", "-o", at("q.safetensors"), "--json")
	var said struct {
		Layers, Tokens       int
		Concentration, Least float64
	}
	if err := json.Unmarshal([]byte(out), &said); code != exitDone || err != nil || said.Layers != 2 || said.Tokens < 80 || said.Tokens%40 != 0 || !(said.Concentration > 0 && said.Concentration < 1) {
		t.Fatalf("centers: exit %d, %v, %q %q", code, err, out, errs)
	}
	policy := "decoding:triattention,stats=@" + at("q.safetensors") + ",target_size=30,compression_interval=8"
	code, out, errs = runCommand("generate", "-m", at("m.gguf"), "-p", "What is read here", "-n", "90", "--ignore-eos", "--temperature", "0", "--policy", policy, "--json")
	var answer struct {
		KV struct {
			Kept float64 `json:"kept_fraction"`
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); code != exitDone || err != nil || !(answer.KV.Kept < 0.6) {
		t.Errorf("%s: exit %d, %v, %q %q", policy, code, err, out, errs)
	}
	if code, _, errs = runCommand("generate", "-m", at("wider.gguf"), "-p", "a", "-n", "1", "--policy", policy); code == exitDone || !strings.Contains(errs, "has centers of") {
		t.Errorf("another model: exit %d, %q", code, errs)
	}
	for what, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"two models":   {[]string{"a", "b", "-f", "x"}, exitUsage, "one model"},
		"no text":      {[]string{"-m", at("m.gguf")}, exitUsage, "--file"},
		"no policy":    {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "--for", "h2o"}, exitUsage, "kvzap or triattention"},
		"trained":      {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "--for", "triattention", "--width", "3"}, exitUsage, "--width"},
		"its name":     {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "-o", at("map.bin")}, exitUsage, ".safetensors"},
		"a number":     {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "-o", at("x.safetensors"), "--epochs", "0"}, exitUsage, "--epochs"},
		"a short text": {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "-o", at("x.safetensors"), "--chunk", "5000"}, exitFailed, "two chunks"},
		"a file there": {[]string{"-m", at("m.gguf"), "-f", at("text.txt"), "-o", at("w0.safetensors")}, exitUsage, "w0.safetensors"},
	} {
		code, _, errs := runCommand(append([]string{"fit-scores"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%s: exit %d, %q: want %d with %q", what, code, errs, c.code, c.says)
		}
	}
}
