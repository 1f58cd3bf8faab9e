package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestShortWays: what newcomers type first works: a schema on the command line, any JSON, counting a file's tokens, the version.
func TestShortWays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.txt")
	if err := os.WriteFile(file, []byte("ab ab ab"), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := func(args ...string) int {
		code, out, errs := inferWith(t, "", append([]string{"tokenize", "-m", tinyModel}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %s", args, errs)
		}
		return strings.Count(out, ",") + 1
	}
	want := ids("ab ab ab")
	if code, out, errs := inferWith(t, "", "tokenize", "-m", tinyModel, "--count", "-f", file); code != 0 || strings.TrimSpace(out) != strconv.Itoa(want) {
		t.Errorf("--count: exit %d, %q, want %d: %s", code, out, want, errs)
	}
	if got := ids("-f", file); got != want {
		t.Errorf("-f: %d tokens, want %d", got, want)
	}
	if code, out, _ := inferWith(t, "", "version"); code != 0 || !strings.HasPrefix(out, "infer version "+version) {
		t.Errorf("version: exit %d, %q", code, out)
	}
	for _, c := range []constrainFlags{{schema: `{"type": "string"}`}, {grammar: `root ::= "a"`}, {format: "json"}, {format: `{"type": "integer"}`}} {
		if g, err := c.compile(); err != nil || g == nil {
			t.Errorf("%+v: %v, %v", c, g, err)
		}
	}
	for _, c := range []constrainFlags{{schema: `{"type": 5}`}, {schema: "{}", grammar: `root ::= "a"`}, {format: "json", schema: "{}"}, {format: "yaml"}} {
		if g, err := c.compile(); exitCode(err) != exitUsage {
			t.Errorf("%+v: %v, %v", c, g, err)
		}
	}
	for text, is := range map[string]bool{"/foo bar": true, "/set": true, "/etc/passwd is a file": false, " /foo": false, "/2 of it": false, "/usr": true} {
		if isCommand(text) != is {
			t.Errorf("%q is a command: %v", text, !is)
		}
	}
	code, out, errs := inferWith(t, "", "bench", "-m", tinyModel, "-p", "8", "-n", "2", "-r", "1", "-q")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != 6 || !strings.HasPrefix(lines[0], "| model |") || !strings.Contains(lines[2], "| pp8 |") || !strings.Contains(lines[3], "| tg2 |") || !strings.Contains(lines[5], "tokens/s, which reads weights at") {
		t.Errorf("bench: exit %d: %s%s", code, out, errs)
	}
}
