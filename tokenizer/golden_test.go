package tokenizer

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
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
	for _, m := range []struct{ env, rows string }{
		{"TERRACE_TEST_SMOLLM2", "smollm2.jsonl"},
		{"TERRACE_TEST_GEMMA3", "gemma3.jsonl"},
	} {
		t.Run(m.rows, func(t *testing.T) {
			tok := modelTokenizer(t, m.env)
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

func modelTokenizer(tb testing.TB, env string) *Tokenizer {
	tb.Helper()
	path := os.Getenv(env)
	if path == "" {
		tb.Skipf("%s is not set", env)
	}
	tok, err := New(ggufVocab(tb, path))
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func BenchmarkEncode(b *testing.B) {
	essays, _ := filepath.Glob(filepath.Join(sharedDir(b), "data", "essays", "*.txt"))
	var text []byte
	for _, f := range essays {
		part, _ := os.ReadFile(f)
		text = append(text, part...)
	}
	wiki, _ := os.ReadFile(filepath.Join(sharedDir(b), "data", "wikitext-2", "test.txt"))
	for _, env := range []string{"TERRACE_TEST_SMOLLM2", "TERRACE_TEST_GEMMA3"} {
		tok := modelTokenizer(b, env)
		for name, s := range map[string]string{"essays": string(text), "wikitext": string(wiki)} {
			b.Run(env[13:]+"/"+name, func(b *testing.B) {
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
