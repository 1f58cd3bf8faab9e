package serve

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/model"
	"terrace/serve/answer"
)

// response is an answer in OpenAI's shape; pointers without a value are null where its document has null, else left out.
type response struct {
	ID                string              `json:"id"`
	Object            string              `json:"object"`
	CreatedAt         int64               `json:"created_at"`
	Status            string              `json:"status"`
	Background        bool                `json:"background"`
	Error             *responseError      `json:"error"`
	IncompleteDetails *incomplete         `json:"incomplete_details"`
	Instructions      *string             `json:"instructions"`
	MaxOutputTokens   *int                `json:"max_output_tokens"`
	Model             string              `json:"model"`
	Output            []responseOut       `json:"output"`
	ParallelToolCalls bool                `json:"parallel_tool_calls"`
	Previous          *string             `json:"previous_response_id"`
	Reasoning         responseNone        `json:"reasoning"`
	Store             bool                `json:"store"`
	Temperature       float64             `json:"temperature"`
	Text              responseFormatShown `json:"text"`
	ToolChoice        jsontext.Value      `json:"tool_choice"`
	Tools             jsontext.Value      `json:"tools"`
	TopP              float64             `json:"top_p"`
	Truncation        string              `json:"truncation"`
	Usage             *responseUsage      `json:"usage,omitzero"`
	User              *string             `json:"user,omitzero"`
	Metadata          map[string]string   `json:"metadata"`
	ToolProblem       string              `json:"tool_call_error,omitzero"` // why a text that began like a call is none
	Timings           *timingsJSON        `json:"timings,omitzero"`
	TokenIDs          []int               `json:"token_ids,omitzero"`
	PromptIDs         []int               `json:"prompt_token_ids,omitzero"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type responseNone struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type responseFormatShown struct {
	Format textFormat `json:"format"`
}

type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"` // always none: nothing is charged for
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// responseOut is an item of the answer: a message, a thought, or a call.
type responseOut struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Role      string          `json:"role,omitzero"`
	Content   *[]responsePart `json:"content,omitzero"`
	CallID    string          `json:"call_id,omitzero"`
	Name      string          `json:"name,omitzero"`
	Arguments *string         `json:"arguments,omitzero"`
	Summary   *[]responsePart `json:"summary,omitzero"` // of a thought, always none
}

type responsePart struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations,omitzero"` // of a text, always none, as the next
	Logprobs    []string `json:"logprobs,omitzero"`
}

func outputText(text string) responsePart {
	return responsePart{"output_text", text, []string{}, []string{}}
}

// response is the answer before anything of it is known.
func (f *responsesRequest) response(name string, tools *toolUse, sampler model.SamplerOptions) response {
	out := response{ID: "resp_" + newID(), Object: "response", CreatedAt: time.Now().Unix(), Status: "in_progress", Instructions: f.Instructions, MaxOutputTokens: f.MaxOutputTokens,
		Model: name, Output: []responseOut{}, ParallelToolCalls: f.ParallelToolCalls == nil || *f.ParallelToolCalls, Temperature: sampler.Temperature, TopP: sampler.TopP, Truncation: "disabled", User: f.User, Metadata: f.Metadata}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	out.Text.Format = textFormat{Type: "text"}
	if f.Text != nil && f.Text.Format != nil {
		out.Text.Format = *f.Text.Format
	}
	out.ToolChoice, out.Tools = jsontext.Value(`"auto"`), jsontext.Value("[]")
	if len(f.ToolChoice) > 0 {
		out.ToolChoice = f.ToolChoice
	}
	if len(f.Tools) > 0 {
		out.Tools, _ = json.Marshal(f.Tools)
	}
	return out
}

// responseWriter turns events into the answer.
type responseWriter struct {
	base   response
	reply  *Reply
	parser *answer.Parser
	ids    bool
	tokens []Token
	number int // of the next event

	item responseOut // the one that is being sent
	kind answer.Kind // of it
	open bool
	text string // of it so far, or its arguments
}

// newItem is an item of a kind before anything of it is known.
func newItem(kind answer.Kind, name string) responseOut {
	switch kind {
	case answer.Thought:
		return responseOut{Type: "reasoning", ID: "rs_" + newID(), Summary: &[]responsePart{}}
	case answer.CallStart:
		id := newID()
		return responseOut{Type: "function_call", ID: "fc_" + id, CallID: "call_" + id, Name: name}
	}
	return responseOut{Type: "message", ID: "msg_" + newID(), Role: "assistant"}
}

// with is an item with its text or arguments.
func (m responseOut) with(status, text string) responseOut {
	m.Status = status
	switch m.Type {
	case "reasoning":
		m.Content = &[]responsePart{{Type: "reasoning_text", Text: text}}
	case "function_call":
		m.Arguments = &text
	default:
		m.Content = &[]responsePart{outputText(text)}
	}
	return m
}

// whole puts an answer that is not streamed into its place.
func (o *responseWriter) whole(all *parts) {
	for _, p := range all.list {
		text := p.text
		if p.kind == answer.CallStart {
			text = p.call.Arguments
		}
		o.base.Output = append(o.base.Output, newItem(p.kind, p.call.Name).with("completed", text))
	}
	if len(all.list) == 0 {
		o.base.Output = append(o.base.Output, newItem(answer.Text, "").with("completed", ""))
	}
	o.base.ToolProblem = all.problem
}

// end notes how the answer ended.
func (o *responseWriter) end(e Event) {
	o.base.Status = "completed"
	if e.Finish == FinishLength {
		o.base.Status, o.base.IncompleteDetails = "incomplete", &incomplete{"max_output_tokens"}
		for i := range o.base.Output {
			o.base.Output[i].Status = "incomplete"
		}
	}
	u := o.reply.Usage()
	o.base.Usage = &responseUsage{Input: u.Prompt, Output: u.Generated, Total: u.Prompt + u.Generated}
	o.base.Usage.InputDetails.Cached, o.base.Usage.OutputDetails.Reasoning = u.Cached, u.Thought
	o.base.Timings = newTimings(o.reply)
	if o.ids {
		o.base.TokenIDs, o.base.PromptIDs = tokenIDs(o.tokens), o.reply.Prompts[0]
	}
}

// responseEvent is one event of a stream; its fields are those of all kinds.
type responseEvent struct {
	Type         string        `json:"type"`
	Number       int           `json:"sequence_number"`
	Response     *response     `json:"response,omitzero"`
	OutputIndex  *int          `json:"output_index,omitzero"`
	ItemID       string        `json:"item_id,omitzero"`
	ContentIndex *int          `json:"content_index,omitzero"`
	Item         *responseOut  `json:"item,omitzero"`
	Part         *responsePart `json:"part,omitzero"`
	Delta        *string       `json:"delta,omitzero"`
	Text         *string       `json:"text,omitzero"`
	Name         string        `json:"name,omitzero"`
	Arguments    *string       `json:"arguments,omitzero"`
	Logprobs     *[]string     `json:"logprobs,omitzero"` // always none
	Timings      *timingsJSON  `json:"timings,omitzero"`
}

var none = &[]string{}

// stream sends the answer as it comes.
func (o *responseWriter) stream(s *stream) error {
	send := func(e responseEvent) error {
		e.Number = o.number
		o.number++
		return s.send(e.Type, e)
	}
	begun := false
	err := s.events(o.reply, func(e Event) error {
		if !begun {
			begun = true
			for _, kind := range []string{"response.created", "response.in_progress"} {
				b := o.base
				if err := send(responseEvent{Type: kind, Response: &b}); err != nil {
					return err
				}
			}
		}
		o.tokens = append(o.tokens, e.Tokens...)
		events := o.parser.Push(e.Text)
		if e.Finish != "" {
			events = append(events, o.parser.End()...)
		}
		for _, x := range events {
			if err := o.part(send, x); err != nil {
				return err
			}
		}
		if e.Finish == "" {
			return nil
		}
		if len(o.base.Output) == 0 && !o.open { // an answer has an item at least
			if err := o.begin(send, answer.Text, ""); err != nil {
				return err
			}
		}
		status := "completed"
		if e.Finish == FinishLength {
			status = "incomplete"
		}
		if err := o.close(send, status); err != nil {
			return err
		}
		o.end(e)
		return send(responseEvent{Type: "response." + o.base.Status, Response: &o.base, Timings: o.base.Timings})
	})
	if err != nil && s.begun && s.r.Context().Err() == nil {
		told := asError(err)
		code := "server_error"
		if told.Status < http.StatusInternalServerError {
			code = "invalid_prompt"
		}
		o.base.Status, o.base.Error = "failed", &responseError{code, told.Message}
		if sent := send(responseEvent{Type: "response.failed", Response: &o.base}); sent != nil {
			return sent
		}
	}
	return err
}

// part sends one part of the answer; an item ends where a part of another kind begins.
func (o *responseWriter) part(send func(responseEvent) error, e answer.Event) error {
	switch e.Kind {
	case answer.Problem:
		o.base.ToolProblem = e.Text
		return nil
	case answer.CallEnd:
		return o.close(send, "completed")
	case answer.CallStart:
		if err := o.close(send, "completed"); err != nil {
			return err
		}
		return o.begin(send, answer.CallStart, e.Name)
	case answer.Thought, answer.Text:
		if !o.open || o.kind != e.Kind {
			if err := o.close(send, "completed"); err != nil {
				return err
			}
			if err := o.begin(send, e.Kind, ""); err != nil {
				return err
			}
		}
	}
	o.text += e.Text
	delta := responseEvent{Type: o.deltas() + ".delta", OutputIndex: o.at(), ItemID: o.item.ID, Delta: &e.Text}
	if o.kind != answer.CallStart {
		delta.ContentIndex = new(int)
	}
	if o.kind == answer.Text {
		delta.Logprobs = none
	}
	return send(delta)
}

// deltas is what the events of the open item's text are called.
func (o *responseWriter) deltas() string {
	switch o.kind {
	case answer.Thought:
		return "response.reasoning_text"
	case answer.CallStart:
		return "response.function_call_arguments"
	}
	return "response.output_text"
}

// at is the place of the open item.
func (o *responseWriter) at() *int {
	n := len(o.base.Output)
	return &n
}

func (o *responseWriter) begin(send func(responseEvent) error, kind answer.Kind, name string) error {
	o.item, o.kind, o.open, o.text = newItem(kind, name), kind, true, ""
	m := o.item.with("in_progress", "")
	if kind != answer.CallStart {
		m.Content = &[]responsePart{}
	}
	if err := send(responseEvent{Type: "response.output_item.added", OutputIndex: o.at(), Item: &m}); err != nil || kind != answer.Text {
		return err
	}
	p := outputText("")
	return send(responseEvent{Type: "response.content_part.added", OutputIndex: o.at(), ContentIndex: new(int), ItemID: m.ID, Part: &p})
}

// close ends the item that is open, if one is, and puts it into the answer.
func (o *responseWriter) close(send func(responseEvent) error, status string) error {
	if !o.open {
		return nil
	}
	o.open = false
	text, m := o.text, o.item.with(status, o.text)
	done := responseEvent{Type: o.deltas() + ".done", OutputIndex: o.at(), ItemID: m.ID}
	switch o.kind {
	case answer.CallStart:
		done.Name, done.Arguments = m.Name, &text
	case answer.Thought:
		done.ContentIndex, done.Text = new(int), &text
	default:
		done.ContentIndex, done.Text, done.Logprobs = new(int), &text, none
	}
	if err := send(done); err != nil {
		return err
	}
	if o.kind == answer.Text {
		p := outputText(text)
		if err := send(responseEvent{Type: "response.content_part.done", OutputIndex: o.at(), ContentIndex: new(int), ItemID: m.ID, Part: &p}); err != nil {
			return err
		}
	}
	if err := send(responseEvent{Type: "response.output_item.done", OutputIndex: o.at(), Item: &m}); err != nil {
		return err
	}
	o.base.Output = append(o.base.Output, m)
	return nil
}
