package serve

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/serve/answer"
)

// absent is null: what the API has and answers of this server have not.
type absent = *struct{}

type anthropicReply struct {
	ID           string         `json:"id"`
	Type         string         `json:"type"`
	Role         string         `json:"role"`
	Model        string         `json:"model"`
	Content      []anthropicOut `json:"content"`
	StopReason   *string        `json:"stop_reason"`
	StopSequence *string        `json:"stop_sequence"`
	StopDetails  absent         `json:"stop_details"`
	Container    absent         `json:"container"`
	Diagnostics  absent         `json:"diagnostics"`
	Usage        anthropicUsage `json:"usage"`
	ToolProblem  string         `json:"tool_call_error,omitzero"` // why a text that began like a call is none
	Timings      *timingsJSON   `json:"timings,omitzero"`
	TokenIDs     []int          `json:"token_ids,omitzero"`
	PromptIDs    []int          `json:"prompt_token_ids,omitzero"`
}

// anthropicOut is a block of an answer: text, a thought, or a call.
type anthropicOut struct {
	Type      string         `json:"type"`
	Text      *string        `json:"text,omitzero"`
	Citations jsontext.Value `json:"citations,omitzero"` // null, of a text
	Thinking  *string        `json:"thinking,omitzero"`
	Signature *string        `json:"signature,omitzero"`
	ID        string         `json:"id,omitzero"`
	Name      string         `json:"name,omitzero"`
	Input     jsontext.Value `json:"input,omitzero"`
	Caller    jsontext.Value `json:"caller,omitzero"`
}

// anthropicCount is what a stream's end says of tokens.
type anthropicCount struct {
	Input   int    `json:"input_tokens"`
	Created int    `json:"cache_creation_input_tokens"`
	Read    int    `json:"cache_read_input_tokens"`
	Output  int    `json:"output_tokens"`
	Details absent `json:"output_tokens_details"`
	Tools   absent `json:"server_tool_use"`
}

type anthropicUsage struct {
	anthropicCount
	Creation absent `json:"cache_creation"`
	Place    absent `json:"inference_geo"`
	Tier     absent `json:"service_tier"`
	Speed    absent `json:"speed"`
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id"`
}

// newAnthropicError is an error as w's client is told of it.
func newAnthropicError(w http.ResponseWriter, e *Error) (j anthropicError) {
	j.Type, j.Error.Type, j.Error.Message, j.RequestID = "error", e.kind(), e.Message, w.Header().Get("Request-Id")
	switch e.Status {
	case http.StatusRequestEntityTooLarge:
		j.Error.Type = "request_too_large"
	case http.StatusInternalServerError:
		j.Error.Type = "api_error"
	}
	return j
}

func writeAnthropicError(w http.ResponseWriter, e *Error) {
	_ = writeJSON(w, e.Status, newAnthropicError(w, e))
}

// messageWriter turns events into Anthropic's JSON.
type messageWriter struct {
	message anthropicReply
	reply   *Reply
	parser  *answer.Parser
	ids     bool // token ids are wanted
	tokens  []Token
	block   int         // the one that is open, or the next
	open    answer.Kind // of the block that is open, if one is
	isOpen  bool
	called  bool
}

func textBlock(text string) anthropicOut {
	return anthropicOut{Type: "text", Text: &text, Citations: jsontext.Value("null")}
}

// thinkingBlock has a signature that means nothing here: clients send it back with the block.
func thinkingBlock(text, signature string) anthropicOut {
	return anthropicOut{Type: "thinking", Thinking: &text, Signature: &signature}
}

const thinkingSignature = "terrace"

func useBlock(c Call, input string) anthropicOut {
	return anthropicOut{Type: "tool_use", ID: "toolu_" + strings.TrimPrefix(c.ID, "call_"), Name: c.Name, Input: jsontext.Value(input), Caller: jsontext.Value(`{"type":"direct"}`)}
}

func (o *messageWriter) usage() anthropicUsage {
	u := o.reply.Usage()
	n := u.Prompt
	if n == 0 {
		n = len(o.reply.Prompts[0]) // it is still being read
	}
	return anthropicUsage{anthropicCount: anthropicCount{Input: n - u.Cached, Read: u.Cached, Output: u.Generated}}
}

// end notes why the answer ended.
func (o *messageWriter) end(e Event) {
	reason := "end_turn"
	switch {
	case e.Cut != "":
		reason = "model_context_window_exceeded"
	case e.Finish == FinishLength:
		reason = "max_tokens"
	case o.called:
		reason = "tool_use"
	case e.Stop != "":
		reason = "stop_sequence"
		o.message.StopSequence = &e.Stop
	}
	o.message.StopReason, o.message.Usage = &reason, o.usage()
}

// whole is an answer that is not streamed.
func (o *messageWriter) whole(e Event) anthropicReply {
	all := partsOf(o.parser, e.Text)
	for _, p := range all.list {
		switch p.kind {
		case answer.Thought:
			o.message.Content = append(o.message.Content, thinkingBlock(p.text, thinkingSignature))
		case answer.Text:
			o.message.Content = append(o.message.Content, textBlock(p.text))
		case answer.CallStart:
			o.called = true
			o.message.Content = append(o.message.Content, useBlock(p.call, p.call.Arguments))
		}
	}
	if len(all.list) == 0 {
		o.message.Content = append(o.message.Content, textBlock(""))
	}
	o.end(e)
	o.message.ToolProblem, o.message.Timings = all.problem, newTimings(o.reply)
	if o.ids {
		o.message.TokenIDs, o.message.PromptIDs = tokenIDs(e.Tokens), o.reply.Prompts[0]
	}
	return o.message
}

// messageEvent is one event of a stream; its fields are those of all kinds.
type messageEvent struct {
	Type    string          `json:"type"`
	Message *anthropicReply `json:"message,omitzero"`
	Index   *int            `json:"index,omitzero"`
	Block   *anthropicOut   `json:"content_block,omitzero"`
	Delta   *messageDelta   `json:"delta,omitzero"`
	Usage   *anthropicCount `json:"usage,omitzero"`
	Timings *timingsJSON    `json:"timings,omitzero"`
	IDs     []int           `json:"token_ids,omitzero"`
}

type messageDelta struct {
	Type         string         `json:"type,omitzero"`
	Text         *string        `json:"text,omitzero"`
	Thinking     *string        `json:"thinking,omitzero"`
	Signature    *string        `json:"signature,omitzero"`
	PartialJSON  *string        `json:"partial_json,omitzero"`
	StopReason   *string        `json:"stop_reason,omitzero"`
	StopSequence jsontext.Value `json:"stop_sequence,omitzero"`
	StopDetails  jsontext.Value `json:"stop_details,omitzero"`
	Container    jsontext.Value `json:"container,omitzero"`
	ToolProblem  string         `json:"tool_call_error,omitzero"`
}

// stream sends the answer as it comes.
func (o *messageWriter) stream(s *stream) error {
	send := func(e messageEvent) error { return s.send(e.Type, e) }
	begun := false
	begin := func() error {
		if begun {
			return nil
		}
		begun = true
		m := o.message
		m.Usage = o.usage()
		if o.ids {
			m.PromptIDs = o.reply.Prompts[0]
		}
		return send(messageEvent{Type: "message_start", Message: &m})
	}
	err := s.events(o.reply, func(e Event) error {
		if err := begin(); err != nil {
			return err
		}
		o.tokens = append(o.tokens, e.Tokens...)
		events := o.parser.Push(e.Text)
		if e.Finish != "" {
			events = append(events, o.parser.End()...)
		}
		problem := ""
		for _, x := range events {
			if x.Kind == answer.Problem {
				problem = x.Text
			} else if err := o.part(send, x); err != nil {
				return err
			}
		}
		if e.Finish == "" {
			return nil
		}
		if o.block == 0 && !o.isOpen { // an answer has a block at least
			if err := o.begin(send, answer.Text, textBlock("")); err != nil {
				return err
			}
		}
		if err := o.close(send); err != nil {
			return err
		}
		o.end(e)
		return o.last(send, problem)
	})
	if err != nil && s.begun && s.r.Context().Err() == nil {
		if sent := s.send("error", newAnthropicError(s.w, asError(err))); sent != nil {
			return sent
		}
	}
	return err
}

// part sends one part of the answer; a block ends where a part of another kind begins.
func (o *messageWriter) part(send func(messageEvent) error, e answer.Event) error {
	delta := messageDelta{}
	block := anthropicOut{}
	switch e.Kind {
	case answer.Thought:
		block, delta = thinkingBlock("", ""), messageDelta{Type: "thinking_delta", Thinking: &e.Text}
	case answer.Text:
		block, delta = textBlock(""), messageDelta{Type: "text_delta", Text: &e.Text}
	case answer.CallStart:
		o.called = true
		if err := o.close(send); err != nil {
			return err
		}
		return o.begin(send, answer.CallStart, useBlock(Call{ID: newID(), Name: e.Name}, "{}"))
	case answer.CallArguments:
		delta = messageDelta{Type: "input_json_delta", PartialJSON: &e.Text}
	case answer.CallEnd:
		return o.close(send)
	}
	if e.Kind != answer.CallArguments && (!o.isOpen || o.open != e.Kind) {
		if err := o.close(send); err != nil {
			return err
		}
		if err := o.begin(send, e.Kind, block); err != nil {
			return err
		}
	}
	return send(messageEvent{Type: "content_block_delta", Index: o.index(), Delta: &delta})
}

// index is the number of the block that is open, as an event has it.
func (o *messageWriter) index() *int {
	i := o.block
	return &i
}

func (o *messageWriter) begin(send func(messageEvent) error, kind answer.Kind, block anthropicOut) error {
	o.open, o.isOpen = kind, true
	return send(messageEvent{Type: "content_block_start", Index: o.index(), Block: &block})
}

// close ends the block that is open, if one is.
func (o *messageWriter) close(send func(messageEvent) error) error {
	if !o.isOpen {
		return nil
	}
	if o.open == answer.Thought {
		signature := thinkingSignature
		if err := send(messageEvent{Type: "content_block_delta", Index: o.index(), Delta: &messageDelta{Type: "signature_delta", Signature: &signature}}); err != nil {
			return err
		}
	}
	o.isOpen = false
	err := send(messageEvent{Type: "content_block_stop", Index: o.index()})
	o.block++
	return err
}

// last sends why the answer ended, and what it took.
func (o *messageWriter) last(send func(messageEvent) error, problem string) error {
	null := jsontext.Value("null")
	stop := null
	if o.message.StopSequence != nil {
		stop = jsontext.Value(quote(*o.message.StopSequence))
	}
	if err := send(messageEvent{Type: "message_delta", Delta: &messageDelta{StopReason: o.message.StopReason, StopSequence: stop, StopDetails: null, Container: null, ToolProblem: problem}, Usage: &o.message.Usage.anthropicCount}); err != nil {
		return err
	}
	e := messageEvent{Type: "message_stop", Timings: newTimings(o.reply)}
	if o.ids {
		e.IDs = tokenIDs(o.tokens)
	}
	return send(e)
}
