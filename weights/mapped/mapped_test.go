package mapped

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terrace/internal/golden/fifo"
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenReadsAndForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	want := bytes.Repeat([]byte("terrace!"), 4096)
	write(t, path, want)
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Bytes(), want) || m.SizeBytes() != int64(len(want)) || m.Path() != path {
		t.Error("the mapping differs from the file")
	}
	part := m.Bytes()[100:20000]
	if !Holds(part) || Holds(want) {
		t.Error("Holds tells mapped bytes from others wrongly")
	}
	Forget(part)
	Forget(part[:10])
	Forget(want)
	Forget(nil)
	if !bytes.Equal(m.Bytes(), want) || want[0] != 't' {
		t.Error("bytes changed by Forget")
	}
	if err := m.Close(); err != nil || Holds(part) {
		t.Errorf("close: %v, still held: %v", err, Holds(part))
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	fifo.Make(t, pipe)
	for path, kind := range map[string]string{dir: "directory", pipe: "pipe", os.DevNull: "device"} {
		done := make(chan error, 1)
		go func() {
			_, err := Open(path)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s: %v, want ErrNotRegular that says %s", path, err, kind)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: opening it waits", path)
		}
	}
}

func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	write(t, path, make([]byte, 1<<16))
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	write(t, path, nil) // the pages are gone
	sum := byte(0)
	err = Guard(func() error {
		for _, b := range m.Bytes() {
			sum += b
		}
		return nil
	})
	if !errors.Is(err, ErrChanged) {
		t.Errorf("reading lost pages: %v, want ErrChanged", err)
	}
	if text := err.Error(); strings.Contains(text, "nil pointer") || strings.Contains(text, "runtime error") {
		t.Errorf("the message sounds like a bug: %s", text)
	}
	if err := Guard(func() error { return os.ErrClosed }); err != os.ErrClosed {
		t.Errorf("an error was changed to %v", err)
	}
	defer func() {
		if r := recover(); r != "a bug" {
			t.Errorf("another panic became %v", r)
		}
	}()
	_ = Guard(func() error { panic("a bug") })
}

func TestCheckUnchanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	changes := []struct {
		name   string
		change func()
	}{
		{"cut", func() { write(t, path, []byte("123")) }},
		{"grown", func() { write(t, path, []byte("12345")) }},
		{"rewritten", func() { write(t, path, []byte("4321")); touch(t, path) }},
		{"replaced", func() { write(t, path+"2", []byte("1234")); rename(t, path+"2", path) }},
		{"removed", func() { os.Remove(path) }}, // the last: the file is asked for once more below
	}
	for _, c := range changes {
		write(t, path, []byte("1234"))
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		stamp, err := Stamp(path)
		if err != nil || stamp.SizeBytes() != 4 {
			t.Fatal(err)
		}
		if m.CheckUnchanged() != nil || stamp.CheckUnchanged() != nil {
			t.Errorf("%s: changed before it was changed", c.name)
		}
		c.change()
		if err := m.CheckUnchanged(); !errors.Is(err, ErrChanged) || !errors.Is(stamp.CheckUnchanged(), ErrChanged) {
			t.Errorf("%s: %v, want ErrChanged", c.name, err)
		}
		m.Close()
	}
	if _, err := Stamp(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stamp of no file: %v", err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
