package replace

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplace: nothing is seen of a file before it is whole, and nothing is left of one that was given up.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != want || err != nil {
			t.Errorf("the file holds %q, want %q: %v", b, want, err)
		}
	}
	holds("one")
	for _, finish := range []bool{false, true} {
		f, err := New(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("two")); err != nil {
			t.Fatal(err)
		}
		holds("one")
		if finish {
			if err := f.CloseAtomicallyReplace(); err != nil {
				t.Error(err)
			}
		}
		if err := f.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	holds("two")
	if all, err := os.ReadDir(filepath.Dir(path)); len(all) != 1 || err != nil {
		t.Errorf("left beside the file: %v, %v", all, err)
	}
}

// TestKilled: what a process that was killed has left of a file goes when the file is written again; what a living one is writing, and
// what only has a like name, stays. The test runs itself as the process that is killed.
func TestKilled(t *testing.T) {
	path := os.Getenv("REPLACE_TEST_PATH")
	if path != "" {
		f, err := New(path, 0o600)
		if err == nil {
			_, err = f.WriteString("a part")
		}
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(f.Name() + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed
		f.Cleanup()
		return
	}
	path = filepath.Join(t.TempDir(), "f")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "REPLACE_TEST_PATH="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	name, err := bufio.NewReader(out).ReadString('\n')
	left := strings.TrimSpace(name)
	like := filepath.Join(filepath.Dir(path), ".f12345678901234567x")
	if err := errors.Join(err, os.WriteFile(like, nil, 0o600), WriteFile(path, []byte("one"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("what a living process writes was taken away: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if err := WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed process wrote is still there: %v", err)
	}
	if _, err := os.Stat(like); err != nil {
		t.Error(err)
	}
}
