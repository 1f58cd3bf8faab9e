// Package page holds the server's web page: a conversation with streaming, two policies side by side, and a live picture of the
// tiers. It is plain HTML, CSS and JavaScript, embedded, and loads nothing from elsewhere.
//
// It owns the page's files and their headers; what the page shows it asks the server's own API for (package serve).
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

//go:embed index.html style.css main.js api.js text.js tiers.js
var files embed.FS

// types are the media types of the files, whatever the system's tables say.
var types = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

// security lets the page load and ask for what this server has, and nothing else.
const security = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Serve answers a request for a file by its name, "" for the page itself; false = there is none, and nothing was written.
func Serve(w http.ResponseWriter, r *http.Request, name string) bool {
	if name == "" {
		name = "index.html"
	}
	b, err := files.ReadFile(name)
	if err != nil {
		return false
	}
	sum := sha256.Sum256(b)
	h := w.Header()
	h.Set("Content-Type", types[path.Ext(name)])
	h.Set("Content-Security-Policy", security)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(b))
	return true
}
