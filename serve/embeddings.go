package serve

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/model/bert"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{{method: http.MethodPost, path: "/v1/embeddings", serve: openAI{s}.embeddings}}
	})
}

const maxEmbeddingInputs = 2048 // OpenAI's

// Encoders are what /v1/embeddings computes with.
type Encoders struct {
	Encoder *bert.Encoder
	Name    string // for clients
}

type embeddingRequest struct {
	Model          *string        `json:"model"`
	Input          jsontext.Value `json:"input"`
	EncodingFormat *string        `json:"encoding_format"`
	Dimensions     *int           `json:"dimensions"`
	User           *string        `json:"user"` // of no use here
}

type embeddingReply struct {
	Object string          `json:"object"`
	Data   []embeddingItem `json:"data"`
	Model  string          `json:"model"`
	Usage  embeddingUsage  `json:"usage"`
}

type embeddingItem struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or base64 of their little-endian bytes
}

type embeddingUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// embeddings answers POST /v1/embeddings, in OpenAI's shape.
func (s openAI) embeddings(w http.ResponseWriter, r *http.Request) error {
	var in embeddingRequest
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if s.draining.Load() {
		return errDraining
	}
	e, err := s.encoder(&in)
	if err != nil {
		return err
	}
	packed := in.EncodingFormat != nil && *in.EncodingFormat == "base64"
	if in.EncodingFormat != nil && !packed && *in.EncodingFormat != "float" {
		return badField("encoding_format", "want float or base64")
	}
	if in.Dimensions != nil && *in.Dimensions != e.Hidden {
		return badField("dimensions", "this model gives %d numbers, no more and no less", e.Hidden)
	}
	out := embeddingReply{Object: "list", Data: []embeddingItem{}, Model: s.o.Encoders.Name}
	err = s.busy(r.Context(), func() error {
		ids, err := embeddingInputs(e, in.Input)
		if err != nil {
			return err
		}
		for _, x := range ids {
			out.Usage.PromptTokens += len(x)
		}
		out.Usage.TotalTokens = out.Usage.PromptTokens
		return e.EmbedEach(r.Context(), ids, func(i int, v []float32) {
			item := embeddingItem{Object: "embedding", Index: i, Embedding: v}
			if packed {
				item.Embedding = packFloats(v)
			}
			out.Data = append(out.Data, item)
		})
	})
	if err != nil {
		return err
	}
	s.m.promptTokens.Add(float64(out.Usage.PromptTokens))
	return writeJSON(w, http.StatusOK, out)
}

// encoder is the model that a request asks for.
func (s *Server) encoder(in *embeddingRequest) (*bert.Encoder, error) {
	switch {
	case s.o.Encoders == nil:
		return nil, &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found", Message: "model: this server has no encoder; it is started with --embeddings"}
	case in.Model != nil && *in.Model != s.o.Encoders.Name:
		return nil, &Error{Status: http.StatusNotFound, Param: "model", Code: "model_not_found", Message: "model: there is no encoder of this name; GET /v1/models lists what is served"}
	}
	return s.o.Encoders.Encoder, nil
}

// embeddingInputs reads text, token ids, or a list of either; ids are taken as they are.
func embeddingInputs(e *bert.Encoder, v jsontext.Value) ([][]int32, error) {
	texts, many, err := promptList(v)
	if wrong := (*Error)(nil); errors.As(err, &wrong) {
		return nil, badField("input", "want text, token ids (whole numbers from 0), or a list of either, not mixed")
	}
	if n := max(len(texts), len(many)); n == 0 || n > maxEmbeddingInputs {
		return nil, badField("input", "%d texts, want 1 to %d", n, maxEmbeddingInputs)
	}
	var out [][]int32
	for i, t := range texts {
		if t == "" {
			return nil, badField("input", "text %d is empty", i)
		}
		out = append(out, e.Tokens(t))
	}
	for i, list := range many {
		ids := make([]int32, len(list))
		for j, id := range list {
			if id < 0 || id >= e.Vocab {
				return nil, badField("input", "token id %d of text %d: want 0 to %d", id, i, e.Vocab-1)
			}
			ids[j] = int32(id)
		}
		if len(ids) == 0 {
			return nil, badField("input", "text %d has no tokens", i)
		}
		out = append(out, ids)
	}
	for i, ids := range out {
		if len(ids) > e.MaxTokens {
			wrong := badField("input", "text %d has %d tokens, this model takes at most %d", i, len(ids), e.MaxTokens)
			wrong.Code = "context_length_exceeded"
			return nil, wrong
		}
	}
	return out, nil
}

// packFloats is base64 of little-endian float32.
func packFloats(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}
