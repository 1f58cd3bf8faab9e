package main

import (
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// stdinPatience is how long standard input may stay silent before the user is told what is waited for.
const stdinPatience = 2 * time.Second

// readPrompt takes the prompt from the one place that was given: argument, --prompt, --prompt-file, --ids-file, or a pipe. What
// is piped beside an argument or --prompt goes below it.
func (a *app) readPrompt(f *generateFlags, args []string) (text string, ids []int, err error) {
	given := 0
	for _, has := range []bool{len(args) > 0, f.prompt != "", f.promptFile != "", f.idsFile != ""} {
		if has {
			given++
		}
	}
	switch {
	case given > 1:
		return "", nil, usageErrorf("give one prompt: an argument, --prompt, --prompt-file or --ids-file")
	case len(args) > 0:
		text, err = a.joinPiped(args[0])
	case f.prompt != "":
		text, err = a.joinPiped(f.prompt)
	case f.idsFile != "":
		ids, err = readIDs(f.idsFile)
		return "", ids, err
	case f.promptFile != "" && f.promptFile != "-":
		text, err = a.readText(f.promptFile)
	case f.promptFile == "" && a.stdinIsTerminal():
		return "", nil, usageErrorf("no prompt: give one as an argument, with --prompt-file, or on standard input")
	default:
		text, err = a.readPiped("the prompt")
	}
	if err != nil {
		return "", nil, err
	}
	if text == "" {
		return "", nil, usageErrorf("the prompt is empty")
	}
	if !utf8.ValidString(text) {
		return "", nil, dataErrorf("the prompt is not valid UTF-8")
	}
	return text, nil, nil
}

// joinPiped puts what is piped or redirected to standard input below a prompt.
func (a *app) joinPiped(prompt string) (string, error) {
	if !a.stdinIsPiped() {
		return prompt, nil
	}
	text, err := a.readPiped("text to join below the prompt (< /dev/null gives none)")
	if err != nil || text == "" {
		return prompt, err
	}
	return prompt + "\n\n" + text, nil
}

// stdinIsPiped reports whether standard input may hold text: it is open, and no terminal or other device.
func (a *app) stdinIsPiped() bool {
	f, ok := a.stdin.(*os.File)
	if !ok {
		return a.stdin != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && !info.IsDir()
}

func (a *app) stdinIsTerminal() bool {
	f, ok := a.stdin.(*os.File)
	return ok && a.isTTY(f)
}

// readPiped reads standard input to its end, less one line break there; what says on stderr what is waited for when nothing
// comes. An interrupt ends the wait.
func (a *app) readPiped(what string) (string, error) {
	first := &firstRead{in: a.stdin, came: make(chan struct{})}
	over := make(chan struct{})
	defer close(over)
	go func() {
		patience := time.NewTimer(stdinPatience)
		defer patience.Stop()
		select {
		case <-patience.C:
			a.notice("waiting for standard input: %s", what)
		case <-first.came:
		case <-over:
		}
	}()
	text, err := waitFor(a.ctx, func() (string, error) { return readBounded(first, "standard input") })
	if err != nil {
		return "", err
	}
	text, cut := strings.CutSuffix(text, "\n")
	if cut {
		text = strings.TrimSuffix(text, "\r")
	}
	return text, nil
}

// firstRead closes came at the first read that returns.
type firstRead struct {
	in   io.Reader
	came chan struct{}
	once bool
}

func (r *firstRead) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if !r.once {
		r.once = true
		close(r.came)
	}
	return n, err
}
