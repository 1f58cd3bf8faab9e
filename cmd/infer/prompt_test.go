package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"terrace/internal/golden"
)

// promptOf is the prompt that generate would use with these arguments and standard input.
func promptOf(t *testing.T, f *generateCommand, stdin io.Reader, args ...string) (string, error) {
	t.Helper()
	ctx, i := watchInterrupts()
	defer i.stop()
	f.app = newApp(ctx, stdin, io.Discard, io.Discard)
	text, _, err := f.readPrompt(args)
	return text, err
}

// TestPrompts: what is piped goes below an argument, and is the prompt where there is none.
func TestPrompts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.txt")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, stdin string
		f           generateCommand
		args        []string
		want        string
	}{
		{"argument alone", "", generateCommand{}, []string{"Say"}, "Say"},
		{"argument and pipe", "a\nb\n", generateCommand{}, []string{"Say"}, "Say\n\na\nb"},
		{"--prompt and pipe", "a", generateCommand{promptFlags: promptFlags{prompt: "Say"}}, nil, "Say\n\na"},
		{"pipe alone", "a\r\n", generateCommand{}, nil, "a"},
		{"one line break is dropped", "a\n\n", generateCommand{}, nil, "a\n"},
		{"- is a pipe", "a\n", generateCommand{promptFlags: promptFlags{promptFile: "-"}}, nil, "a"},
		{"a file is taken as it is", "not read", generateCommand{promptFlags: promptFlags{promptFile: file}}, nil, "from a file\n"},
		{"a line break alone", "\n", generateCommand{}, []string{"Say"}, "Say"},
	} {
		if got, err := promptOf(t, &c.f, strings.NewReader(c.stdin), c.args...); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
	}{"empty": {"\n", nil, exitUsage}, "no UTF-8": {"\xff", []string{"Say"}, exitData}} {
		if _, err := promptOf(t, &generateCommand{}, strings.NewReader(c.stdin), c.args...); exitCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStandardInputs: a redirected file and a pipe are read, devices and a closed descriptor are not.
func TestStandardInputs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(name, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("piped"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	closed := open(name)
	closed.Close()
	for _, c := range []struct {
		name, want string
		in         io.Reader
	}{{"file", "Say\n\ntext", open(name)}, {"pipe", "Say\n\npiped", r}, {"/dev/null", "Say", open("/dev/null")}, {"closed", "Say", closed}, {"none", "Say", nil}, {"folder", "Say", open(filepath.Dir(name))}} {
		if got, err := promptOf(t, &generateCommand{}, c.in, "Say"); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
}

// A pipe in which nothing comes is said, and an interrupt ends the wait.
func TestSilentPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	ctx, i := watchInterrupts()
	defer i.stop()
	said := make(chan string, 1)
	a := &generateCommand{app: newApp(ctx, r, io.Discard, writerFunc(func(p []byte) { said <- string(p) }))}
	ended := make(chan error, 1)
	go func() {
		_, _, err := a.readPrompt([]string{"Say"})
		ended <- err
	}()
	select {
	case line := <-said:
		if !strings.Contains(line, "waiting for standard input") {
			t.Errorf("%q", line)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was said")
	}
	i.handle(syscall.SIGINT)
	if err := <-ended; exitCode(err) != 130 || i.signal() != syscall.SIGINT {
		t.Errorf("%v", err)
	}
}

type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// TestRunModel: run takes a model first where the first argument names one.
func TestRunModel(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if namesModel(folder) {
		t.Error("a folder without config.json is a model")
	}
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]bool{folder: true, tinyModel: true, "SmolLM2": true, "hf:a/b": true, "Why is the sky blue?": false, "run_test.go": false, "none.gguf": false} {
		if namesModel(arg) != want {
			t.Errorf("%s: a model is %v", arg, !want)
		}
	}
	model := golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf")
	text := func(stdin string, args ...string) string {
		code, out, errs := inferWith(t, stdin, append(args, "--raw", "--temperature", "0", "-n", "8")...)
		if code != 0 {
			t.Fatalf("%v: exit %d: %s", args, code, errs)
		}
		return out
	}
	want := text("", "generate", "-m", model, "the tide takes")
	for name, got := range map[string]string{"model and prompt": text("", "run", model, "the tide takes"), "words": text("", "run", model, "the", "tide", "takes"),
		"prompt from a pipe": text("the tide takes\n", "run", model), "prompt alone": text("", "run", "-m", model, "the tide takes")} {
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	t.Setenv("TERRACE_MODEL", "other.gguf") // the command line goes first
	if got := text("", "run", model, "the tide takes"); got != want {
		t.Errorf("beside TERRACE_MODEL: %q, want %q", got, want)
	}
	for _, c := range []struct{ args, want string }{
		{"run smolm2 hello", `no model is called "smolm2", did you mean "smollm2"?`},
		{"run " + model + " -m other.gguf hello", "two models"},
		{"generate a b", "generate takes one prompt"},
	} {
		if code, _, errs := inferWith(t, "", strings.Fields(c.args)...); code != exitUsage || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit %d %q", c.args, code, errs)
		}
	}
}

// TestMoreThanTheContext: an answer that the context has no room for is cut and said, whether its length was given or not.
func TestMoreThanTheContext(t *testing.T) {
	model := golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf")
	for _, n := range [][]string{nil, {"-n", "900"}} {
		code, out, errs := inferWith(t, "", append([]string{"generate", "-m", model, "--raw", "--ignore-eos", "--json", "-c", "64", "the tide takes the terrace"}, n...)...)
		var g generation
		if err := json.Unmarshal([]byte(out), &g); code != 0 || err != nil || g.PromptTokens+g.CompletionTokens != 64 || !strings.Contains(errs, "the context of 64 has no room for more") {
			t.Errorf("%v: exit %d, %d and %d tokens: %q (%v)", n, code, g.PromptTokens, g.CompletionTokens, errs, err)
		}
	}
	for _, args := range [][]string{{"-n", "8"}, {"-n", "-1"}, {"-n", "100", "--on-overflow", "shift"}} {
		code, out, errs := inferWith(t, "", append([]string{"generate", "-m", model, "--raw", "--ignore-eos", "--json", "-c", "64", "the tide takes the terrace"}, args...)...)
		var g generation
		if err := json.Unmarshal([]byte(out), &g); code != 0 || err != nil || strings.Contains(errs, "no room for more") || args[1] != "-1" && len(args) == 4 && g.CompletionTokens != 100 {
			t.Errorf("%v: exit %d, %d tokens: %q (%v)", args, code, g.CompletionTokens, errs, err)
		}
	}
}

// TestChosenZeros: a 0 on the command line is 0, not the default.
func TestChosenZeros(t *testing.T) {
	model := golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf")
	gen := func(args ...string) generation {
		code, out, errs := inferWith(t, "", append([]string{"generate", "-q", "-m", model, "--raw", "--ignore-eos", "--json", "-n", "40", strings.Repeat("the tide takes the terrace ", 12)}, args...)...)
		var g generation
		if err := json.Unmarshal([]byte(out), &g); code != 0 || err != nil {
			t.Fatalf("%v: exit %d %s %v", args, code, errs, err)
		}
		return g
	}
	greedy := gen("--temperature", "0").Text
	if got := gen("--temperature", "3", "--top-k", "0", "--min-p", "0", "--top-p", "0", "--seed", "7").Text; got != greedy {
		t.Errorf("--top-p 0: %q, greedy %q", got, greedy)
	}
	if got := gen("--temperature", "0", "--repeat-penalty", "5", "--repeat-last-n", "0").Text; got != greedy {
		t.Errorf("--repeat-last-n 0: %q, greedy %q", got, greedy)
	}
	if got := gen("--temperature", "0", "--repeat-penalty", "5").Text; got == greedy {
		t.Error("the penalty changes nothing: the test before it says nothing")
	}
	wide, none := gen("--temperature", "0", "--kv-type", "int4").KV.BytesPeak["host"], gen("--temperature", "0", "--kv-type", "int4", "--kv-window", "0").KV.BytesPeak["host"]
	if wide <= none {
		t.Errorf("--kv-window 0 holds %d bytes, the default of 128 %d", none, wide)
	}
	var errs bytes.Buffer
	if code := run([]string{"generate", "-m", model, "--repeat-penalty", "0", "x"}, strings.NewReader(""), io.Discard, &errs); code != exitUsage {
		t.Errorf("--repeat-penalty 0: exit %d %s", code, errs.String())
	}
}
