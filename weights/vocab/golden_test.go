package vocab_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/tokenizer"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

// sharedDir finds the folder of shared data beside the repository, or skips.
func sharedDir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("TERRACE_SHARED")
	if dir == "" {
		root, err := os.Getwd()
		for err == nil && root != filepath.Dir(root) {
			if _, e := os.Stat(filepath.Join(root, "go.mod")); e == nil {
				break
			}
			root = filepath.Dir(root)
		}
		dir = filepath.Join(filepath.Dir(root), "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "golden")); err != nil {
		tb.Skipf("no shared golden data beside the repository (TERRACE_SHARED): %v", err)
	}
	return dir
}

// goldenRow is one line of the token files: text or bytes in hex.
type goldenRow struct {
	Name         string  `json:"name"`
	Text         *string `json:"text"`
	TextHex      string  `json:"text_hex"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial bool    `json:"parse_special"`
	IDs          []int   `json:"ids"`
	Detok        *string `json:"detok"`
	DetokHex     string  `json:"detok_hex"`
}

func unhex(tb testing.TB, text *string, hexed string) string {
	if text != nil {
		return *text
	}
	b, err := hex.DecodeString(hexed)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func goldenRows(tb testing.TB, name string) []goldenRow {
	f, err := os.Open(filepath.Join(sharedDir(tb), "data", "golden", "tokens", name))
	if err != nil {
		tb.Skip(err)
	}
	defer f.Close()
	var rows []goldenRow
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r goldenRow
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, r)
	}
	return rows
}

func TestGoldenTokens(t *testing.T) {
	for _, m := range models {
		t.Run(m.rows, func(t *testing.T) {
			tok := modelTokenizer(t, m.env, m.file)
			exact := 0
			for _, r := range goldenRows(t, m.rows) {
				text := unhex(t, r.Text, r.TextHex)
				ids, err := tok.Encode(text, r.AddSpecial, r.ParseSpecial)
				if err != nil {
					t.Errorf("%s: %v", r.Name, err)
					continue
				}
				if !slices.Equal(ids, r.IDs) {
					t.Errorf("%s %.60q add=%v parse=%v:\n got %v\nwant %v", r.Name, text, r.AddSpecial, r.ParseSpecial, head(ids), head(r.IDs))
					continue
				}
				exact++
				if got, want := tok.Decode(r.IDs, true), unhex(t, r.Detok, r.DetokHex); got != want {
					t.Errorf("%s: decode\n got %.80q\nwant %.80q", r.Name, got, want)
				}
			}
			t.Logf("%d texts token-exact", exact)
		})
	}
}

func head(ids []int) []int { return ids[:min(len(ids), 40)] }

// modelTokenizer builds the tokenizer of a real model: from the path in an
// environment variable, else from the program's own cache.
func modelTokenizer(tb testing.TB, env, file string) *tokenizer.Tokenizer {
	tb.Helper()
	path := os.Getenv(env)
	if path == "" {
		path = cached(file)
	}
	if path == "" {
		tb.Skipf("no %s: set %s or run `infer pull`", file, env)
	}
	return fileTokenizer(tb, path)
}

// cached finds a file anywhere in the cache folder, "" when it is not there.
func cached(file string) (found string) {
	home := os.Getenv("TERRACE_HOME")
	if home == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		home = filepath.Join(dir, "terrace")
	}
	filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() == file {
			found = path
			return fs.SkipAll
		}
		return nil
	})
	return found
}

func fileTokenizer(tb testing.TB, path string) *tokenizer.Tokenizer {
	tb.Helper()
	tok, err := openTokenizer(path)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

// vocabOf reads the vocabulary of a real model.
func vocabOf(tb testing.TB, path, file string) tokenizer.Vocab {
	tb.Helper()
	if path == "" {
		path = cached(file)
	}
	f, err := gguf.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	v, err := vocab.FromModel(f.Meta(), "")
	if err != nil {
		tb.Fatal(err)
	}
	return v
}

// openTokenizer reads the vocabulary of a GGUF file or a folder.
func openTokenizer(path string) (*tokenizer.Tokenizer, error) {
	var v tokenizer.Vocab
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		v, err = vocab.FromModel(nil, path)
	} else {
		var f *gguf.File
		if f, err = gguf.Open(path); err != nil {
			return nil, err
		}
		defer f.Close()
		v, err = vocab.FromModel(f.Meta(), "")
	}
	if err != nil {
		return nil, err
	}
	return tokenizer.New(v)
}

var models = []struct{ env, file, rows string }{
	{"TERRACE_TEST_SMOLLM2", "SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2.jsonl"},
	{"TERRACE_TEST_GEMMA3", "gemma-3-270m-q4_k_m.gguf", "gemma3.jsonl"},
}

func BenchmarkEncode(b *testing.B) {
	essays, _ := filepath.Glob(filepath.Join(sharedDir(b), "data", "essays", "*.txt"))
	var text []byte
	for _, f := range essays {
		part, _ := os.ReadFile(f)
		text = append(text, part...)
	}
	wiki, _ := os.ReadFile(filepath.Join(sharedDir(b), "data", "wikitext-2", "test.txt"))
	for _, m := range models {
		tok := modelTokenizer(b, m.env, m.file)
		for name, s := range map[string]string{"essays": string(text), "wikitext": string(wiki)} {
			b.Run(strings.TrimSuffix(m.rows, ".jsonl")+"/"+name, func(b *testing.B) {
				b.SetBytes(int64(len(s)))
				for b.Loop() {
					if _, err := tok.Encode(s, true, true); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, m := range models {
		path := os.Getenv(m.env)
		if path == "" {
			b.Skip(m.env + " is not set")
		}
		b.Run(m.rows, func(b *testing.B) {
			for b.Loop() {
				fileTokenizer(b, path)
			}
		})
	}
}
