package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

// TestHAProxy runs deploy/haproxy.cfg before two servers: requests of one prefix go to one of them, those of many to both, and
// when one drains the other takes all; infer health says so.
func TestHAProxy(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed: deploy/haproxy.cfg was not tried")
	}
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	err = convert.Synthesize(t.Context(), model, convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, Context: 512, Seed: 5}, convert.Options{Type: quant.Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	front := freeAddress(t)
	a, stopA := startServer(t, model)
	b, _ := startServer(t, model)
	proxy := exec.Command(haproxy, "-db", "-f", filepath.Join("..", "..", "deploy", "haproxy.cfg"))
	proxy.Env = append(os.Environ(), "TERRACE_BIND="+front, "TERRACE_A="+a, "TERRACE_B="+b)
	startProcess(t, proxy)
	client := &http.Client{Timeout: time.Minute}
	ask := func(body string) (server, text string, err error) {
		r, err := client.Post("http://"+front+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			return "", "", err
		}
		defer r.Body.Close()
		out, err := io.ReadAll(r.Body)
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, out)
		}
		return r.Header.Get("X-Served-By"), string(out), err
	}
	body := func(key, prompt string) string {
		return fmt.Sprintf(`{"prompt":%q,"prompt_cache_key":%q,"max_tokens":2,"ignore_eos":true}`, prompt, key)
	}
	eventually(t, "the proxy has found both servers", func() error {
		_, _, err := ask(body("warm", "up"))
		return err
	})
	seen := map[string]int{}
	for i := range 24 {
		key := fmt.Sprintf("tenant %d", i)
		first, _, err := ask(body(key, "hello"))
		if err != nil {
			t.Fatal(err)
		}
		seen[first]++
		if again, _, err := ask(body(key, "something else")); err != nil || again != first {
			t.Errorf("%s: at %s, then at %s, %v", key, first, again, err)
		}
	}
	if len(seen) != 2 || seen["a"] < 3 || seen["b"] < 3 {
		t.Errorf("24 keys are spread as %v", seen)
	}
	without := func(prompt string) string {
		return fmt.Sprintf(`{"max_tokens":2,"prompt":%q}`, prompt)
	}
	first, _, err := ask(without("a prompt of its own"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if again, _, err := ask(without("a prompt of its own")); err != nil || again != first {
			t.Errorf("one prompt: at %s, then at %s, %v", first, again, err)
		}
	}
	if _, text, err := ask(`{"prompt":"stream","max_tokens":3,"stream":true,"ignore_eos":true}`); err != nil || !strings.Contains(text, "data: [DONE]") {
		t.Errorf("a stream: %q, %v", text, err)
	}
	health := func(addr string) int {
		return run([]string{"health", "--addr", addr}, strings.NewReader(""), io.Discard, io.Discard)
	}
	if code := health(a); code != exitDone {
		t.Errorf("infer health of a server: %d", code)
	}
	stopA()
	for i := range 24 {
		if server, _, err := ask(body(fmt.Sprintf("tenant %d", i), "hello")); err != nil || server != "b" {
			t.Errorf("without a: %s, %v", server, err)
		}
	}
	if code := health(a); code != exitFailed {
		t.Errorf("infer health of a server that has ended: %d", code)
	}
}

// startServer runs infer serve as a process, with more flags; it returns its address, and what ends it as an operator would.
func startServer(t *testing.T, model string, more ...string) (addr string, stop func()) {
	t.Helper()
	addr, cmd := startReplica(t, model, more...)
	return addr, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		eventually(t, "the server has ended", func() error {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return nil
			}
			return errors.Join(conn.Close(), errors.New("it listens"))
		})
	}
}

// startReplica runs infer serve as a process.
func startReplica(t *testing.T, model string, more ...string) (addr string, cmd *exec.Cmd) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	cmd = processCommand(append([]string{"serve", "--model", model, "--addr", "127.0.0.1:0", "--ready-file", ready, "--threads", "1", "--log", "none", "-q"}, more...)...)
	startProcess(t, cmd)
	eventually(t, "the server is ready", func() error {
		text, err := os.ReadFile(ready)
		addr = strings.TrimSpace(strings.TrimPrefix(string(text), "http://"))
		return err
	})
	return addr, cmd
}

// startProcess starts a process that ends with the test.
func startProcess(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// eventually waits until something is so, for a minute.
func eventually(t *testing.T, what string, so func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := so()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute: %v", what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// freeAddress is one of this machine at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
