package hub

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// stopEnv is the number of bytes after which a child says so and reads no more.
const stopEnv = "TERRACE_HUB_TEST_STOP"

// TestMain lets the test binary stand for another process that pulls the same model. It prints the path at the end, and
// notices as they come.
func TestMain(m *testing.M) {
	if home := os.Getenv("TERRACE_HUB_TEST_HOME"); home != "" {
		o := Options{Home: home, HFHome: filepath.Join(home, "none"), HFEndpoint: os.Getenv("TERRACE_HUB_TEST_ENDPOINT"), RetryDelay: time.Millisecond, StallTimeout: 5 * time.Minute,
			Notice: func(line string) { fmt.Println("notice: " + line) }}
		if at, err := strconv.Atoi(os.Getenv(stopEnv)); err == nil {
			o.Client = &http.Client{Transport: &deliveryTransport{at: at, then: func() {
				fmt.Println("stopped")
				<-time.After(time.Minute) // to be killed long before
			}}}
		}
		h, err := New(o)
		if err == nil {
			var r Result
			if r, err = h.Resolve(context.Background(), "hf:ORG/REPO:m.gguf"); err == nil {
				fmt.Println(r.Path)
				os.Exit(0)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func child(home, endpoint string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TERRACE_HUB_TEST_HOME="+home, "TERRACE_HUB_TEST_ENDPOINT="+endpoint)
	return cmd
}

// lines starts a process and hands out what it prints, line by line; its stderr goes to the test's.
func lines(t *testing.T, cmd *exec.Cmd, each func(line string)) error {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for s := bufio.NewScanner(out); s.Scan(); {
		each(s.Text())
	}
	return cmd.Wait()
}

func TestProcessesPullTogether(t *testing.T) {
	const processes = 4
	data := blob(40, 2<<20)
	server := newFakeHF(t)
	arrived := make(chan struct{}, 2*processes) // those that wait for another, and those that have ended
	server.serve("m.gguf", data, func(n int, w http.ResponseWriter, r *http.Request) bool {
		for range processes - 1 {
			if n == 1 {
				<-arrived
			}
		}
		return false
	})
	home := t.TempDir()
	var wg sync.WaitGroup
	paths := make([]string, processes)
	for i := range processes {
		wg.Go(func() {
			err := lines(t, child(home, server.URL), func(line string) {
				if strings.HasPrefix(line, "notice: ") && strings.Contains(line, "waiting") {
					arrived <- struct{}{}
				} else {
					paths[i] = line
				}
			})
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			arrived <- struct{}{}
		})
	}
	wg.Wait()
	for _, p := range paths {
		if p != paths[0] || sumOf(mustRead(t, p)) != sumOf(data) {
			t.Errorf("paths %v", paths)
		}
	}
	if n := server.fileRequests(); n != 1 {
		t.Errorf("the file was fetched %d times, want once", n)
	}
	h, _ := newTestHub(t, Options{Home: home})
	checkCache(t, h)
}

func TestKilledPullIsResumed(t *testing.T) {
	data := blob(41, 1<<20)
	server := newFakeHF(t)
	server.serve("m.gguf", data, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:500_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	})
	home := t.TempDir()
	h, _ := newTestHub(t, Options{Home: home, HFEndpoint: server.URL})
	cmd := child(home, server.URL)
	cmd.Env = append(cmd.Env, stopEnv+"=500000")
	killed := false
	err := lines(t, cmd, func(line string) {
		if line == "stopped" {
			killed = cmd.Process.Kill() == nil
		}
	})
	if !killed || err == nil {
		t.Fatalf("the pull ended with %v before it was killed", err)
	}
	r, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil || sumOf(mustRead(t, r.Path)) != sumOf(data) {
		t.Fatalf("%+v, %v", r, err)
	}
	seen := server.requests()
	if got := seen[len(seen)-1].rng; got != "bytes=500000-" {
		t.Errorf("after the kill it asked for %q, want the rest only", got)
	}
}

func TestFullDisk(t *testing.T) {
	server := newFakeHF(t)
	server.serve("m.gguf", blob(42, 1<<20), nil)
	home := t.TempDir()
	limited := child(home, server.URL)
	limited.Path, limited.Args = "/bin/sh", []string{"sh", "-c", `ulimit -f 100 && exec "$0"`, os.Args[0]} // 50 or 100 kB a file
	out, err := limited.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space left") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%v, %q; want one line about the space", err, out)
	}
	h, _ := newTestHub(t, Options{Home: home, HFEndpoint: server.URL})
	if exists(h.stageDir("hf:ORG/REPO:m.gguf")) {
		t.Error("the half-finished file still fills the disk")
	}
	if _, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf"); err != nil {
		t.Errorf("with space again: %v", err)
	}
}
