package main

import (
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// stdinPatience is how long standard input may stay silent before the user is told what is waited for.
const stdinPatience = 2 * time.Second

// promptFlags say where a prompt comes from, and in which form the model reads it.
type promptFlags struct {
	prefixFile string
	prompt     string
	promptFile string
	idsFile    string
	chat, raw  bool
	system     string
}

// readPrompt takes the prompt from the one place that was given: argument, --prompt, --prompt-file, --ids-file, or a pipe. What
// is piped beside an argument or --prompt goes below it.
func (gen *generateCommand) readPrompt(args []string) (text string, ids []int, err error) {
	given := 0
	for _, has := range []bool{len(args) > 0, gen.prompt != "", gen.promptFile != "", gen.idsFile != ""} {
		if has {
			given++
		}
	}
	switch {
	case given > 1:
		return "", nil, usageErrorf("give one prompt: an argument, --prompt, --prompt-file or --ids-file")
	case len(args) > 0:
		text, err = gen.joinPiped(args[0])
	case gen.prompt != "":
		text, err = gen.joinPiped(gen.prompt)
	case gen.idsFile != "":
		ids, err = readIDs(gen.idsFile)
		return "", ids, err
	case gen.promptFile != "" && gen.promptFile != "-":
		text, err = gen.readText(gen.promptFile)
	case gen.promptFile == "" && gen.stdinIsTerminal():
		return "", nil, usageErrorf("no prompt: give one as an argument, with --prompt-file, or on standard input")
	default:
		text, err = gen.readPiped("the prompt")
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
func (gen *generateCommand) joinPiped(prompt string) (string, error) {
	if !gen.stdinIsPiped() {
		return prompt, nil
	}
	text, err := gen.readPiped("text to join below the prompt (< /dev/null gives none)")
	if err != nil || text == "" {
		return prompt, err
	}
	return prompt + "\n\n" + text, nil
}

// readPiped reads standard input to its end, less one line break there; what says on stderr what is waited for when nothing
// comes. An interrupt ends the wait.
func (gen *generateCommand) readPiped(what string) (string, error) {
	first := &firstRead{in: gen.stdin, came: make(chan struct{})}
	over := make(chan struct{})
	defer close(over)
	go func() {
		patience := time.NewTimer(stdinPatience)
		defer patience.Stop()
		select {
		case <-patience.C:
			gen.notice("waiting for standard input: %s", what)
		case <-first.came:
		case <-over:
		}
	}()
	text, err := waitFor(gen.ctx, func() (string, error) { return readBounded(first, "standard input") })
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
