package serve

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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

// responseOut is an item of the answer: a message, or a call.
type responseOut struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Status    string          `json:"status"`
	Role      string          `json:"role,omitzero"`
	Content   *[]responsePart `json:"content,omitzero"`
	CallID    string          `json:"call_id,omitzero"`
	Name      string          `json:"name,omitzero"`
	Arguments *string         `json:"arguments,omitzero"`
}

type responsePart struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"` // always none
	Logprobs    []string `json:"logprobs"`    // always none
}

func outputText(text string) responsePart {
	return responsePart{"output_text", text, []string{}, []string{}}
}

// response is the answer before anything of it is known.
func (f *responsesRequest) response(model string, tools *toolUse) response {
	out := response{ID: "resp_" + newID(), Object: "response", CreatedAt: time.Now().Unix(), Status: "in_progress", Instructions: f.Instructions, MaxOutputTokens: f.MaxOutputTokens,
		Model: model, Output: []responseOut{}, ParallelToolCalls: f.ParallelToolCalls == nil || *f.ParallelToolCalls, Temperature: 1, TopP: 1, Truncation: "disabled", User: f.User, Metadata: f.Metadata}
	if f.Temperature != nil {
		out.Temperature = *f.Temperature
	}
	if f.TopP != nil {
		out.TopP = *f.TopP
	}
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
	base    response
	reply   *Reply
	gate    gate
	ids     bool
	tokens  []Token
	number  int // of the next event
	message responseOut
	text    string // of the message so far
	open    bool   // it is being sent
}

func (o *responseWriter) newMessage(status string, parts ...responsePart) responseOut {
	if o.message.ID == "" {
		o.message = responseOut{Type: "message", ID: "msg_" + newID(), Role: "assistant"}
	}
	if parts == nil {
		parts = []responsePart{}
	}
	m := o.message
	m.Status, m.Content = status, &parts
	return m
}

func callItem(c toolCall, status, arguments string) responseOut {
	return responseOut{Type: "function_call", ID: "fc_" + c.ID[len("call_"):], Status: status, CallID: c.ID, Name: c.Name, Arguments: &arguments}
}

// items puts what was made into the answer.
func (o *responseWriter) items(text string, calls []toolCall, problem string) {
	if calls == nil {
		o.base.Output = append(o.base.Output, o.newMessage("completed", outputText(text)))
	}
	for _, c := range calls {
		o.base.Output = append(o.base.Output, callItem(c, "completed", c.Arguments))
	}
	o.base.ToolProblem = problem
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
	o.base.Usage.InputDetails.Cached = u.Cached
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
		text, calls, problem := o.gate.push(e.Text, e.Finish != "")
		if err := o.sendText(send, text, e.Finish != "" && calls == nil, e.Finish); err != nil {
			return err
		}
		for i, c := range calls {
			if err := o.sendCall(send, i, c); err != nil {
				return err
			}
		}
		if e.Finish == "" {
			return nil
		}
		o.items(o.text, calls, problem)
		o.end(e)
		return send(responseEvent{Type: "response." + o.base.Status, Response: &o.base, Timings: o.base.Timings})
	})
	if err != nil && s.begun && s.r.Context().Err() == nil {
		o.base.Status, o.base.Error = "failed", &responseError{"server_error", asError(err).Message}
		if sent := send(responseEvent{Type: "response.failed", Response: &o.base}); sent != nil {
			return sent
		}
	}
	return err
}

// sendText sends more of the message; the end closes it, and opens it before where nothing was sent.
func (o *responseWriter) sendText(send func(responseEvent) error, text string, end bool, finish Finish) error {
	at := 0
	var events []responseEvent
	if !o.open && (text != "" || end) {
		o.open = true
		m, p := o.newMessage("in_progress"), outputText("")
		events = append(events, responseEvent{Type: "response.output_item.added", OutputIndex: &at, Item: &m},
			responseEvent{Type: "response.content_part.added", OutputIndex: &at, ContentIndex: &at, ItemID: m.ID, Part: &p})
	}
	if text != "" {
		o.text += text
		events = append(events, responseEvent{Type: "response.output_text.delta", OutputIndex: &at, ContentIndex: &at, ItemID: o.message.ID, Delta: &text, Logprobs: none})
	}
	if end {
		whole, p, status := o.text, outputText(o.text), "completed"
		if finish == FinishLength {
			status = "incomplete"
		}
		m := o.newMessage(status, p)
		events = append(events, responseEvent{Type: "response.output_text.done", OutputIndex: &at, ContentIndex: &at, ItemID: m.ID, Text: &whole, Logprobs: none},
			responseEvent{Type: "response.content_part.done", OutputIndex: &at, ContentIndex: &at, ItemID: m.ID, Part: &p},
			responseEvent{Type: "response.output_item.done", OutputIndex: &at, Item: &m})
	}
	for _, e := range events {
		if err := send(e); err != nil {
			return err
		}
	}
	return nil
}

func (o *responseWriter) sendCall(send func(responseEvent) error, at int, c toolCall) error {
	begun, done := callItem(c, "in_progress", ""), callItem(c, "completed", c.Arguments)
	for _, e := range []responseEvent{
		{Type: "response.output_item.added", OutputIndex: &at, Item: &begun},
		{Type: "response.function_call_arguments.delta", OutputIndex: &at, ItemID: done.ID, Delta: &c.Arguments},
		{Type: "response.function_call_arguments.done", OutputIndex: &at, ItemID: done.ID, Name: c.Name, Arguments: &c.Arguments},
		{Type: "response.output_item.done", OutputIndex: &at, Item: &done},
	} {
		if err := send(e); err != nil {
			return err
		}
	}
	return nil
}
