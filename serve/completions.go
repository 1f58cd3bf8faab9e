package serve

import (
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/tokenizer"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{{method: http.MethodPost, path: "/v1/completions", serve: openAI{s}.completions}}
	})
}

// defaultCompletionTokens is OpenAI's default of max_tokens.
const defaultCompletionTokens = 16

type completionRequest struct {
	openAIFields
	constraintFields
	Prompt   jsontext.Value `json:"prompt"`
	Echo     *bool          `json:"echo"`
	Logprobs *int           `json:"logprobs"`
	BestOf   *int           `json:"best_of"`
	Suffix   *string        `json:"suffix"`
}

type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *openAIUsage       `json:"usage,omitempty"`
	Timings *timingsJSON       `json:"timings,omitempty"`
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *Finish             `json:"finish_reason"`
	StopReason     string              `json:"stop_reason,omitempty"` // Event.reason
	TokenIDs       []int               `json:"token_ids,omitzero"`
	PromptTokenIDs []int               `json:"prompt_token_ids,omitzero"`
}

type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []*float32           `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// completions answers POST /v1/completions.
func (s openAI) completions(w http.ResponseWriter, r *http.Request) error {
	received := time.Now()
	var in completionRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, completionHints, samplerHints, accountHints); err != nil {
		return err
	}
	name, err := s.served(in.Model)
	if err != nil {
		return err
	}
	req := &Request{MaxTokens: defaultCompletionTokens, received: received}
	if err := first(in.apply(s.Server, req), in.constrain(r.Context(), s.Server, req)); err != nil {
		return err
	}
	if err := in.prompt(r.Context(), s.Server, req); err != nil {
		return err
	}
	reply, err := s.begin(w, r, req)
	if err != nil {
		return err
	}
	defer reply.Close()
	out := completionWriter{in: &in, req: req, reply: reply, base: completion{ID: "cmpl-" + newID(), Object: "text_completion", Created: time.Now().Unix(), Model: name}, offset: make([]int, req.choices())}
	out.beginOffsets(s.o.Tokenizer)
	if req.StreamText {
		return out.stream(&stream{w: w, r: r})
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	c := out.base
	for _, e := range events {
		c.Choices = append(c.Choices, out.choice(e, true))
	}
	c.Usage, c.Timings = newOpenAIUsage(reply.Usage()), newTimings(reply)
	return writeJSON(w, http.StatusOK, c)
}

// apply fills a request in.
func (f *completionRequest) apply(s *Server, r *Request) error {
	if err := f.openAIFields.apply(s, r); err != nil {
		return err
	}
	if err := f.fills(s); err != nil {
		return err
	}
	if f.BestOf != nil && *f.BestOf != r.Choices {
		return badField("best_of", "%d, want %d, the value of n: all choices are returned", *f.BestOf, r.Choices)
	}
	r.Echo = is(f.Echo)
	if err := maxTokens("max_tokens", f.MaxTokens, &r.MaxTokens); err != nil {
		return err
	}
	if r.MaxTokens == 0 && !r.Echo {
		return badField("max_tokens", "0 is for echo only")
	}
	return whole("logprobs", f.Logprobs, 0, maxLogprobs, &r.Logprobs)
}

// fills checks a request for text between a prompt and a suffix.
func (f *completionRequest) fills(s *Server) error {
	if f.Suffix == nil || *f.Suffix == "" {
		return nil
	}
	if _, ok := s.o.Tokenizer.FIM(); !ok {
		return noFIM("suffix")
	}
	if f.Prompt.Kind() != '"' || is(f.Echo) {
		return badField("suffix", "want one text as prompt, without echo")
	}
	return nil
}

// prompt fills the prompts in.
func (f *completionRequest) prompt(ctx context.Context, s *Server, r *Request) (err error) {
	var before string
	if f.Suffix != nil && *f.Suffix != "" && json.Unmarshal(f.Prompt, &before) == nil {
		return s.fillIn(ctx, r, before, "", *f.Suffix, nil)
	}
	r.Prompts, err = s.prompts(ctx, f.Prompt)
	return err
}

// prompts reads a prompt: text, token ids, or a list of either.
func (s *Server) prompts(ctx context.Context, v jsontext.Value) ([][]int, error) {
	texts, many, err := promptList(v)
	if err != nil {
		return nil, err
	}
	if n := max(len(texts), len(many)); n == 0 || n > maxPrompts {
		return nil, badField("prompt", "%d prompts, want 1 to %d", n, maxPrompts)
	}
	for _, t := range texts {
		ids, err := s.encodePrompt(ctx, "prompt", t, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
		if err != nil {
			return nil, err
		}
		many = append(many, ids)
	}
	for _, ids := range many {
		if len(ids) == 0 {
			return nil, badField("prompt", "it has no tokens")
		}
	}
	return many, nil
}

// promptList is a prompt as texts or as token ids.
func promptList(v jsontext.Value) (texts []string, ids [][]int, err error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return nil, nil, badField("prompt", "it is missing")
	}
	var text string
	if json.Unmarshal(v, &text) == nil {
		return []string{text}, nil, nil
	}
	var list []string
	if json.Unmarshal(v, &list) == nil {
		return list, nil, nil
	}
	var one []int
	if json.Unmarshal(v, &one) == nil {
		return nil, [][]int{one}, nil
	}
	if json.Unmarshal(v, &ids) == nil {
		return nil, ids, nil
	}
	return nil, nil, badField("prompt", "want text, token ids (whole numbers from 0), or a list of either, not mixed")
}

// completionWriter turns events into JSON.
type completionWriter struct {
	in     *completionRequest
	req    *Request
	reply  *Reply
	base   completion
	offset []int  // characters of a choice so far
	begun  []bool // of streams: choices that have been seen
}

// choice is an event as a choice; begins says that it is the choice's first.
func (o *completionWriter) choice(e Event, begins bool) completionChoice {
	c := completionChoice{Index: e.Choice, Text: e.Text}
	if e.Finish != "" {
		c.FinishReason, c.StopReason = &e.Finish, e.reason()
	}
	prompt := o.reply.Prompts[e.Choice/max(1, o.req.Choices)]
	if is(o.in.ReturnTokenIDs) {
		echoed := 0
		if e.Echo {
			echoed = len(prompt)
		}
		c.TokenIDs = tokenIDs(e.Tokens[echoed:])
		if begins {
			c.PromptTokenIDs = prompt
		}
	}
	if o.req.Logprobs >= 0 {
		c.Logprobs = o.logprobs(e)
	}
	return c
}

func tokenIDs(tokens []Token) []int {
	ids := make([]int, len(tokens))
	for i, t := range tokens {
		ids[i] = t.ID
	}
	return ids
}

// beginOffsets has text_offset count from the beginning of the prompt, as with echo.
func (o *completionWriter) beginOffsets(tok *tokenizer.Tokenizer) {
	if o.req.Logprobs < 0 || o.req.Echo {
		return
	}
	texts, _, _ := promptList(o.in.Prompt)
	for choice := range o.offset {
		i := choice / max(1, o.req.Choices)
		if i < len(texts) {
			o.offset[choice] = utf8.RuneCountInString(texts[i])
			continue
		}
		d := tok.NewStartDetokenizer()
		for _, id := range o.req.Prompts[i] {
			o.offset[choice] += utf8.RuneCountInString(d.Push(id))
		}
	}
}

func (o *completionWriter) logprobs(e Event) *completionLogprobs {
	l := &completionLogprobs{Tokens: []string{}, TokenLogprobs: []*float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
	for _, t := range e.Tokens {
		l.Tokens = append(l.Tokens, t.Name)
		l.TextOffset = append(l.TextOffset, o.offset[e.Choice])
		o.offset[e.Choice] += utf8.RuneCountInString(t.Text)
		if t.None {
			l.TokenLogprobs, l.TopLogprobs = append(l.TokenLogprobs, nil), append(l.TopLogprobs, nil)
			continue
		}
		l.TokenLogprobs = append(l.TokenLogprobs, &t.Logprob)
		top := map[string]float32{}
		for i := len(t.Top) - 1; i >= 0; i-- { // tokens of one text: the likeliest counts
			top[t.Top[i].Name] = t.Top[i].Logprob
		}
		if o.req.Logprobs > 0 {
			if have, ok := top[t.Name]; !ok || have < t.Logprob {
				top[t.Name] = t.Logprob
			}
		}
		l.TopLogprobs = append(l.TopLogprobs, top)
	}
	return l
}

// stream sends chunks as they come.
func (o *completionWriter) stream(s *stream) error {
	usage := o.in.StreamOptions != nil && is(o.in.StreamOptions.IncludeUsage)
	o.begun = make([]bool, o.req.choices())
	left := len(o.begun)
	err := s.events(o.reply, func(e Event) error {
		if e.Text == "" && e.Finish == "" && o.req.Logprobs < 0 && !is(o.in.ReturnTokenIDs) {
			return nil
		}
		c := o.base
		c.Choices = []completionChoice{o.choice(e, !o.begun[e.Choice])}
		o.begun[e.Choice] = true
		if e.Finish != "" {
			if left--; left == 0 && !usage {
				c.Timings = newTimings(o.reply)
			}
		}
		return s.send("", c)
	})
	if err != nil {
		return s.fail(err)
	}
	if usage {
		c := o.base
		c.Choices, c.Usage, c.Timings = []completionChoice{}, newOpenAIUsage(o.reply.Usage()), newTimings(o.reply)
		if err := s.send("", c); err != nil {
			return err
		}
	}
	return s.done()
}
