package vocab_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"terrace/tokenizer"
)

// badCase is one line of the corpus of bad model files.
type badCase struct {
	File    string   `json:"file"`
	Expect  string   `json:"expect"`
	By      string   `json:"by"`
	Mention []string `json:"mention"`
	Prompt  string   `json:"prompt_text"`
	IDs     []int    `json:"prompt_ids"`
	Probe   string   `json:"probe_text"`
	Make    []any    `json:"make"`
}

func badCases(t *testing.T) (dir string, cases []badCase) {
	dir = filepath.Join(sharedDir(t), "data", "bad")
	data, err := os.ReadFile(filepath.Join(dir, "manifest.jsonl"))
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(data)) {
		var c badCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		if len(c.Make) == 0 {
			cases = append(cases, c)
		}
	}
	return dir, cases
}

// ours are the faults that this package or the tokenizer must find; all other
// faulty files only must not crash or hang here.
func ours(file string) bool {
	for _, start := range []string{"tok_", "merge_", "token_type", "tokenizer_", "eos_out", "template_"} {
		if strings.HasPrefix(file, start) {
			return true
		}
	}
	return false
}

func TestBadCorpus(t *testing.T) {
	dir, cases := badCases(t)
	for _, c := range cases {
		t.Run(c.File, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			tok, err := openTokenizer(filepath.Join(dir, c.File))
			if err == nil && c.By == "chat" {
				_, err = tok.RenderChat([]tokenizer.Message{{Role: "user", Content: "hi"}}, true)
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("took %v", took)
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("allocated %d MiB", grown>>20)
			}
			switch {
			case c.Expect == "ok":
				checkGood(t, tok, err, c)
			case c.File == "tok_id_too_big":
				if err == nil && tok.Size() <= 64 {
					t.Error("neither refused nor larger than the model's vocabulary")
				}
			case ours(c.File):
				checkBad(t, err, c)
			}
		})
	}
}

func checkGood(t *testing.T, tok *tokenizer.Tokenizer, err error, c badCase) {
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(c.Prompt, true, true)
	if err != nil || !slices.Equal(ids, c.IDs) {
		t.Errorf("%q: got %v, %v; want %v", c.Prompt, ids, err, c.IDs)
	}
	if c.Probe != "" {
		start := time.Now()
		ids, err := tok.Encode(c.Probe, false, true)
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("probe took %v", took)
		}
		if err == nil && len(ids) == 0 || err != nil && !errors.Is(err, tokenizer.ErrEncode) {
			t.Errorf("probe: got %v, %v", ids, err)
		}
	}
	if _, err := tok.RenderChat([]tokenizer.Message{{Role: "user", Content: "hi"}}, true); err != nil {
		t.Errorf("chat: %v", err)
	}
}

func checkBad(t *testing.T, err error, c badCase) {
	if err == nil {
		t.Fatal("accepted")
	}
	if !errors.Is(err, tokenizer.ErrVocab) && !errors.Is(err, tokenizer.ErrUnsupported) && !errors.Is(err, tokenizer.ErrTemplate) {
		t.Errorf("the error wraps none of the tokenizer's: %v", err)
	}
	text := strings.ToLower(strings.ReplaceAll(err.Error(), c.File, ""))
	if !slices.ContainsFunc(c.Mention, func(m string) bool { return strings.Contains(text, m) }) {
		t.Errorf("%v mentions none of %q", err, c.Mention)
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 600 {
		t.Errorf("not one clear line: %v", err)
	}
}

func TestTinyGGUFTokens(t *testing.T) {
	dir := filepath.Join(sharedDir(t), "data", "golden", "tiny_gguf")
	data, err := os.ReadFile(filepath.Join(dir, "tokens.json"))
	if err != nil {
		t.Skip(err)
	}
	var rows []goldenRow
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	tok := fileTokenizer(t, filepath.Join(dir, "tiny-F32.gguf"))
	for _, r := range rows {
		ids, err := tok.Encode(*r.Text, r.AddSpecial, r.ParseSpecial)
		if err != nil || !slices.Equal(ids, r.IDs) {
			t.Errorf("%q: got %v, %v; want %v", *r.Text, ids, err, r.IDs)
		}
	}
}

// TestTinyFolders opens every Hugging Face folder of the goldens; their
// tokenizers map a byte to its value.
func TestTinyFolders(t *testing.T) {
	dirs, _ := filepath.Glob(filepath.Join(sharedDir(t), "data", "golden", "tiny_hf", "*", "tokenizer.json"))
	if len(dirs) == 0 {
		t.Skip("no tiny_hf folders")
	}
	for _, file := range dirs {
		tok := fileTokenizer(t, filepath.Dir(file))
		ids, err := tok.Encode("A <eos>é", true, true)
		if want := []int{'A', ' ', 255, 0xC3, 0xA9}; err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: got %v, %v; want %v", file, ids, err, want)
		}
		if text := tok.Decode([]int{0xC3, 0xA9, 255}, false); text != "é" {
			t.Errorf("%s: decoded %q", file, text)
		}
	}
}
