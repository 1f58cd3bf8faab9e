package serve

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{
			{method: http.MethodPost, path: "/v1/messages", serve: anthropicAPI{s}.messages, fail: writeAnthropicError},
			{method: http.MethodPost, path: "/v1/messages/count_tokens", serve: anthropicAPI{s}.countTokens, fail: writeAnthropicError},
		}
	})
}

// messagesPrompt is what a request of Anthropic's Messages says of the prompt.
type messagesPrompt struct {
	Model      *string            `json:"model"`
	Messages   []anthropicMessage `json:"messages"`
	System     *anthropicText     `json:"system"`
	Tools      []jsontext.Value   `json:"tools"`
	ToolChoice *anthropicChoice   `json:"tool_choice"`
	Thinking   *anthropicThinking `json:"thinking"`
	Output     *anthropicOutput   `json:"output_config"`
	Format     *textFormat        `json:"output_format"` // the same as output_config's
	budgetFields
	hintFields
}

// anthropicOutput is how an answer is to be.
type anthropicOutput struct {
	Effort *string        `json:"effort"`
	Format *textFormat    `json:"format"`
	Budget jsontext.Value `json:"task_budget"` // of no effect
}

type messagesRequest struct {
	ownFields
	constraintFields
	messagesPrompt
	MaxTokens     *int      `json:"max_tokens"`
	Stream        *bool     `json:"stream"`
	Temperature   *float64  `json:"temperature"`
	TopP          *float64  `json:"top_p"`
	StopSequences *stopList `json:"stop_sequences"`
	Seed          *int64    `json:"seed"`
}

// anthropicThinking says whether the model may think before it answers: whether it does is the template's default, which
// chat_template_kwargs of a chat changes.
type anthropicThinking struct {
	Type    string  `json:"type"`
	Budget  *int    `json:"budget_tokens"` // a thought is closed that is longer
	Display *string `json:"display"`       // of no effect
}

// apply tells the template.
func (t *anthropicThinking) apply(c *conversation) error {
	if t == nil {
		return nil
	}
	if t.Budget != nil && *t.Budget < 0 {
		return badField("thinking", "budget_tokens: %d, want 0 or more", *t.Budget)
	}
	switch t.Type {
	case "enabled", "adaptive":
		if t.Budget != nil {
			c.thinking = t.Budget
		}
		return nil
	case "disabled":
		c.fields.EnableThinking, c.fields.thoughtless = new(bool), true
		return nil
	}
	return badField("thinking", "type %.20q: want enabled, adaptive or disabled", t.Type)
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content anthropicContent `json:"content"`
}

// anthropicContent is text or blocks.
type anthropicContent []anthropicBlock

type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      string           `json:"text"`
	Thinking  string           `json:"thinking"`  // of an earlier answer
	Signature string           `json:"signature"` // of that, of no effect, as the data of redacted_thinking
	Data      string           `json:"data"`
	Cache     jsontext.Value   `json:"cache_control"` // of no effect
	Citations jsontext.Value   `json:"citations"`     // of no effect
	ID        string           `json:"id"`            // of tool_use
	Name      string           `json:"name"`
	Input     jsontext.Value   `json:"input"`
	Caller    jsontext.Value   `json:"caller"`       // of no effect
	Toolset   jsontext.Value   `json:"toolset_name"` // of no effect
	ToolUseID string           `json:"tool_use_id"`  // of tool_result
	Content   anthropicContent `json:"content"`
	IsError   *bool            `json:"is_error"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *anthropicContent) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = anthropicContent{{Type: "text", Text: text}}
		return nil
	}
	var kinds []struct {
		Type string `json:"type"`
	}
	if jsontext.Value(b).Kind() != '[' || json.Unmarshal(b, &kinds) != nil {
		return badField("messages", "content: want text or a list of blocks")
	}
	for _, k := range kinds {
		switch k.Type {
		case "text", "tool_use", "tool_result", "thinking", "redacted_thinking":
		default:
			return badField("messages", "content: a block of type %.20q: this model reads text only", k.Type)
		}
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(b, &blocks, json.RejectUnknownMembers(true)); err != nil {
		if inner := (*Error)(nil); errors.As(err, &inner) {
			return inner
		}
		return badField("messages", "content: a block has a field that is not known, or of a wrong type")
	}
	*c = blocks
	return nil
}

// billingLine begins a block that Claude Code writes for its own service: it changes with each request, so that no prompt would
// begin as another did.
const billingLine = "x-anthropic-billing-header:"

// anthropicText is text, or blocks of it.
type anthropicText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *anthropicText) UnmarshalJSON(b []byte) error {
	var c anthropicContent
	if err := c.UnmarshalJSON(b); err != nil {
		return badField("system", "want text or a list of text blocks")
	}
	c = slices.DeleteFunc(c, func(b anthropicBlock) bool { return strings.HasPrefix(b.Text, billingLine) })
	text, err := c.text("system")
	*t = anthropicText(text)
	return err
}

// text joins blocks that are all text.
func (c anthropicContent) text(field string) (string, error) {
	var b strings.Builder
	for _, block := range c {
		if block.Type != "text" {
			return "", badField(field, "a block of type %.20q in this place, want text", block.Type)
		}
		b.WriteString(block.Text)
	}
	return b.String(), nil
}

type anthropicTool struct {
	Type        *string        `json:"type"`
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	InputSchema jsontext.Value `json:"input_schema"`
	Cache       jsontext.Value `json:"cache_control"` // of no effect
	Strict      *bool          `json:"strict"`        // of no effect: a forced call satisfies its schema; as the next four
	Eager       *bool          `json:"eager_input_streaming"`
	Defer       *bool          `json:"defer_loading"`
	Callers     jsontext.Value `json:"allowed_callers"`
	Examples    jsontext.Value `json:"input_examples"`
}

type anthropicChoice struct {
	Type            string  `json:"type"`
	Name            *string `json:"name"`
	DisableParallel *bool   `json:"disable_parallel_tool_use"` // of no effect
}

// use reads the tools.
func (f *messagesPrompt) use(ctx context.Context, s *Server) (*toolUse, error) {
	var tools []tool
	var out []string
	for i, in := range f.Tools {
		if kind, err := toolType(i, in); err == nil && kind != "custom" {
			out = append(out, kind)
			continue
		}
		var t anthropicTool
		if err := decodeTool(in, i, &t); err != nil {
			return nil, err
		}
		tools = append(tools, newTool(t.Name, t.Description, t.InputSchema))
	}
	choice := "auto"
	if c := f.ToolChoice; c != nil {
		switch {
		case c.Type == "auto" || c.Type == "none":
			choice = c.Type
		case c.Type == "any":
			choice = "required"
		case c.Type == "tool" && c.Name != nil:
			choice = "=" + *c.Name
		default:
			return nil, badField("tool_choice", "want type auto, any, none, or tool with a name")
		}
	}
	if err := offered(ctx, tools, out, choice); err != nil {
		return nil, err
	}
	return s.newToolUse(tools, choice)
}

// conversation is the messages as the template takes them.
func (f *messagesPrompt) conversation(tools *toolUse) (*conversation, error) {
	if len(f.Messages) == 0 {
		return nil, badField("messages", "want at least one")
	}
	c := &conversation{tools: tools, fields: &templateFields{}, budget: &f.budgetFields}
	if err := f.Thinking.apply(c); err != nil {
		return nil, err
	}
	if f.System != nil && *f.System != "" {
		c.turns = append(c.turns, newTurn("system", string(*f.System)))
	}
	for i, m := range f.Messages {
		if m.Role == "system" { // a later instruction
			text, err := m.Content.text("messages")
			if err != nil {
				return nil, err
			}
			c.turns = append(c.turns, newTurn("system", text))
			continue
		}
		if m.Role != "user" && m.Role != "assistant" {
			return nil, badField("messages", "message %d: role %.20q: want user or assistant", i, m.Role)
		}
		if err := m.add(c, i); err != nil {
			return nil, err
		}
	}
	if f.Messages[len(f.Messages)-1].Role == "assistant" {
		goes := true // the answer has begun
		c.fields.ContinueFinal = &goes
	}
	if f.Output != nil {
		c.fields.ReasoningEffort = f.Output.Effort
	}
	return c, c.fields.check()
}

// add puts a message into the conversation: results of tools are turns of their own, before its text.
func (m *anthropicMessage) add(c *conversation, i int) error {
	var text, thought strings.Builder
	var calls []Call
	results := false
	for _, b := range m.Content {
		switch {
		case b.Type == "text":
			text.WriteString(b.Text)
		case b.Type == "thinking" && m.Role == "assistant":
			thought.WriteString(b.Thinking)
		case b.Type == "redacted_thinking" && m.Role == "assistant":
		case b.Type == "tool_use" && m.Role == "assistant" && b.Name != "" && b.Input.Kind() == '{':
			calls = append(calls, Call{b.ID, b.Name, string(b.Input)})
		case b.Type == "tool_result" && m.Role == "user" && b.ToolUseID != "":
			result, err := b.Content.text("messages")
			if err != nil {
				return err
			}
			results = true
			c.turns = append(c.turns, c.result(b.ToolUseID, result))
		default:
			return badField("messages", "message %d: a block of type %s is not whole, or not where it belongs", i, b.Type)
		}
	}
	if text.Len() == 0 && results {
		return nil
	}
	t := newTurn(m.Role, text.String()).think(thought.String())
	if calls != nil {
		t.call(calls...)
	}
	c.turns = append(c.turns, t)
	return nil
}

// result is what a tool answered to a call, with the name that the call gave.
func (c *conversation) result(id, content string) *chatTurn {
	t := (&chatTurn{}).set("role", `"tool"`).set("tool_call_id", quote(id))
	for _, before := range c.turns {
		for _, call := range before.calls {
			if call.ID == id {
				t.set("name", quote(call.Name))
			}
		}
	}
	return t.set("content", quote(content))
}

// countTokens answers POST /v1/messages/count_tokens.
func (s anthropicAPI) countTokens(w http.ResponseWriter, r *http.Request) error {
	var in messagesPrompt
	if err := decodeHinted(w, r, &in, &in.hintFields, messagesHints, samplerHints, thoughtHints, accountHints); err != nil {
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
	talk, err := in.conversation(tools)
	if err != nil {
		return err
	}
	ids, err := s.encodeChat(r.Context(), talk)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, struct {
		Tokens int `json:"input_tokens"`
	}{len(ids)})
}

// apply fills a request in.
func (f *messagesRequest) apply(s *Server, r *Request) error {
	r.Logprobs, r.Choices = -1, 1
	if f.NProbs != nil && *f.NProbs != 0 {
		return badField("n_probs", "answers of this API have no place for it")
	}
	f.NProbs = nil
	if err := f.ownFields.apply(s, r); err != nil {
		return err
	}
	if f.MaxTokens == nil {
		return badField("max_tokens", "it is needed")
	}
	if err := seed(f.Seed, &r.Sampler.Seed); err != nil {
		return err
	}
	r.StreamText = is(f.Stream)
	if f.StopSequences != nil {
		r.Stops = *f.StopSequences
	}
	return first(whole("max_tokens", f.MaxTokens, 1, 1<<30, &r.MaxTokens), number("temperature", f.Temperature, 0, maxTemperature, &r.Sampler.Temperature),
		number("top_p", f.TopP, 0, 1, &r.Sampler.TopP), f.StopSequences.check("stop_sequences"))
}

// format has output_config's be response_format.
func (f *messagesRequest) format() error {
	t, field := f.Format, "output_format"
	if f.Output != nil && f.Output.Format != nil {
		t, field = f.Output.Format, "output_config"
	}
	if t == nil {
		return nil
	}
	if t.Type != "json_schema" || f.ResponseFormat != nil {
		return badField(field, "format: type %.20q: want json_schema, and no response_format", t.Type)
	}
	f.ResponseFormat = &responseFormat{Type: t.Type, JSONSchema: &namedSchema{Schema: t.Schema}}
	return nil
}

// messages answers POST /v1/messages.
func (s anthropicAPI) messages(w http.ResponseWriter, r *http.Request) error {
	req := &Request{received: time.Now()}
	var in messagesRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, messagesHints, samplerHints, thoughtHints, accountHints); err != nil {
		return err
	}
	name, err := s.served(in.Model)
	if err != nil {
		return err
	}
	if err := first(in.apply(s.Server, req), in.format()); err != nil {
		return err
	}
	if err := in.constrain(r.Context(), s.Server, req); err != nil {
		return err
	}
	tools, err := in.use(r.Context(), s.Server)
	if err != nil {
		return err
	}
	if err := s.turnsFit(len(in.Messages)); err != nil {
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
	out := messageWriter{reply: reply, parser: s.parser(talk), ids: is(in.ReturnTokenIDs)}
	out.message = anthropicReply{ID: "msg_" + newID(), Type: "message", Role: "assistant", Model: name, Content: []anthropicOut{}}
	if req.StreamText {
		return out.stream(&stream{w: w, r: r})
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, out.whole(events[0]))
}
