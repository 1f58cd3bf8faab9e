package hub

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fileServer serves files over https, by name.
func fileServer(t *testing.T, files map[string][]byte) *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := files[path.Base(r.URL.Path)]
		if !ok || r.Header.Get("Authorization") != "" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestAddress(t *testing.T) {
	gguf := append([]byte("GGUF"), blob(3, 5000)...)
	s := fileServer(t, map[string][]byte{"m.gguf": gguf, "page.gguf": []byte("<html>sign in</html>"),
		"big-00001-of-00002.gguf": gguf, "big-00002-of-00002.gguf": append([]byte("GGUF"), blob(4, 100)...), "short-00001-of-00002.gguf": gguf})
	h, notices := newTestHub(t, Options{Client: s.Client(), HFToken: "secret"})
	r, err := h.Resolve(t.Context(), s.URL+"/models/m.gguf?download=true")
	if err != nil || filepath.Base(r.Path) != "m.gguf" || !strings.Contains(strings.Join(*notices, "\n"), sumOf(gguf)) {
		t.Fatalf("%+v %v, notices %q", r, err, *notices)
	}
	if got, err := os.ReadFile(r.Path); err != nil || !bytes.Equal(got, gguf) {
		t.Errorf("other bytes: %v", err)
	}
	if again, err := h.Pull(t.Context(), s.URL+"/models/m.gguf?download=true"); err != nil || again.Path != r.Path {
		t.Errorf("pulled again: %+v %v", again, err)
	}
	if r, err = h.Resolve(t.Context(), s.URL+"/big-00002-of-00002.gguf"); err != nil || filepath.Base(r.Path) != "big-00001-of-00002.gguf" {
		t.Fatalf("a split model: %+v %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(r.Path), "big-00002-of-00002.gguf")); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]error{"page.gguf": ErrChecksum, "none.gguf": ErrNotFound, "short-00001-of-00002.gguf": ErrNotFound} {
		if _, err := h.Resolve(t.Context(), s.URL+"/"+file); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", file, err, want)
		}
	}
}

func TestAddressForms(t *testing.T) {
	for name, want := range map[string]string{
		"https://huggingface.co/ORG/REPO/resolve/main/m.Q8_0.gguf?download=true": "hf:ORG/REPO:m.Q8_0.gguf",
		"https://huggingface.co/ORG/REPO/blob/v1/sub/m%201.gguf":                 "hf:ORG/REPO@v1:sub/m 1.gguf",
		"hf.co/ORG/REPO:Q8_0":                                    "hf:ORG/REPO:Q8_0",
		"huggingface.co/ORG/REPO":                                "hf:ORG/REPO",
		"https://example.org/a/b/M.GGUF":                         "https://example.org/a/b/M.GGUF",
		"http://example.org/m.gguf":                              "",
		"https://example.org/m.zip":                              "",
		"https://user:pass@example.org/m.gguf":                   "",
		"https://example.org/":                                   "",
		"https:///m.gguf":                                        "",
		"https://huggingface.co/ORG/REPO/tree/main":              "",
		"https://huggingface.co/ORG/REPO/blob/main/../../x.gguf": "",
	} {
		r, err := parse(name)
		if want == "" && !errors.Is(err, ErrName) || want != "" && (err != nil || r.name != want) {
			t.Errorf("%s: %q %v, want %q", name, r.name, err, want)
		}
	}
	s := urlSource{"https://example.org/" + fmt.Sprintf("m-%05d-of-%05d.gguf", 1, 99999)}
	if _, _, err := s.addresses(); !errors.Is(err, ErrName) {
		t.Errorf("99999 parts: %v", err)
	}
}
