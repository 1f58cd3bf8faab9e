package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
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
	all := prometheus.Gatherers{f.front.m.registry}
	for _, m := range members {
		all = append(all, labelled{m.server.m.registry, m.Names[0]})
	}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// labelled gives a registry's metrics the name of their model, but those of the process.
type labelled struct {
	of    *prometheus.Registry
	model string
}

// Gather implements prometheus.Gatherer.
func (l labelled) Gather() ([]*dto.MetricFamily, error) {
	families, err := l.of.Gather()
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
	name := "model"
	for _, f := range families {
		for _, m := range f.Metric {
			m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &l.model})
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
	}
	return families, err
}

// noModel says that nothing of a name is served.
func noModel(name string) *Error {
	return &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found", Message: fmt.Sprintf("model: there is no model %.80q; GET /v1/models lists what is served", name)}
}
