package hub

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary stand for another process that pulls the same model.
func TestMain(m *testing.M) {
	if home := os.Getenv("TERRACE_HUB_TEST_HOME"); home != "" {
		h, err := New(Options{Home: home, HFHome: filepath.Join(home, "none"), HFEndpoint: os.Getenv("TERRACE_HUB_TEST_ENDPOINT"), RetryDelay: time.Millisecond})
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

func TestProcessesPullTogether(t *testing.T) {
	data := blob(40, 2<<20)
	server := newFakeHF(t)
	server.serve("m.gguf", data, func(n int, w http.ResponseWriter, r *http.Request) bool {
		time.Sleep(100 * time.Millisecond) // so that all of them meet
		return false
	})
	home := t.TempDir()
	const processes = 4
	var wg sync.WaitGroup
	paths := make([]string, processes)
	for i := range processes {
		wg.Go(func() {
			out, err := child(home, server.URL).Output()
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			paths[i] = strings.TrimSpace(string(out))
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
	halfway := make(chan struct{})
	server.serve("m.gguf", data, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:500_000])
		w.(http.Flusher).Flush()
		close(halfway)
		<-r.Context().Done()
		return true
	})
	home := t.TempDir()
	h, _ := newTestHub(t, Options{Home: home, HFEndpoint: server.URL})
	cmd := child(home, server.URL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-halfway
	part := filepath.Join(h.stageDir("hf:ORG/REPO:m.gguf"), "0", "m.gguf.part")
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(part); err == nil && info.Size() == 500_000 {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
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
