package serve

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/serve/answer"
)

func init() {
	addRoutes(func(s *Server) []route {
		return []route{{method: http.MethodPost, path: "/v1/chat/completions", serve: openAI{s}.chatCompletions}}
	})
}

type chatRequest struct {
	openAIFields
	constraintFields
	toolFields
	templateFields
	budgetFields
	Messages            []withRaw[chatMessage] `json:"messages"`
	MaxCompletionTokens *int                   `json:"max_completion_tokens"`
	Logprobs            *bool                  `json:"logprobs"`
	TopLogprobs         *int                   `json:"top_logprobs"`
	Thought             *chatThought           `json:"reasoning"`   // OpenRouter's
	Thinking            *anthropicThinking     `json:"thinking"`    // of GLM, DeepSeek and Kimi
	RandomSeed          *int64                 `json:"random_seed"` // Mistral's name of seed
}

type chatMessage struct {
	Role    string       `json:"role"`
	Content *chatContent `json:"content"`
	Name    *string      `json:"name"`
	Refusal *string      `json:"refusal"`

	ReasoningContent *string        `json:"reasoning_content"` // the thought of an earlier answer
	Reasoning        *string        `json:"reasoning"`         // the same
	Annotations      jsontext.Value `json:"annotations"`       // of no effect, as the next
	Audio            jsontext.Value `json:"audio"`
	Parsed           jsontext.Value `json:"parsed"` // of no effect, as the next six
	Cache            jsontext.Value `json:"cache_control"`
	Details          jsontext.Value `json:"reasoning_details"`
	Signature        jsontext.Value `json:"reasoning_signature"`
	Blocks           jsontext.Value `json:"thinking_blocks"`
	Specific         jsontext.Value `json:"provider_specific_fields"`
	ID               jsontext.Value `json:"id"`
	FunctionCall     jsontext.Value `json:"function_call"` // null alone
	Images           jsontext.Value `json:"images"`        // null or none
	Prefix           *bool          `json:"prefix"`        // the answer has begun with this message, as DeepSeek and Mistral have it
	Partial          *bool          `json:"partial"`       // the same, as Kimi and Qwen have it
	toolMessageFields
}

// chatContent is text, or a list of parts that are text.
type chatContent string

// UnmarshalJSON implements json.Unmarshaler.
func (c *chatContent) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = chatContent(text)
		return nil
	}
	var parts []struct {
		Type    string  `json:"type"`
		Text    *string `json:"text"`
		Refusal *string `json:"refusal"`
	}
	if jsontext.Value(b).Kind() != '[' || json.Unmarshal(b, &parts) != nil {
		return badField("messages", "content: want text or a list of parts")
	}
	var all strings.Builder
	for _, p := range parts {
		switch {
		case p.Type == "text" && p.Text != nil:
			all.WriteString(*p.Text)
		case p.Type == "refusal" && p.Refusal != nil:
			all.WriteString(*p.Refusal)
		default:
			return badField("messages", "content: a part of type %.20q: this model reads text only", p.Type)
		}
	}
	*c = chatContent(all.String())
	return nil
}

type chatCompletion struct {
	ID             string       `json:"id"`
	Object         string       `json:"object"`
	Created        int64        `json:"created"`
	Model          string       `json:"model"`
	Choices        []chatChoice `json:"choices"`
	Usage          *openAIUsage `json:"usage,omitempty"`
	Timings        *timingsJSON `json:"timings,omitempty"`
	PromptTokenIDs []int        `json:"prompt_token_ids,omitzero"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatReply    `json:"message,omitzero"` // of a whole answer
	Delta        *chatDelta    `json:"delta,omitzero"`   // of a chunk
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *Finish       `json:"finish_reason"`
	StopReason   string        `json:"stop_reason,omitempty"` // Event.reason
	TokenIDs     []int         `json:"token_ids,omitzero"`
}

type chatReply struct {
	Role    string  `json:"role"`
	Content *string `json:"content"`
	Refusal *string `json:"refusal"`

	Reasoning   string         `json:"reasoning_content,omitzero"` // what the model thought before
	ToolCalls   []toolCallJSON `json:"tool_calls,omitzero"`
	ToolProblem string         `json:"tool_call_error,omitempty"` // what is wrong with a call, or why a text that began like one is none
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitzero"`

	Reasoning   *string        `json:"reasoning_content,omitzero"`
	ToolCalls   []toolCallJSON `json:"tool_calls,omitzero"`
	ToolProblem string         `json:"tool_call_error,omitempty"`
}

// called is the finish reason of a choice that ended in calls; one that was cut off stays so.
func (c *chatChoice) called() *Finish {
	if c.FinishReason != nil && *c.FinishReason == FinishStop {
		f := FinishCalls
		return &f
	}
	return c.FinishReason
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal []chatLogprob `json:"refusal"`
}

type chatLogprob struct {
	Token   string    `json:"token"`
	Logprob float32   `json:"logprob"`
	Bytes   []int     `json:"bytes"`
	Top     []chatTop `json:"top_logprobs"`
}

type chatTop struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// chatCompletions answers POST /v1/chat/completions.
func (s openAI) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	received := time.Now()
	var in chatRequest
	if err := decodeHinted(w, r, &in, &in.hintFields, chatHints, samplerHints, thoughtHints, accountHints); err != nil {
		return err
	}
	name, err := s.served(in.Model)
	if err != nil {
		return err
	}
	req := &Request{MaxTokens: -1, received: received}
	if in.Seed == nil {
		in.Seed = in.RandomSeed
	}
	if err := first(in.apply(s.Server, req), in.constrain(r.Context(), s.Server, req)); err != nil {
		return err
	}
	tools, err := in.use(r.Context(), s.Server)
	if err != nil {
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
	out := chatWriter{parser: func() *answer.Parser { return s.parser(talk) }, in: &in, req: req, reply: reply, base: chatCompletion{ID: "chatcmpl-" + newID(), Object: "chat.completion", Created: time.Now().Unix(), Model: name}}
	if req.StreamText {
		out.base.Object = "chat.completion.chunk"
		return out.stream(&stream{w: w, r: r})
	}
	events, err := reply.All(r.Context())
	if err != nil {
		return err
	}
	c := out.base
	for _, e := range events {
		x := out.choice(e)
		p := partsOf(out.parser(), e.Text)
		text, calls := p.text(answer.Text), p.calls()
		x.Message = &chatReply{Role: "assistant", Content: &text, Reasoning: p.text(answer.Thought), ToolCalls: toolCalls(calls), ToolProblem: p.problem}
		if calls != nil {
			x.FinishReason = x.called()
			if text == "" {
				x.Message.Content = nil
			}
		}
		c.Choices = append(c.Choices, x)
	}
	c.Usage, c.Timings = newOpenAIUsage(reply.Usage()), newTimings(reply)
	if is(in.ReturnTokenIDs) {
		c.PromptTokenIDs = reply.Prompts[0]
	}
	return writeJSON(w, http.StatusOK, c)
}

// apply fills a request in.
func (f *chatRequest) apply(s *Server, r *Request) error {
	if err := f.openAIFields.apply(s, r); err != nil {
		return err
	}
	top := 0
	if err := whole("top_logprobs", f.TopLogprobs, 0, maxLogprobs, &top); err != nil {
		return err
	}
	switch {
	case f.TopLogprobs != nil && !is(f.Logprobs):
		return badField("top_logprobs", "only with logprobs")
	case is(f.Logprobs):
		r.Logprobs = top
	}
	if f.MaxTokens != nil && f.MaxCompletionTokens != nil && *f.MaxTokens != *f.MaxCompletionTokens {
		return badField("max_tokens", "not beside max_completion_tokens")
	}
	if err := first(maxTokens("max_tokens", f.MaxTokens, &r.MaxTokens), maxTokens("max_completion_tokens", f.MaxCompletionTokens, &r.MaxTokens)); err != nil {
		return err
	}
	if r.MaxTokens == 0 {
		return badField("max_tokens", "0, want 1 or more")
	}
	return s.turnsFit(len(f.Messages)) // before each is looked at
}

// conversation is the messages as the template takes them.
func (f *chatRequest) conversation(tools *toolUse) (*conversation, error) {
	if len(f.Messages) == 0 {
		return nil, badField("messages", "want at least one")
	}
	c := &conversation{tools: tools, fields: &f.templateFields, budget: &f.budgetFields}
	if err := first(f.Thought.apply(c), f.Thinking.apply(c)); err != nil {
		return nil, err
	}
	for i := range f.Messages {
		t, err := f.Messages[i].value.turn(i, f.Messages[i].raw)
		if err != nil {
			return nil, err
		}
		c.turns = append(c.turns, t)
	}
	if last := &f.Messages[len(f.Messages)-1].value; last.Role == "assistant" && (is(last.Prefix) || is(last.Partial)) {
		c.fields.ContinueFinal = last.Prefix
		if last.Prefix == nil {
			c.fields.ContinueFinal = last.Partial
		}
	}
	return c, c.fields.check()
}

// turn is a message as the template takes it: without members that are null, the content as one text, reasoning_content
// also as thinking.
func (m *chatMessage) turn(i int, raw jsontext.Value) (*chatTurn, error) {
	switch m.Role {
	case "developer", "system", "user", "assistant", "tool":
	case "":
		return nil, badField("messages", "message %d has no role", i)
	default:
		return nil, badField("messages", "message %d: role %.20q is not known", i, m.Role)
	}
	if m.Content == nil && m.Role != "assistant" {
		return nil, badField("messages", "message %d has no content", i)
	}
	if k := m.FunctionCall.Kind(); len(m.FunctionCall) > 0 && k != 'n' {
		return nil, badField("messages", "message %d: function_call: want tool_calls", i)
	}
	if len(m.Images) > 0 && m.Images.Kind() != 'n' && compact(m.Images) != "[]" {
		return nil, badField("messages", "message %d: images: this model reads text only", i)
	}
	t := &chatTurn{}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	_, _ = d.ReadToken()
	for d.PeekKind() != '}' {
		name, _ := d.ReadToken()
		key := name.String()
		v, err := d.ReadValue()
		switch {
		case err != nil:
			return nil, badField("messages", "message %d is not valid", i)
		case v.Kind() == 'n', slices.Contains(messageHints, key):
		case key == "tool_calls":
			calls, err := m.calls(i)
			if err != nil {
				return nil, err
			}
			if len(calls) > 0 {
				t.call(calls...)
			}
		case key == "refusal":
			if m.Content == nil {
				t.set("content", string(v))
			}
		case key == "content":
			t.set(key, quote(string(*m.Content)))
		case key == "reasoning", key == "reasoning_content":
			t.set("reasoning_content", string(v))
		default:
			t.set(key, string(v))
		}
	}
	return t.think(t.text("reasoning_content")), nil
}

// messageHints are members of a message that no template reads.
var messageHints = []string{"annotations", "audio", "parsed", "cache_control", "reasoning_details", "reasoning_signature", "thinking_blocks", "provider_specific_fields", "id", "function_call", "images", "prefix", "partial"}

// chatThought is how OpenRouter asks for thoughts.
type chatThought struct {
	Effort  *string `json:"effort"`
	Enabled *bool   `json:"enabled"`
	Most    *int    `json:"max_tokens"`
	Summary *string `json:"summary"` // of no effect
	Exclude *bool   `json:"exclude"`
}

// apply tells the template.
func (t *chatThought) apply(c *conversation) error {
	if t == nil {
		return nil
	}
	f := c.fields
	if t.Most != nil && *t.Most < 0 {
		return badField("reasoning", "max_tokens: %d, want 0 or more", *t.Most)
	}
	c.thinking = t.Most
	if is(t.Exclude) {
		return badField("reasoning", "exclude: thoughts are not left out; clients may pass over reasoning_content")
	}
	if t.Effort != nil && f.ReasoningEffort == nil {
		f.ReasoningEffort = t.Effort
	}
	if t.Enabled != nil && f.EnableThinking == nil {
		f.EnableThinking = t.Enabled
	}
	return nil
}

// chatWriter turns events into JSON.
type chatWriter struct {
	parser func() *answer.Parser
	in     *chatRequest
	req    *Request
	reply  *Reply
	base   chatCompletion
}

// choice is what whole answers and chunks have in common.
func (o *chatWriter) choice(e Event) chatChoice {
	c := chatChoice{Index: e.Choice}
	if e.Finish != "" {
		c.FinishReason, c.StopReason = &e.Finish, e.reason()
	}
	if is(o.in.ReturnTokenIDs) {
		c.TokenIDs = tokenIDs(e.Tokens)
	}
	if o.req.Logprobs >= 0 {
		c.Logprobs = &chatLogprobs{Content: []chatLogprob{}}
		for _, t := range e.Tokens {
			l := chatLogprob{Token: t.Name, Logprob: t.Logprob, Bytes: numbers(t.Own), Top: []chatTop{}}
			for _, x := range t.Top {
				l.Top = append(l.Top, chatTop{x.Name, x.Logprob, numbers(x.Own)})
			}
			c.Logprobs.Content = append(c.Logprobs.Content, l)
		}
	}
	return c
}

// numbers are bytes as OpenAI writes them; those of a control token are none.
func numbers(b []byte) []int {
	out := make([]int, len(b))
	for i, c := range b {
		out[i] = int(c)
	}
	return out
}

// newChatDelta is a part of an answer as a chunk has it; nil where it has none.
func newChatDelta(e answer.Event) *chatDelta {
	call := func(c toolCallJSON) *chatDelta {
		c.Index = &e.Index
		return &chatDelta{ToolCalls: []toolCallJSON{c}}
	}
	switch e.Kind {
	case answer.Thought:
		return &chatDelta{Reasoning: &e.Text}
	case answer.Text:
		if e.Text != "" {
			return &chatDelta{Content: &e.Text}
		}
	case answer.CallStart:
		return call(toolCallJSON{ID: NewCallID(), Type: "function", Function: toolFunctionJSON{Name: e.Name}})
	case answer.CallArguments:
		return call(toolCallJSON{Function: toolFunctionJSON{Arguments: e.Text}})
	case answer.Problem:
		return &chatDelta{ToolProblem: e.Text}
	}
	return nil
}

// stream sends chunks as they come; a choice's first has the role alone.
func (o *chatWriter) stream(s *stream) error {
	usage := o.in.StreamOptions != nil && is(o.in.StreamOptions.IncludeUsage)
	begun, left := make([]bool, o.req.choices()), o.req.choices()
	parsers, called := make([]*answer.Parser, o.req.choices()), make([]bool, o.req.choices())
	for i := range parsers {
		parsers[i] = o.parser()
	}
	chunk := func(c chatChoice) error {
		out := o.base
		out.Choices = []chatChoice{c}
		if c.FinishReason != nil {
			if left--; left == 0 && !usage {
				out.Timings = newTimings(o.reply)
			}
		}
		if c.Delta.Role != "" && is(o.in.ReturnTokenIDs) {
			out.PromptTokenIDs = o.reply.Prompts[0]
		}
		return s.send("", out)
	}
	err := s.events(o.reply, func(e Event) error {
		if !begun[e.Choice] {
			begun[e.Choice] = true
			empty := ""
			if err := chunk(chatChoice{Index: e.Choice, Delta: &chatDelta{Role: "assistant", Content: &empty}}); err != nil {
				return err
			}
		}
		events := chunksOf(parsers[e.Choice], e)
		if len(events) == 0 && (len(e.Tokens) > 0 && (o.req.Logprobs >= 0 || is(o.in.ReturnTokenIDs)) || e.Finish != "") {
			events = []answer.Event{{Kind: answer.Text}} // a chunk of tokens whose text comes later
		}
		for i, x := range events {
			c := chatChoice{Index: e.Choice}
			if i == 0 {
				c = o.choice(Event{Choice: e.Choice, Tokens: e.Tokens}) // what an event says of tokens goes with its first part
			}
			called[e.Choice] = called[e.Choice] || x.Kind == answer.CallStart
			if i == len(events)-1 && e.Finish != "" {
				if c.FinishReason, c.StopReason = &e.Finish, e.reason(); called[e.Choice] {
					c.FinishReason = c.called()
				}
			}
			if c.Delta = newChatDelta(x); c.Delta == nil && c.FinishReason == nil && i > 0 {
				continue
			} else if c.Delta == nil {
				c.Delta = &chatDelta{}
			}
			if err := chunk(c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.fail(err)
	}
	if usage {
		out := o.base
		out.Choices, out.Usage, out.Timings = []chatChoice{}, newOpenAIUsage(o.reply.Usage()), newTimings(o.reply)
		if err := s.send("", out); err != nil {
			return err
		}
	}
	return s.done()
}
