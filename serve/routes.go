package serve

import (
	"net/http"
	"slices"
	"strings"
)

// route is one path (http.ServeMux's patterns; the page is "/{$}") of one method. serve answers it; an error that it returns is written by fail, unless the answer has begun.
type route struct {
	method, path string
	label        string // in metrics and logs; "" = path
	open         bool   // needs no key
	scraped      bool   // takes the keys of metrics too, or none where these are open
	uncounted    bool   // is not in terrace_requests_total
	serve        func(w http.ResponseWriter, r *http.Request) error
	fail         func(w http.ResponseWriter, e *Error) // nil = OpenAI's shape
}

// builders collect what each API's file serves; its init adds it.
var builders []func(s *Server) []route

func addRoutes(build func(s *Server) []route) { builders = append(builders, build) }

// The APIs, each a view of the server with the routes of its own.
type (
	openAI       struct{ *Server }
	anthropicAPI struct{ *Server } // Messages
	ollama       struct{ *Server }
	llamaCPP     struct{ *Server }
	tokenAPI     struct{ *Server } // tokens and templates, as llama.cpp and vLLM have them
	listing      struct{ *Server } // models
)

// newHandler puts all routes behind the limits.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	methods, fails := map[string][]string{}, map[string]func(http.ResponseWriter, *Error){}
	for _, build := range builders {
		for _, r := range build(s) {
			if r.label == "" {
				r.label = r.path
			}
			if r.fail == nil {
				r.fail = writeOpenAIError
			}
			methods[r.path], fails[r.path] = append(methods[r.path], r.method), r.fail
			mux.Handle(r.method+" "+r.path, s.gateway.answer(r))
		}
	}
	for path, list := range methods {
		if slices.Contains(list, http.MethodGet) {
			list = append(list, http.MethodHead)
		}
		mux.Handle(path, s.gateway.answer(route{path: path, label: path, fail: fails[path], serve: func(w http.ResponseWriter, _ *http.Request) error {
			for _, m := range list {
				w.Header().Add("Allow", m)
			}
			return errMethod
		}}))
	}
	mux.Handle("/", s.gateway.answer(route{label: "other", fail: writeOpenAIError, serve: func(http.ResponseWriter, *http.Request) error { return errNoRoute }}))
	s.core = mux
	return s.gateway.guard(mux)
}

// guard puts what is the same for every path before it.
func (g *gateway) guard(next http.Handler) http.Handler {
	return g.guardHost(g.guardOrigin(shortPaths(next)))
}

// shortPaths are those that clients send with a base URL of their own making: a slash at the end, or no /v1 where the rest says enough.
func shortPaths(next http.Handler) http.Handler {
	short := []string{"/chat/completions", "/models", "/responses", "/messages", "/messages/count_tokens", "/embeddings", "/rerank", "/health"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if len(path) > 1 {
			path = strings.TrimSuffix(path, "/")
		}
		switch {
		case path == "/v1/health":
			path = "/health"
		case path != "/health" && slices.Contains(short, path):
			path = "/v1" + path
		}
		if path != r.URL.Path {
			u := *r.URL
			u.Path, u.RawPath = path, ""
			r = r.WithContext(r.Context())
			r.URL = &u
		}
		next.ServeHTTP(w, r)
	})
}
