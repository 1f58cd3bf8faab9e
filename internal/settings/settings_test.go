package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: a configuration file that is no list of flags is refused in one line before it takes memory; what it says twice, or not at
// all, is not guessed.
func TestRead(t *testing.T) {
	bomb := "a: &a [x,x,x]\n"
	for i := range 20 {
		bomb += string(rune('b'+i)) + ": &" + string(rune('b'+i)) + " [" + strings.Repeat("*"+string(rune('a'+i))+",", 9) + "x]\n"
	}
	for text, want := range map[string]string{
		"max-tokens: 1\nmax_tokens: 2\n": "given twice", "stop: null\n": "has no value", "stop: [a, ~]\n": "has no value", "stop:\n": "has no value", bomb: "anchors and aliases",
		strings.Repeat("[", 100_000): "in one another", "x: " + strings.Repeat("[", 200): "in one another", "x:\n  " + strings.Repeat("- ", 9000) + "a": "in one another",
		"x: {a: {b: c}}\n": "is a map", "x: [[a]]\n": "list in a list", strings.Repeat("# a comment\n", 30_000): "at most",
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.30q: %v, want %q", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("max_tokens: 3\nstop: [\"[[[[[[[\", 'a: *b']\npolicy: \"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(path); err != nil || got["max-tokens"][0] != "3" || got["stop"][1] != "a: *b" || got["policy"][0] != "" {
		t.Errorf("%v %v", got, err)
	}
}
