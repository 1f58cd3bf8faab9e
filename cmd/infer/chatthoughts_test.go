package main

import (
	"strings"
	"testing"
	"time"

	"terrace/serve/answer"
)

// TestFoldedThoughts: on a terminal a thought is one dimmed line that says its length, written again as it grows; elsewhere the text is as it is.
func TestFoldedThoughts(t *testing.T) {
	pieces := []string{"<thi", "nk>\nHm, ", "let me see.", "\n</th", "ink>\n\nIt is", " \x1b[31m4."}
	for _, fold := range []bool{true, false} {
		var out strings.Builder
		at := time.Unix(0, 0)
		f := &folded{parser: answer.FormOf("</think>").Parser(nil, ""), out: &out, fold: fold, now: func() time.Time { at = at.Add(60 * time.Millisecond); return at }}
		for _, p := range pieces {
			if err := f.write(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(strings.Join(pieces, ""), "\x1b", `\x1b`)
		if fold {
			const line = "\r\x1b[K\x1b[2m"
			want = line + "thinking, 3 characters\x1b[0m" + line + "thought (/thought shows it), 15 characters\x1b[0m\n" + `It is \x1b[31m4.`
		}
		if out.String() != want || strings.TrimSpace(f.thought.String()) != "Hm, let me see." || f.text.String() != "It is \x1b[31m4." {
			t.Errorf("fold %v: wrote %q, want %q; thought %q, text %q", fold, out.String(), want, f.thought.String(), f.text.String())
		}
	}
}
