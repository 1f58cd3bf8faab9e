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
	"testing"
)

// modelServer serves one file of hf:ORG/REPO with the listing that names its checksum.
func modelServer(t *testing.T, data []byte) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/models/ORG/REPO/tree/"):
			fmt.Fprintf(w, `[{"type":"file","path":"m.Q4_K_M.gguf","size":%d,"oid":"x","lfs":{"oid":"%x","size":%d}}]`, len(data), sha256.Sum256(data), len(data))
		case strings.HasSuffix(r.URL.Path, "/m.Q4_K_M.gguf"):
			w.Write(data)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// inferCommand runs one command line in a process's own words: exit code, stdout, stderr.
func inferCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(args, strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestPullListRemove(t *testing.T) {
	server := modelServer(t, []byte("GGUF and more"))
	t.Setenv("TERRACE_HOME", t.TempDir())
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", server.URL)

	code, out, errOut := inferCommand(t, "list")
	if code != 0 || out != "" || !strings.Contains(errOut, "infer pull smollm2:135m") {
		t.Errorf("empty list: %d, %q, %q", code, out, errOut)
	}
	code, out, errOut = inferCommand(t, "pull", "hf:ORG/REPO")
	path := strings.TrimSpace(out)
	if b, err := os.ReadFile(path); code != 0 || err != nil || string(b) != "GGUF and more" {
		t.Fatalf("pull: %d, %q, %q: %v", code, out, errOut, err)
	}
	if strings.ContainsAny(errOut, "\r\x1b") || filepath.Base(path) != "m.Q4_K_M.gguf" {
		t.Errorf("pull away from a terminal drew a bar, or named another file: %q, %q", errOut, path)
	}
	code, out, _ = inferCommand(t, "list")
	if code != 0 || !strings.Contains(out, "hf:ORG/REPO") || !strings.Contains(out, path) {
		t.Errorf("list: %d, %q", code, out)
	}
	var rows []listRow
	code, out, _ = inferCommand(t, "list", "--json")
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) != 1 || rows[0].SizeBytes != 13 || rows[0].Path != path {
		t.Errorf("list --json: %d, %q: %v", code, out, err)
	}
	t.Setenv("HF_HUB_OFFLINE", "1")
	if code, _, errOut := inferCommand(t, "pull", "hf:ORG/REPO", "--quiet"); code != 0 || errOut != "" {
		t.Errorf("a cached model needs no network: %d, %q", code, errOut)
	}
	if code, _, errOut = inferCommand(t, "rm", "hf:ORG/REPO"); code != 0 || !strings.Contains(errOut, "freed") {
		t.Errorf("rm: %d, %q", code, errOut)
	}
	if code, _, errOut = inferCommand(t, "pull", "hf:ORG/REPO"); code != exitData || !strings.Contains(errOut, "HF_HUB_OFFLINE") || strings.Count(errOut, "hf:ORG/REPO") != 1 {
		t.Errorf("offline: %d, %q", code, errOut)
	}
}

func TestPullExitCodes(t *testing.T) {
	server := modelServer(t, []byte("x"))
	t.Setenv("TERRACE_HOME", t.TempDir())
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", server.URL)
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"pull"}, exitUsage},
		{[]string{"pull", "a", "b"}, exitUsage},
		{[]string{"pull", "hf:../x"}, exitUsage},
		{[]string{"pull", "no-such-model"}, exitData},
		{[]string{"pull", "hf:ORG/REPO:Q9"}, exitData},
		{[]string{"pull", "hf:ORG/OTHER"}, exitData},
		{[]string{"rm"}, exitUsage},
		{[]string{"rm", "hf:ORG/REPO"}, exitData},
		{[]string{"list", "x"}, exitUsage},
	} {
		code, out, errOut := inferCommand(t, c.args...)
		if code != c.want || out != "" || strings.Count(strings.TrimSpace(errOut), "\n") != 0 || !strings.HasPrefix(errOut, "infer: ") {
			t.Errorf("infer %v: exit %d, want %d with one line; stdout %q, stderr %q", c.args, code, c.want, out, errOut)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "maybe")
	if code, _, errOut := inferCommand(t, "pull", "hf:ORG/REPO"); code != exitUsage || !strings.Contains(errOut, "HF_HUB_OFFLINE") {
		t.Errorf("HF_HUB_OFFLINE=maybe: %d, %q", code, errOut)
	}
}
