package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say where models are kept and how they may be fetched. The zero value uses the XDG folders, anonymous access to
// the public endpoint, and the network.
type Options struct {
	Home       string // cache folder; "" = DefaultHome()
	HFHome     string // HF_HOME: the Hugging Face folder; "" = huggingface in the XDG cache folder
	HFCache    string // HF_HUB_CACHE: its model cache; "" = hub in HFHome
	HFToken    string // HF_TOKEN; "" = the token file in HFHome, if there is one
	HFEndpoint string // TERRACE_HUB or HF_ENDPOINT: the hub or a mirror of it; "" = https://huggingface.co
	Offline    bool   // HF_HUB_OFFLINE: use what is on this machine only

	Notice   func(line string) // one line the user should see (licences, waiting, passing to the next source); may be nil
	Progress func(Progress)    // called about ten times a second and at the end of each stage; may be nil

	// Client, RetryDelay and StallTimeout replace the defaults (5 s to connect; 0.5 s doubling; 30 s without a byte).
	Client       *http.Client
	RetryDelay   time.Duration
	StallTimeout time.Duration
	// Pip are the commands to try, best first; nil = python3 -m pip, pip3, pip.
	Pip [][]string
}

// Progress is a moment of a pull.
type Progress struct {
	Name       string // the model
	Stage      string // "download", "unpack" or "verify"
	DoneBytes  int64
	TotalBytes int64 // 0 where it is not known yet
}

// Result is where a model lies.
type Result struct {
	Name   string // the name asked for
	Path   string // a .gguf file (the first of a split model), or a folder with config.json and safetensors
	Source string // "local path", "cache", "Hugging Face cache", or the source it was just fetched from
}

// Hub finds and fetches models. Create it with New; it holds no open files between calls.
type Hub struct {
	home     string
	foreign  foreignCache
	token    string
	endpoint string
	options  Options
	client   *http.Client
}

// DefaultHome is the cache folder where Options.Home is empty: terrace in the user's cache folder ($XDG_CACHE_HOME or ~/.cache on
// Linux; ~/.cache too where $XDG_CACHE_HOME is not absolute), or in the folder of temporary files where the user has no home.
func DefaultHome() string { return filepath.Join(cacheDir(), "terrace") }

func cacheDir() string {
	if dir, err := os.UserCacheDir(); err == nil {
		return dir
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".cache")
	}
	return os.TempDir()
}

// New checks the options; it touches neither the disk's contents nor the network.
func New(o Options) (*Hub, error) {
	if o.Home == "" {
		o.Home = DefaultHome()
	}
	home, err := filepath.Abs(o.Home)
	if err != nil {
		return nil, fmt.Errorf("hub: cache folder %q: %w", o.Home, err)
	}
	if o.HFHome == "" {
		o.HFHome = filepath.Join(cacheDir(), "huggingface")
	}
	if o.HFCache == "" {
		o.HFCache = filepath.Join(o.HFHome, "hub")
	}
	if o.HFEndpoint == "" {
		o.HFEndpoint = "https://huggingface.co"
	}
	if !strings.HasPrefix(o.HFEndpoint, "https://") && !strings.HasPrefix(o.HFEndpoint, "http://") {
		return nil, fmt.Errorf("hub: address of the hub (TERRACE_HUB, HF_ENDPOINT) %q: want a URL that begins with https:// or http://: %w", o.HFEndpoint, ErrName)
	}
	if o.HFToken == "" {
		if b, err := os.ReadFile(filepath.Join(o.HFHome, "token")); err == nil && len(b) < 4096 {
			o.HFToken = strings.TrimSpace(string(b))
		}
	}
	if o.RetryDelay <= 0 {
		o.RetryDelay = 500 * time.Millisecond
	}
	if o.StallTimeout <= 0 {
		o.StallTimeout = 30 * time.Second
	}
	if o.Pip == nil {
		o.Pip = [][]string{{"python3", "-m", "pip"}, {"pip3"}, {"pip"}}
	}
	h := &Hub{home: home, token: o.HFToken, endpoint: strings.TrimRight(o.HFEndpoint, "/"), options: o, client: o.Client}
	h.foreign = foreignCache{h, o.HFCache}
	if h.client == nil {
		h.client = newClient()
	}
	return h, nil
}

// newClient gives up quickly on a host that does not answer, so that the next source gets its turn.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ResponseHeaderTimeout = 30 * time.Second
	t.DisableCompression = true // lengths and ranges are of the file's own bytes
	return &http.Client{Transport: t}
}

// Home is the cache folder.
func (h *Hub) Home() string { return h.home }

// Resolve gives the local files of a name and fetches them where the machine does not have them. Errors wrap ErrName,
// ErrNotFound, ErrChecksum, ErrNoPip, ErrOffline, ErrUnreachable, ErrAccess, ErrNoSpace, ErrReadOnly or the context's error.
func (h *Hub) Resolve(ctx context.Context, name string) (Result, error) {
	if path, ok, err := localPath(name); ok || err != nil {
		return Result{Name: name, Path: path, Source: "local path"}, err
	}
	ref, err := parse(name)
	if err != nil {
		return Result{}, err
	}
	if m, ok := h.cached(ref.name); ok {
		return Result{Name: name, Path: m.path(h), Source: m.origin()}, nil
	}
	if path, ok := h.foreign.find(ctx, ref); ok {
		return Result{Name: name, Path: path, Source: originHFCache}, nil
	}
	return h.pull(ctx, ref)
}

// Pull is Resolve, and verifies the checksums of files that were here already; those that fail are fetched again.
func (h *Hub) Pull(ctx context.Context, name string) (Result, error) {
	if path, ok, err := localPath(name); ok || err != nil {
		return Result{Name: name, Path: path, Source: "local path"}, err
	}
	ref, err := parse(name)
	if err != nil {
		return Result{}, err
	}
	if m, ok := h.cached(ref.name); ok {
		err := h.verify(ctx, m)
		if err == nil {
			return Result{Name: name, Path: m.path(h), Source: m.origin()}, nil
		}
		if ctx.Err() != nil {
			return Result{}, err
		}
		h.notice("%s: %v; fetching it again", name, err)
		if err := h.discard(ctx, ref.name); err != nil {
			return Result{}, err
		}
	}
	return h.Resolve(ctx, name)
}

// localPath recognises a name that is a path on this machine: it exists, or it looks like nothing else. Only regular
// files and folders count, so that a device or pipe is never opened.
func localPath(name string) (string, bool, error) {
	if name == "" {
		return "", false, fmt.Errorf("hub: empty model name: %w", ErrName)
	}
	info, err := os.Stat(name)
	switch {
	case err == nil && (info.Mode().IsRegular() || info.IsDir()):
		return name, true, nil
	case err == nil:
		return "", false, fmt.Errorf("hub: %q is neither a file nor a folder: %w", name, ErrNotFound)
	case !errors.Is(err, os.ErrNotExist) && filepath.IsAbs(name):
		return "", false, fmt.Errorf("hub: %w: %w", err, ErrNotFound)
	}
	return "", false, nil
}

// pull fetches a name from its sources under its lock and puts it into the cache.
func (h *Hub) pull(ctx context.Context, ref reference) (_ Result, err error) {
	_, missing := os.Stat(h.home)
	unlock, err := h.lock(ctx, ref.name)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	defer func() {
		if err != nil {
			h.leaveNothing(ref.name, errors.Is(missing, os.ErrNotExist))
		}
	}()
	if m, ok := h.cached(ref.name); ok { // another process was faster
		return Result{Name: ref.name, Path: m.path(h), Source: m.origin()}, nil
	}
	if ref.notice != "" && !h.options.Offline {
		h.notice("%s: %s", ref.name, ref.notice)
	}
	var tried []error
	for i, src := range ref.sources {
		m, err := h.fetchFrom(ctx, ref, i, src)
		if err == nil {
			return Result{Name: ref.name, Path: m.path(h), Source: src.String()}, nil
		}
		if ctx.Err() != nil {
			return Result{}, fmt.Errorf("hub: %s: pull interrupted: %w", ref.name, context.Cause(ctx))
		}
		if errors.Is(err, ErrNoSpace) {
			_ = os.RemoveAll(h.stageDir(ref.name)) // a full disk needs its space back more than we need to resume
		}
		if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrReadOnly) {
			return Result{}, err // the next source would meet the same disk
		}
		if i+1 < len(ref.sources) {
			h.notice("%s: %v; trying %v", ref.name, err, ref.sources[i+1])
		}
		tried = append(tried, err)
	}
	if len(tried) == 1 {
		return Result{}, fmt.Errorf("hub: %s: %w", ref.name, tried[0])
	}
	return Result{}, fmt.Errorf("hub: %s: all %d sources failed: %w", ref.name, len(tried), errors.Join(tried...))
}

func (h *Hub) fetchFrom(ctx context.Context, ref reference, index int, src source) (manifest, error) {
	if h.options.Offline {
		err := fmt.Errorf("%w: not in the cache, and HF_HUB_OFFLINE forbids the network", ErrOffline)
		if fmt.Sprint(src) != ref.name { // which the caller says
			err = fmt.Errorf("%v: %w", src, err)
		}
		return manifest{}, err
	}
	dir := filepath.Join(h.stageDir(ref.name), fmt.Sprint(index))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return manifest{}, h.explain(err)
	}
	j := &job{hub: h, name: ref.name, dir: dir}
	main, files, err := src.fetch(ctx, j)
	if err != nil {
		if explained := h.explain(err); explained != err {
			return manifest{}, explained
		}
		if src.String() == ref.name {
			return manifest{}, err
		}
		return manifest{}, fmt.Errorf("%v: %w", src, err)
	}
	return h.commit(ref.name, dir, manifest{Name: ref.name, Source: src.String(), Main: main, Files: files})
}

func (h *Hub) notice(format string, args ...any) {
	if h.options.Notice != nil {
		h.options.Notice(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
	}
}
