package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/tokenizer"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodPost, path: "/api/chat", serve: ollama{s}.chat, fail: writeOllamaError},
			{method: http.MethodPost, path: "/api/generate", serve: ollama{s}.generate, fail: writeOllamaError},
		}
	})
}

// ollamaCommon is what /api/chat and /api/generate have in common; source: Ollama's API documentation.
type ollamaCommon struct {
	Model   *string        `json:"model"`
	Stream  *bool          `json:"stream"` // true where it is not named
	Format  jsontext.Value `json:"format"` // "json", or a schema
	Options jsontext.Value `json:"options"`
	Think   jsontext.Value `json:"think"` // a boolean, or an effort
	hintFields
}

type ollamaChatRequest struct {
	ollamaCommon
	Messages []ollamaMessage  `json:"messages"`
	Tools    []jsontext.Value `json:"tools"`
}

type ollamaGenerateRequest struct {
	ollamaCommon
	Prompt *string  `json:"prompt"`
	System *string  `json:"system"`
	Suffix *string  `json:"suffix"`
	Images []string `json:"images"`
	Raw    *bool    `json:"raw"`
}

type ollamaMessage struct {
	Role      string       `json:"role"`
	Content   string       `json:"content"`
	Thinking  string       `json:"thinking,omitzero"`
	Images    []string     `json:"images,omitzero"`
	ToolCalls []ollamaCall `json:"tool_calls,omitzero"`
	ToolName  string       `json:"tool_name,omitzero"`
	CallID    string       `json:"tool_call_id,omitzero"`
	Problem   string       `json:"tool_call_error,omitzero"` // of an answer
}

type ollamaCall struct {
	ID       string         `json:"id,omitzero"`
	Type     string         `json:"type,omitzero"`
	Function ollamaFunction `json:"function"`
}

type ollamaFunction struct {
	Index     int            `json:"index,omitzero"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"` // an object
}

// ollamaOptions are a model's parameters; those that are not named are as in the other APIs, whatever a modelfile would say.
type ollamaOptions struct {
	Predict     *int      `json:"num_predict"`
	Temperature *float64  `json:"temperature"`
	TopP        *float64  `json:"top_p"`
	Seed        *int64    `json:"seed"`
	Stop        *stopList `json:"stop"`
	Presence    *float64  `json:"presence_penalty"`
	Frequency   *float64  `json:"frequency_penalty"`
	TopK        *int      `json:"top_k"`
	MinP        *float64  `json:"min_p"`
	Repeat      *float64  `json:"repeat_penalty"`
	RepeatLast  *int      `json:"repeat_last_n"`
	samplerFields
	hintFields
}

// ollamaHints are fields of Ollama's requests, ollamaOptionHints of their options.
var (
	ollamaHints = hints{"keep_alive": ignored(`"0`), "truncate": ignored("t"), "shift": ignored("t"), "logprobs": only("false"), "top_logprobs": only0(), "template": only(`""`), "context": only("[]"), "raw": only("false"),
		"width": refused, "height": refused, "steps": refused, "_debug_render_only": only("false")}
	ollamaOptionHints = hints{"num_keep": ignored("0"), "num_batch": ignored("0"), "num_gpu": ignored("0"), "main_gpu": ignored("0"), "num_thread": ignored("0"), "num_gqa": ignored("0"), "draft_num_predict": ignored("0"),
		"use_mmap": ignored("t"), "use_mlock": ignored("t"), "low_vram": ignored("t"), "numa": ignored("t"), "f16_kv": ignored("t"), "vocab_only": only("false"), "logits_all": only("false"), "penalize_newline": only("true"), "embedding_only": only("false")}
)

// request is the fields in common as a Request, and what the template is told of thinking.
func (f *ollamaCommon) request(ctx context.Context, s *Server) (r *Request, t *templateFields, err error) {
	r = &Request{Logprobs: -1, Choices: 1, MaxTokens: -1, StreamText: f.Stream == nil || *f.Stream, received: time.Now()}
	var o ollamaOptions
	if len(f.Options) > 0 && f.Options.Kind() != 'n' {
		if err := decodeJSONField(f.Options, "options", &o); err != nil {
			return nil, nil, err
		}
	}
	if err := o.take(ctx, ollamaOptionHints, samplerHints); err != nil {
		return nil, nil, err
	}
	if err := o.apply(s, r); err != nil {
		return nil, nil, err
	}
	if r.Machine, err = f.machine(ctx, s); err != nil {
		return nil, nil, err
	}
	t, err = f.thinking()
	return r, t, err
}

func (o *ollamaOptions) apply(s *Server, r *Request) error {
	own := ownFields{TopK: o.TopK, MinP: o.MinP, RepeatPenalty: o.Repeat, RepeatLast: o.RepeatLast, samplerFields: o.samplerFields}
	if err := first(own.apply(s, r), seed(o.Seed, &r.Sampler.Seed)); err != nil {
		return err
	}
	r.Logprobs = -1
	if o.Stop != nil {
		r.Stops = *o.Stop
	}
	if o.Predict != nil && *o.Predict > 0 {
		r.MaxTokens = *o.Predict
	}
	return first(number("temperature", o.Temperature, 0, maxTemperature, &r.Sampler.Temperature), number("top_p", o.TopP, 0, 1, &r.Sampler.TopP), number("presence_penalty", o.Presence, -2, 2, &r.Sampler.PresencePenalty),
		number("frequency_penalty", o.Frequency, -2, 2, &r.Sampler.FrequencyPenalty), o.Stop.check("stop"))
}

// machine is what format constrains to; nil = nothing.
func (f *ollamaCommon) machine(ctx context.Context, s *Server) (*grammar.Machine, error) {
	switch compact(f.Format) {
	case "", "null", `""`:
		return nil, nil
	case `"json"`:
		return s.formatMachine(ctx, "format", &responseFormat{Type: "json_object"})
	}
	if f.Format.Kind() != '{' {
		return nil, badField("format", `want "json" or a schema`)
	}
	return s.schemaMachine(ctx, "format", f.Format)
}

// thinking reads think.
func (f *ollamaCommon) thinking() (*templateFields, error) {
	t := &templateFields{}
	var effort string
	switch k := f.Think.Kind(); {
	case len(f.Think) == 0 || k == 'n':
	case k == 't' || k == 'f':
		on := k == 't'
		t.EnableThinking, t.thoughtless = &on, !on
	case k == '"' && json.Unmarshal(f.Think, &effort) == nil:
		t.ReasoningEffort = &effort
	default:
		return nil, badField("think", "want true, false, or an effort")
	}
	return t, t.check()
}

// ollamaChat answers POST /api/chat.
func (s ollama) chat(w http.ResponseWriter, r *http.Request) error {
	var in ollamaChatRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, ollamaHints); err != nil {
		return err
	}
	name, err := s.name(in.Model)
	if err != nil {
		return err
	}
	req, fields, err := in.request(r.Context(), s.Server)
	if err != nil {
		return err
	}
	if len(in.Messages) == 0 {
		return writeJSON(w, http.StatusOK, newOllamaEnd(name, true, "load"))
	}
	if err := s.turnsFit(len(in.Messages)); err != nil {
		return err
	}
	tools, err := (&toolFields{Tools: in.Tools}).use(r.Context(), s.Server)
	if err != nil {
		return err
	}
	talk := &conversation{tools: tools, fields: fields}
	for i, m := range in.Messages {
		if err := m.add(talk, i); err != nil {
			return err
		}
	}
	if in.Messages[len(in.Messages)-1].Role == "assistant" {
		goes := true
		fields.ContinueFinal = &goes
	}
	return s.talk(w, r, req, talk, &ollamaWriter{name: name, chat: true})
}

// add puts a message into the conversation.
func (m *ollamaMessage) add(c *conversation, i int) error {
	if len(m.Images) > 0 {
		return badField("messages", "message %d: images: this model reads text only", i)
	}
	var t *chatTurn
	switch m.Role {
	case "system", "user", "assistant", "developer":
		t = newTurn(m.Role, m.Content).think(m.Thinking)
	case "tool":
		t = c.result(m.CallID, m.Content)
		if m.ToolName != "" {
			t.set("name", quote(m.ToolName))
		}
	default:
		return badField("messages", "message %d: role %.20q is not known", i, m.Role)
	}
	for _, call := range m.ToolCalls {
		if call.Function.Name == "" || call.Function.Arguments.Kind() != '{' {
			return badField("messages", "message %d: tool_calls: want a name, and arguments that are an object", i)
		}
		t.call(Call{call.ID, call.Function.Name, string(call.Function.Arguments)})
	}
	c.turns = append(c.turns, t)
	return nil
}

// ollamaGenerate answers POST /api/generate.
func (s ollama) generate(w http.ResponseWriter, r *http.Request) error {
	var in ollamaGenerateRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, ollamaHints); err != nil {
		return err
	}
	name, err := s.name(in.Model)
	if err != nil {
		return err
	}
	req, fields, err := in.request(r.Context(), s.Server)
	switch {
	case err != nil:
		return err
	case len(in.Images) > 0:
		return badField("images", "this model reads text only")
	case in.Prompt == nil || *in.Prompt == "":
		return writeJSON(w, http.StatusOK, newOllamaEnd(name, false, "load"))
	}
	tools, err := s.newToolUse(nil, "none")
	if err != nil {
		return err
	}
	talk, out := &conversation{tools: tools, fields: fields}, &ollamaWriter{name: name}
	if in.Suffix != nil && *in.Suffix != "" {
		if _, ok := s.o.Tokenizer.FIM(); !ok {
			return noFIM("suffix")
		}
		if err := s.fillIn(r.Context(), req, *in.Prompt, "", *in.Suffix, nil); err != nil {
			return err
		}
		return s.reply(w, r, req, nil, out)
	}
	if is(in.Raw) || !s.o.Tokenizer.HasTemplate() {
		ids, err := s.encodePrompt(r.Context(), "prompt", *in.Prompt, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
		if err != nil {
			return err
		}
		req.Prompts = [][]int{ids}
		return s.reply(w, r, req, nil, out)
	}
	if in.System != nil && *in.System != "" {
		talk.turns = append(talk.turns, newTurn("system", *in.System))
	}
	talk.turns = append(talk.turns, newTurn("user", *in.Prompt))
	return s.talk(w, r, req, talk, out)
}

// ollamaTalk renders a conversation and answers it.
func (s ollama) talk(w http.ResponseWriter, r *http.Request, req *Request, talk *conversation, out *ollamaWriter) error {
	ids, err := s.encodeChat(r.Context(), talk)
	if err != nil {
		return err
	}
	if err := s.ask(req, talk, ids); err != nil {
		return err
	}
	return s.reply(w, r, req, talk, out)
}

// ollamaServed is served for names as Ollama's clients write them, with the tag latest where there is none.
func (s ollama) name(name *string) (string, error) {
	if name == nil || *name == "" {
		return "", badField("model", "it is missing")
	}
	served, err := s.served(name)
	if short, ok := strings.CutSuffix(*name, ":latest"); err != nil && ok {
		return s.served(&short)
	}
	return served, err
}
