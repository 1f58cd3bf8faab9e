package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// The cache folder:
//
//	models/SLUG/terrace.json   manifest, beside the model's files (invariant 1)
//	pulling/SLUG/N/            staging folder of source N, kept to resume from
//	locks/SLUG                 flock of one name
const (
	manifestName    = "terrace.json"
	manifestVersion = 1
	originHFCache   = "Hugging Face cache"
)

// File is one file of a model.
type File struct {
	Name       string `json:"name"` // slash-separated, relative to the model's folder
	SizeBytes  int64  `json:"size_bytes"`
	SHA256     string `json:"sha256"`
	ModifiedNs int64  `json:"modified_ns,omitempty"` // of files outside our cache, which others may change
}

// manifest describes a complete model in the cache.
type manifest struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Source  string    `json:"source"`
	Main    string    `json:"main"`           // the file to open, or "." for the folder
	Root    string    `json:"root,omitempty"` // folder of the files where they lie outside our cache (never written)
	Files   []File    `json:"files"`
	Pulled  time.Time `json:"pulled"`
}

func (m manifest) root(h *Hub) string {
	if m.Root != "" {
		return m.Root
	}
	return h.modelDir(m.Name)
}

func (m manifest) path(h *Hub) string { return filepath.Join(m.root(h), filepath.FromSlash(m.Main)) }

func (m manifest) origin() string {
	if m.Root != "" {
		return originHFCache
	}
	return "cache"
}

func (m manifest) sizeBytes() (n int64) {
	for _, f := range m.Files {
		n += f.SizeBytes
	}
	return n
}

// slug makes a folder name of a model name: readable, and different for different names.
func slug(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
	clean = strings.TrimLeft(clean[:min(len(clean), 100)], ".-")
	sum := sha256.Sum256([]byte(name))
	return clean + "-" + hex.EncodeToString(sum[:4])
}

func (h *Hub) modelDir(name string) string { return filepath.Join(h.home, "models", slug(name)) }
func (h *Hub) stageDir(name string) string { return filepath.Join(h.home, "pulling", slug(name)) }

// lock takes the lock of one name, waiting for another process as long as the context allows.
func (h *Hub) lock(ctx context.Context, name string) (unlock func(), err error) {
	dir := filepath.Join(h.home, "locks")
	path := filepath.Join(dir, slug(name))
	for waiting := false; ; waiting = true {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, h.explain(err)
		}
		l, ok, err := lockFile(ctx, path, func() {
			if !waiting {
				h.notice("%s: another process is pulling it; waiting", name)
			}
		})
		if errors.Is(err, os.ErrNotExist) {
			continue // the folder went with the last lock in it
		}
		if err != nil {
			return nil, h.explain(fmt.Errorf("hub: lock of %s: %w", name, err))
		}
		if ok {
			return func() { _ = l.Unlock() }, nil
		}
	}
}

// lockFile locks a file, which it makes where there is none; wait is called before it waits. False: whoever had the lock removed
// the file, so that others lock a new one.
func lockFile(ctx context.Context, path string, wait func()) (*flock.Flock, bool, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	defer f.Close() // after it is known that the locked file is this one
	before, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	l := flock.New(path)
	ok, err := l.TryLock()
	if err == nil && !ok {
		wait()
		_, err = l.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		return nil, false, err
	}
	if now, err := os.Stat(path); err == nil && os.SameFile(before, now) {
		return l, true, nil
	}
	return nil, false, l.Unlock()
}

// leaveNothing removes what a pull that failed has made and put nothing into: the folders of its sources, its lock, and the cache
// folder with what is in every one where fresh says that it was not there. The lock is held; what can be resumed stays, and the lock with it.
func (h *Hub) leaveNothing(name string, fresh bool) {
	stage := h.stageDir(name)
	removeEmpty(stage)
	if _, err := os.Stat(stage); err == nil {
		return
	}
	_ = os.Remove(filepath.Join(h.home, "locks", slug(name)))
	if fresh {
		_ = os.Remove(filepath.Join(h.home, "locks"))
		_ = os.Remove(filepath.Dir(stage))
		_ = os.Remove(h.home)
	}
}

// removeEmpty removes a folder and those below it that hold no file.
func removeEmpty(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeEmpty(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir)
}

// cached reads the manifest of a name and checks that its files are there with their sizes. Anything else, a damaged
// manifest included, counts as not cached.
func (h *Hub) cached(name string) (manifest, bool) {
	m, err := readManifest(filepath.Join(h.modelDir(name), manifestName))
	if err != nil || m.Name != name {
		return manifest{}, false
	}
	for _, f := range m.Files {
		info, err := os.Stat(filepath.Join(m.root(h), filepath.FromSlash(f.Name)))
		if err != nil || !info.Mode().IsRegular() || info.Size() != f.SizeBytes || m.Root != "" && info.ModTime().UnixNano() != f.ModifiedNs {
			return manifest{}, false
		}
	}
	return m, true
}

func readManifest(path string) (manifest, error) {
	var m manifest
	b, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, err
	}
	if m.Version != manifestVersion || len(m.Files) == 0 || m.Main != "." && !localName(m.Main) {
		return m, errors.New("not a manifest of this version")
	}
	for _, f := range m.Files {
		if !localName(f.Name) {
			return m, fmt.Errorf("file name %q", f.Name)
		}
	}
	return m, nil
}

// commit makes a staged model visible in one rename: manifest first, everything synced, then the folder moves.
func (h *Hub) commit(name, staged string, m manifest) (manifest, error) {
	m.Version, m.Pulled = manifestVersion, time.Now().UTC().Truncate(time.Second)
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	if err := writeSynced(filepath.Join(staged, manifestName), append(b, '\n')); err != nil {
		return m, h.explain(err)
	}
	final := h.modelDir(name)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return m, h.explain(err)
	}
	if err := os.RemoveAll(final); err != nil { // incomplete or damaged, or it would have been used
		return m, h.explain(err)
	}
	if err := os.Rename(staged, final); err != nil {
		return m, h.explain(err)
	}
	syncDir(filepath.Dir(final))
	_ = os.RemoveAll(h.stageDir(name)) // what other sources left; the next pull would clear it too
	return m, nil
}

// discard removes a name from the cache under its lock.
func (h *Hub) discard(ctx context.Context, name string) error {
	unlock, err := h.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	return h.explain(errors.Join(os.RemoveAll(h.modelDir(name)), os.RemoveAll(h.stageDir(name))))
}

// verify reads all files of a cached model and compares their checksums.
func (h *Hub) verify(ctx context.Context, m manifest) error {
	j := &job{hub: h, name: m.Name}
	total, done := m.sizeBytes(), int64(0)
	for _, f := range m.Files {
		sum, err := sumFile(ctx, filepath.Join(m.root(h), filepath.FromSlash(f.Name)), func(n int64) { j.progress("verify", done+n, total) })
		if err != nil {
			return fmt.Errorf("hub: %s: %w", f.Name, err)
		}
		if sum != f.SHA256 {
			return fmt.Errorf("hub: %s: sha256 %s, want %s: %w", f.Name, sum, f.SHA256, ErrChecksum)
		}
		done += f.SizeBytes
	}
	return nil
}

// sumFile is the SHA-256 of a file; each is told the bytes read so far.
func sumFile(ctx context.Context, path string, each func(doneBytes int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := copyCounted(ctx, sum, f, each); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// copyCounted copies until the end of src or of the context; each is told the bytes copied so far.
func copyCounted(ctx context.Context, dst io.Writer, src io.Reader, each func(doneBytes int64)) (int64, error) {
	buf := make([]byte, 256<<10)
	var done int64
	for {
		if err := context.Cause(ctx); err != nil {
			return done, err
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return done, err
			}
			done += int64(n)
			each(done)
		}
		if err == io.EOF {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// writeSynced writes a small file and waits until it is on the disk.
func writeSynced(path string, data []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes a rename in a folder durable where the file system allows it; a crash before that only costs a new pull.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
