package hub

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// urlSource is a GGUF file at an address of its own. Nothing says what its bytes should be but the transport, so what came is
// checked to be a GGUF file; its SHA-256 is kept, and verified at later pulls.
type urlSource struct{ address string }

func (s *urlSource) String() string { return s.address }

// isURL reports whether a name is an address.
func isURL(name string) bool {
	return strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://")
}

// hfPage matches the addresses of files on Hugging Face: as downloaded, and as shown.
var hfPage = regexp.MustCompile(`^https://(?:huggingface\.co|hf\.co)/([^/]+/[^/]+)/(?:resolve|blob)/([^/]+)/(.+)$`)

// parseURL reads an address. One of Hugging Face's is taken as hf:ORG/REPO@REVISION:FILE, whose listing has a checksum.
func parseURL(name string) (reference, error) {
	plain, _, _ := strings.Cut(name, "?")
	if m := hfPage.FindStringSubmatch(plain); m != nil {
		if file, err := url.PathUnescape(m[3]); err == nil {
			rest := m[1] + ":" + file
			if m[2] != "main" {
				rest = m[1] + "@" + m[2] + ":" + file
			}
			return parseHF("hf:"+rest, rest)
		}
	}
	u, err := url.Parse(name)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return reference{}, fmt.Errorf("hub: %q: not an address of a file: %w", name, ErrName)
	case u.Scheme != "https":
		return reference{}, fmt.Errorf("hub: %q: want https, nothing else vouches for the file: %w", name, ErrName)
	case !strings.EqualFold(path.Ext(u.Path), ".gguf") || !localName(path.Base(u.Path)):
		return reference{}, fmt.Errorf("hub: %q: want the address of a .gguf file: %w", name, ErrName)
	}
	return reference{name: name, sources: []source{&urlSource{name}}}, nil
}

// addresses are those of the file, or of all parts of a split one, and the files' names.
func (s *urlSource) addresses() (addresses, names []string, err error) {
	u, err := url.Parse(s.address)
	if err != nil {
		return nil, nil, err
	}
	base := path.Base(u.Path)
	m := splitPattern.FindStringSubmatch(base)
	if m == nil {
		return []string{s.address}, []string{base}, nil
	}
	var parts int
	if _, err := fmt.Sscanf(m[3], "%d", &parts); err != nil || parts < 1 || parts > 1000 {
		return nil, nil, fmt.Errorf("%s: %s parts: %w", base, m[3], ErrName)
	}
	for i := range parts {
		name := fmt.Sprintf("%s-%05d-of-%s.gguf", m[1], i+1, m[3])
		p := *u
		p.Path, p.RawPath = path.Join(path.Dir(u.Path), name), ""
		addresses, names = append(addresses, p.String()), append(names, name)
	}
	return addresses, names, nil
}

func (s *urlSource) fetch(ctx context.Context, j *job) (string, []File, error) {
	addresses, names, err := s.addresses()
	if err != nil {
		return "", nil, err
	}
	var out []File
	var done int64
	for i, address := range addresses {
		d := download{url: address, dest: filepath.Join(j.dir, names[i])}
		got, err := j.fetchFile(ctx, d, func(n, size int64) { j.progress("download", done+n, done+size) })
		if err != nil {
			return "", nil, err
		}
		if err := checkGGUF(d.dest, address); err != nil {
			return "", nil, err
		}
		got.Name = names[i]
		out, done = append(out, got), done+got.SizeBytes
		j.hub.notice("%s: sha256 %s (the address names none to compare with)", names[i], got.SHA256)
	}
	return names[0], out, nil
}

// checkGGUF removes what is no GGUF file: a page that says why there is none, for instance.
func checkGGUF(file, address string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err == nil && string(magic) == "GGUF" {
		return nil
	}
	_ = os.Remove(file)
	return fmt.Errorf("%s: what came is not a GGUF file: %w", address, ErrChecksum)
}
