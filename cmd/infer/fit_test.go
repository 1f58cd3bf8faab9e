package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// fitted is what the tests read of fit's JSON.
type fitted struct {
	Weights  int64 `json:"weights_bytes"`
	Buffers  int64 `json:"buffers_bytes"`
	Program  int64 `json:"program_bytes"`
	Tables   int64 `json:"tables_bytes"`
	KV       int64 `json:"kv_bytes_at_context"`
	Total    int64 `json:"total_bytes"`
	Texts    int64 `json:"texts"`
	Fits     *bool `json:"fits"`
	Longest  int   `json:"longest_text_tokens"`
	Headers  bool  `json:"headers_only"`
	PerToken int64 `json:"kv_bytes_per_token"`
}

func fitOf(t *testing.T, want int, args ...string) (f fitted) {
	t.Helper()
	code, out, errs := inferCommand(t, append([]string{"fit", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &f); code != want || err != nil {
		t.Fatalf("fit %q: exit %d, want %d, %s, %v", args, code, want, errs, err)
	}
	return f
}

// TestFitAnswers: yes or no for a context, memory, tiers, a policy, a type of KV and a batch; the size that is said to be needed suffices
// to the byte, and one less does not.
func TestFitAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if code, _, errs := runCommand("synth", path, "--arch", "llama", "--layers", "2", "--hidden", "64", "--heads", "4", "--kv-heads", "2", "--head-dim", "16", "--ffn", "96", "--vocab", "300", "--context", "4096", "--type", "F32"); code != exitDone {
		t.Fatal(errs)
	}
	plain := fitOf(t, exitDone, path, "--memory", "1GiB")
	if plain.Fits != nil || plain.Headers || plain.Total != plain.Weights+plain.Buffers+plain.Program+plain.KV+plain.Tables {
		t.Errorf("nobody asked: %+v", plain)
	}
	eight := fitOf(t, exitDone, path, "-c", "1024", "--batch", "8", "--memory", "1GiB")
	one := fitOf(t, exitDone, path, "-c", "1024", "--memory", "1GiB")
	if !*eight.Fits || eight.Texts != 8 || eight.Total-eight.Program != one.Total-one.Program+7*(one.KV+one.Tables) {
		t.Errorf("eight texts: %+v, one: %+v", eight, one)
	}
	half := fitOf(t, exitDone, path, "-c", "4096", "--kv-type", "int8", "--kv-window", "0", "--memory", "1GiB")
	if half.KV > plain.KV*65/100 { // a pass in f16 beside, in one of the layers
		t.Errorf("int8: %d bytes, f16 %d", half.KV, plain.KV)
	}
	host := fmt.Sprintf("host=%dB", one.PerToken*1024)
	for _, c := range []struct {
		want int
		args []string
	}{
		{exitDone, []string{"-c", "1024", "--tier", host}},
		{exitMemory, []string{"-c", "1025", "--tier", host}},
		{exitMemory, []string{"-c", "1024", "--tier", host, "--batch", "2"}},
		{exitMemory, []string{"-c", "1024", "--tier", host, "--policy", "quest"}}, // whose bounds need room too
		{exitDone, []string{"-c", "1024", "--tier", host, "--policy", "snapkv"}},
		{exitDone, []string{"-c", "1025", "--tier", "host=1MiB", "--tier", "ssd=" + filepath.Join(t.TempDir(), "none") + ",1GiB"}},
		{exitMemory, []string{"-c", "1025", "--tier", "host=1MiB", "--tier", "ssd=" + filepath.Join(t.TempDir(), "none") + "," + fmt.Sprint(one.PerToken*1024) + "B"}},
		{exitMemory, []string{"-c", "1024", "--tier", "host=2GiB", "--memory", "1GiB"}},
	} {
		f := fitOf(t, c.want, append([]string{path}, c.args...)...)
		if f.Fits == nil || *f.Fits != (c.want == exitDone) {
			t.Errorf("%q: %+v", c.args, f)
		}
	}
	for _, args := range [][]string{{"--batch", "0"}, {"--policy", "snapkw"}, {"--tier", "host=much"}, {"--tier", "csd=unix:/none", "--tier", "host=1GiB"}, {"--policy", "infinigen"}} {
		if code, _, errs := inferCommand(t, append([]string{"fit", path}, args...)...); code != exitUsage || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit %d, %q", args, code, errs)
		}
	}
}

// TestFitBeforePull: of a model that is not here the headers are read, whether its server knows ranges or not; nothing is kept.
func TestFitBeforePull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if code, _, errs := runCommand("synth", path, "--arch", "llama", "--layers", "1", "--hidden", "256", "--heads", "4", "--kv-heads", "2", "--ffn", "256", "--vocab", "12000", "--context", "512", "--type", "F32"); code != exitDone {
		t.Fatal(errs)
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) < 12<<20 {
		t.Fatal(len(data), err)
	}
	for _, ranges := range []bool{true, false} {
		var sent atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasPrefix(r.URL.Path, "/api/models/ORG/REPO/tree/"):
				fmt.Fprintf(w, `[{"type":"file","path":"m.Q4_K_M.gguf","size":%d,"oid":"x","lfs":{"oid":"%x","size":%d}}]`, len(data), sha256.Sum256(data), len(data))
			case ranges:
				http.ServeContent(counted{w, &sent}, r, "", time.Time{}, bytes.NewReader(data))
			default:
				w.Header().Set("Content-Length", fmt.Sprint(len(data)))
				_, _ = w.Write(data) // the reader leaves before the end
			}
		}))
		t.Setenv("TERRACE_HOME", filepath.Join(t.TempDir(), "home"))
		t.Setenv("TMPDIR", t.TempDir())
		t.Setenv("HF_HOME", t.TempDir())
		t.Setenv("TERRACE_HUB", server.URL)
		t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1") // TERRACE_HUB comes before it
		away, here := fitOf(t, exitDone, "hf:ORG/REPO", "-c", "512"), fitOf(t, exitDone, path, "-c", "512")
		if !away.Headers || !*away.Fits || away.Weights != here.Weights || away.KV != here.KV || away.Program < here.Program/2 || away.Program > 2*here.Program {
			t.Errorf("ranges %v: %+v, the file itself %+v", ranges, away, here)
		}
		if n := sent.Load(); ranges && n != 4<<20 {
			t.Errorf("%d bytes of %d were sent", n, len(data))
		}
		for _, dir := range []string{os.Getenv("TERRACE_HOME"), os.Getenv("TMPDIR")} {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		}
		t.Setenv("HF_HUB_OFFLINE", "1")
		if code, _, errs := inferCommand(t, "fit", "hf:ORG/REPO"); code != exitData || !strings.Contains(errs, "HF_HUB_OFFLINE") {
			t.Errorf("offline: %d, %q", code, errs)
		}
		t.Setenv("HF_HUB_OFFLINE", "0")
		server.Close()
	}
}

// counted counts the bytes of answers.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.n.Add(int64(n))
	return n, err
}
