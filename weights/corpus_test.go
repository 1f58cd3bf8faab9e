package weights_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/internal/golden/fifo"
	"terrace/weights"
)

// elsewhere are the faults of the corpus that only a higher layer can know: what an architecture needs (package model) and
// what a tokenizer may hold (packages vocab, tokenizer). Here they must open without harm.
var elsewhere = map[string]string{
	"no_block_count.gguf": "model", "arch_unknown.gguf": "model", "heads_0.gguf": "model", "kv_heads_3.gguf": "model",
	"heads_string.gguf": "model", "rope_dim_7.gguf": "model", "rope_scaling_unknown.gguf": "model", "eps_negative.gguf": "model",
	"context_2p62.gguf": "model", "experts_without_tensors.gguf": "model",
	"token_type_bytes.gguf": "vocab", "token_type_strings.gguf": "vocab", "eos_out_of_range.gguf": "vocab",
	"merge_unknown_part.gguf": "vocab", "merge_result_unknown.gguf": "vocab", "tokenizer_unknown.gguf": "vocab",
	"tok_missing": "vocab", "tok_model_unknown": "vocab", "tok_merge_malformed": "vocab", "tok_id_too_big": "vocab",
	"template_endless.gguf": "chat", "template_syntax.gguf": "chat",
}

// badCase is a line of the corpus's manifest.
type badCase struct {
	File    string   `json:"file"`
	Wrong   string   `json:"what_is_wrong"`
	Expect  string   `json:"expect"`
	By      string   `json:"by"`
	Mention []string `json:"mention"`
	Make    []struct {
		Path, Type, Target string
	} `json:"make"`
}

// TestCorpus opens and verifies every file of the corpus of bad models: the faulty ones end in an error that says what is
// wrong, within a second and 64 MiB; the odd but valid ones load.
func TestCorpus(t *testing.T) {
	f, err := os.Open(shared(t, "data", "bad", "manifest.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	counted := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c badCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if !t.Run(c.File, func(t *testing.T) { c.check(t) }) {
			counted["failed"]++
		}
		counted[c.Expect]++
	}
	t.Logf("%v; %d faults belong to layers above", counted, len(elsewhere))
	if counted["error"] < 80 || counted["ok"] < 10 {
		t.Errorf("the manifest has only %v cases", counted)
	}
}

func (c *badCase) check(t *testing.T) {
	path := c.prepare(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	m, err := weights.Open(path)
	if err == nil {
		defer m.Close()
		err = m.Verify(t.Context(), nil)
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 || took > time.Second {
		t.Errorf("%s: took %v and %d bytes", c.Wrong, took, allocated)
	}
	if c.Expect == "ok" || elsewhere[c.File] != "" {
		if err != nil {
			t.Errorf("%s: %v, want it to load", c.Wrong, err)
		}
		return
	}
	if err == nil {
		t.Fatalf("%s: no error", c.Wrong)
	}
	text := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(err.Error(), path, ""), filepath.Base(path), ""))
	if !slices.ContainsFunc(c.Mention, func(m string) bool { return strings.Contains(text, strings.ToLower(m)) }) {
		t.Errorf("%s: %v mentions none of %v", c.Wrong, err, c.Mention)
	}
	if !errors.Is(err, weights.ErrFormat) && !errors.Is(err, weights.ErrNotFinite) && !errors.Is(err, weights.ErrNotRegular) {
		t.Errorf("%v wraps none of the sentinels", err)
	}
}

// prepare returns the path of the case; pipes and links are made in a copy.
func (c *badCase) prepare(t *testing.T) string {
	path := shared(t, "data", "bad", c.File)
	if len(c.Make) == 0 {
		return path
	}
	dir := filepath.Join(t.TempDir(), c.File)
	if err := os.CopyFS(dir, os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Make {
		var err error
		switch target := filepath.Join(dir, m.Path); m.Type {
		case "fifo":
			fifo.Make(t, target)
		case "symlink", "link":
			err = os.Symlink(m.Target, target)
		default:
			t.Skipf("skipped: cannot make a %q", m.Type)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
