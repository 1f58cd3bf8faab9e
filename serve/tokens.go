package serve

import (
	"net/http"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodPost, path: "/tokenize", serve: s.tokenize},
			{method: http.MethodPost, path: "/detokenize", serve: s.detokenize},
			{method: http.MethodPost, path: "/apply-template", serve: s.applyTemplate},
		}
	})
}

type tokenPiece struct {
	ID    int    `json:"id"`
	Piece string `json:"piece"`
}

// tokenize answers POST /tokenize, in llama.cpp's shape.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Model        *string `json:"model"`
		Content      *string `json:"content"`
		AddSpecial   bool    `json:"add_special"`
		ParseSpecial *bool   `json:"parse_special"`
		WithPieces   bool    `json:"with_pieces"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.served(in.Model); err != nil {
		return err
	}
	if in.Content == nil {
		return badField("content", "it is missing")
	}
	var ids []int
	err := s.busy(r.Context(), func() (err error) {
		ids, err = s.o.Tokenizer.Encode(*in.Content, in.AddSpecial, in.ParseSpecial == nil || *in.ParseSpecial)
		return err
	})
	if err != nil {
		return badField("content", "%s", oneLine(err))
	}
	if !in.WithPieces {
		if ids == nil {
			ids = []int{}
		}
		return writeJSON(w, http.StatusOK, struct {
			Tokens []int `json:"tokens"`
		}{ids})
	}
	pieces := make([]tokenPiece, len(ids))
	d := s.o.Tokenizer.NewStartDetokenizer()
	for i, id := range ids {
		pieces[i] = tokenPiece{id, d.Push(id)}
		if pieces[i].Piece == "" {
			pieces[i].Piece = s.o.Tokenizer.TokenText(id)
		}
	}
	return writeJSON(w, http.StatusOK, struct {
		Tokens []tokenPiece `json:"tokens"`
	}{pieces})
}

// detokenize answers POST /detokenize, in llama.cpp's shape; control tokens are left out.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Model  *string `json:"model"`
		Tokens *[]int  `json:"tokens"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.served(in.Model); err != nil {
		return err
	}
	if in.Tokens == nil {
		return badField("tokens", "it is missing")
	}
	for _, id := range *in.Tokens {
		if id < 0 || id >= s.o.Engine.Model().Vocab {
			return badField("tokens", "%d is no token id, want 0 to %d", id, s.o.Engine.Model().Vocab-1)
		}
	}
	d, text := s.o.Tokenizer.NewStartDetokenizer(), []byte{}
	for _, id := range *in.Tokens {
		text = append(text, d.Push(id)...)
	}
	return writeJSON(w, http.StatusOK, struct {
		Content string `json:"content"`
	}{string(text) + d.Flush()})
}

// applyTemplate answers POST /apply-template: the prompt of a chat, as text.
func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		toolFields
		Model       *string       `json:"model"`
		Messages    []chatMessage `json:"messages"`
		AddGenerate *bool         `json:"add_generation_prompt"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.served(in.Model); err != nil {
		return err
	}
	tools, err := in.use(s)
	if err != nil {
		return err
	}
	messages, err := (&chatRequest{Messages: in.Messages}).messages(tools.format)
	if err != nil {
		return err
	}
	messages, list := tools.conversation(messages)
	var prompt string
	err = s.busy(r.Context(), func() (err error) {
		prompt, err = s.o.Tokenizer.RenderTools(messages, list, in.AddGenerate == nil || *in.AddGenerate)
		return err
	})
	if err != nil {
		return badField("messages", "%s", oneLine(err))
	}
	return writeJSON(w, http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{prompt})
}
