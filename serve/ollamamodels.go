package serve

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/model"
)

func init() {
	addRoutes(func(s *Server) []route {
		list := []route{
			{method: http.MethodGet, path: "/api/tags", serve: ollama{s}.tags},
			{method: http.MethodGet, path: "/api/ps", serve: ollama{s}.running},
			{method: http.MethodGet, path: "/api/version", open: true, serve: version},
			{method: http.MethodGet, path: "/version", open: true, serve: version},
			{method: http.MethodPost, path: "/api/show", serve: ollama{s}.show},
			{method: http.MethodPost, path: "/api/embed", serve: ollama{s}.embed},
			{method: http.MethodPost, path: "/api/embeddings", serve: ollama{s}.embed},
		}
		for path, method := range map[string]string{"pull": http.MethodPost, "push": http.MethodPost, "create": http.MethodPost, "copy": http.MethodPost, "delete": http.MethodDelete} {
			list = append(list, route{method: method, path: "/api/" + path, serve: func(http.ResponseWriter, *http.Request) error {
				return &Error{Status: http.StatusNotImplemented, Code: "not_implemented", Message: path + ": models are not changed over HTTP here; infer pull and infer rm do it"}
			}})
		}
		for i := range list {
			list[i].fail = writeOllamaError
		}
		return list
	})
}

// spokenVersion is the release of Ollama whose API is spoken: clients look at it before they ask for tools or thoughts.
const spokenVersion = "0.13.0"

// version answers GET /api/version and /version.
func version(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, struct {
		Version string `json:"version"`
	}{spokenVersion})
}

type ollamaModel struct {
	Name     string        `json:"name"`
	Model    string        `json:"model"`
	Modified string        `json:"modified_at,omitzero"`
	Size     int64         `json:"size"`
	Digest   string        `json:"digest"` // always "": a file is not read for a list
	Details  ollamaDetails `json:"details"`
	Expires  string        `json:"expires_at,omitzero"` // of one that runs, as the next two
	VRAM     *int64        `json:"size_vram,omitzero"`
	Context  int           `json:"context_length,omitzero"`
}

type ollamaDetails struct {
	Parent   string   `json:"parent_model"`
	Format   string   `json:"format"`
	Family   string   `json:"family"`
	Families []string `json:"families"`
	Size     string   `json:"parameter_size"`
	Quant    string   `json:"quantization_level"`
}

// parameters is how many numbers the model's tensors have, and the type that most of them are of.
func parameters(m *model.Model) (n int64, most string) {
	of := map[string]int64{}
	for _, t := range m.File.Tensors() {
		if len(t.Shape) == 0 {
			continue
		}
		k := int64(t.Rows()) * int64(t.Cols())
		of[t.Type.String()] += k
		n += k
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if of[name] > of[most] {
			most = name
		}
	}
	return n, most
}

func detailsOf(m *model.Model) ollamaDetails {
	n, quant := parameters(m)
	size := fmt.Sprintf("%.2fM", float64(n)/1e6)
	if n >= 1e9 {
		size = fmt.Sprintf("%.1fB", float64(n)/1e9)
	}
	return ollamaDetails{Format: strings.ToLower(m.File.Format()), Family: m.Arch, Families: []string{m.Arch}, Size: size, Quant: strings.ToUpper(quant)}
}

func (s ollama) listing() []ollamaModel {
	list := []ollamaModel{}
	for _, name := range s.o.Names {
		list = append(list, s.entry(name, s.o.Engine.Model()))
	}
	return append(list, s.encoders()...)
}

// ollamaListed is a model under a name.
func (s ollama) entry(name string, m *model.Model) ollamaModel {
	changed := s.started
	if info, err := os.Stat(m.File.Path()); err == nil {
		changed = info.ModTime()
	}
	return ollamaModel{Name: name, Model: name, Modified: changed.UTC().Format(time.RFC3339Nano), Size: m.File.SizeBytes(), Details: detailsOf(m)}
}

// ollamaEncoders is the encoder of the embeddings, if there is one.
func (s ollama) encoders() []ollamaModel {
	e := s.o.Encoders
	if e == nil {
		return nil
	}
	return []ollamaModel{{Name: e.Name, Model: e.Name, Modified: s.started.UTC().Format(time.RFC3339Nano), Details: ollamaDetails{Family: "bert", Families: []string{"bert"}}}}
}

type ollamaList struct {
	Models []ollamaModel `json:"models"`
}

// ollamaTags answers GET /api/tags.
func (s ollama) tags(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, ollamaList{s.listing()})
}

// ollamaRunning answers GET /api/ps: what is served is loaded, for as long as the server runs.
func (s ollama) running(w http.ResponseWriter, _ *http.Request) error {
	list := s.listing()
	for i := range list {
		list[i].runs(s.o.Engine.Options().Context)
	}
	return writeJSON(w, http.StatusOK, ollamaList{list})
}

// runs makes a model of the list one of those that run.
func (m *ollamaModel) runs(context int) {
	m.Modified, m.Expires, m.VRAM, m.Context = "", "9999-12-31T23:59:59Z", new(int64), context
}

// ollamaShow answers POST /api/show.
func (s ollama) show(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Model   *string        `json:"model"`
		Name    *string        `json:"name"` // its old name
		Verbose *bool          `json:"verbose"`
		System  *string        `json:"system"` // of no effect, as the next two
		Text    *string        `json:"template"`
		Options jsontext.Value `json:"options"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.name(cmp.Or(in.Model, in.Name)); err != nil {
		return err
	}
	m := s.o.Engine.Model()
	n, _ := parameters(m)
	can := []string{"completion"}
	if s.o.Tokenizer.HasTemplate() {
		can = append(can, "tools")
	}
	if strings.Contains(s.o.Tokenizer.Template(), "enable_thinking") || strings.Contains(s.o.Tokenizer.Template(), "reasoning_content") {
		can = append(can, "thinking")
	}
	return writeJSON(w, http.StatusOK, struct {
		Modelfile    string         `json:"modelfile"`
		Parameters   string         `json:"parameters"`
		Template     string         `json:"template"`
		Details      ollamaDetails  `json:"details"`
		Info         map[string]any `json:"model_info"`
		Capabilities []string       `json:"capabilities"`
		Modified     string         `json:"modified_at"`
	}{"", "", s.o.Tokenizer.Template(), detailsOf(m), map[string]any{"general.architecture": m.Arch, "general.parameter_count": n, m.Arch + ".context_length": m.Context, m.Arch + ".embedding_length": m.Hidden,
		m.Arch + ".block_count": m.Layers, m.Arch + ".vocab_size": m.Vocab}, can, s.listing()[0].Modified})
}

// ollamaEmbed answers POST /api/embed, and /api/embeddings with its prompt.
func (s ollama) embed(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	var in struct {
		Model      *string        `json:"model"`
		Input      jsontext.Value `json:"input"`
		Prompt     *string        `json:"prompt"` // of /api/embeddings
		Dimensions *int           `json:"dimensions"`
		Options    jsontext.Value `json:"options"` // of no effect, as the next two: what is too long is refused
		Truncate   *bool          `json:"truncate"`
		Keep       jsontext.Value `json:"keep_alive"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if in.Model != nil && s.o.Encoders != nil && *in.Model == s.o.Encoders.Name+":latest" {
		in.Model = &s.o.Encoders.Name
	}
	e, err := s.encoder(&embeddingRequest{Model: in.Model})
	if err != nil {
		return err
	}
	if in.Dimensions != nil && *in.Dimensions != e.Hidden {
		return badField("dimensions", "this model gives %d numbers, no more and no less", e.Hidden)
	}
	one := in.Input == nil && in.Prompt != nil
	if one {
		in.Input = jsontext.Value(quote(*in.Prompt))
	}
	tokens, vectors := 0, [][]float32{}
	err = s.busy(r.Context(), func() error {
		ids, err := embeddingInputs(e, in.Input)
		if err != nil {
			return err
		}
		for _, x := range ids {
			tokens += len(x)
		}
		return e.EmbedEach(r.Context(), ids, func(_ int, v []float32) { vectors = append(vectors, v) })
	})
	if err != nil {
		return err
	}
	s.m.promptTokens.Add(float64(tokens))
	if one {
		return writeJSON(w, http.StatusOK, struct {
			Embedding []float32 `json:"embedding"`
		}{vectors[0]})
	}
	return writeJSON(w, http.StatusOK, struct {
		Model      string      `json:"model"`
		Embeddings [][]float32 `json:"embeddings"`
		Total      int64       `json:"total_duration"`
		Load       int64       `json:"load_duration"`
		Prompt     int         `json:"prompt_eval_count"`
	}{s.o.Encoders.Name, vectors, time.Since(began).Nanoseconds(), 0, tokens})
}
