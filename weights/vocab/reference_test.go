package vocab

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"terrace/tokenizer"
)

// TestReferenceTokenizers compares small tokenizer.json files with Hugging
// Face's library: testdata/tokenizers/generate.py writes the cases.
func TestReferenceTokenizers(t *testing.T) {
	f, err := os.Open("testdata/tokenizers/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	rows := 0
	for lines.Scan() {
		var c struct {
			Name      string
			Tokenizer json.RawMessage
			Rows      []struct {
				Text        string
				IDs         []int
				WithSpecial string `json:"with_special"`
				Plain       string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			v, err := parseTokenizerJSON(c.Tokenizer, &settings{})
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.New(v)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range c.Rows {
				ids, err := tok.Encode(r.Text, false, true)
				if err != nil || !slices.Equal(ids, r.IDs) {
					t.Errorf("%+q: ids %v, %v; want %v", r.Text, ids, err, r.IDs)
				}
				if got := tok.DecodeText(r.IDs, true); got != r.WithSpecial {
					t.Errorf("%+q: text %q, want %q", r.Text, got, r.WithSpecial)
				}
				if got := tok.DecodeText(r.IDs, false); got != r.Plain {
					t.Errorf("%+q: plain text %q, want %q", r.Text, got, r.Plain)
				}
				rows++
			}
		})
	}
	if err := lines.Err(); err != nil || rows == 0 {
		t.Fatalf("%d rows, %v", rows, err)
	}
}
