package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/reeflective/readline"
	"golang.org/x/term"

	"terrace/internal/units"
)

// errInterrupted is Ctrl-C at the prompt.
var errInterrupted = errors.New("interrupted at the prompt")

// manyLines begins and ends a message of several lines.
const manyLines = `"""`

// chatInput hands out messages: io.EOF at the end, errInterrupted where the user pressed Ctrl-C.
type chatInput interface {
	message(ctx context.Context) (string, error)
	close()
}

// input is a line editor on a terminal, and plain lines otherwise.
func (c *conversation) input() (chatInput, error) {
	file, ok := c.a.stdin.(*os.File)
	// The editor knows the process's own terminal only.
	if !ok || file != os.Stdin || !c.terminal || !c.a.isTTY(c.a.stdout) || os.Getenv("TERM") == "dumb" {
		return &plainInput{in: bufio.NewReader(c.a.stdin)}, nil
	}
	return newEditor(c)
}

// plainInput takes each line as a message, and what stands between """ as one.
type plainInput struct{ in *bufio.Reader }

func (p *plainInput) close() {}

func (p *plainInput) message(ctx context.Context) (string, error) {
	return waitFor(ctx, func() (string, error) {
		line, err := p.line()
		if err != nil {
			return "", err
		}
		var text strings.Builder // whose String copies nothing
		text.WriteString(line)
		for !isWhole(text.String()) {
			more, err := p.line()
			if err != nil {
				break // what there is
			}
			if text.Len()+len(more) > maxMessageBytes {
				return "", dataErrorf("chat: a message of standard input is longer than %s, the most that is read of one", units.FormatBytes(maxMessageBytes))
			}
			text.WriteByte('\n')
			text.WriteString(more)
		}
		return unquote(text.String()), nil
	})
}

// maxMessageBytes is the longest message that is read; no model's context holds as much text.
const maxMessageBytes = 8 << 20

func (p *plainInput) line() (string, error) {
	var line []byte
	for {
		part, err := p.in.ReadSlice('\n')
		if len(line)+len(part) > maxMessageBytes {
			return "", dataErrorf("chat: a line of standard input is longer than %s, the most that is read of a message", units.FormatBytes(maxMessageBytes))
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(line) == 0:
			return "", err
		}
		return strings.TrimRight(string(line), "\r\n"), nil
	}
}

// waitFor returns what read returns, or the context's error when that ends first.
func waitFor(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// isWhole reports whether a message is complete: one that begins with """ ends with it too.
func isWhole(text string) bool {
	rest, many := strings.CutPrefix(strings.TrimSpace(text), manyLines)
	return !many || strings.HasSuffix(rest, manyLines)
}

// unquote takes the """ off.
func unquote(text string) string {
	rest, many := strings.CutPrefix(strings.TrimSpace(text), manyLines)
	if !many {
		return text
	}
	return strings.TrimPrefix(strings.TrimSuffix(rest, manyLines), "\n")
}

// editor is a line editor with history, search (Ctrl-R), completion and bracketed paste.
type editor struct {
	shell *readline.Shell
	state *term.State // of the terminal before the editor changed it
}

func newEditor(c *conversation) (*editor, error) {
	state, err := term.GetState(int(os.Stdin.Fd()))
	if err != nil {
		return nil, err
	}
	s := readline.NewShell()
	for name, value := range map[string]any{
		"enable-bracketed-paste": true,
		"cursor-position-probe":  false, // the prompt begins at the left; not every terminal answers
		"multiline-column":       false,
	} {
		if err := s.Config.Set(name, value); err != nil {
			return nil, err
		}
	}
	s.Prompt.Primary(func() string { return ">>> " })
	s.Prompt.Secondary(func() string { return "... " })
	s.AcceptMultiline = func(line []rune) bool { return isWhole(string(line)) }
	s.Completer = func(line []rune, cursor int) readline.Completions { return c.complete(string(line[:cursor])) }
	if !c.f.noHistory {
		h, err := openHistory(filepath.Join(c.chatDir(), "history.jsonl"))
		if err != nil {
			c.a.notice("no history: %v", err)
		} else {
			s.History.Add("history", h)
		}
	}
	return &editor{s, state}, nil
}

func (e *editor) message(ctx context.Context) (string, error) {
	text, err := waitFor(ctx, func() (string, error) {
		text, err := e.shell.Readline()
		if errors.Is(err, readline.ErrInterrupt) {
			err = errInterrupted
		}
		return unquote(text), err
	})
	return text, err
}

// close gives the terminal back as it was, also where the editor was left while it read.
func (e *editor) close() {
	_ = term.Restore(int(os.Stdin.Fd()), e.state)
	_, _ = io.WriteString(os.Stdout, "\x1b[?2004l")
}
