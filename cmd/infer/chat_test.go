package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"terrace/internal/golden"
	"terrace/tokenizer"
)

// screen is infer on a pseudo-terminal: what it wrote so far, and keys to press.
type screen struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	text []byte
	more chan struct{}
	seen int // how much of the text without escape sequences earlier waits have used up
}

// onTerminal starts infer on a terminal of 100 columns, with its own home folder but the models of this machine.
func onTerminal(t *testing.T, home string, args ...string) *screen {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), processEnv+"=1", "TERM=xterm-256color", "TERRACE_HOME="+home, "INPUTRC=/dev/null")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	s := &screen{t: t, tty: tty, cmd: cmd, more: make(chan struct{}, 1)}
	go s.read()
	t.Cleanup(func() { _ = cmd.Process.Kill(); tty.Close() })
	return s
}

func (s *screen) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.tty.Read(buf)
		s.mu.Lock()
		s.text = append(s.text, buf[:n]...)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
		if err != nil {
			close(s.more)
			return
		}
	}
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// wait returns what is new on the screen once it contains want, escape sequences left out.
func (s *screen) wait(want string) string {
	s.t.Helper()
	return s.match(regexp.QuoteMeta(want))
}

// match is wait for a regular expression.
func (s *screen) match(want string) string {
	s.t.Helper()
	re := regexp.MustCompile(want)
	limit := time.After(60 * time.Second)
	for open := true; ; {
		s.mu.Lock()
		text := strings.ReplaceAll(escapes.ReplaceAllString(string(s.text), ""), "\r", "")[s.seen:]
		if at := re.FindStringIndex(text); at != nil {
			s.seen += at[1]
			s.mu.Unlock()
			return text
		}
		s.mu.Unlock()
		if !open {
			s.t.Fatalf("it ended without %q:\n%s", want, text)
		}
		select {
		case _, open = <-s.more:
		case <-limit:
			s.t.Fatalf("no %q on the screen:\n%s", want, text)
		}
	}
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.tty, keys); err != nil {
		s.t.Fatal(err)
	}
}

// exit waits for the process and returns its code.
func (s *screen) exit() int {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case <-ended:
		for range s.more { // to the end of what it wrote
		}
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.t.Fatalf("it does not end:\n%s", s.text)
		return 0
	}
}

const (
	ctrlC      = "\x03"
	ctrlD      = "\x04"
	ctrlR      = "\x12"
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// kept reads a conversation that /save wrote.
func kept(t *testing.T, path string) []savedMessage {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c savedChat
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c.Messages
}

// TestChatOnATerminal is a conversation as a user has it.
func TestChatOnATerminal(t *testing.T) {
	model := golden.Model(t, "smollm2:135m")
	home := t.TempDir()
	s := onTerminal(t, home, "chat", "-m", model, "--temperature", "0", "-t", "2", "-n", "900", "-c", "1024", "--ignore-eos")
	s.wait("/help lists the commands")
	s.wait(">>> ")

	// Ctrl-C stops the answer, not the program.
	s.press("Tell me a very long story about the sea.\r")
	s.match(`sea\.\s+\S+\s`) // the answer is under way
	s.press(ctrlC)
	s.wait("stopped; /retry answers again")
	s.press("/set max-tokens 3\r")
	s.wait(">>> ")

	// A pasted block is one message, although it begins with a slash; so is a path.
	s.press(pasteBegin + "/usr/bin/env\rprints\rthe environment." + pasteEnd + "\r")
	s.wait("stopped after 3 tokens")
	s.press("/etc/passwd is a file\r")
	s.wait("stopped after 3 tokens")
	// So is what is typed between """.
	s.press("\"\"\"one\r")
	s.press("two\"\"\"\r")
	s.wait("stopped after 3 tokens")

	// Tab completes commands; an unknown one is no message.
	s.press("/sho\t\r")
	s.wait("max-tokens     3")
	s.press("/hepl\r")
	s.wait(`did you mean "/help"?`)
	s.press("/set temperature warm\r")
	s.wait(`/set temperature: "warm" is not a number`)
	s.press("/set top-p 7\r")
	s.wait("top-p 7: want 0 to 1")
	s.press("/set max-tokens 5\r")
	s.wait(">>> ")
	s.press("/set\r")
	s.wait("/set needs a name and a value")
	s.press("/retry\r")
	s.wait("stopped after 5 tokens")
	s.press("/save talk\r")
	s.wait("messages in")
	msgs := kept(t, filepath.Join(home, "chats", "talk.json"))
	for _, want := range []string{"/usr/bin/env\nprints\nthe environment.", "/etc/passwd is a file", "one\ntwo"} {
		found := false
		for _, m := range msgs {
			found = found || m.Role == "user" && m.Content == want
		}
		if !found {
			t.Errorf("no message %q in %q", want, msgs)
		}
	}
	// At the prompt Ctrl-C says how to leave once, and leaves twice.
	s.wait(">>> ")
	s.press(ctrlC)
	s.wait("Ctrl-C again, Ctrl-D or /bye leaves")
	s.press("/kv\r")
	s.wait("of KV in host memory")
	s.wait(">>> ") // the editor reads: before, Ctrl-C would be a signal, whose answer may come after the prompt
	s.press(ctrlC)
	s.wait("Ctrl-C again")
	s.wait(">>> ")
	s.press(ctrlC)
	if code := s.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}

	// The next conversation finds the messages of this one, and goes on with it.
	s = onTerminal(t, home, "chat", model, "--temperature", "0", "-n", "3", "-c", "1024")
	s.wait(">>> ")
	s.press(ctrlR + "passwd")
	s.wait("/etc/passwd is a file")
	s.press(ctrlC)
	s.press("\x15/load tak\r")
	s.wait(`did you mean "talk"?`)
	s.press("/load talk\r")
	s.wait("they are read with the next one")
	s.press("And then?\r")
	s.wait("stopped after 3 tokens")
	s.wait(">>> ")
	s.press(ctrlD)
	if code := s.exit(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// A full context says what to do, and the conversation can be cleared; a second Ctrl-C while an answer is being stopped, or
// SIGTERM at the prompt, ends the program with the terminal as it was.
func TestChatFullAndEnded(t *testing.T) {
	model := golden.Model(t, "smollm2:135m")
	s := onTerminal(t, t.TempDir(), "chat", "-m", model, "--temperature", "0", "-c", "64", "--ignore-eos", "--no-history")
	s.wait(">>> ")
	s.press("Count to one thousand.\r")
	s.wait("the context of 64 tokens is full: /clear begins a new conversation; /save NAME keeps this one, and 'infer chat --context 128' with /load NAME goes on")
	s.press("And more.\r")
	s.wait("the context holds 64")
	s.press("/clear\r")
	s.wait(">>> ")
	s.press("Hi\r")
	s.wait("the context of 64 tokens is full")
	s.wait(">>> ")
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.exit(); code != 143 {
		t.Errorf("exit %d, want 143", code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if on, off := bytes.LastIndex(s.text, []byte("\x1b[?2004h")), bytes.LastIndex(s.text, []byte("\x1b[?2004l")); on > off { // the editor may redraw after it
		t.Errorf("the terminal still brackets pastes: %q", s.text[max(0, len(s.text)-60):])
	}
}

// Without a terminal each line is a message, and what stands between """ is one.
func TestChatOfAPipe(t *testing.T) {
	model := golden.Model(t, "smollm2:135m")
	home := t.TempDir()
	t.Setenv("TERRACE_HOME", home)
	file := filepath.Join(home, "out.json")
	in := "Hi\n\"\"\"a\nb\"\"\"\n/no/command here\n/nope\n/save " + file + "\n/bye\nnot read\n"
	code, out, errs := inferWith(t, in, "chat", "-m", model, "-n", "2", "--temperature", "0")
	if code != 0 || strings.Count(strings.TrimRight(out, "\n"), "\n") < 2 || !strings.Contains(errs, "/nope is not a command") || strings.Contains(errs, "/help lists the commands,") {
		t.Fatalf("exit %d: %q %q", code, out, errs)
	}
	var user []string
	for _, m := range kept(t, file) {
		if m.Role == "user" {
			user = append(user, m.Content)
		}
	}
	if strings.Join(user, "|") != "Hi|a\nb|/no/command here" {
		t.Errorf("messages %q", user)
	}
	if _, err := os.Stat(filepath.Join(home, "chats")); err == nil {
		t.Error("a history was kept without a terminal")
	}
}

func TestIsCommand(t *testing.T) {
	for text, want := range map[string]bool{"/help": true, "/set top-p 1": true, "/nope": true, "/": true, "hello": false, "/usr/bin": false, "/ then": false, "/nope this": true,
		"/system a\nb": true, "/set a\nb": false, "/clear\nmore": false, " /help": false} {
		if isCommand(text) != want {
			t.Errorf("%q: command is %v", text, !want)
		}
	}
}

// The history survives the process, is bounded, and passes over lines that are none of its own.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "h.jsonl")
	h, err := openHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", " two\nlines ", "", strings.Repeat("x", historyBytesMax+1)} {
		if _, err := h.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{broken\n[1]\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if h, err = openHistory(path); err != nil || h.Len() != 2 {
		t.Fatalf("%d messages, %v", h.Len(), err)
	}
	if text, err := h.GetLine(1); err != nil || text != "two\nlines" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := h.GetLine(2); err == nil {
		t.Error("a message that is not there")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v: others can read it", info.Mode(), err)
	}
	for i := range 2 * historyMax {
		if _, err := h.Write(strings.Repeat("y", 1+i%50)); err != nil {
			t.Fatal(err)
		}
	}
	if h, err = openHistory(path); err != nil || h.Len() != historyMax {
		t.Errorf("%d messages kept, %v", h.Len(), err)
	}
	if raw, err := os.ReadFile(path); err != nil || bytes.Count(raw, []byte("\n")) != historyMax {
		t.Errorf("the file has %d lines, %v", bytes.Count(raw, []byte("\n")), err)
	}
}

// TestInterruptedGeneration: Ctrl-C ends generate with 130, and the shell's prompt begins a line of its own.
func TestInterruptedGeneration(t *testing.T) {
	model := golden.Model(t, "smollm2:135m")
	s := onTerminal(t, t.TempDir(), "generate", "-m", model, "--temperature", "0", "--ignore-eos", "-n", "-1", "Tell me a story about the sea.")
	s.match(`\w+ \w+ \w+`)
	s.press(ctrlC)
	if code := s.exit(); code != 130 {
		t.Errorf("exit %d, want 130", code)
	}
	if text := string(s.text); !strings.HasSuffix(text, "\r\n") || strings.HasSuffix(text, "\r\n\r\n") {
		t.Errorf("it ends with %q", text[max(0, len(text)-40):])
	}
	// Before there is any text too.
	s = onTerminal(t, t.TempDir(), "generate", "-m", model, "--prompt-file", "-")
	s.wait("waiting for standard input: the prompt")
	s.press(ctrlC)
	if code := s.exit(); code != 130 || !strings.HasSuffix(string(s.text), "^C\r\n") {
		t.Errorf("exit %d, %q", code, s.text)
	}
}

// TestStops: while an answer is made the first Ctrl-C ends it and the second the program; between answers the first one says
// how to leave.
func TestStops(t *testing.T) {
	said, stopped := 0, 0
	s := &stops{say: func() { said++ }}
	if !s.take() || said != 1 || s.take() || said != 1 {
		t.Errorf("at the prompt: said %d times", said)
	}
	s.during(func() { stopped++ })
	if !s.take() || stopped != 1 || s.take() {
		t.Errorf("in an answer: stopped %d times", stopped)
	}
	s.during(nil)
	if !s.take() || said != 2 || stopped != 1 {
		t.Errorf("after the answer: said %d, stopped %d", said, stopped)
	}
}

// TestSet: /set changes one option, and nothing where the value is refused, which the message names.
func TestSet(t *testing.T) {
	fresh := func() *conversation {
		f := &chatCommand{}
		f.sample.add(&cobra.Command{}, chatMaxTokens)
		return &conversation{f: f}
	}
	for line, want := range map[string]string{"temperature 0.5x": `"0.5x" is not a number`, "temperature -1": "temperature -1: want 0 or more", "top-k 1.5": `"1.5" is not a whole number`,
		"max-tokens -7": "--max-tokens -7: want -1", "seed -2": `"-2" is not a whole number of 0 or more`, "repeat-penalty 0": "want more than 0", "min-p": "needs a value: a number (it is 0)",
		"temprature 1": `did you mean "temperature"?`, "": "needs a name and a value"} {
		c, before := fresh(), fresh().f.sample
		if err := c.set(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("/set %s: %v, want %q", line, err, want)
		}
		if c.f.sample.o != before.o || c.f.sample.maxTokens != before.maxTokens {
			t.Errorf("/set %s changed %+v", line, c.f.sample)
		}
	}
	c := fresh()
	for _, line := range []string{"temperature 0.25", "parameter top_k 7", "max-tokens -1", "seed 18446744073709551615"} {
		if err := c.set(line); err != nil {
			t.Errorf("/set %s: %v", line, err)
		}
	}
	if o := c.f.sample.o; o.Temperature != 0.25 || o.TopK != 7 || o.Seed != 1<<64-1 || c.f.sample.maxTokens != -1 {
		t.Errorf("%+v", c.f.sample)
	}
}

// TestLoadRefuses: what is no kept conversation is refused in one line and changes nothing.
func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"text.json": "hello", "format.json": `{"format":9}`, "role.json": `{"format":1,"messages":[{"role":"tool","content":"x"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := &conversation{a: testApp(dir), f: &chatCommand{}, l: &loaded{name: "m"}, msgs: []tokenizer.Message{{Role: "user", Content: "x"}}}
	for name, want := range map[string]string{"": "needs a name", "none": "nothing is kept yet", dir + "/text.json": "not a kept conversation", dir + "/format.json": "format 9, want 1",
		dir + "/role.json": `message 1 has role "tool"`, dir + "/": "not a file", "..": "not a name"} {
		if err := c.load(name); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("/load %s: %v, want %q", name, err, want)
		}
	}
	if len(c.msgs) != 1 {
		t.Error("the conversation was changed")
	}
	if err := c.save(dir + "/no/folder.json"); err == nil || !strings.Contains(err.Error(), "/save") {
		t.Errorf("%v", err)
	}
}

// testApp is an app with a home folder that says nothing.
func testApp(home string) *app {
	a := newApp(context.Background(), nil, io.Discard, io.Discard)
	a.homeDir = home
	return a
}
