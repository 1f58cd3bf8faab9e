package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"terrace/internal/replace"
)

// download is one file on an HTTP server.
type download struct {
	url       string
	dest      string // final path; dest.part and dest.part.json hold an unfinished download
	sha256    string // "" where it is not known
	sizeBytes int64  // 0 where it is not known
	headBytes int64  // so many from its beginning are asked for; 0 = all
}

// partState is what resuming needs to know about the bytes in dest.part.
type partState struct {
	URL  string `json:"url"`
	ETag string `json:"etag"`
	// Bytes and SHA256 are of the beginning that was on the disk for certain, where no checksum of the whole file is known: what lies
	// behind it may be anything after a loss of power.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// checkpointBytes is after how many more a download without a checksum makes sure of what it has; a variable for tests.
var checkpointBytes = int64(64 << 20)

// maxFileBytes refuses a reply without a sane end: no model file is larger.
const maxFileBytes = int64(1) << 42

var (
	errStalled  = errors.New("no data for too long")
	errGone     = errors.New("the file changed on the server")
	errComplete = errors.New("already complete")
	errBadPart  = errors.New("the resumed bytes are damaged")
)

// statusError is an HTTP reply other than the file.
type statusError struct {
	code int
	url  string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: HTTP %d %s", e.url, e.code, http.StatusText(e.code))
}

func (e *statusError) Unwrap() error {
	switch e.code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrAccess
	case http.StatusNotFound, http.StatusGone:
		return ErrNotFound
	}
	return nil
}

// fetchFile downloads with ranges, resumes what an earlier attempt or process left, retries with growing delays as long
// as there is progress, and verifies size and checksum before the file gets its name.
func (j *job) fetchFile(ctx context.Context, d download, each func(doneBytes, totalBytes int64)) (File, error) {
	if err := os.MkdirAll(filepath.Dir(d.dest), 0o755); err != nil {
		return File{}, err
	}
	if f, ok := alreadyThere(ctx, d); ok {
		return f, nil
	}
	p, err := openPart(d)
	if err != nil {
		return File{}, err
	}
	defer p.close()
	if err := j.fillPart(ctx, d, p, each); err != nil {
		return File{}, err
	}
	f, err := p.finish(d)
	if errors.Is(err, errBadPart) { // what an earlier process left was damaged: once more from the beginning
		if err := j.fillPart(ctx, d, p, each); err != nil {
			return File{}, err
		}
		f, err = p.finish(d)
	}
	return f, err
}

// alreadyThere recognises a file that an interrupted pull had finished: only its checksum can vouch for it.
func alreadyThere(ctx context.Context, d download) (File, bool) {
	info, err := os.Stat(d.dest)
	if err != nil || d.sha256 == "" || !info.Mode().IsRegular() {
		return File{}, false
	}
	sum, err := sumFile(ctx, d.dest, func(int64) {})
	return File{SizeBytes: info.Size(), SHA256: sum}, err == nil && sum == d.sha256
}

// fillPart repeats requests until the part is complete or it is no use to go on.
func (j *job) fillPart(ctx context.Context, d download, p *part, each func(doneBytes, totalBytes int64)) error {
	const attempts = 5
	delay := j.hub.options.RetryDelay
	for failed := 0; ; {
		before := p.size
		err := j.attempt(ctx, d, p, each)
		if err == nil {
			return nil
		}
		if p.size > before {
			failed, delay = 0, j.hub.options.RetryDelay
		}
		if failed++; ctx.Err() != nil || !retryable(err) || failed >= attempts || isDial(err) && failed >= 2 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
			delay *= 2
		}
	}
}

// retryable tells a fault that may pass from an answer that will stay the same.
func retryable(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.code >= 500 || status.code == http.StatusTooManyRequests || status.code == http.StatusRequestTimeout
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return false
	}
	var path *os.PathError // our own disk
	return !errors.As(err, &path) && !errors.Is(err, ErrChecksum) && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoSpace)
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// attempt makes one request from the end of the part and appends what comes.
func (j *job) attempt(ctx context.Context, d download, p *part, each func(doneBytes, totalBytes int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(j.hub.options.StallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	resp, err := j.hub.get(ctx, d, p)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer resp.Body.Close()
	total, err := p.accept(d, resp)
	if errors.Is(err, errComplete) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkSpace(filepath.Dir(d.dest), total-p.size); err != nil {
		return err
	}
	body := io.LimitReader(resp.Body, max(total, 1)-p.size+1) // a byte more than announced shows a lying server
	if total == 0 {
		body = io.LimitReader(resp.Body, maxFileBytes)
	}
	_, err = copyCounted(ctx, p, body, func(int64) {
		stall.Reset(j.hub.options.StallTimeout)
		each(p.size, total)
	})
	switch {
	case err != nil:
		return causeOf(ctx, err)
	case total > 0 && p.size < total:
		return fmt.Errorf("%s: ended after %d of %d bytes: %w", d.url, p.size, total, io.ErrUnexpectedEOF)
	case total > 0 && p.size > total:
		p.remove()
		return fmt.Errorf("%s: more than the announced %d bytes: %w", d.url, total, ErrChecksum)
	}
	return nil
}

// causeOf says why a request ended where the context's own error would only say that it did.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// get asks for the file from the end of the part on; the token goes to the endpoint only, never to where it redirects.
func (h *Hub) get(ctx context.Context, d download, p *part) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "terrace")
	req.Header.Set("Accept-Encoding", "identity")
	if h.token != "" && strings.HasPrefix(d.url, h.endpoint+"/") {
		req.Header.Set("Authorization", "Bearer "+h.token)
	}
	if p != nil && p.size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", p.size))
		if p.state.ETag != "" {
			req.Header.Set("If-Range", p.state.ETag)
		}
	}
	if d.headBytes > 0 {
		req.Header.Set("Range", rangeOf(d.headBytes))
	}
	client := *h.client
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if len(via) > 10 {
			return errors.New("more than 10 redirects")
		}
		if via[0].URL.Scheme == "https" && next.URL.Scheme != "https" {
			return fmt.Errorf("redirect from https to %s refused", next.URL.Scheme)
		}
		// Hugging Face names the SHA-256 of a large file in the redirect, before a byte of it is sent.
		linked := strings.Trim(next.Response.Header.Get("X-Linked-ETag"), `"`)
		if d.sha256 != "" && isSHA256(linked) && linked != d.sha256 {
			return fmt.Errorf("%s: the server's file has sha256 %s, want %s: %w", d.url, linked, d.sha256, ErrChecksum)
		}
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		var outer *url.Error // repeats method and address
		if errors.As(err, &outer) {
			err = outer.Err
		}
		if errors.Is(err, ErrChecksum) || ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s %w: %w", req.URL.Host, ErrUnreachable, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent && resp.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		resp.Body.Close()
		return nil, &statusError{code: resp.StatusCode, url: d.url}
	}
	return resp, nil
}

func isSHA256(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == sha256.Size*2
}

// part is a file that is being downloaded, with the running hash of its bytes.
type part struct {
	file  *os.File
	path  string
	state partState
	size  int64
	sum   hash.Hash

	resumed bool // some bytes come from an earlier process
	proven  bool // a checksum of the whole file is known
	named   bool // it has its final name
}

// openPart opens or creates dest.part. Bytes of another URL, or with neither a checksum nor an ETag to prove that they
// belong to the server's file of today, are dropped; kept ones are hashed again. Where there is no checksum of the whole file,
// what was not made sure of is dropped too.
func openPart(d download) (*part, error) {
	p := &part{path: d.dest + ".part", sum: sha256.New(), proven: d.sha256 != ""}
	if b, err := os.ReadFile(p.path + ".json"); err != nil || json.Unmarshal(b, &p.state) != nil || p.state.URL != d.url {
		p.state = partState{URL: d.url}
	}
	f, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	p.file = f
	if p.state.ETag == "" && !p.proven {
		return p, p.restart()
	}
	kept := io.Reader(f)
	if !p.proven {
		kept = io.LimitReader(f, p.state.Bytes)
	}
	if p.size, err = io.Copy(p.sum, kept); err != nil {
		f.Close()
		return nil, err
	}
	if !p.proven && (p.size != p.state.Bytes || p.digest() != p.state.SHA256) {
		return p, p.restart()
	}
	p.resumed = p.size > 0
	return p, f.Truncate(p.size)
}

// digest is the checksum of the bytes so far.
func (p *part) digest() string { return hex.EncodeToString(p.sum.Sum(nil)) }

func (p *part) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.sum.Write(b[:n])
	p.size += int64(n)
	if err == nil && p.size-p.state.Bytes >= checkpointBytes {
		err = p.checkpoint()
	}
	return n, err
}

// checkpoint makes sure of the bytes so far, where nothing else will tell whether they are the server's.
func (p *part) checkpoint() error {
	if p.proven || p.state.Bytes == p.size {
		return nil
	}
	if err := p.file.Sync(); err != nil {
		return err
	}
	p.state.Bytes, p.state.SHA256 = p.size, p.digest()
	return p.keepState()
}

// keepState writes what resuming needs, in one step.
func (p *part) keepState() error {
	b, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	return replace.WriteFile(p.path+".json", b, 0o644)
}

// restart drops the bytes so far.
func (p *part) restart() error {
	p.size, p.resumed = 0, false
	p.state.Bytes, p.state.SHA256 = 0, ""
	p.sum.Reset()
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.file.Truncate(0)
}

// close keeps what can be resumed, and nothing where nothing came.
func (p *part) close() {
	switch {
	case p.size == 0:
		p.remove()
	case !p.named:
		_ = p.checkpoint() // without it the next pull begins at the last one
	}
	p.file.Close()
}

func (p *part) remove() {
	_ = p.restart()
	_ = os.Remove(p.path)
	_ = os.Remove(p.path + ".json")
}

// accept checks a reply against what the part holds and gives the size of the whole file, 0 where the server does not
// say. It restarts the part where the server sends the file from its beginning.
func (p *part) accept(d download, resp *http.Response) (totalBytes int64, err error) {
	switch resp.StatusCode {
	case http.StatusPartialContent:
		start, total, ok := parseContentRange(resp.Header.Get("Content-Range"))
		if !ok || start != p.size {
			if err := p.restart(); err != nil {
				return 0, err
			}
			p.state.ETag = ""
			return 0, fmt.Errorf("%s: %w: asked for another range than %q", d.url, errGone, resp.Header.Get("Content-Range"))
		}
		totalBytes = total
	case http.StatusRequestedRangeNotSatisfiable:
		_, total, _ := parseContentRange(resp.Header.Get("Content-Range"))
		if p.size > 0 && (total == p.size || total == 0 && d.sizeBytes == p.size) {
			return p.size, errComplete
		}
		if err := p.restart(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%s: %w", d.url, errGone)
	default:
		if err := p.restart(); err != nil {
			return 0, err
		}
		totalBytes = max(resp.ContentLength, 0)
	}
	if totalBytes > maxFileBytes || d.sizeBytes > 0 && totalBytes > 0 && totalBytes != d.sizeBytes {
		p.remove()
		return 0, fmt.Errorf("%s: %d bytes, want %d: %w", d.url, totalBytes, d.sizeBytes, ErrChecksum)
	}
	etag := resp.Header.Get("ETag")
	if strings.HasPrefix(etag, "W/") {
		etag = ""
	}
	p.state.ETag = etag
	return totalBytes, p.keepState()
}

// parseContentRange reads `bytes 5-9/10` and `bytes */10`.
func parseContentRange(s string) (start, total int64, ok bool) {
	s, ok = strings.CutPrefix(s, "bytes ")
	if !ok {
		return 0, 0, false
	}
	span, size, ok := strings.Cut(s, "/")
	if !ok {
		return 0, 0, false
	}
	total, err := strconv.ParseInt(size, 10, 64)
	if err != nil || total < 0 {
		return 0, 0, false
	}
	first, _, _ := strings.Cut(span, "-")
	start, err = strconv.ParseInt(first, 10, 64)
	return start, total, err == nil && start >= 0 && start < total
}

// finish verifies the part and gives it its name. Wrong bytes are removed (invariant 2); errBadPart means that the part is
// empty again and worth another download.
func (p *part) finish(d download) (File, error) {
	sum := p.digest()
	if d.sha256 != "" && sum != d.sha256 {
		if p.resumed {
			return File{}, errors.Join(errBadPart, p.restart())
		}
		p.remove()
		return File{}, fmt.Errorf("%s: sha256 %s, want %s: %w", d.url, sum, d.sha256, ErrChecksum)
	}
	if err := errors.Join(p.file.Sync(), os.Rename(p.path, d.dest)); err != nil {
		return File{}, err
	}
	p.named = true
	_ = os.Remove(p.path + ".json")
	return File{Name: filepath.Base(d.dest), SizeBytes: p.size, SHA256: sum}, nil
}
