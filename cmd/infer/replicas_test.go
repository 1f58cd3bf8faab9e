package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

// TestReplicas: two servers share a real valkey or redis behind HAProxy. What one stored the other hits, with the text that it has
// without a store; one that is killed in the middle of a request costs that request only.
func TestReplicas(t *testing.T) {
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed: replicas that share a store were not tried")
	}
	redis, err := exec.LookPath("valkey-server")
	if err != nil {
		if redis, err = exec.LookPath("redis-server"); err != nil {
			t.Skip("valkey-server and redis-server are not installed: replicas that share a store were not tried")
		}
	}
	shared, front := freeAddress(t), freeAddress(t)
	_, port, _ := net.SplitHostPort(shared)
	startProcess(t, exec.Command(redis, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()))
	eventually(t, "the shared store listens", func() error {
		conn, err := net.DialTimeout("tcp", shared, time.Second)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	err = convert.Synthesize(t.Context(), model, convert.Spec{Arch: "llama", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, Context: 8192, Seed: 5}, convert.Options{Type: quant.Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := startServer(t, model)
	a, killed := startReplica(t, model, "--store", "valkey="+shared+",64MiB")
	b, _ := startReplica(t, model, "--store", "valkey="+shared+",64MiB")
	proxy := exec.Command(haproxy, "-db", "-f", filepath.Join("..", "..", "deploy", "haproxy.cfg"))
	proxy.Env = append(os.Environ(), "TERRACE_BIND="+front, "TERRACE_A="+a, "TERRACE_B="+b)
	startProcess(t, proxy)
	prompt := strings.Repeat("What one replica has read no other replica reads again. ", 12)
	want := complete(t, plain, "", prompt)
	first := completion{}
	eventually(t, "the proxy has found a server", func() (err error) {
		first, err = completed(front, "tenant", prompt)
		return err
	})
	other := map[string]string{"a": b, "b": a}[first.server]
	if first.text != want.text || first.cached != 0 || other == "" {
		t.Fatalf("first: %+v, want %q", first, want.text)
	}
	eventually(t, "the other replica hits what the first stored", func() error {
		got, err := completed(other, "", prompt+"x")
		if err == nil && got.cached < 256 {
			err = fmt.Errorf("%d of %d tokens cached", got.cached, got.prompt)
		}
		return err
	})
	if got := complete(t, other, "", prompt); got.text != want.text || got.cached < 256 {
		t.Errorf("at the other replica: %+v, want %q", got, want.text)
	}
	key, lost := keyOf(t, front, "a"), make(chan error, 1)
	begun := make(chan struct{})
	go func() { lost <- streamed(front, key, begun) }()
	<-begun
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; err == nil {
		t.Error("the request of the replica that was killed ended well: nothing was tried")
	}
	for range 8 { // its keys too
		if got, err := completed(front, key, prompt); err != nil || got.server != "b" || got.text != want.text || got.cached < 256 {
			t.Errorf("after the kill: %+v, %v", got, err)
		}
	}
}

// completion is what a server answered.
type completion struct {
	server, text   string
	prompt, cached int
}

func completed(addr, key, prompt string) (c completion, err error) {
	body := fmt.Sprintf(`{"prompt":%q,"prompt_cache_key":%q,"max_tokens":4,"ignore_eos":true,"temperature":0}`, prompt, key)
	r, err := http.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return c, err
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return c, errors.Join(err, fmt.Errorf("%s: %s", r.Status, raw))
	}
	var reply struct {
		Choices []struct{ Text string }
		Usage   struct {
			PromptTokens int `json:"prompt_tokens"`
			Details      struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Choices) != 1 {
		return c, errors.Join(err, fmt.Errorf("reply %s", raw))
	}
	return completion{r.Header.Get("X-Served-By"), reply.Choices[0].Text, reply.Usage.PromptTokens, reply.Usage.Details.Cached}, nil
}

func complete(t *testing.T, addr, key, prompt string) completion {
	t.Helper()
	c, err := completed(addr, key, prompt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// keyOf finds a key whose requests go to a server.
func keyOf(t *testing.T, front, server string) string {
	t.Helper()
	for i := range 50 {
		key := fmt.Sprint("key ", i)
		if complete(t, front, key, "hello").server == server {
			return key
		}
	}
	t.Fatalf("none of 50 keys goes to %s", server)
	return ""
}

// streamed takes a long stream to its end; begun is closed once it has begun.
func streamed(front, key string, begun chan struct{}) error {
	body := fmt.Sprintf(`{"prompt":"stream","prompt_cache_key":%q,"max_tokens":8000,"stream":true,"ignore_eos":true}`, key)
	r, err := http.Post("http://"+front+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		close(begun)
		return err
	}
	defer r.Body.Close()
	in, end := bufio.NewScanner(r.Body), errors.New("the stream ended without its last line")
	for first := true; in.Scan(); {
		if strings.HasPrefix(in.Text(), "data: ") && first {
			first = false
			close(begun)
		}
		if in.Text() == "data: [DONE]" {
			end = nil
		}
	}
	return errors.Join(in.Err(), end)
}
