package serve

import (
	"cmp"
	"math"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func init() {
	addRoutes(func(s *Server) []route {
		var list []route
		for _, path := range []string{"/v1/rerank", "/rerank", "/reranking", "/v1/reranking"} {
			list = append(list, route{method: http.MethodPost, path: path, serve: openAI{s}.rerank})
		}
		return list
	})
}

// rerankRequest is Jina's and Cohere's, which llama.cpp and vLLM take too.
type rerankRequest struct {
	Model     *string          `json:"model"`
	Query     *string          `json:"query"`
	Documents []jsontext.Value `json:"documents"` // texts, or objects with a text
	TopN      *int             `json:"top_n"`
	Return    *bool            `json:"return_documents"`
	User      *string          `json:"user"` // of no use here
}

type rerankReply struct {
	ID      string         `json:"id"`
	Object  string         `json:"object"`
	Model   string         `json:"model"`
	Results []rerankResult `json:"results"`
	Usage   embeddingUsage `json:"usage"`
}

type rerankResult struct {
	Index    int          `json:"index"`
	Score    float64      `json:"relevance_score"`
	Document *rerankInput `json:"document,omitzero"`
}

type rerankInput struct {
	Text string `json:"text"`
}

// rerank answers POST /v1/rerank: documents by the cosine of their vectors and the query's, the nearest first, as vLLM ranks them
// with a model of embeddings.
func (s openAI) rerank(w http.ResponseWriter, r *http.Request) error {
	var in rerankRequest
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if s.draining.Load() {
		return errDraining
	}
	if s.o.Encoders == nil {
		return &Error{Status: http.StatusNotImplemented, Code: "not_implemented", Message: "rerank: this server has no encoder to rank texts with; it is started with --embeddings"}
	}
	e, err := s.encoder(&embeddingRequest{Model: in.Model})
	if err != nil {
		return err
	}
	texts, err := in.texts()
	if err != nil {
		return err
	}
	out := rerankReply{ID: "rerank-" + newID(), Object: "list", Model: s.o.Encoders.Name}
	err = s.busy(r.Context(), func() error {
		ids := make([][]int32, len(texts))
		for i, t := range texts {
			if ids[i] = e.Tokens(t); len(ids[i]) > e.MaxTokens {
				field := "query"
				if i > 0 {
					field = "documents"
				}
				wrong := badField(field, "text %d has %d tokens, this model takes at most %d", max(0, i-1), len(ids[i]), e.MaxTokens)
				wrong.Code = "context_length_exceeded"
				return wrong
			}
			out.Usage.PromptTokens += len(ids[i])
		}
		var query []float32
		return e.EmbedEach(r.Context(), ids, func(i int, v []float32) {
			if i == 0 {
				query = slices.Clone(v)
				return
			}
			x := rerankResult{Index: i - 1, Score: cosine(query, v)}
			if is(in.Return) {
				x.Document = &rerankInput{texts[i]}
			}
			out.Results = append(out.Results, x)
		})
	})
	if err != nil {
		return err
	}
	out.Usage.TotalTokens = out.Usage.PromptTokens
	s.m.promptTokens.Add(float64(out.Usage.PromptTokens))
	slices.SortStableFunc(out.Results, func(a, b rerankResult) int { return cmp.Compare(b.Score, a.Score) })
	if in.TopN != nil {
		out.Results = out.Results[:min(*in.TopN, len(out.Results))]
	}
	return writeJSON(w, http.StatusOK, out)
}

// texts are the query and the documents.
func (f *rerankRequest) texts() ([]string, error) {
	switch n := len(f.Documents); {
	case f.Query == nil || *f.Query == "":
		return nil, badField("query", "it is missing")
	case n == 0 || n >= maxEmbeddingInputs:
		return nil, badField("documents", "%d texts, want 1 to %d", n, maxEmbeddingInputs-1)
	case f.TopN != nil && *f.TopN < 1:
		return nil, badField("top_n", "%d, want 1 or more", *f.TopN)
	}
	texts := []string{*f.Query}
	for i, d := range f.Documents {
		var x rerankInput
		if json.Unmarshal(d, &x.Text) != nil && json.Unmarshal(d, &x) != nil || x.Text == "" {
			return nil, badField("documents", "document %d: want text, or an object with a text", i)
		}
		texts = append(texts, x.Text)
	}
	return texts, nil
}

// cosine of two vectors; 0 where one is 0.
func cosine(a, b []float32) float64 {
	var dot, x, y float64
	for i := range a {
		dot, x, y = dot+float64(a[i])*float64(b[i]), x+float64(a[i])*float64(a[i]), y+float64(b[i])*float64(b[i])
	}
	if x == 0 || y == 0 {
		return 0
	}
	return dot / math.Sqrt(x*y)
}
