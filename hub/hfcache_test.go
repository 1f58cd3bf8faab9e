package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hfCache lays out a snapshot as Hugging Face's tools do.
func hfCache(t *testing.T, home, repo, commit string, files map[string][]byte) (snapshot string) {
	t.Helper()
	root := filepath.Join(home, "hub", "models--"+strings.ReplaceAll(repo, "/", "--"))
	snapshot = filepath.Join(root, "snapshots", commit)
	mustWrite(t, filepath.Join(root, "refs", "main"), []byte(commit))
	for name, data := range files {
		blob := filepath.Join(root, "blobs", sumOf(data))
		mustWrite(t, blob, data)
		link := filepath.Join(snapshot, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(filepath.Dir(link), blob)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(rel, link); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot
}

func TestHuggingFaceCache(t *testing.T) {
	home := t.TempDir()
	data := blob(30, 4000)
	snap := hfCache(t, home, "ORG/REPO", "0123abc", map[string][]byte{"m.Q4_K_M.gguf": data, "m.Q8_0.gguf": blob(31, 10)})
	verified := 0
	h, _ := newTestHub(t, Options{HFHome: home, Offline: true, Progress: func(p Progress) {
		if p.Stage == "verify" && p.DoneBytes == p.TotalBytes {
			verified++
		}
	}})
	for i := range 2 {
		r, err := h.Resolve(t.Context(), "hf:ORG/REPO")
		if err != nil || r.Path != filepath.Join(snap, "m.Q4_K_M.gguf") || r.Source != originHFCache || verified != 1 {
			t.Fatalf("time %d: %+v, %v, verified %d times", i, r, err, verified)
		}
	}
	entries, err := h.List()
	if err != nil || len(entries) != 1 || !entries[0].External {
		t.Errorf("list %+v, %v", entries, err)
	}
	if _, err := h.Remove(t.Context(), "hf:ORG/REPO"); err != nil || !exists(filepath.Join(snap, "m.Q4_K_M.gguf")) {
		t.Errorf("removing must only forget: %v", err)
	}
	// Changed after it was verified: not trusted any more, and its blob's name says that it is wrong now.
	if _, err := h.Resolve(t.Context(), "hf:ORG/REPO"); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.EvalSymlinks(filepath.Join(snap, "m.Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, target, blob(32, 4000))
	if err := os.Chtimes(target, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Resolve(t.Context(), "hf:ORG/REPO"); err == nil {
		t.Errorf("a changed file was accepted: %+v", r)
	}
	mustWrite(t, target, data)
}

func TestHuggingFaceCacheIncompleteOrHostile(t *testing.T) {
	home := t.TempDir()
	index := []byte(`{"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`)
	snap := hfCache(t, home, "ORG/SHARDS", "1", map[string][]byte{
		"config.json": []byte("{}"), "model.safetensors.index.json": index, "model-00001-of-00002.safetensors": blob(33, 10),
	})
	h, _ := newTestHub(t, Options{HFHome: home, Offline: true})
	if r, err := h.Resolve(t.Context(), "hf:ORG/SHARDS"); err == nil {
		t.Errorf("half a model was accepted: %+v", r)
	}
	mustWrite(t, filepath.Join(snap, "model-00002-of-00002.safetensors"), blob(34, 10)) // a plain file, as on Windows
	if r, err := h.Resolve(t.Context(), "hf:ORG/SHARDS"); err != nil || r.Path != snap {
		t.Errorf("the complete folder: %+v, %v", r, err)
	}

	outside := filepath.Join(t.TempDir(), "secret.gguf")
	mustWrite(t, outside, []byte("secret"))
	snap = hfCache(t, home, "ORG/LINK", "1", map[string][]byte{"a.gguf": blob(35, 10)})
	if err := os.Symlink(outside, filepath.Join(snap, "b.gguf")); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Resolve(t.Context(), "hf:ORG/LINK:b.gguf"); err == nil {
		t.Errorf("a link out of the cache was followed: %+v", r)
	}
	snap = hfCache(t, home, "ORG/EVIL", "../../x", nil)
	if r, err := h.Resolve(t.Context(), "hf:ORG/EVIL"); err == nil {
		t.Errorf("a climbing revision was followed to %s: %+v", snap, r)
	}
}
