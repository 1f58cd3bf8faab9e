package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratePlaced: what one command has read another finds compressed, and says so; a conversation does too; 'store stats' has what was done. Without
// --placement nothing is said of it.
func TestGeneratePlaced(t *testing.T) {
	dir := t.TempDir()
	store := "ssd=" + filepath.Join(dir, "kv") + ",64MiB"
	document := filepath.Join(dir, "doc.txt")
	if err := os.WriteFile(document, []byte(strings.Repeat("what they say of it. ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(question string, more ...string) (got generation, out string) {
		t.Helper()
		code, out, errs := inferWith(t, "", append([]string{"generate", "-m", tinyModel, "--raw", "--context", "512", "--temperature", "0", "-n", "4", "--json", "--prefix-file", document, "--store", store, question}, more...)...)
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
			t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
		}
		return got, out
	}
	const placement = "evicpress:alpha=0,methods=knorm,keeps=0.5"
	if got, _ := ask("who?", "--placement", placement); got.CachedTokens != 0 || got.CacheMethod != "" {
		t.Errorf("the first: %d tokens, %s", got.CachedTokens, got.CacheMethod)
	}
	ask("when?", "--placement", placement)
	if got, _ := ask("what?", "--placement", placement); got.CachedTokens < 128 || got.CacheMethod != "knorm" || got.CacheKeep != 0.5 || got.CacheTier != "ssd" {
		t.Errorf("the third: %d tokens from %q, %s %g", got.CachedTokens, got.CacheTier, got.CacheMethod, got.CacheKeep)
	}
	code, out, errs := inferWith(t, "", "store", "stats", "--store", store)
	if code != 0 || !strings.Contains(out, "contexts profiled in") || !strings.Contains(out, "ssd, knorm 0.5: 1 contexts") {
		t.Errorf("stats: exit %d, %s%s", code, out, errs)
	}
	if _, out := ask("what?", "--store-write", "through"); strings.Contains(out, "cache_method") {
		t.Errorf("without a placement: %s", out)
	}
	for args, want := range map[string]string{"generate --placement impress x": "whole contexts", "generate --placement evicpress x": "needs a --store", "chat --placement evicpress:alpha=-1 --store host=1MiB": "alpha=-1",
		"generate -m " + tinyModel + " --placement evicpress --store host=1MiB --kv-type int8 x": "quantised", "generate -m " + tinyModel + " --placement evicpress --store host=1MiB --policy h2o x": "full attention"} {
		if code, _, errs := inferWith(t, "", strings.Fields(args)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q, want %q", args, code, errs, want)
		}
	}
}
