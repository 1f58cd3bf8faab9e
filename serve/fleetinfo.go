package serve

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/serve/meter"
)

// modelOf is the member "model" of a JSON object, "" where there is none, or no object.
func modelOf(body []byte) string {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return ""
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return ""
		}
		if name.String() != "model" {
			if d.SkipValue() != nil {
				return ""
			}
			continue
		}
		if t, err := d.ReadToken(); err == nil && t.Kind() == '"' {
			return t.String()
		}
		return ""
	}
	return ""
}

// models answers GET /v1/models: all that can be asked for, loaded or not.
func (f *Fleet) models(w http.ResponseWriter, _ *http.Request) error {
	list := []modelJSON{}
	for _, m := range f.members {
		for _, n := range m.Names {
			list = append(list, listing{f.front}.listed(n, metaOf(m.Model)))
		}
	}
	if f.front.o.Encoders != nil {
		list = append(list, listing{f.front}.describeEncoder())
	}
	return writeModels(w, list)
}

// model answers GET /v1/models/ID.
func (f *Fleet) model(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if e := f.front.o.Encoders; e != nil && id == e.Name {
		return writeJSON(w, http.StatusOK, listing{f.front}.describeEncoder())
	}
	m, err := f.named(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, listing{f.front}.listed(id, metaOf(m.Model)))
}

// tags answers GET /api/tags.
func (f *Fleet) tags(w http.ResponseWriter, _ *http.Request) error {
	list := []ollamaModel{}
	for _, m := range f.members {
		for _, n := range m.Names {
			list = append(list, ollama{f.front}.entry(n, m.Model))
		}
	}
	return writeJSON(w, http.StatusOK, ollamaList{append(list, ollama{f.front}.encoders()...)})
}

// running answers GET /api/ps: the members that are loaded.
func (f *Fleet) running(w http.ResponseWriter, _ *http.Request) error {
	members, done := f.loaded()
	defer done()
	list := []ollamaModel{}
	for _, m := range members {
		x := ollama{f.front}.entry(m.Names[0], m.Model)
		x.runs(m.server.o.Engine.Options().Context)
		list = append(list, x)
	}
	return writeJSON(w, http.StatusOK, ollamaList{list})
}

// metrics answers GET /metrics: those of each loaded member under a label, and of the process once.
func (f *Fleet) metrics(w http.ResponseWriter, r *http.Request) error {
	members, done := f.loaded()
	defer done()
	var all []meter.Member
	for _, m := range members {
		all = append(all, meter.Member{Model: m.Names[0], Meter: m.server.m.meter})
	}
	f.front.m.meter.Handler(all...).ServeHTTP(w, r)
	return nil
}

// noModel says that nothing of a name is served.
func noModel(name string) *Error {
	return &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found", Message: fmt.Sprintf("model: there is no model %.80q; GET /v1/models lists what is served", name)}
}
