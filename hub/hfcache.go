package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// foreignCache is the cache of Hugging Face's own tools, beside a hub's.
type foreignCache struct {
	hub *Hub
	dir string
}

// find looks for a name's files in the cache that Hugging Face's own tools keep:
//
//	HUB/models--ORG--REPO/refs/REVISION           text: the commit
//	HUB/models--ORG--REPO/snapshots/COMMIT/FILE   links to ../../blobs/CHECKSUM
//
// The folder is only read. Files are verified once (pinned checksum, else the blob's own name); a note in our cache with
// their sizes and times saves that the next time. Whatever is missing or wrong there counts as not found.
func (c foreignCache) find(ctx context.Context, ref reference) (string, bool) {
	for _, s := range ref.sources {
		src, ok := s.(*hfSource)
		if !ok {
			continue
		}
		m, err := c.open(ctx, ref.name, src)
		if err != nil {
			if !os.IsNotExist(err) {
				c.hub.notice("%s: the copy in the Hugging Face cache is not used: %v", ref.name, err)
			}
			continue
		}
		c.remember(ctx, m)
		return m.path(c.hub), true
	}
	return "", false
}

func (c foreignCache) open(ctx context.Context, name string, src *hfSource) (manifest, error) {
	repo := filepath.Join(c.dir, "models--"+strings.ReplaceAll(src.repo, "/", "--"))
	commit := src.rev
	if b, err := os.ReadFile(filepath.Join(repo, "refs", src.rev)); err == nil {
		commit = strings.TrimSpace(string(b))
	}
	root := filepath.Join(repo, "snapshots", commit)
	if !revPattern.MatchString(commit) {
		return manifest{}, fmt.Errorf("%s: commit %q", repo, commit)
	}
	listing, err := snapshotFiles(repo, root)
	if err != nil {
		return manifest{}, err
	}
	main, files, err := choose(listing, src.file)
	if err != nil {
		return manifest{}, fs.ErrNotExist
	}
	if err := completeShards(root, main, files); err != nil {
		return manifest{}, err
	}
	m := manifest{Name: name, Source: src.String(), Main: main, Root: root}
	for _, f := range files {
		if src.sha256 != "" {
			f.sha256 = src.sha256
		}
		checked, err := c.verify(ctx, name, root, f)
		if err != nil {
			return manifest{}, err
		}
		m.Files = append(m.Files, checked)
	}
	return m, nil
}

// snapshotFiles lists a snapshot whose links stay inside the repository's folder; a blob's name is its checksum.
func snapshotFiles(repo, root string) ([]remoteFile, error) {
	if _, err := os.Stat(root); err != nil {
		return nil, err
	}
	realRepo, err := filepath.EvalSymlinks(repo)
	if err != nil {
		return nil, err
	}
	var files []remoteFile
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil // a link to a blob that was never finished
		}
		info, err := os.Stat(target)
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		if inside, err := filepath.Rel(realRepo, target); err != nil || !filepath.IsLocal(inside) {
			return fmt.Errorf("%s leads out of the repository's folder", path)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f := remoteFile{Type: "file", Path: filepath.ToSlash(rel), Size: info.Size()}
		switch blob := filepath.Base(target); {
		case isSHA256(blob):
			f.sha256 = blob
		case target != path:
			f.OID = blob
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// completeShards refuses a safetensors snapshot of which the index names files that are not there (yet).
func completeShards(root, main string, files []remoteFile) error {
	b, err := os.ReadFile(filepath.Join(root, "model.safetensors.index.json"))
	if main != "." || err != nil {
		return nil
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("model.safetensors.index.json: %w", err)
	}
	have := map[string]bool{}
	for _, f := range files {
		have[f.Path] = true
	}
	for _, shard := range index.WeightMap {
		if !have[shard] {
			return fmt.Errorf("%s is missing from it: %w", shard, fs.ErrNotExist)
		}
	}
	return nil
}

func (c foreignCache) verify(ctx context.Context, name, root string, f remoteFile) (File, error) {
	path := filepath.Join(root, filepath.FromSlash(f.Path))
	j := &job{hub: c.hub, name: name}
	sum, err := sumFile(ctx, path, func(n int64) { j.progress("verify", n, f.Size) })
	if err != nil {
		return File{}, err
	}
	if f.sha256 != "" && sum != f.sha256 {
		return File{}, fmt.Errorf("%s: sha256 %s, want %s: %w", path, sum, f.sha256, ErrChecksum)
	}
	info, err := os.Stat(path)
	if err != nil {
		return File{}, err
	}
	return File{Name: f.Path, SizeBytes: info.Size(), SHA256: sum, ModifiedNs: info.ModTime().UnixNano()}, nil
}

// remember notes verified files of another cache in ours. Where our cache cannot be written they are simply
// verified again the next time.
func (c foreignCache) remember(ctx context.Context, m manifest) {
	unlock, err := c.hub.lock(ctx, m.Name)
	if err != nil {
		return
	}
	defer unlock()
	if _, ok := c.hub.cached(m.Name); ok {
		return
	}
	dir := filepath.Join(c.hub.stageDir(m.Name), "external")
	if os.MkdirAll(dir, 0o755) == nil {
		_, _ = c.hub.commit(m.Name, dir, m)
	}
}
