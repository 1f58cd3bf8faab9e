package serve

import (
	"net/http"

	"terrace/serve/page"
)

func init() {
	addRoutes(func(*Server) []route {
		return []route{
			{method: http.MethodGet, path: "/{$}", label: "/", open: true, serve: pageFile},
			{method: http.MethodGet, path: "/page/{file}", open: true, serve: pageFile},
		}
	})
}

// pageFile answers with a file of the web page. It needs no key: what the page asks for does.
func pageFile(w http.ResponseWriter, r *http.Request) error {
	if !page.Serve(w, r, r.PathValue("file")) {
		return errNoRoute
	}
	return nil
}
