package serve

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guardOrigin refuses what a browser sends for a page of somebody else: it would spend this machine's time, and what the user's network
// lets the server do, for a stranger. Pages of this server, of localhost and those of Options.Origins are served, and told so where
// browsers ask (CORS). Other programs send no Origin.
func (g *gateway) guardOrigin(next http.Handler) http.Handler {
	own := route{label: "other", open: true, fail: writeOpenAIError}
	own.serve = func(http.ResponseWriter, *http.Request) error { return errOrigin }
	refuse := g.answer(own)
	own.serve = preflight
	asked := g.answer(own)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		switch {
		case origin == "" && r.Header.Get("Sec-Fetch-Site") == "cross-site", origin != "" && !g.welcome(origin, r.Host):
			refuse.ServeHTTP(w, r)
			return
		case origin != "":
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Set("Access-Control-Expose-Headers", "Request-Id, Retry-After, Terrace-Ignored, X-Request-Id")
			w.Header().Add("Vary", "Origin")
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" && origin != "" {
			asked.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// welcome reports whether pages of an origin may ask: this server's own, which requests name as host, those of localhost, and those named.
func (g *gateway) welcome(origin, host string) bool {
	if slices.Contains(g.o.Origins, "*") || slices.ContainsFunc(g.o.Origins, func(o string) bool { return strings.EqualFold(o, origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, host) || loopback(u.Host)
}

// preflight answers what a browser asks before a request with a body or headers of its own.
func preflight(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" && len(asked) <= 1024 {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
