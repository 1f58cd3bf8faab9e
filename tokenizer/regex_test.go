package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestSplitRegex compares patterns that match nothing, those of lines and POSIX classes with Hugging Face's Split (testdata/split_regex.json).
func TestSplitRegex(t *testing.T) {
	data, err := os.ReadFile("testdata/split_regex.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Rows []json.RawMessage
	}
	if err := json.Unmarshal(data, &golden); err != nil || len(golden.Rows) == 0 {
		t.Fatalf("%d rows: %v", len(golden.Rows), err)
	}
	for _, raw := range golden.Rows {
		var pattern, then, text string
		var invert bool
		var want []string
		if err := json.Unmarshal(raw, &[]any{&pattern, &then, &invert, &text, &want}); err != nil {
			t.Fatal(err)
		}
		p, err := SplitRegex(pattern, then, invert)
		if err != nil {
			t.Fatalf("%s: %v", pattern, err)
		}
		var got []string
		for _, st := range splitterOf([]PreTokenizer{p}) {
			if err := st.split(text, true, func(word string) {
				if word != "" { // says that the beginning went
					got = append(got, word)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s, %s, invert %v, %q: %q, want %q", pattern, then, invert, text, got, want)
		}
	}
}

// TestReplaceByLines compares patterns of lines and empty matches with Hugging Face's Replace (tokenizers 0.23.3).
func TestReplaceByLines(t *testing.T) {
	texts := []string{" a\n b", "axxb", "a\nba\n", ""}
	for _, c := range []struct {
		pattern, with string
		want          []string
	}{
		{"^ +", "", []string{"a\nb", "axxb", "a\nba\n", ""}},
		{"x*", "-", []string{"- -a-\n- -b-", "-a-b-", "-a-\n-b-a-\n-", ""}},
		{"a$", "<", []string{" <\n b", "axxb", "<\nb<\n", ""}},
		{"(?m)a.", "Q", []string{" Q b", "Qxb", "QbQ", ""}},
	} {
		n, err := ReplaceRegex(c.pattern, c.with)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			if got, ok := n.normalize(text, 1000); !ok || got != c.want[i] {
				t.Errorf("%s by %q in %q: %q, want %q", c.pattern, c.with, text, got, c.want[i])
			}
		}
	}
}
