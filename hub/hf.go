package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
)

// hfSource is a repository on the Hugging Face hub (or another server with its interface: Options.HFEndpoint). With a
// pinned checksum the file is asked for directly; without, the repository's listing says what there is, how large, and
// with what checksum.
type hfSource struct {
	repo, rev string
	file      string // path, base name or quantisation in the repository; "" = choose
	sha256    string // pinned; "" = as the listing says
	sizeBytes int64  // pinned with the checksum
	// sums pins files that the listing chooses, by name.
	sums map[string]string
}

func (s *hfSource) String() string {
	name := "hf:" + s.repo
	if s.rev != "main" {
		name += "@" + s.rev[:min(len(s.rev), 12)]
	}
	if s.file != "" {
		name += ":" + s.file
	}
	return name
}

// files lists what makes the model, and the file to open.
func (s *hfSource) files(ctx context.Context, h *Hub) (main string, files []remoteFile, err error) {
	if s.sha256 != "" {
		return s.file, []remoteFile{{Path: s.file, Size: s.sizeBytes, sha256: s.sha256}}, nil
	}
	listing, err := h.listRepo(ctx, s.repo, s.rev)
	if err != nil {
		return "", nil, accessHint(err)
	}
	if main, files, err = choose(listing, s.file); err != nil {
		return "", nil, err
	}
	for i, f := range files {
		if sum := s.sums[f.Path]; sum != "" {
			files[i].sha256 = sum
		}
	}
	return main, files, nil
}

func (s *hfSource) fetch(ctx context.Context, j *job) (string, []File, error) {
	main, files, err := s.files(ctx, j.hub)
	if err != nil {
		return "", nil, err
	}
	var total, done int64
	for _, f := range files {
		total += f.Size
	}
	var out []File
	for _, f := range files {
		d := download{
			url:    s.address(j.hub, f.Path),
			dest:   filepath.Join(j.dir, filepath.FromSlash(f.Path)),
			sha256: f.sha256, sizeBytes: f.Size,
		}
		got, err := j.fetchFile(ctx, d, func(n, size int64) { j.progress("download", done+n, max(total, size)) })
		if err != nil {
			return "", nil, accessHint(err)
		}
		if err := checkGitBlob(d.dest, f); err != nil {
			return "", nil, err
		}
		got.Name = f.Path
		out, done = append(out, got), done+got.SizeBytes
	}
	return main, out, nil
}

// accessHint says what a refused user can do.
func accessHint(err error) error {
	if errors.Is(err, ErrAccess) {
		return fmt.Errorf("%w: a gated or private repository: accept its licence on its page and set HF_TOKEN", err)
	}
	return err
}

// remoteFile is a file of a repository's listing.
type remoteFile struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"` // git blob id: SHA-1, of the file itself unless it is in LFS
	LFS  *struct {
		OID  string `json:"oid"` // SHA-256
		Size int64  `json:"size"`
	} `json:"lfs"`

	sha256 string
}

const (
	listingBytesMax = 32 << 20
	listingPagesMax = 50
)

// listRepo reads the file listing of a repository.
func (h *Hub) listRepo(ctx context.Context, repo, rev string) ([]remoteFile, error) {
	next := h.endpoint + "/api/models/" + repo + "/tree/" + url.PathEscape(rev) + "?recursive=true"
	var all []remoteFile
	for range listingPagesMax {
		page, link, err := h.listPage(ctx, next)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if link == "" {
			return all, nil
		}
		if !strings.HasPrefix(link, h.endpoint+"/") {
			return nil, fmt.Errorf("%s: the listing continues on another server, refused", next)
		}
		next = link
	}
	return nil, fmt.Errorf("%s: more than %d pages of files", repo, listingPagesMax)
}

func (h *Hub) listPage(ctx context.Context, pageURL string) (files []remoteFile, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.options.StallTimeout)
	defer cancel()
	resp, err := h.get(ctx, download{url: pageURL}, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", &statusError{code: resp.StatusCode, url: pageURL}
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, listingBytesMax))
	if err != nil {
		return nil, "", err
	}
	if err := json.Unmarshal(b, &files); err != nil {
		return nil, "", fmt.Errorf("%s: not a file listing: %w", pageURL, err)
	}
	kept := files[:0]
	for _, f := range files {
		if f.Type != "file" || !localName(f.Path) || f.Size < 0 {
			continue
		}
		if f.LFS != nil {
			if !isSHA256(f.LFS.OID) {
				return nil, "", fmt.Errorf("%s: %s: checksum %q in the listing is no sha256", pageURL, f.Path, f.LFS.OID)
			}
			f.sha256, f.Size = f.LFS.OID, f.LFS.Size
		}
		kept = append(kept, f)
	}
	return kept, nextLink(resp.Header.Get("Link")), nil
}

// nextLink reads the address of the next page out of a Link header: `<URL>; rel="next"`.
func nextLink(header string) string {
	for _, l := range strings.Split(header, ",") {
		target, params, ok := strings.Cut(strings.TrimSpace(l), ">")
		if ok && strings.Contains(params, `rel="next"`) {
			return strings.TrimPrefix(target, "<")
		}
	}
	return ""
}

func escapePath(p string) string {
	parts := strings.Split(path.Clean(p), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}
