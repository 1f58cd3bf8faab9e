package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{{method: http.MethodPost, path: "/v1/responses", serve: openAI{s}.responses}}
	})
}

// responsesRequest is one of OpenAI's Responses, without what needs a memory here.
type responsesRequest struct {
	ownFields
	budgetFields
	hintFields
	Model             *string           `json:"model"`
	Input             jsontext.Value    `json:"input"`
	Instructions      *string           `json:"instructions"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	Stream            *bool             `json:"stream"`
	Temperature       *float64          `json:"temperature"`
	TopP              *float64          `json:"top_p"`
	Seed              *int64            `json:"seed"`
	Text              *responsesText    `json:"text"`
	Grammar           *string           `json:"grammar"`
	Tools             []jsontext.Value  `json:"tools"`
	ToolChoice        jsontext.Value    `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"` // of no effect, as the next three
	Metadata          map[string]string `json:"metadata"`
	User              *string           `json:"user"`
	StreamOptions     *streamOptions    `json:"stream_options"`
	Background        *bool             `json:"background"`
	Previous          *string           `json:"previous_response_id"`
	Conversation      jsontext.Value    `json:"conversation"`
	Prompt            jsontext.Value    `json:"prompt"`
	Reasoning         *responsesThought `json:"reasoning"`
	Include           []string          `json:"include"`
	Truncation        *string           `json:"truncation"`
	TopLogprobs       *int              `json:"top_logprobs"`
}

type responsesThought struct {
	Most    *int    `json:"max_tokens"` // OpenRouter's
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"` // of no effect, as the next: thoughts are sent as they are
	Old     *string `json:"generate_summary"`
}

type responsesText struct {
	Format    *textFormat `json:"format"`
	Verbosity *string     `json:"verbosity"` // of no effect
}

type textFormat struct {
	Type        string         `json:"type"`
	Name        *string        `json:"name,omitempty"`
	Description *string        `json:"description,omitempty"`
	Strict      *bool          `json:"strict,omitempty"`
	Schema      jsontext.Value `json:"schema,omitempty"`
}

type responsesTool struct {
	Type        string         `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`

	Defer  *bool          `json:"defer_loading"` // of no effect, as the next two
	Output jsontext.Value `json:"output_schema"`
	Allow  jsontext.Value `json:"allowed_callers"`
}

// refused names what this server does not do; nil = nothing of it is asked for.
func (f *responsesRequest) refused() error {
	given := func(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }
	switch {
	case f.Previous != nil && *f.Previous != "":
		return badField("previous_response_id", "nothing is stored here: send the whole conversation as input")
	case given(f.Conversation):
		return badField("conversation", "nothing is stored here: send the whole conversation as input")
	case is(f.Background):
		return badField("background", "answers are not made in the background here")
	case given(f.Prompt):
		return badField("prompt", "there are no stored prompts here")
	case slices.ContainsFunc(f.Include, func(s string) bool { return !slices.Contains(included, s) }):
		return badField("include", "%.200q: answers have no more than they have", f.Include)
	case f.Truncation != nil && *f.Truncation != "disabled" && *f.Truncation != "auto": // what does not fit is refused, not cut
		return badField("truncation", "%.20q: want disabled or auto", *f.Truncation)
	case f.TopLogprobs != nil && *f.TopLogprobs != 0, f.NProbs != nil && *f.NProbs != 0:
		return badField("top_logprobs", "answers of this API have no place for it; /v1/chat/completions has")
	case f.StreamOptions != nil && !is(f.Stream):
		return badField("stream_options", "only with stream")
	}
	return nil
}

// included are what answers may be asked to include: more of tools that do not run here, or of images.
var included = []string{"reasoning.encrypted_content", "web_search_call.results", "web_search_call.action.sources", "file_search_call.results", "code_interpreter_call.outputs", "computer_call_output.output.image_url", "message.input_image.image_url"}

// apply fills a request in.
func (f *responsesRequest) apply(s *Server, r *Request) error {
	r.Logprobs, r.Choices, r.MaxTokens = -1, 1, -1
	if err := f.refused(); err != nil {
		return err
	}
	f.NProbs = nil
	if err := f.ownFields.apply(s, r); err != nil {
		return err
	}
	if err := seed(f.Seed, &r.Sampler.Seed); err != nil {
		return err
	}
	r.StreamText = is(f.Stream)
	return first(whole("max_output_tokens", f.MaxOutputTokens, 1, 1<<30, &r.MaxTokens), number("temperature", f.Temperature, 0, maxTemperature, &r.Sampler.Temperature),
		number("top_p", f.TopP, 0, 1, &r.Sampler.TopP))
}

// format is text.format in the shape of chat's response_format; nil = any text.
func (f *responsesRequest) format() *responseFormat {
	if f.Text == nil || f.Text.Format == nil {
		return nil
	}
	t := f.Text.Format
	if t.Type == "json_schema" {
		return &responseFormat{Type: t.Type, JSONSchema: &namedSchema{Name: t.Name, Schema: t.Schema}}
	}
	return &responseFormat{Type: t.Type, Schema: t.Schema}
}

func (f *responsesRequest) use(ctx context.Context, s *Server) (*toolUse, error) {
	var tools []tool
	var out []string
	for i, in := range f.Tools {
		kind, err := toolType(i, in)
		if err != nil {
			return nil, err
		}
		if kind != "function" {
			out = append(out, kind)
			continue
		}
		var t responsesTool
		if err := decodeTool(in, i, &t); err != nil {
			return nil, err
		}
		tools = append(tools, newTool(t.Name, t.Description, t.Parameters))
	}
	return s.choose(ctx, tools, out, f.ToolChoice)
}

// responseItem is one of the input: a message, a call, or its result.
type responseItem struct {
	Type      string         `json:"type"`
	Role      string         `json:"role"`
	Content   *itemContent   `json:"content"`
	ID        *string        `json:"id"`     // of no effect
	Status    *string        `json:"status"` // of no effect
	Phase     jsontext.Value `json:"phase"`  // of no effect
	CallID    string         `json:"call_id"`
	Name      string         `json:"name"`
	Arguments string         `json:"arguments"`
	Output    *itemContent   `json:"output"`
	Summary   *itemContent   `json:"summary"`           // of a thought, as its content
	Encrypted *string        `json:"encrypted_content"` // of no effect
	Input     string         `json:"input"`             // of a custom tool's call
	Namespace *string        `json:"namespace"`         // of no effect, as the next two
	Caller    jsontext.Value `json:"caller"`
	Metadata  jsontext.Value `json:"internal_chat_message_metadata_passthrough"`
}

// itemContent is text, or parts of it.
type itemContent string

// UnmarshalJSON implements json.Unmarshaler.
func (c *itemContent) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = itemContent(text)
		return nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if jsontext.Value(b).Kind() != '[' || json.Unmarshal(b, &parts) != nil {
		return badField("input", "content: want text or a list of parts")
	}
	var all strings.Builder
	for _, p := range parts {
		if p.Text == nil || !slices.Contains([]string{"input_text", "output_text", "text", "reasoning_text", "summary_text"}, p.Type) {
			return badField("input", "content: a part of type %.20q: this model reads text only", p.Type)
		}
		all.WriteString(*p.Text)
	}
	*c = itemContent(all.String())
	return nil
}

// conversation is the input as the template takes it.
func (f *responsesRequest) conversation(tools *toolUse) (*conversation, error) {
	c := &conversation{tools: tools, fields: &templateFields{}, budget: &f.budgetFields}
	if f.Reasoning != nil {
		c.fields.ReasoningEffort, c.thinking = f.Reasoning.Effort, f.Reasoning.Most
		if c.thinking != nil && *c.thinking < 0 {
			return nil, badField("reasoning", "max_tokens: %d, want 0 or more", *c.thinking)
		}
		if err := c.fields.check(); err != nil {
			return nil, err
		}
	}
	if f.Instructions != nil && *f.Instructions != "" {
		c.turns = append(c.turns, newTurn("system", *f.Instructions))
	}
	var text string
	if json.Unmarshal(f.Input, &text) == nil && f.Input.Kind() == '"' {
		c.turns = append(c.turns, newTurn("user", text))
		return c, nil
	}
	var items []responseItem
	if f.Input.Kind() != '[' {
		return nil, badField("input", "want text or a list of items")
	}
	if err := decodeJSONField(f.Input, "input", &items); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, badField("input", "want at least one item")
	}
	for i := range items {
		if err := items[i].add(c, i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// add puts an item into the conversation: calls join the assistant's turn before them.
func (item *responseItem) add(c *conversation, i int) error {
	switch {
	case (item.Type == "" || item.Type == "message") && item.Content != nil:
		if r := item.Role; r != "system" && r != "developer" && r != "user" && r != "assistant" {
			return badField("input", "item %d: role %.20q is not known", i, item.Role)
		}
		if last := c.assistant(); item.Role == "assistant" && last != nil && last.text("content") == "" && len(last.calls) == 0 {
			last.set("content", quote(string(*item.Content))) // the answer to the thought before it
			return nil
		}
		c.turns = append(c.turns, newTurn(item.Role, string(*item.Content)))
	case item.Type == "reasoning":
		thought := item.Content
		if thought == nil || *thought == "" {
			thought = item.Summary
		}
		if thought != nil && *thought != "" {
			c.turns = append(c.turns, (&chatTurn{}).set("role", `"assistant"`).think(string(*thought)))
		}
	case item.Type == "custom_tool_call" && item.Name != "":
		c.answerer().call(Call{item.CallID, item.Name, `{"input":` + quote(item.Input) + "}"})
	case item.Type == "function_call" && strings.TrimSpace(item.Arguments) == "" && item.Name != "":
		c.answerer().call(Call{item.CallID, item.Name, "{}"})
	case item.Type == "function_call" && item.Name != "" && jsontext.Value(item.Arguments).Kind() == '{' && jsontext.Value(item.Arguments).IsValid():
		c.answerer().call(Call{item.CallID, item.Name, item.Arguments})
	case (item.Type == "function_call_output" || item.Type == "custom_tool_call_output") && item.Output != nil:
		c.turns = append(c.turns, c.result(item.CallID, string(*item.Output)))
	default:
		return badField("input", "item %d of type %.30q is not whole, or not known: want message, reasoning, function_call or function_call_output", i, item.Type)
	}
	return nil
}

// assistant is the last turn, if it is the assistant's.
func (c *conversation) assistant() *chatTurn {
	if n := len(c.turns); n > 0 && c.turns[n-1].text("role") == "assistant" {
		return c.turns[n-1]
	}
	return nil
}

// answerer is the last turn, the assistant's: a new one where it is somebody else's.
func (c *conversation) answerer() *chatTurn {
	last := c.assistant()
	if last == nil {
		last = (&chatTurn{}).set("role", `"assistant"`)
		c.turns = append(c.turns, last)
	}
	return last
}

// responses answers POST /v1/responses.
func (s openAI) responses(w http.ResponseWriter, r *http.Request) error {
	req := &Request{received: time.Now()}
	var in responsesRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, responsesHints, samplerHints, thoughtHints, accountHints); err != nil {
		return err
	}
	name, err := s.served(in.Model)
	if err != nil {
		return err
	}
	if err := in.apply(s.Server, req); err != nil {
		return err
	}
	tools, err := in.use(r.Context(), s.Server)
	if err != nil {
		return err
	}
	if f := in.format(); f != nil {
		if req.Machine, err = s.formatMachine(r.Context(), "text.format", f); err != nil {
			return err
		}
	}
	if err := (&constraintFields{Grammar: in.Grammar}).constrain(r.Context(), s.Server, req); err != nil {
		return err
	}
	talk, err := in.conversation(tools)
	if err != nil {
		return err
	}
	ids, err := s.encodeChat(r.Context(), talk)
	if err != nil {
		return err
	}
	if err := tools.constrain(r.Context(), s.Server, req, talk.tail); err != nil {
		return err
	}
	if err := s.ask(req, talk, ids); err != nil {
		return err
	}
	reply, err := s.begin(w, r, req)
	if err != nil {
		return err
	}
	defer reply.Close()
	out := responseWriter{reply: reply, parser: s.parser(talk), base: in.response(name, tools, req.Sampler), ids: is(in.ReturnTokenIDs)}
	if req.StreamText {
		return out.stream(&stream{w: w, r: r})
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	out.whole(partsOf(out.parser, events[0].Text))
	out.tokens = events[0].Tokens
	out.end(events[0])
	return writeJSON(w, http.StatusOK, out.base)
}
