package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Outline is a model of which only the beginnings of its files were fetched: enough to read its headers.
type Outline struct {
	Result
	// HeadBytes is how much of each file of weights is there; the rest, up to the file's length, is a hole that reads as zeros.
	// 0 = the model lies on this machine whole.
	HeadBytes int64

	dir string
}

// Close removes what was fetched.
func (o *Outline) Close() error {
	if o.dir == "" {
		return nil
	}
	return os.RemoveAll(o.dir)
}

// outlined is a source that can give the beginnings of files.
type outlined interface {
	// outline lists the files that a model's headers lie in and where they are, and the one to open, as fetch does.
	outline(ctx context.Context, h *Hub) (main string, files []download, err error)
}

// Outline gives the local files of a name as Resolve does, or, where this machine does not have them, the first headBytes of each file of
// weights by range requests, and the configuration: in a folder of its own among the temporary files, which Close removes. The errors are
// Resolve's; where no source of the name can be asked for a part of a file (packages of pip), errors.ErrUnsupported.
func (h *Hub) Outline(ctx context.Context, name string, headBytes int64) (*Outline, error) {
	if path, ok, err := localPath(name); ok || err != nil {
		return &Outline{Result: Result{Name: name, Path: path, Source: "local path"}}, err
	}
	ref, err := parse(name)
	if err != nil {
		return nil, err
	}
	if m, ok := h.cached(ref.name); ok {
		return &Outline{Result: Result{Name: name, Path: m.path(h), Source: m.origin()}}, nil
	}
	if path, ok := h.foreign.find(ctx, ref); ok {
		return &Outline{Result: Result{Name: name, Path: path, Source: originHFCache}}, nil
	}
	var tried []error
	for _, src := range ref.sources {
		s, ok := src.(outlined)
		if !ok {
			tried = append(tried, fmt.Errorf("%v: %w", src, errors.ErrUnsupported))
			continue
		}
		if h.options.Offline {
			return nil, fmt.Errorf("hub: %s: %w: not in the cache, and HF_HUB_OFFLINE forbids the network", name, ErrOffline)
		}
		o, err := heads{h}.outline(ctx, name, s, headBytes)
		if err == nil {
			o.Source = src.String()
			return o, nil
		}
		if ctx.Err() != nil || errors.Is(err, syscall.ENOSPC) {
			return nil, err
		}
		tried = append(tried, fmt.Errorf("%v: %w", src, err))
	}
	return nil, fmt.Errorf("hub: headers of %s: %w", name, errors.Join(tried...))
}

// heads fetches the beginnings of files.
type heads struct{ *Hub }

func (h heads) outline(ctx context.Context, name string, s outlined, headBytes int64) (_ *Outline, err error) {
	main, files, err := s.outline(ctx, h.Hub)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "terrace-outline-")
	if err != nil {
		return nil, err
	}
	o := &Outline{Result: Result{Name: name, Path: filepath.Join(dir, filepath.FromSlash(main))}, HeadBytes: headBytes, dir: dir}
	for _, d := range files {
		d.dest = filepath.Join(dir, filepath.FromSlash(d.dest))
		if err := h.fetch(ctx, d, headBytes); err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	return o, nil
}

// fetch makes a file of a remote file's length with its first bytes, of a JSON file with all; it asks three times where that may help.
func (h heads) fetch(ctx context.Context, d download, headBytes int64) error {
	if strings.HasSuffix(d.dest, ".json") {
		headBytes = listingBytesMax
	}
	for attempt := 1; ; attempt++ {
		err := h.attempt(ctx, d, headBytes)
		if err == nil || attempt == 3 || !retryable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(h.options.RetryDelay):
		}
	}
}

func (h heads) attempt(ctx context.Context, d download, headBytes int64) (err error) {
	const slowest = 256 << 10 // bytes a second
	ctx, cancel := context.WithTimeoutCause(ctx, h.options.StallTimeout+time.Duration(headBytes/slowest)*time.Second, errStalled)
	defer cancel()
	d.headBytes = headBytes
	resp, err := h.get(ctx, d, nil)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer resp.Body.Close()
	size := resp.ContentLength
	switch resp.StatusCode {
	case http.StatusPartialContent:
		start, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || start != 0 {
			return fmt.Errorf("%s: Content-Range %q, want the file's beginning and length: %w", d.url, resp.Header.Get("Content-Range"), ErrChecksum)
		}
		size = total
	case http.StatusOK: // a server that does not know ranges; the rest is not read
	default:
		return &statusError{code: resp.StatusCode, url: d.url}
	}
	if size < 0 || size > maxFileBytes || d.sizeBytes > 0 && size != d.sizeBytes {
		return fmt.Errorf("%s: %d bytes, want %d: %w", d.url, size, d.sizeBytes, ErrChecksum)
	}
	if err := os.MkdirAll(filepath.Dir(d.dest), 0o755); err != nil {
		return err
	}
	f, err := os.Create(d.dest)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	want := min(size, headBytes)
	if n, err := io.Copy(f, io.LimitReader(resp.Body, want)); err != nil {
		return causeOf(ctx, err)
	} else if n < want {
		return fmt.Errorf("%s: ended after %d of %d bytes: %w", d.url, n, want, io.ErrUnexpectedEOF)
	}
	return f.Truncate(size)
}

// rangeOf is the Range header that asks for the first bytes.
func rangeOf(headBytes int64) string { return "bytes=0-" + strconv.FormatInt(headBytes-1, 10) }

// outline implements outlined.
func (s *hfSource) outline(ctx context.Context, h *Hub) (string, []download, error) {
	main, files, err := s.files(ctx, h)
	if err != nil {
		return "", nil, err
	}
	var out []download
	for _, f := range files {
		switch filepath.Ext(f.Path) {
		case ".json":
			if f.Path != "config.json" && !strings.HasSuffix(f.Path, ".index.json") {
				continue
			}
		case ".gguf", ".safetensors":
		default:
			continue
		}
		out = append(out, download{url: s.address(h, f.Path), dest: f.Path, sizeBytes: f.Size})
	}
	return main, out, nil
}

// address is where a file of the repository lies.
func (s *hfSource) address(h *Hub, file string) string {
	return h.endpoint + "/" + s.repo + "/resolve/" + url.PathEscape(s.rev) + "/" + escapePath(file)
}

// outline implements outlined.
func (s *urlSource) outline(context.Context, *Hub) (string, []download, error) {
	addresses, names, err := s.addresses()
	if err != nil {
		return "", nil, err
	}
	var out []download
	for i, address := range addresses {
		out = append(out, download{url: address, dest: names[i]})
	}
	return names[0], out, nil
}
