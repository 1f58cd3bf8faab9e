package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"terrace/serve/answer"
)

// folded writes an answer as it comes. On a terminal what the model thinks before it answers is one dimmed line with its length; elsewhere
// everything is written as it is.
type folded struct {
	parser  *answer.Parser
	out     io.Writer
	fold    bool
	thought strings.Builder
	text    strings.Builder // of the answer alone
	shown   time.Time       // when the line was written last; zero = there is none
	now     func() time.Time
}

// Write takes a piece of the model's text.
func (f *folded) write(piece string) error {
	err := f.take(f.parser.Push(piece))
	if !f.fold {
		_, failed := io.WriteString(f.out, visible(piece, "\n\t"))
		err = errors.Join(err, failed)
	}
	return err
}

// end writes what was held back.
func (f *folded) end() error {
	err := f.take(f.parser.End())
	return errors.Join(err, f.close())
}

func (f *folded) take(events []answer.Event) (err error) {
	for _, e := range events {
		switch e.Kind {
		case answer.Thought:
			f.thought.WriteString(e.Text)
			err = errors.Join(err, f.line("thinking", false))
		case answer.Text:
			err = errors.Join(err, f.close())
			f.text.WriteString(e.Text)
			if f.fold {
				_, failed := io.WriteString(f.out, visible(e.Text, "\n\t"))
				err = errors.Join(err, failed)
			}
		}
	}
	return err
}

// line writes the thought's line again, now and then or at once.
func (f *folded) line(what string, now bool) error {
	if !f.fold || !now && !f.shown.IsZero() && f.now().Sub(f.shown) < 100*time.Millisecond {
		return nil
	}
	f.shown = f.now()
	_, err := fmt.Fprintf(f.out, "\r\x1b[K\x1b[2m%s, %d characters\x1b[0m", what, utf8.RuneCountInString(strings.TrimSpace(f.thought.String())))
	return err
}

// close ends the thought's line.
func (f *folded) close() error {
	if f.shown.IsZero() {
		return nil
	}
	err := f.line("thought (/thought shows it)", true)
	f.shown = time.Time{}
	_, failed := io.WriteString(f.out, "\n")
	return errors.Join(err, failed)
}

// answering writes the answer to a prompt, and keeps the control tokens that are marks of its form.
func (c *conversation) answering(prompt []int) (f *folded, marks map[int]bool) {
	form := answer.FormOf(c.l.tok.Template())
	tail := c.l.tok.DecodeText(prompt[max(0, len(prompt)-64):], true)
	f = &folded{parser: form.Parser(nil, tail), out: c.a.stdout, fold: c.terminal && c.a.isTTY(c.a.stdout), now: time.Now}
	return f, c.l.tok.ControlTokens(form.Keeps)
}

// showThought writes what the model thought before its last answer.
func (c *conversation) showThought() error {
	if c.thought == "" {
		return errors.New("/thought: the last answer has none")
	}
	_, err := fmt.Fprintln(c.a.stdout, visible(c.thought, "\n\t"))
	return err
}
