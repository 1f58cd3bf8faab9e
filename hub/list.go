package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"terrace/internal/nearest"
)

// Entry is a model that is here.
type Entry struct {
	Name      string
	Path      string // the file or folder to open
	SizeBytes int64
	Source    string
	Pulled    time.Time
	External  bool   // it lies in the Hugging Face cache; Remove only forgets it
	Files     []File // with checksums
}

// List gives the models in the cache, by name. Damaged and unfinished ones are left out.
func (h *Hub) List() ([]Entry, error) {
	dirs, err := os.ReadDir(filepath.Join(h.home, "models"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, h.explain(err)
	}
	var entries []Entry
	for _, d := range dirs {
		m, err := readManifest(filepath.Join(h.home, "models", d.Name(), manifestName))
		if err != nil || slug(m.Name) != d.Name() {
			continue
		}
		if _, ok := h.cached(m.Name); !ok {
			continue
		}
		entries = append(entries, Entry{
			Name: m.Name, Path: m.path(h), SizeBytes: m.sizeBytes(), Source: m.Source, Pulled: m.Pulled, External: m.Root != "", Files: m.Files,
		})
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// names are those in the cache, as far as it can be read.
func (h *Hub) names() (names []string) {
	entries, err := h.List()
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// Remove deletes a model from our cache, half-finished downloads of it included, and gives the bytes freed. Files outside
// the cache folder (local paths, the Hugging Face cache) are never touched. Errors wrap ErrName or ErrNotFound.
func (h *Hub) Remove(ctx context.Context, name string) (freedBytes int64, err error) {
	models, staged := h.modelDir(name), h.stageDir(name)
	if ref, err := parse(name); err == nil && !exists(models) && !exists(staged) && !exists(name) { // as pull takes it: without its tag, in any case
		name = ref.name
		models, staged = h.modelDir(name), h.stageDir(name)
	}
	if !exists(models) && !exists(staged) {
		if exists(name) {
			return 0, fmt.Errorf("hub: %q is a file of yours, not a model in the cache: delete it yourself: %w", name, ErrName)
		}
		return 0, fmt.Errorf("hub: %q is not in the cache %s%s (infer list shows what is): %w", name, h.home, nearest.Hint(name, h.names()), ErrNotFound)
	}
	unlock, err := h.lock(ctx, name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	freedBytes = folderBytes(models) + folderBytes(staged)
	// The manifest goes first: without it nothing of the rest counts any more (invariant 1).
	if err := os.Remove(filepath.Join(models, manifestName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, h.explain(err)
	}
	if err := errors.Join(os.RemoveAll(models), os.RemoveAll(staged)); err != nil {
		return 0, h.explain(err)
	}
	return freedBytes, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func folderBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
