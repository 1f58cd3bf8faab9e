package serve

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodPost, path: "/completion", serve: llamaCPP{s}.llamaCompletion},
			{method: http.MethodGet, path: "/slots", serve: llamaCPP{s}.slots},
			{method: http.MethodGet, path: "/lora-adapters", serve: func(w http.ResponseWriter, _ *http.Request) error { return writeJSON(w, http.StatusOK, []string{}) }},
			{method: http.MethodGet, path: "/ping", open: true, uncounted: true, serve: s.health},
			{method: http.MethodPost, path: "/infill", serve: llamaCPP{s}.infill},
		}
	})
}

// llamaRequest is one of llama.cpp's own completions; source: its tools/server/README.md.
type llamaRequest struct {
	openAIFields
	constraintFields
	Prompt  jsontext.Value `json:"prompt"`
	Predict *int           `json:"n_predict"`
	Tokens  *bool          `json:"return_tokens"`
	Echo    *bool          `json:"echo"`
}

// llamaReply is an answer, or a part of one.
type llamaReply struct {
	Index     int          `json:"index"`
	Content   string       `json:"content"`
	Tokens    []int        `json:"tokens"`
	Stop      bool         `json:"stop"`
	Slot      int          `json:"id_slot"`
	Predicted int          `json:"tokens_predicted"`
	Evaluated int          `json:"tokens_evaluated"`
	Model     string       `json:"model,omitzero"` // of the last part, as all that follows
	Truncated *bool        `json:"truncated,omitzero"`
	StopType  string       `json:"stop_type,omitzero"` // eos, word or limit
	StopWord  *string      `json:"stopping_word,omitzero"`
	Cached    *int         `json:"tokens_cached,omitzero"`
	Timings   *timingsJSON `json:"timings,omitzero"`
	// Of each token, where n_probs asks for them.
	Probabilities []tokenProbability `json:"completion_probabilities,omitzero"`
}

// tokenProbability is a token with the logarithm of its probability; of one that was chosen, with the likeliest in its place.
type tokenProbability struct {
	ID      int                `json:"id"`
	Token   string             `json:"token"`
	Bytes   []int              `json:"bytes"`
	Logprob float32            `json:"logprob"`
	Top     []tokenProbability `json:"top_logprobs,omitzero"`
}

// llamaHints are fields of this API alone.
var llamaHints = hints{"add_special_tokens": only("true"), "n_indent": only("0"), "stream_options": ignored("{")}

// llamaCompletion answers POST /completion.
func (s llamaCPP) llamaCompletion(w http.ResponseWriter, r *http.Request) error {
	var in llamaRequest
	received := time.Now()
	if err := decodeHinted(w, r, &in, &in.hintFields, llamaHints, samplerHints, thoughtHints, accountHints); err != nil {
		return err
	}
	return s.llamaAnswer(w, r, &in, received, func(req *Request) (err error) {
		req.Prompts, err = s.prompts(r.Context(), in.Prompt)
		return err
	})
}

// llamaAnswer makes an answer to the prompt that is filled in.
func (s llamaCPP) llamaAnswer(w http.ResponseWriter, r *http.Request, in *llamaRequest, received time.Time, prompt func(req *Request) error) error {
	name, err := s.served(in.Model)
	if err != nil {
		return err
	}
	req := &Request{MaxTokens: -1, received: received}
	if err := in.apply(s.Server, req); err != nil {
		return err
	}
	if err := in.constrain(r.Context(), s.Server, req); err != nil {
		return err
	}
	if err := prompt(req); err != nil {
		return err
	}
	if req.choices() != 1 {
		return badField("prompt", "%d texts are asked for, want one; /v1/completions makes several", req.choices())
	}
	reply, err := s.begin(w, r, req)
	if err != nil {
		return err
	}
	defer reply.Close()
	if req.StreamText {
		out := &stream{w: w, r: r}
		err := out.events(reply, func(e Event) error {
			if e.Text == "" && e.Finish == "" && (req.Logprobs < 0 || len(e.Tokens) == 0) {
				return nil
			}
			return out.send("", in.part(name, reply, e))
		})
		if err != nil {
			return out.fail(err)
		}
		return nil
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, in.part(name, reply, events[0]))
}

// apply fills a request in.
func (f *llamaRequest) apply(s *Server, r *Request) error {
	if err := f.openAIFields.apply(s, r); err != nil {
		return err
	}
	if r.Logprobs == 0 {
		r.Logprobs = -1
	}
	switch {
	case is(f.Echo):
		return badField("echo", "the prompt is not repeated here; /v1/completions does")
	case f.Predict != nil && f.MaxTokens != nil && *f.Predict != *f.MaxTokens:
		return badField("max_tokens", "not beside n_predict")
	case f.Predict != nil && *f.Predict == -2: // to the end of the context, as -1 here
		return nil
	}
	if err := first(maxTokens("max_tokens", f.MaxTokens, &r.MaxTokens), maxTokens("n_predict", f.Predict, &r.MaxTokens)); err != nil {
		return err
	}
	if r.MaxTokens == 0 {
		return badField("n_predict", "0, want 1 or more, or -1")
	}
	return nil
}

// part is an event as llama.cpp writes it.
func (f *llamaRequest) part(name string, reply *Reply, e Event) llamaReply {
	u := reply.Usage()
	out := llamaReply{Content: e.Text, Tokens: []int{}, Predicted: u.Generated, Evaluated: u.Prompt}
	if is(f.Tokens) || is(f.ReturnTokenIDs) {
		out.Tokens = tokenIDs(e.Tokens)
	}
	if f.NProbs != nil && *f.NProbs > 0 {
		out.Probabilities = probabilities(e.Tokens)
	}
	if e.Finish == "" {
		return out
	}
	out.Stop, out.Model, out.Truncated, out.StopType, out.StopWord, out.Cached, out.Timings = true, name, new(bool), "eos", &e.Stop, &u.Cached, newTimings(reply)
	switch {
	case e.Stop != "":
		out.StopType = "word"
	case e.Finish == FinishLength:
		out.StopType = "limit"
		*out.Truncated = e.Cut != ""
	}
	return out
}

// probabilities are the tokens of an event as llama.cpp lists them.
func probabilities(tokens []Token) []tokenProbability {
	list := make([]tokenProbability, len(tokens))
	for i, t := range tokens {
		list[i] = tokenProbability{t.ID, t.Name, numbers(t.Own), t.Logprob, make([]tokenProbability, len(t.Top))}
		for j, x := range t.Top {
			list[i].Top[j] = tokenProbability{ID: x.ID, Token: x.Name, Bytes: numbers(x.Own), Logprob: x.Logprob}
		}
	}
	return list
}

// slots answers GET /slots: the places of the batch, taken from the first on.
func (s llamaCPP) slots(w http.ResponseWriter, _ *http.Request) error {
	type slot struct {
		ID         int  `json:"id"`
		Context    int  `json:"n_ctx"`
		Processing bool `json:"is_processing"`
	}
	s.loop.mu.Lock()
	running := s.loop.begun
	s.loop.mu.Unlock()
	list := make([]slot, s.o.Batch)
	for i := range list {
		list[i] = slot{i, s.o.Engine.Options().Context, i < running}
	}
	return writeJSON(w, http.StatusOK, list)
}
