package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWindowsOnly: without a policy, generate keeps of layers with a sliding window only what later tokens read; what fit says is
// not exceeded. kv, which lists positions, keeps all.
func TestWindowsOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.gguf")
	if code, _, errs := runCommand("synth", path, "--arch", "gemma3", "--layers", "7", "--hidden", "64", "--heads", "2", "--kv-heads", "1", "--head-dim", "32", "--ffn", "96",
		"--vocab", "300", "--context", "4096", "--type", "F32"); code != exitDone {
		t.Fatalf("synth: exit %d, %s", code, errs)
	}
	var fit struct {
		PerToken  int64 `json:"kv_bytes_per_token"`
		AtContext int64 `json:"kv_bytes_at_context"`
	}
	code, out, errs := runCommand("fit", path, "--json", "-c", "1808", "--chunk-tokens", "64", "--memory", "1GiB")
	if err := json.Unmarshal([]byte(out), &fit); code != exitDone || err != nil {
		t.Fatalf("fit: exit %d, %s, %v", code, errs, err)
	}
	var res struct {
		KV kvJSON `json:"kv"`
	}
	code, out, errs = runCommand("generate", "-m", path, "--raw", "--json", "--temp", "0", "--ignore-eos", "-n", "8", "-t", "1", "--chunk-tokens", "64", strings.Repeat("abcdefghi ", 180))
	if err := json.Unmarshal([]byte(out), &res); code != exitDone || err != nil {
		t.Fatalf("generate: exit %d, %s, %v", code, errs, err)
	}
	if n := res.KV.BytesPeak["host"]; n > fit.AtContext || n < fit.AtContext*8/10 || n > fit.PerToken*1800/2 {
		t.Errorf("generate took %d bytes, fit said %d, every position takes %d", n, fit.AtContext, fit.PerToken*1800)
	}
	if f := res.KV.Droppable; f < 0.28 || f > 0.34 { // one layer of seven reads 1,800 tokens, the others keep a window and a chunk: about 670
		t.Errorf("%g of the text's bytes may be dropped", f)
	}
	ids, kept := filepath.Join(t.TempDir(), "ids.json"), filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(ids, []byte("["+strings.Repeat("7,", 1499)+"7]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runCommand("kv", "-m", path, "--ids-file", ids, "--out", kept, "-t", "1"); code != exitDone {
		t.Fatalf("kv: exit %d, %s", code, errs)
	}
	var positions struct{ Layers []keptLayer }
	b, err := os.ReadFile(kept)
	if err == nil {
		err = json.Unmarshal(b, &positions)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range positions.Layers {
		if n := len(l.Heads[0]); n != 1500 {
			t.Errorf("kv lists %d positions of layer %d", n, i)
		}
	}
}
