package serve

import (
	"net/http"
	"time"

	"terrace/model"
	"terrace/policy"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodGet, path: "/health", open: true, uncounted: true, serve: s.health},
			{method: http.MethodGet, path: "/metrics", scraped: true, uncounted: true, serve: func(w http.ResponseWriter, r *http.Request) error { s.m.handler().ServeHTTP(w, r); return nil }},
			{method: http.MethodGet, path: "/v1/models", serve: listing{s}.models},
			{method: http.MethodGet, path: "/v1/models/{id...}", label: "/v1/models/{id}", serve: listing{s}.model},
			{method: http.MethodGet, path: "/props", serve: llamaCPP{s}.props},
		}
	})
}

// health answers GET /health.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	status, text := http.StatusOK, "ok"
	if s.draining.Load() {
		status, text = http.StatusServiceUnavailable, "draining"
	}
	return writeJSON(w, status, struct {
		Status string `json:"status"`
	}{text})
}

type modelJSON struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	Meta    modelMeta `json:"meta"`

	Type      string `json:"type"` // Anthropic's, as the next two
	Name      string `json:"display_name"`
	CreatedAt string `json:"created_at"`
}

type modelMeta struct {
	Vocab   int `json:"n_vocab"`
	Context int `json:"n_ctx_train"`
	Embed   int `json:"n_embd"`
}

func (s listing) describe(name string) modelJSON { return s.listed(name, metaOf(s.o.Engine.Model())) }

func metaOf(m *model.Model) modelMeta { return modelMeta{m.Vocab, m.Context, m.Hidden} }

func (s listing) describeEncoder() modelJSON {
	e := s.o.Encoders
	return s.listed(e.Name, modelMeta{e.Encoder.Vocab, e.Encoder.MaxTokens, e.Encoder.Hidden})
}

// listed is a model in the shapes of OpenAI and Anthropic at once.
func (s listing) listed(name string, meta modelMeta) modelJSON {
	return modelJSON{name, "model", s.started.Unix(), "terrace", meta, "model", name, s.started.UTC().Format(time.RFC3339)}
}

// models answers GET /v1/models.
func (s listing) models(w http.ResponseWriter, _ *http.Request) error {
	list := []modelJSON{}
	for _, n := range s.o.Names {
		list = append(list, s.describe(n))
	}
	if s.o.Encoders != nil {
		list = append(list, s.describeEncoder())
	}
	return writeModels(w, list)
}

func writeModels(w http.ResponseWriter, list []modelJSON) error {
	return writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelJSON `json:"data"`
		More   bool        `json:"has_more"` // Anthropic's, as the next two
		First  string      `json:"first_id"`
		Last   string      `json:"last_id"`
	}{"list", list, false, list[0].ID, list[len(list)-1].ID})
}

// model answers GET /v1/models/ID.
func (s listing) model(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if s.o.Encoders != nil && id == s.o.Encoders.Name {
		return writeJSON(w, http.StatusOK, s.describeEncoder())
	}
	name, err := s.served(&id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s.describe(name))
}

// policyOf is what a request is read under.
func (s *Server) policyOf(r *Request) *policy.Spec {
	if r.Policy != nil {
		return r.Policy
	}
	return s.o.Engine.Policy()
}

// reads is what a model reads beside text.
type reads struct {
	Vision bool `json:"vision"`
	Audio  bool `json:"audio"`
}

// props answers GET /props, in llama.cpp's shape.
func (s llamaCPP) props(w http.ResponseWriter, _ *http.Request) error {
	type settings struct {
		Context     int     `json:"n_ctx"`
		Temperature float64 `json:"temperature"`
		TopP        float64 `json:"top_p"`
		TopK        int     `json:"top_k"`
		MinP        float64 `json:"min_p"`
		Repeat      float64 `json:"repeat_penalty"`
		MaxTokens   int     `json:"n_predict"`
	}
	bos, o := "", s.Sampling()
	if id, ok := s.o.Tokenizer.BOS(); ok {
		bos = s.o.Tokenizer.TokenText(id)
	}
	return writeJSON(w, http.StatusOK, struct {
		Settings  settings `json:"default_generation_settings"`
		Slots     int      `json:"total_slots"`
		Alias     string   `json:"model_alias"`
		Path      string   `json:"model_path"`
		Template  string   `json:"chat_template"`
		BOS       string   `json:"bos_token"`
		Policy    string   `json:"kv_policy"`
		Policies  []string `json:"kv_policies"`
		BuildInfo string   `json:"build_info"`
		Reads     reads    `json:"modalities"`
	}{settings{Context: s.o.Engine.Options().Context, Temperature: o.Temperature, TopP: o.TopP, TopK: o.TopK, MinP: o.MinP, Repeat: o.RepeatPenalty, MaxTokens: -1}, s.o.Batch, s.o.Names[0], s.o.ModelPath, s.o.Tokenizer.Template(), bos,
		s.o.Engine.Policy().String(), policy.Names(), "terrace", reads{}})
}
