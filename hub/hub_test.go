package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"terrace/internal/golden/fifo"
)

func TestLocalPathComesFirst(t *testing.T) {
	h, _ := newTestHub(t, Options{})
	file := filepath.Join(t.TempDir(), "m.gguf")
	mustWrite(t, file, []byte("GGUF"))
	for _, path := range []string{file, filepath.Dir(file)} {
		for _, get := range []func(context.Context, string) (Result, error){h.Resolve, h.Pull} {
			r, err := get(t.Context(), path)
			if err != nil || r.Path != path || r.Source != "local path" {
				t.Errorf("%s: %+v, %v", path, r, err)
			}
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	fifo.Make(t, pipe)
	if _, err := h.Resolve(t.Context(), pipe); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pipe is not a model: %v", err)
	}
}

func TestNames(t *testing.T) {
	h, _ := newTestHub(t, Options{Offline: true})
	for name, want := range map[string]error{
		"":                               ErrName,
		"no-such-model":                  ErrNotFound,
		"/no/such/path.gguf":             ErrNotFound,
		"hf:":                            ErrName,
		"hf:repo":                        ErrName,
		"hf:../etc":                      ErrName,
		"hf:a/b/c":                       ErrName,
		"hf:a/..":                        ErrName,
		"hf:a/b:../../etc/passwd":        ErrName,
		"hf:a/b:/etc/passwd":             ErrName,
		"hf:a/b@../x":                    ErrName,
		"hf:a/b?x=1":                     ErrName,
		"pip:x":                          ErrName,
		"pip:x==":                        ErrName,
		"pip:--index-url==1":             ErrName,
		"pip:x==1 --pre":                 ErrName,
		"pip:x==1:../y":                  ErrName,
		"pip:git+https://example.com==1": ErrName,
		"hf:a/b":                         ErrOffline,
		"hf:a/b@v1:sub/model.gguf":       ErrOffline,
		"pip:some-package==1.0.post1":    ErrOffline,
		"smollm2:135m":                   ErrOffline,
	} {
		if _, err := h.Resolve(t.Context(), name); !errors.Is(err, want) {
			t.Errorf("%q: error %v, want %v", name, err, want)
		} else if strings.Contains(err.Error(), "\n") && want != ErrOffline {
			t.Errorf("%q: more than one line: %v", name, err)
		}
	}
	if _, err := h.Resolve(t.Context(), "nonsense"); err == nil || !strings.Contains(err.Error(), "smollm2, smollm3") {
		t.Errorf("an unknown name must list the known ones: %v", err)
	}
}

// TestCatalogue: models that have a package are pinned by checksum in every source; the others take theirs from the listing.
func TestCatalogue(t *testing.T) {
	if m, ok := lookup(Default); !ok || len(m.sources) < 2 {
		t.Fatalf("%s is not in the catalogue, or has one source", Default)
	}
	seen, models := map[string]bool{}, 0
	for _, m := range Catalogue() {
		family, tag, _ := strings.Cut(m.Name, ":")
		if seen[m.Name] || m.Name != strings.ToLower(m.Name) || family == "" || tag == "" || !m.Plugin && (m.Licence == "" || m.terms() == "") {
			t.Errorf("%+v: a name twice, not in lower case or without a tag, or no licence", m)
		}
		if seen[m.Name] = true; !m.Plugin {
			models++
		}
		for _, s := range m.sources {
			switch s := s.(type) {
			case *hfSource:
				if len(m.sources) == 1 {
					if s.sha256 != "" || s.rev != "main" || !repoPattern.MatchString(s.repo) || !localName(s.file) {
						t.Errorf("%s: %v: no plain names", m.Name, s)
					}
					continue
				}
				if s.sums != nil { // a folder: what decides its results is pinned
					if !isSHA256(s.sums["model.safetensors"]) || !isSHA256(s.sums["config.json"]) || s.file != "" || !repoPattern.MatchString(s.repo) {
						t.Errorf("%s: %v: no checksums of a folder", m.Name, s)
					}
					continue
				}
				if !isSHA256(s.sha256) || s.sizeBytes <= 0 || !repoPattern.MatchString(s.repo) || !localName(s.file) {
					t.Errorf("%s: %v: no checksum, size or plain names", m.Name, s)
				}
			case *pipSource:
				if !isSHA256(s.sha256) || s.sizeBytes <= 0 || !localName(s.as) {
					t.Errorf("%s: %v: no checksum, size or plain names", m.Name, s)
				}
				for _, p := range s.parts {
					if !packagePattern.MatchString(p.pkg) || !versionPattern.MatchString(p.version) || p.wheelBytes <= 0 {
						t.Errorf("%s: %+v: no plain names or no size", m.Name, p)
					}
				}
			}
		}
		if (m.Licence == gemma) != (m.Notice == gemmaNotice) || strings.Contains(m.About, "Gemma") && m.Licence != gemma && !strings.Contains(m.About, "Gemma 4") {
			t.Errorf("%s: licence %q with the notice %q", m.Name, m.Licence, m.Notice)
		}
	}
	if models < 30 {
		t.Errorf("%d models", models)
	}
}

// Names without a tag, with the tag latest and in any case mean a model; what is nearly one is asked for.
func TestNamesForPeople(t *testing.T) {
	for name, want := range map[string]string{"smollm2": "smollm2:135m", "SmolLM2:135M": "smollm2:135m", "smollm2:latest": "smollm2:135m", "Gemma3": "gemma3:1b", "qwen3": "qwen3:0.6b",
		"GEMMA3:270M-IT": "gemma3:270m-it", "phi4": "phi4:14b", "phi4-mini": "phi4-mini:3.8b", "llama3.2:3b": "llama3.2:3b",
		"gemma4": "gemma4:e2b", "gpt-oss": "gpt-oss:20b", "qwen3.5": "qwen3.5:0.8b", "lfm2.5": "lfm2.5:1.2b"} {
		if r, err := parse(name); err != nil || r.name != want || !Known(name) {
			t.Errorf("%s: %q %v, want %s", name, r.name, err, want)
		}
	}
	for name, want := range map[string]string{"smolm2": `, did you mean "smollm2"?`, "smollm2:135": `, did you mean "smollm2:135m"?`, "gema3:1b": `, did you mean "gemma3:1b"?`, "lama3.2": `, did you mean "llama3.2"?`, "xyzzy": ""} {
		_, err := parse(name)
		if DidYouMean(name) != want || Known(name) || !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, DidYouMean(name), err)
		}
	}
	for name, known := range map[string]bool{"hf:a/b": true, "hf.co/a/b:Q8_0": true, "https://x.org/m.gguf": true, "pip:a==1": true, "plugin:xla-cpu": false, "plugin": false, "a prompt": false} {
		if Known(name) != known {
			t.Errorf("%q: known is %v", name, !known)
		}
	}
}

// A hosted model of the catalogue takes its file, size and checksum from the repository's listing, and its licence is shown.
func TestHostedModel(t *testing.T) {
	hf := newFakeHF(t)
	hf.files["m-Q8_0.gguf"], hf.files["m-Q4_K_M.gguf"] = blob(1, 4000), blob(2, 3000)
	withModel(t, hosted("test:1b", "a test", "MIT", "ORG/REPO", "Q4_K_M"))
	h, notices := newTestHub(t, Options{HFEndpoint: hf.URL})
	r, err := h.Resolve(t.Context(), "Test")
	if err != nil || filepath.Base(r.Path) != "m-Q4_K_M.gguf" || !strings.Contains(strings.Join(*notices, "\n"), "test:1b: licence: MIT (hf:ORG/REPO:Q4_K_M)") {
		t.Fatalf("%+v %v, notices %q", r, err, *notices)
	}
	if got, err := os.ReadFile(r.Path); err != nil || sumOf(got) != sumOf(blob(2, 3000)) {
		t.Errorf("other bytes: %v", err)
	}
}

func TestSourcesAreTriedInOrder(t *testing.T) {
	good := blob(1, 200_000)
	server := newFakeHF(t)
	server.files["m.gguf"] = blob(2, 200_000) // same size, other bytes
	dir := t.TempDir()
	makeWheel(t, filepath.Join(dir, "pkg-1.0.whl"), map[string][]byte{"pkg/m.gguf": good})
	withModel(t, Model{Name: "test:pinned", Notice: "read the licence", sources: []source{
		&hfSource{repo: "ORG/REPO", rev: "main", file: "m.gguf", sha256: sumOf(good), sizeBytes: int64(len(good))},
		&pipSource{as: "m.gguf", sha256: sumOf(good), sizeBytes: int64(len(good)), parts: []pipPart{{pkg: "pkg", version: "1.0", member: "pkg/m.gguf"}}},
	}})
	var last Progress
	h, notices := newTestHub(t, Options{HFEndpoint: server.URL, Pip: fakePip(t, dir, ""), Progress: func(p Progress) { last = p }})
	r, err := h.Resolve(t.Context(), "test:pinned")
	if err != nil {
		t.Fatal(err)
	}
	if string(mustRead(t, r.Path)) != string(good) || filepath.Base(r.Path) != "m.gguf" {
		t.Errorf("%+v does not hold the bytes of the second source", r)
	}
	if last.DoneBytes != int64(len(good)) || last.TotalBytes != int64(len(good)) || last.Name != "test:pinned" {
		t.Errorf("last progress %+v, want all %d bytes", last, len(good))
	}
	all := strings.Join(*notices, "\n")
	if !strings.Contains(all, "read the licence") || !strings.Contains(all, "wrong checksum") || !strings.Contains(all, "trying pip:pkg==1.0") {
		t.Errorf("notices %q", all)
	}
	if exists(h.stageDir("test:pinned")) {
		t.Error("the wrong file of the first source is still there")
	}
	*notices = nil
	again, err := h.Resolve(t.Context(), "test:pinned")
	if err != nil || again.Path != r.Path || again.Source != "cache" || len(*notices) != 0 {
		t.Errorf("second time: %+v, %v, notices %q; want the cache in silence", again, err, *notices)
	}
}

func TestLastErrorListsWhatWasTried(t *testing.T) {
	withModel(t, Model{Name: "test:nowhere", sources: []source{
		&hfSource{repo: "ORG/REPO", rev: "main", file: "m.gguf", sha256: sumOf(nil), sizeBytes: 1},
		&pipSource{as: "m.gguf", parts: []pipPart{{pkg: "pkg", version: "1.0"}}},
	}})
	h, _ := newTestHub(t, Options{})
	_, err := h.Resolve(t.Context(), "test:nowhere")
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, ErrNoPip) {
		t.Fatalf("error %v, want both causes", err)
	}
	for _, want := range []string{"hf:ORG/REPO:m.gguf", "127.0.0.1:1", "pip:pkg==1.0", "no-such-pip-command", "install"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %q", err, want)
		}
	}
}

func TestPullVerifiesAndRepairs(t *testing.T) {
	server := newFakeHF(t)
	server.files["m.gguf"] = blob(3, 5000)
	h, notices := newTestHub(t, Options{HFEndpoint: server.URL})
	r, err := h.Pull(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	before := len(server.requests())
	if again, err := h.Pull(t.Context(), "hf:ORG/REPO:m.gguf"); err != nil || again.Source != "cache" || len(server.requests()) != before {
		t.Errorf("second pull: %+v, %v, %d requests", again, err, len(server.requests())-before)
	}
	bad := blob(3, 5000)
	bad[17] ^= 1
	mustWrite(t, r.Path, bad) // same size
	if _, err := h.Pull(t.Context(), "hf:ORG/REPO:m.gguf"); err != nil {
		t.Fatal(err)
	}
	if string(mustRead(t, r.Path)) != string(blob(3, 5000)) || !strings.Contains(strings.Join(*notices, "\n"), "fetching it again") {
		t.Errorf("the damaged file was not replaced; notices %q", *notices)
	}
	if err := os.Truncate(r.Path, 100); err != nil { // a wrong size is seen without reading
		t.Fatal(err)
	}
	if r, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf"); err != nil || len(mustRead(t, r.Path)) != 5000 {
		t.Errorf("the truncated file was not replaced: %+v, %v", r, err)
	}
}

func TestDamagedManifestIsNotTrusted(t *testing.T) {
	server := newFakeHF(t)
	server.files["m.gguf"] = blob(4, 100)
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	r, err := h.Pull(t.Context(), "hf:ORG/REPO:m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(filepath.Dir(r.Path), manifestName)
	good := mustRead(t, path)
	for _, bad := range []string{"", "{", "null", strings.Replace(string(good), `"m.gguf"`, `"../m.gguf"`, 1), strings.Replace(string(good), `"version": 1`, `"version": 9`, 1)} {
		mustWrite(t, path, []byte(bad))
		if _, ok := h.cached("hf:ORG/REPO:m.gguf"); ok {
			t.Errorf("manifest %q was accepted", bad)
		}
	}
	mustWrite(t, path, good)
}

func TestListAndRemove(t *testing.T) {
	server := newFakeHF(t)
	server.files["b.gguf"], server.files["a.gguf"] = blob(5, 300), blob(6, 200)
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL})
	if entries, err := h.List(); err != nil || len(entries) != 0 {
		t.Fatalf("an empty cache lists %v, %v", entries, err)
	}
	for _, f := range []string{"b.gguf", "a.gguf"} {
		if _, err := h.Pull(t.Context(), "hf:ORG/REPO:"+f); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := h.List()
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if err != nil || !slices.Equal(names, []string{"hf:ORG/REPO:a.gguf", "hf:ORG/REPO:b.gguf"}) || entries[0].SizeBytes != 200 || entries[0].Files[0].SHA256 != sumOf(blob(6, 200)) {
		t.Errorf("list %+v, %v", entries, err)
	}
	freed, err := h.Remove(t.Context(), "hf:ORG/REPO:a.gguf")
	if err != nil || freed < 200 || exists(entries[0].Path) {
		t.Errorf("remove: %d, %v", freed, err)
	}
	if _, err := h.Remove(t.Context(), "hf:ORG/REPO:a.gguf"); !errors.Is(err, ErrNotFound) {
		t.Errorf("removing twice: %v", err)
	}
	file := filepath.Join(t.TempDir(), "mine.gguf")
	mustWrite(t, file, []byte("mine"))
	if _, err := h.Remove(t.Context(), file); !errors.Is(err, ErrName) || !exists(file) {
		t.Errorf("a local file must stay: %v", err)
	}
}

func TestUnusableCacheFolderIsOneClearLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	mustWrite(t, file, nil)
	server := newFakeHF(t)
	server.files["m.gguf"] = blob(7, 10)
	h, _ := newTestHub(t, Options{HFEndpoint: server.URL, Home: filepath.Join(t.TempDir(), "x")})
	h.home = filepath.Join(file, "home") // below a file: as unwritable for root as for anyone
	_, err := h.Resolve(t.Context(), "hf:ORG/REPO:m.gguf")
	if !errors.Is(err, ErrReadOnly) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "TERRACE_HOME") {
		t.Errorf("error %v, want ErrReadOnly that says what to do", err)
	}
	h.home = t.TempDir()
	for cause, want := range map[error]error{syscall.ENOSPC: ErrNoSpace, syscall.EDQUOT: ErrNoSpace, syscall.EROFS: ErrReadOnly, os.ErrPermission: ErrReadOnly} {
		if err := h.explain(&os.PathError{Op: "write", Path: "x", Err: cause}); !errors.Is(err, want) {
			t.Errorf("%v is explained as %v, want %v", cause, err, want)
		}
	}
	if err := checkSpace(t.TempDir(), 1<<60); !errors.Is(err, ErrNoSpace) {
		t.Errorf("an exbibyte fits nowhere: %v", err)
	}
}

func TestOptions(t *testing.T) {
	home := t.TempDir()
	mustWrite(t, filepath.Join(home, "hf", "token"), []byte(" hf_secret\n"))
	h, err := New(Options{Home: home, HFHome: filepath.Join(home, "hf")})
	if err != nil || h.token != "hf_secret" || h.endpoint != "https://huggingface.co" || h.home != home {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := New(Options{HFEndpoint: "ftp://x"}); !errors.Is(err, ErrName) {
		t.Errorf("an endpoint that is no web address: %v", err)
	}
	if h, err := New(Options{}); err != nil || h.home != DefaultHome() || !filepath.IsAbs(h.home) {
		t.Errorf("default home: %v, %v", h, err)
	}
}

// TestDefaultHome: a cache folder that is not absolute does not send models to the folder of temporary files.
func TestDefaultHome(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux asks XDG_CACHE_HOME")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	for cache, want := range map[string]string{
		"":              filepath.Join(home, ".cache", "terrace"),
		"relative":      filepath.Join(home, ".cache", "terrace"),
		home + "/cache": filepath.Join(home, "cache", "terrace"),
	} {
		t.Setenv("XDG_CACHE_HOME", cache)
		if got := DefaultHome(); got != want {
			t.Errorf("XDG_CACHE_HOME=%q: %s, want %s", cache, got, want)
		}
	}
}

// TestFailedPullLeavesNothing: no folder and no lock where nothing came; what can be resumed stays.
func TestFailedPullLeavesNothing(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	f := newFakeHF(t)
	h, _ := newTestHub(t, Options{Home: home, HFEndpoint: f.URL})
	for range 2 {
		if _, err := h.Pull(t.Context(), "hf:org/none"); err == nil {
			t.Fatal("pulled what is not there")
		}
		if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cache folder stays: %v", err)
		}
	}
	mustWrite(t, filepath.Join(h.stageDir("hf:org/none"), "0", "m.gguf.part"), []byte("begun"))
	if _, err := h.Pull(t.Context(), "hf:org/none"); err == nil {
		t.Fatal("pulled what is not there")
	}
	if !exists(filepath.Join(h.stageDir("hf:org/none"), "0", "m.gguf.part")) {
		t.Error("what could be resumed is gone")
	}
}

// TestLockRemoved: whoever waited for a lock that was removed locks the new one, so that two never have it at once.
func TestLockRemoved(t *testing.T) {
	h, _ := newTestHub(t, Options{})
	var have atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				unlock, err := h.lock(t.Context(), "x")
				if err != nil {
					t.Error(err)
					return
				}
				if n := have.Add(1); n != 1 {
					t.Errorf("%d have the lock", n)
				}
				have.Add(-1)
				h.leaveNothing("x", false)
				unlock()
			}
		})
	}
	wg.Wait()
}
