package hub

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// blob is deterministic data that does not compress.
func blob(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// request is one request that the fake server saw.
type request struct{ path, rng, auth string }

// fakeHF is a server with Hugging Face's listing and resolve addresses. Faults are injected through before.
type fakeHF struct {
	*httptest.Server
	mu     sync.Mutex
	files  map[string][]byte // path in the repository ORG/REPO → content
	plain  map[string]bool   // files outside LFS
	seen   []request
	before func(n int, w http.ResponseWriter, r *http.Request) (handled bool) // n counts file requests from 1
	nFiles int
}

func newFakeHF(t *testing.T) *fakeHF {
	f := &fakeHF{files: map[string][]byte{}, plain: map[string]bool{}}
	f.mu.Lock() // other processes connect without a happens-before that the race detector could see
	defer f.mu.Unlock()
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fakeHF) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, request{r.URL.Path, r.Header.Get("Range"), r.Header.Get("Authorization")})
	name, isFile := strings.CutPrefix(r.URL.Path, "/ORG/REPO/resolve/main/")
	if isFile {
		f.nFiles++
	}
	n, before := f.nFiles, f.before
	data, ok := f.files[name]
	f.mu.Unlock()
	if isFile && before != nil && before(n, w, r) {
		return
	}
	switch {
	case r.URL.Path == "/api/models/ORG/REPO/tree/main":
		f.serveListing(w, r)
	case isFile && ok:
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	default:
		http.NotFound(w, r)
	}
}

// serveListing answers two files a page.
func (f *fakeHF) serveListing(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for n := range f.files {
		names = append(names, n)
	}
	sortStrings(names)
	var from int
	fmt.Sscanf(r.URL.Query().Get("cursor"), "%d", &from)
	rows := []string{`{"type":"directory","path":"sub","size":0,"oid":"x"}`}
	for i := from; i < min(from+2, len(names)); i++ {
		data := f.files[names[i]]
		row := fmt.Sprintf(`{"type":"file","path":%q,"size":%d,"oid":%q`, names[i], len(data), gitBlobID(data))
		if !f.plain[names[i]] {
			row += fmt.Sprintf(`,"lfs":{"oid":%q,"size":%d}`, sumOf(data), len(data))
		}
		rows = append(rows, row+"}")
	}
	if from+2 < len(names) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?recursive=true&cursor=%d>; rel="next"`, f.URL, r.URL.Path, from+2))
	}
	fmt.Fprintf(w, "[%s]", strings.Join(rows, ","))
}

// serve sets one file and the fault to inject.
func (f *fakeHF) serve(name string, data []byte, before func(n int, w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[name], f.before = data, before
}

func (f *fakeHF) fileRequests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nFiles
}

func (f *fakeHF) requests() []request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]request(nil), f.seen...)
}

// deliveryTransport calls then once at bytes of replies were read and what was read is written: when the reader asks for more.
type deliveryTransport struct {
	at   int
	then func()
}

func (d *deliveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && strings.Contains(r.URL.Path, "/resolve/") {
		w.Body = &deliveredBody{ReadCloser: w.Body, left: d.at, then: d.then}
	}
	return w, err
}

type deliveredBody struct {
	io.ReadCloser
	left int
	then func()
}

func (b *deliveredBody) Read(p []byte) (int, error) {
	if b.left == 0 && b.then != nil {
		b.then()
		b.then = nil
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	return n, err
}

// newTestHub uses folders of its own and short delays; notices are collected.
func newTestHub(t *testing.T, o Options) (*Hub, *[]string) {
	t.Helper()
	var mu sync.Mutex
	notices := &[]string{}
	if o.Home == "" {
		o.Home = filepath.Join(t.TempDir(), "home")
	}
	if o.HFHome == "" {
		o.HFHome = filepath.Join(t.TempDir(), "no-huggingface")
	}
	if o.HFEndpoint == "" {
		o.HFEndpoint = "http://127.0.0.1:1" // nothing listens there
	}
	if o.Pip == nil {
		o.Pip = [][]string{{"no-such-pip-command"}}
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = time.Millisecond
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 5 * time.Second
	}
	o.Notice = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		*notices = append(*notices, line)
	}
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkCache(t, h) })
	return h, notices
}

// checkCache holds after every test: what is listed has the checksums it claims (invariants 1 and 2), and no folder of
// the cache has strangers in it.
func checkCache(t *testing.T, h *Hub) {
	t.Helper()
	entries, err := h.List()
	if err != nil {
		t.Errorf("cache after the test: %v", err)
	}
	for _, e := range entries {
		m, ok := h.cached(e.Name)
		if !ok {
			t.Errorf("cache after the test: %s is listed but not complete", e.Name)
			continue
		}
		if err := h.verify(context.Background(), m); err != nil {
			t.Errorf("cache after the test: %v", err)
		}
	}
}

// withModel adds a catalogue entry for one test.
func withModel(t *testing.T, m Model) {
	t.Helper()
	saved := catalogue
	catalogue = append([]Model{m}, saved...)
	t.Cleanup(func() { catalogue = saved })
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustWrite(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// makeWheel writes a zip with these members.
func makeWheel(t *testing.T, path string, members map[string][]byte) {
	t.Helper()
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	for name, data := range members {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, path, buf.Bytes())
}

// fakePip writes a shell script that stands for pip: it copies PACKAGE-VERSION.whl out of dir, after prelude.
func fakePip(t *testing.T, dir, prelude string) [][]string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "pip")
	mustWrite(t, script, []byte(`#!/bin/sh
echo "$@" >> "`+dir+`/calls"
if [ "$1" = --version ]; then echo pip 1; exit 0; fi
for a in "$@"; do case "$a" in --dest=*) dest="${a#--dest=}";; *==*) spec="$a";; esac; done
wheel="`+dir+`/${spec%%==*}-${spec##*==}.whl"
`+prelude+`
if [ ! -f "$wheel" ]; then
  echo "ERROR: Could not find a version" >&2
  echo "ERROR: No matching distribution found for $spec" >&2
  exit 1
fi
cp "$wheel" "$dest/"
`))
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	return [][]string{{"no-such-pip-command", "-m", "pip"}, {script}}
}
