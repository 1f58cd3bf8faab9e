package serve

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"terrace/model"
	"terrace/tokenizer"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodPost, path: "/tokenize", serve: tokenAPI{s}.tokenize},
			{method: http.MethodPost, path: "/detokenize", serve: tokenAPI{s}.detokenize},
			{method: http.MethodPost, path: "/apply-template", serve: tokenAPI{s}.applyTemplate},
			{method: http.MethodGet, path: "/tokenizer_info", serve: tokenAPI{s}.tokenizerInfo},
		}
	})
}

// tokenPiece is a token and the bytes that it adds to the text: a string, or numbers where they are part of a character; a control token's
// name.
type tokenPiece struct {
	ID    int `json:"id"`
	Piece any `json:"piece"`
}

// tokenizeRequest is llama.cpp's (content), or vLLM's (prompt), which lm-evaluation-harness sends.
type tokenizeRequest struct {
	Model        *string `json:"model"`
	Content      *string `json:"content"`
	AddSpecial   bool    `json:"add_special"`
	ParseSpecial *bool   `json:"parse_special"`
	WithPieces   bool    `json:"with_pieces"`
	Prompt       *string `json:"prompt"`
	AddTokens    *bool   `json:"add_special_tokens"` // of prompt; true where it is not named
}

// text is what is to be tokenised, under its field's name.
func (in *tokenizeRequest) text() (text, field string, special bool, err error) {
	switch {
	case in.Content != nil && in.Prompt != nil:
		return "", "", false, badField("prompt", "content is there too: want one of the two")
	case in.Prompt != nil:
		return *in.Prompt, "prompt", in.AddTokens == nil || *in.AddTokens, nil
	case in.AddTokens != nil:
		return "", "", false, badField("add_special_tokens", "it goes with prompt; with content it is add_special")
	case in.Content != nil:
		return *in.Content, "content", in.AddSpecial, nil
	}
	return "", "", false, badField("content", "it is missing")
}

// tokenize answers POST /tokenize, in the shape of llama.cpp, and of vLLM where the text is called prompt.
func (s tokenAPI) tokenize(w http.ResponseWriter, r *http.Request) error {
	var in tokenizeRequest
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.served(in.Model); err != nil {
		return err
	}
	text, field, special, err := in.text()
	if err != nil {
		return err
	}
	ids, err := s.encode(r.Context(), field, text, tokenizer.EncodeOptions{AddSpecial: special, ParseSpecial: in.ParseSpecial == nil || *in.ParseSpecial})
	if err != nil {
		return err
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
	for i, id := range ids {
		name, own := s.o.Tokenizer.TokenView(id)
		if pieces[i] = (tokenPiece{id, name}); !utf8.Valid(own) {
			pieces[i].Piece = numbers(own)
		}
	}
	return writeJSON(w, http.StatusOK, struct {
		Tokens []tokenPiece `json:"tokens"`
	}{pieces})
}

// detokenize answers POST /detokenize, in the shapes of llama.cpp (content) and vLLM (prompt); control tokens are left out.
func (s tokenAPI) detokenize(w http.ResponseWriter, r *http.Request) error {
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
	whole := string(text) + d.Flush()
	return writeJSON(w, http.StatusOK, struct {
		Content string `json:"content"`
		Prompt  string `json:"prompt"`
	}{whole, whole})
}

// tokenizerInfo answers GET /tokenizer_info, in vLLM's shape: lm-evaluation-harness takes the server's tokenizer where it is there.
// A token that the model has not is null.
func (s tokenAPI) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	t := s.o.Tokenizer
	named := func(id int, ok bool) *string {
		if !ok {
			return nil
		}
		text := t.TokenText(id)
		return &text
	}
	var template *string
	if source := t.Template(); source != "" {
		template = &source
	}
	return writeJSON(w, http.StatusOK, struct {
		BOS      *string `json:"bos_token"`
		EOS      *string `json:"eos_token"`
		PAD      *string `json:"pad_token"`
		Template *string `json:"chat_template"`
		Vocab    int     `json:"vocab_size"`
		Context  int     `json:"model_max_length"`
	}{named(t.BOS()), named(t.EOS()), named(t.PAD()), template, t.Size(), s.o.Engine.Options().Context})
}

// applyTemplate answers POST /apply-template: the prompt of a chat, as text.
func (s tokenAPI) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		toolFields
		templateFields
		Model    *string                `json:"model"`
		Messages []withRaw[chatMessage] `json:"messages"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := s.served(in.Model); err != nil {
		return err
	}
	tools, err := in.use(r.Context(), s.Server)
	if err != nil {
		return err
	}
	if err := s.turnsFit(len(in.Messages)); err != nil {
		return err
	}
	talk, err := (&chatRequest{Messages: in.Messages, templateFields: in.templateFields}).conversation(tools)
	if err != nil {
		return err
	}
	prompt, mark, err := s.render(r.Context(), talk)
	if err != nil {
		return err
	}
	if mark != "" {
		prompt = strings.ReplaceAll(prompt, string(mark), "")
	}
	return writeJSON(w, http.StatusOK, struct {
		Prompt string `json:"prompt"`
	}{prompt})
}

// NewBreakers finds the tokens of texts that end repetitions (DRY).
func NewBreakers(t *tokenizer.Tokenizer, texts []string) (*model.Breakers, error) {
	pieces, _ := t.Pieces(t.ControlTokens(func(string) bool { return true }))
	return model.NewBreakers(texts, pieces, func(text string) ([]int, error) { return t.Encode(text, false, false) })
}
