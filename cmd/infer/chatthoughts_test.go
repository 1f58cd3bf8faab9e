package main

import (
	"os"
	"path/filepath"
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

// TestThoughtsOnATerminal: the line with a thought's length takes the place of its text, which /thought shows; a pipe gets everything.
func TestThoughtsOnATerminal(t *testing.T) {
	model, template := synthModel(t), filepath.Join(t.TempDir(), "t.jinja")
	if err := os.WriteFile(template, []byte("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<think>\n{#</think>#}"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"chat", "-m", model, "--chat-template", template, "--temperature", "0", "-n", "30", "--ignore-eos"}
	code, out, errs := inferWith(t, "abc\n", args...)
	if code != exitDone || strings.TrimSpace(out) == "" || strings.Contains(out, "thought (") {
		t.Fatalf("a pipe: exit %d %q %s", code, out, errs)
	}
	s := onTerminal(t, t.TempDir(), append(args, "--no-history")...)
	s.wait(">>> ")
	s.press("/thought\r")
	s.wait("the last answer has none")
	s.press("abc\r")
	s.match(`thought \(/thought shows it\), \d+ characters`)
	s.wait("stopped after 30 tokens")
	s.press("/thought\r")
	s.wait(strings.TrimSpace(out)[:8])
	s.press("/bye\r")
	if code := s.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
}
