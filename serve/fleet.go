package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"terrace/internal/guard"
	"terrace/kvmanager"
	"terrace/model"
)

// Member is a model of a fleet.
type Member struct {
	Names    []string     // the first is its own
	Patterns []string     // names that are answered besides, in which * is any text
	Model    *model.Model // what the lists say of it; its file may be closed
	Bytes    int64        // of memory once it is loaded, about
	// Open loads it; close gives back what is not the server's. It is called again after close was.
	Open func() (s *Server, close func(), err error)
}

// FleetOptions of a fleet. What is of one server is given where a member opens its own.
type FleetOptions struct {
	Members []Member // the first is what requests without a model get
	Bytes   int64    // what the loaded members may take together
	Front   Options  // of what is not a member's: keys, hosts, origins, encoders, log
}

// Fleet serves several models behind one address: a request's model is loaded when it is asked for, and the one that was used longest
// ago leaves where the bound is reached. A member that answers never leaves; who finds no room waits. Its methods may be called from any
// goroutine.
type Fleet struct {
	front   *Server // answers what is of no model, and guards all
	members []*member
	bytes   int64
	handler http.Handler

	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when a member's state changes
	loading bool
}

type member struct {
	Member
	server *Server // nil = it is not loaded
	close  func()
	users  int // requests that it answers
	used   time.Time
}

// NewFleet loads the first member. Errors of a member that can never be loaded under the bound wrap kvmanager.ErrBudget.
func NewFleet(o FleetOptions) (*Fleet, error) {
	if len(o.Members) == 0 {
		return nil, errors.New("serve: a fleet needs a model")
	}
	if o.Front.Log == nil {
		o.Front.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{bytes: o.Bytes, changed: make(chan struct{})}
	f.front = &Server{o: o.Front, m: newMetrics(o.Front.Meter), started: time.Now()}
	f.front.gateway = gateway{&f.front.o, f.front.m}
	seen := map[string]bool{}
	for _, m := range o.Members {
		if m.Bytes > o.Bytes {
			return nil, fmt.Errorf("serve: %s takes about %d bytes, the models together may take %d: %w", m.Names[0], m.Bytes, o.Bytes, kvmanager.ErrBudget)
		}
		for _, name := range m.Names {
			if seen[name] {
				return nil, fmt.Errorf("serve: two models of the name %s", name)
			}
			seen[name] = true
		}
		f.members = append(f.members, &member{Member: m})
	}
	f.handler = f.newHandler()
	m, err := f.acquire(context.Background(), f.members[0])
	if e := (*Error)(nil); errors.As(err, &e) && e.Cause != nil {
		err = e.Cause // nobody is served yet: who starts the server reads it
	}
	if err != nil {
		return nil, err
	}
	f.release(m)
	return f, nil
}

// Handler is the fleet's HTTP side.
func (f *Fleet) Handler() http.Handler { return f.handler }

func (f *Fleet) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range []route{
		{method: http.MethodGet, path: "/health", open: true, uncounted: true, serve: f.front.health},
		{method: http.MethodGet, path: "/metrics", scraped: true, uncounted: true, serve: f.metrics},
		{method: http.MethodGet, path: "/v1/models", serve: f.models},
		{method: http.MethodGet, path: "/v1/models/{id...}", label: "/v1/models/{id}", serve: f.model},
		{method: http.MethodGet, path: "/api/tags", serve: f.tags, fail: writeOllamaError},
		{method: http.MethodGet, path: "/api/ps", serve: f.running, fail: writeOllamaError},
		{method: http.MethodGet, path: "/api/version", open: true, serve: version},
	} {
		r.label, r.fail = cmp.Or(r.label, r.path), orFail(r.fail, writeOpenAIError)
		mux.Handle(r.method+" "+r.path, f.front.gateway.answer(r))
	}
	mux.Handle("/", http.HandlerFunc(f.forward))
	return f.front.gateway.guard(mux)
}

func orFail(fail, or func(http.ResponseWriter, *Error)) func(http.ResponseWriter, *Error) {
	if fail != nil {
		return fail
	}
	return or
}

// forward has the model that a request asks for answer it.
func (f *Fleet) forward(w http.ResponseWriter, r *http.Request) {
	m, err := f.chosen(w, r)
	if err != nil {
		fail := writeOpenAIError
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/"):
			fail = writeOllamaError
		case strings.HasPrefix(r.URL.Path, "/v1/messages"):
			fail = writeAnthropicError
		}
		refused := route{label: "other", open: true, fail: fail, serve: func(http.ResponseWriter, *http.Request) error { return err }}
		f.front.gateway.answer(refused).ServeHTTP(w, r)
		return
	}
	defer f.release(m)
	m.server.core.ServeHTTP(w, r)
}

// chosen is the member that a request asks for, in use; the body is there to be read again.
func (f *Fleet) chosen(w http.ResponseWriter, r *http.Request) (*member, error) {
	if f.front.draining.Load() {
		return nil, errDraining
	}
	name := r.URL.Query().Get("model")
	page := r.Method == http.MethodGet && name == "" // the page and its parts need no key
	if len(f.front.o.Keys) > 0 && !page && keyGiven(r, f.front.o.Keys) == "" {
		return nil, errKey
	}
	if r.Method == http.MethodPost {
		body, err := readBody(w, r)
		if err != nil {
			return nil, err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		name = cmp.Or(modelOf(body), name)
	}
	if strings.HasPrefix(r.URL.Path, "/api/") { // Ollama's tag of a name without one
		name = strings.TrimSuffix(name, ":latest")
	}
	m, err := f.named(name)
	if err != nil {
		return nil, err
	}
	return f.acquire(r.Context(), m)
}

// named is the member of a name, the first where there is none. The encoder is every member's.
func (f *Fleet) named(name string) (*member, error) {
	if e := f.front.o.Encoders; name == "" || e != nil && name == e.Name {
		return f.members[0], nil
	}
	if i := slices.IndexFunc(f.members, func(m *member) bool { return slices.Contains(m.Names, name) }); i >= 0 {
		return f.members[i], nil
	}
	for _, m := range f.members {
		if slices.ContainsFunc(m.Patterns, func(p string) bool { return matches(p, name) }) {
			return m, nil
		}
	}
	return nil, noModel(name)
}

// acquire loads a member where it is not, and notes that it is in use until release.
func (f *Fleet) acquire(ctx context.Context, m *member) (*member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case m.server != nil:
			m.users++
			return m, nil
		case !f.loading && f.makeRoom(m.Bytes):
			if err := f.load(m); err != nil {
				return nil, err
			}
			continue
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return nil, errors.Join(errGone, ctx.Err())
		}
	}
}

// load opens a member; mu is held but for the time that it takes.
func (f *Fleet) load(m *member) error {
	f.loading = true
	f.mu.Unlock()
	var s *Server
	var end func()
	began := time.Now()
	err := guard.Run(func() (err error) { s, end, err = m.Open(); return err })
	f.mu.Lock()
	f.loading = false
	f.notify()
	if err != nil {
		f.front.o.Log.Error("a model could not be loaded", slog.String("model", m.Names[0]), slog.String("error", oneLine(err)))
		return &Error{Status: http.StatusServiceUnavailable, Param: "model", Code: "model_not_loaded", Message: fmt.Sprintf("model: %s could not be loaded; the server's log says why", m.Names[0]), Cause: err}
	}
	m.server, m.close, m.used = s, end, time.Now()
	f.front.o.Log.Info("model loaded", slog.String("model", m.Names[0]), slog.Float64("ms", ms(time.Since(began))))
	return nil
}

// makeRoom has the members that are not in use leave, those used longest ago first, until there is room; false = there is none yet.
func (f *Fleet) makeRoom(bytes int64) bool {
	for {
		held := int64(0)
		var idle *member
		for _, m := range f.members {
			if m.server == nil {
				continue
			}
			if held += m.Bytes; m.users == 0 && (idle == nil || m.used.Before(idle.used)) {
				idle = m
			}
		}
		if held+bytes <= f.bytes {
			return true
		}
		if idle == nil {
			return false
		}
		f.unload(idle)
	}
}

func (f *Fleet) unload(m *member) {
	m.server.Close()
	m.close()
	m.server, m.close = nil, nil
	f.front.o.Log.Info("model unloaded", slog.String("model", m.Names[0]))
}

func (f *Fleet) release(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m.users--
	m.used = time.Now()
	f.notify()
}

// notify wakes all who wait for a member's state to change; mu is held.
func (f *Fleet) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// loaded are the servers of the members that are loaded, in use until done is called.
func (f *Fleet) loaded() (list []*member, done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.server != nil {
			m.users++
			list = append(list, m)
		}
	}
	return list, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range list {
			m.users--
		}
		f.notify()
	}
}

// Drain refuses new requests and waits for those that run; when ctx ends it returns its error.
func (f *Fleet) Drain(ctx context.Context) error {
	f.front.draining.Store(true)
	list, done := f.loaded()
	defer done()
	for _, m := range list {
		if err := m.server.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close ends what still runs and gives every member back.
func (f *Fleet) Close() {
	f.front.draining.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.server != nil {
			f.unload(m)
		}
	}
}
