package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terrace/internal/golden"
)

// TestKilledDrives: a text is generated while its drive, a process of its own, is killed again and again and started on
// the same folder: the text is that without tiers, or the command ends with one line.
func TestKilledDrives(t *testing.T) {
	model := filepath.Join(golden.Shared(t, "data", "golden", "tiny_gguf"), "tiny-Q8_0.gguf")
	sockets, err := os.MkdirTemp("", "csd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	socket, dir := filepath.Join(sockets, "s"), t.TempDir()
	args := []string{"generate", "-q", "--model", model, "--raw", "--temperature", "0", "--max-tokens", "60", "--ignore-eos", "--policy", "hillinfer:alpha=0.2", strings.Repeat("the tide takes the terrace stone by stone, ", 7)}
	generate := func(args []string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(args, strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	code, want, errs := generate(args)
	if code != 0 {
		t.Fatal(code, errs)
	}
	start := func() func() {
		cmd := processCommand("csd", "serve", "--dir", dir, "--capacity", "64MiB", "--socket", socket, "--profile", "unlimited")
		said, err := cmd.StderrPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Error(err)
			return func() {}
		}
		if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, socket) { // it listens
			t.Errorf("the drive says %q, %v", line, err)
		}
		return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	}
	kill := start()
	kills := 0
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				kill()
				return
			case <-time.After(50 * time.Millisecond):
				kill()
				kills++
				kill = start()
			}
		}
	}()
	code, got, errs := generate(append(args, "--tier", "host=448KiB", "--tier", "csd=unix:"+socket))
	close(over)
	<-ended
	t.Logf("code %d after %d kills, %s", code, kills, errs)
	if kills == 0 {
		t.Skip("the text was there before a drive could be killed: nothing was tested")
	}
	if code == 0 && got != want || code != 0 && strings.Count(strings.TrimSpace(errs), "\n") > 0 {
		t.Errorf("code %d: %q\nwant %q\n%s", code, got, want, errs)
	}
}
