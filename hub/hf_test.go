package hub

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func gitBlobID(data []byte) string {
	s := sha1.Sum(append([]byte(fmt.Sprintf("blob %d\x00", len(data))), data...))
	return hex.EncodeToString(s[:])
}

func sortStrings(s []string) { slices.Sort(s) }

func TestDownloadResumesCutConnections(t *testing.T) {
	data := blob(10, 1<<20)
	server := newFakeHF(t)
	server.files["m.gguf"] = data
	server.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 3 {
			return false
		}
		// Three connections are cut after another 200 kB each.
		start := 0
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start)
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)-start))
		if start > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
			w.WriteHeader(http.StatusPartialContent)
		}
		w.Write(data[start : start+200_000])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	r, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil || sumOf(mustRead(t, r.Path)) != sumOf(data) {
		t.Fatalf("%+v, %v", r, err)
	}
	var ranges []string
	for _, q := range server.requests() {
		if strings.HasSuffix(q.path, "m.gguf") {
			ranges = append(ranges, q.rng)
		}
	}
	if want := []string{"", "bytes=200000-", "bytes=400000-", "bytes=600000-"}; !slices.Equal(ranges, want) {
		t.Errorf("ranges %q, want %q", ranges, want)
	}
}

func TestInterruptedPullResumesInAnotherProcess(t *testing.T) {
	data := blob(11, 300_000)
	server := newFakeHF(t)
	server.files["m.gguf"] = data
	ctx, cancel := context.WithCancel(t.Context())
	server.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("ETag", `"`+sumOf(data)+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		w.Write(data[:100_000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL, Client: &http.Client{Transport: &deliveryTransport{at: 100_000, then: cancel}}})
	if _, err := h.Resolve(ctx, "hf:ORG/REPO:m.gguf"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want the interrupt", err)
	}
	if entries, err := h.List(); err != nil || len(entries) != 0 {
		t.Fatalf("an unfinished model is listed: %v, %v", entries, err)
	}
	other, _ := newTestHub(t, Options{HFEndpoint: server.URL, Home: h.home})
	r, err := other.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil || sumOf(mustRead(t, r.Path)) != sumOf(data) {
		t.Fatalf("%+v, %v", r, err)
	}
	seen := server.requests()
	if got := seen[len(seen)-1].rng; got != "bytes=100000-" {
		t.Errorf("the second pull asked for %q, want the rest only", got)
	}
	if exists(h.stageDir("hf:ORG/REPO:m.gguf")) {
		t.Error("the staging folder is still there")
	}
}

func TestDamagedPartIsFetchedAgain(t *testing.T) {
	data := blob(12, 50_000)
	server := newFakeHF(t)
	server.files["m.gguf"] = data
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	stage := filepath.Join(h.stageDir("hf:ORG/REPO:m.gguf"), "0")
	mustWrite(t, filepath.Join(stage, "m.gguf.part"), make([]byte, 20_000)) // as after a power cut
	mustWrite(t, filepath.Join(stage, "m.gguf.part.json"), []byte(fmt.Sprintf(`{"url":%q,"etag":"\"%s\""}`, server.URL+"/ORG/REPO/resolve/main/m.gguf", sumOf(data))))
	r, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil || sumOf(mustRead(t, r.Path)) != sumOf(data) {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestServerFaults(t *testing.T) {
	data := blob(13, 10_000)
	for _, c := range []struct {
		name   string
		before func(n int, w http.ResponseWriter, r *http.Request) bool
		want   error // nil = the model arrives
		files  int   // file requests the client makes; 0 = any
	}{
		{"busy, then fine", func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n < 3 {
				http.Error(w, "busy", []int{http.StatusServiceUnavailable, http.StatusTooManyRequests}[n-1])
			}
			return n < 3
		}, nil, 3},
		{"always busy", func(n int, w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, "busy", http.StatusBadGateway)
			return true
		}, errAny, 5},
		{"404", func(n int, w http.ResponseWriter, r *http.Request) bool { http.NotFound(w, r); return true }, ErrNotFound, 1},
		{"gated", func(n int, w http.ResponseWriter, r *http.Request) bool {
			http.Error(w, "gated", http.StatusForbidden)
			return true
		}, ErrAccess, 1},
		{"other bytes", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.Write(blob(14, 10_000))
			return true
		}, ErrChecksum, 1},
		{"shorter file", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.Write(data[:500])
			return true
		}, ErrChecksum, 1},
		{"longer file", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.Write(append(data[:10_000:10_000], 1))
			return true
		}, ErrChecksum, 1},
		{"no length, too long", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.(http.Flusher).Flush()
			w.Write(append(data[:10_000:10_000], 1))
			return true
		}, ErrChecksum, 1},
		{"no length, right", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.(http.Flusher).Flush()
			w.Write(data)
			return true
		}, nil, 1},
		{"silent", func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Length", "10000")
			w.Write(data[:1])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return true
		}, errStalled, 0},
		{"another range than asked for", func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 1:
				w.Header().Set("ETag", `"x"`)
				w.Header().Set("Content-Length", "10000")
				w.Write(data[:4000])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			case 2:
				w.Header().Set("Content-Range", "bytes 7-9999/10000")
				w.WriteHeader(http.StatusPartialContent)
				w.Write(data[7:])
				return true
			}
			return false
		}, nil, 3},
		{"file shrank on the server", func(n int, w http.ResponseWriter, r *http.Request) bool {
			switch n {
			case 1:
				w.Header().Set("ETag", `"x"`)
				w.Header().Set("Content-Length", "10000")
				w.Write(data[:4000])
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			case 2:
				w.Header().Set("Content-Range", "bytes */200")
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}
			return false
		}, nil, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := newFakeHF(t)
			server.files["m.gguf"] = data
			server.before = c.before
			h, _ := newTestHub(t, Options{HFEndpoint: server.URL, StallTimeout: 50 * time.Millisecond})
			if c.want != errStalled {
				h.options.StallTimeout = 5 * time.Second
			}
			r, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
			if c.want == nil && (err != nil || sumOf(mustRead(t, r.Path)) != sumOf(data)) {
				t.Errorf("%+v, %v", r, err)
			}
			if c.want != nil && (err == nil || c.want != errAny && !errors.Is(err, c.want)) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if c.files > 0 && server.fileRequests() != c.files {
				t.Errorf("%d requests for the file, want %d", server.fileRequests(), c.files)
			}
			if errors.Is(c.want, ErrChecksum) {
				left, _ := filepath.Glob(filepath.Join(h.stageDir("hf:ORG/REPO:m.gguf"), "0", "*"))
				if len(left) != 0 {
					t.Errorf("wrong bytes left behind: %v", left)
				}
			}
		})
	}
}

var errAny = errors.New("any error")

func TestTokenStaysWithTheEndpoint(t *testing.T) {
	data := blob(15, 1000)
	var cdnAuth string
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cdnAuth = r.Header.Get("Authorization")
		w.Write(data)
	}))
	defer cdn.Close()
	server := newFakeHF(t)
	server.files["m.gguf"] = data
	server.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Linked-ETag", `"`+sumOf(data)+`"`)
		// Another host name for the same machine: a redirect to another site.
		http.Redirect(w, r, strings.Replace(cdn.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		return true
	}
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL, HFToken: "hf_secret"})
	if _, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf"); err != nil {
		t.Fatal(err)
	}
	for _, q := range server.requests() {
		if q.auth != "Bearer hf_secret" {
			t.Errorf("%s: authorization %q", q.path, q.auth)
		}
	}
	if cdnAuth != "" {
		t.Errorf("the token went to another site: %q", cdnAuth)
	}
}

func TestLinkedChecksumSavesTheDownload(t *testing.T) {
	fetched := false
	cdn := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fetched = true }))
	defer cdn.Close()
	server := newFakeHF(t)
	server.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Linked-ETag", `"`+sumOf([]byte("other"))+`"`)
		http.Redirect(w, r, cdn.URL, http.StatusFound)
		return true
	}
	withModel(t, Model{Name: "test:linked", sources: []source{&hfSource{repo: "ORG/REPO", rev: "main", file: "m.gguf", sha256: sumOf([]byte("this")), sizeBytes: 4}}})
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	if _, err := h.Resolve(t.Context(), "test:linked"); !errors.Is(err, ErrChecksum) || fetched {
		t.Errorf("error %v, fetched %v; want ErrChecksum before a byte is fetched", err, fetched)
	}
}

func TestRepositoryFolder(t *testing.T) {
	server := newFakeHF(t)
	for _, n := range []string{
		"config.json", "tokenizer.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
		"model.safetensors.index.json", "pytorch_model.bin", "modeling_x.py", "onnx/model.onnx", "README.md", "consolidated.safetensors",
	} {
		server.files[n] = blob(uint64(len(n)), 100+len(n))
		server.plain[n] = strings.HasSuffix(n, ".json")
	}
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	r, err := h.Resolve(t.Context(), "hf:ORG/REPO")
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(r.Path)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", manifestName, "tokenizer.json"}
	if slices.Sort(want); !slices.Equal(names, want) {
		t.Errorf("fetched %v, want %v", names, want)
	}
	// A small file outside LFS is verified by git's own id.
	server.before = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "config.json") {
			w.Write([]byte(`{"auto_map":1}` + strings.Repeat(" ", 97)))
			return true
		}
		return false
	}
	if _, err := h.Remove(t.Context(), "hf:ORG/REPO"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resolve(t.Context(), "hf:ORG/REPO"); !errors.Is(err, ErrChecksum) {
		t.Errorf("a changed config.json: %v", err)
	}
}

func TestChoose(t *testing.T) {
	repo := func(names ...string) (files []remoteFile) {
		for _, n := range names {
			files = append(files, remoteFile{Path: n})
		}
		return files
	}
	for _, c := range []struct {
		files []remoteFile
		want  string
		main  string
		n     int
	}{
		{repo("m.Q8_0.gguf", "m.Q4_K_M.gguf", "m.F16.gguf"), "", "m.Q4_K_M.gguf", 1},
		{repo("m.Q8_0.gguf", "m.IQ4_XS.gguf"), "", "m.IQ4_XS.gguf", 1},
		{repo("mmproj-m.gguf", "m.Q8_0.gguf", "imatrix.gguf"), "", "m.Q8_0.gguf", 1},
		{repo("m.Q8_0.gguf", "m-q5_k_s.gguf"), "Q5_K_S", "m-q5_k_s.gguf", 1},
		{repo("m.IQ4_K_M.gguf", "m.Q4_K_M.gguf"), "Q4_K_M", "m.Q4_K_M.gguf", 1},
		{repo("sub/m.gguf"), "m.gguf", "sub/m.gguf", 1},
		{repo("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"), "m-00002-of-00003.gguf", "m-00001-of-00003.gguf", 3},
		{repo("m-Q4_K_M-00002-of-00002.gguf", "m-Q4_K_M-00001-of-00002.gguf", "a.gguf"), "", "m-Q4_K_M-00001-of-00002.gguf", 2},
		{repo("config.json", "model.safetensors", "other.safetensors"), "", ".", 2},
		{repo("config.json", "weights.safetensors"), "", ".", 2},
	} {
		main, files, err := choose(c.files, c.want)
		if err != nil || main != c.main || len(files) != c.n {
			t.Errorf("choose(%v, %q) = %q, %d files, %v; want %q, %d", c.files, c.want, main, len(files), err, c.main, c.n)
		}
	}
	for _, c := range []struct {
		files []remoteFile
		want  string
	}{
		{repo("README.md"), ""}, {repo("model.safetensors"), ""}, {repo("config.json"), ""}, {repo("m.Q8_0.gguf"), "Q4_0"},
		{repo("m-00001-of-00003.gguf", "m-00003-of-00003.gguf"), ""},
	} {
		if _, _, err := choose(c.files, c.want); !errors.Is(err, ErrNotFound) {
			t.Errorf("choose(%v, %q): %v, want ErrNotFound", c.files, c.want, err)
		}
	}
}

func TestHostileListing(t *testing.T) {
	for name, body := range map[string]string{
		"not json":      "<html>",
		"bad checksum":  `[{"type":"file","path":"m.gguf","size":1,"lfs":{"oid":"../../x","size":1}}]`,
		"climbing path": `[{"type":"file","path":"../m.gguf","size":1,"oid":"x"}]`,
		"no files":      `[]`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, body) }))
		h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
		if r, err := h.Resolve(t.Context(), "hf:ORG/REPO"); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
		server.Close()
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", `<http://169.254.169.254/x>; rel="next"`)
		fmt.Fprint(w, "[]")
	}))
	defer elsewhere.Close()
	h, _ := newTestHub(t, Options{HFEndpoint: elsewhere.URL})
	if _, err := h.Resolve(t.Context(), "hf:ORG/REPO"); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a listing that leads elsewhere: %v", err)
	}
}
