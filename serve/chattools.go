package serve

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// toolFields are those of a chat with tools, as OpenAI writes them.
type toolFields struct {
	Tools             []withRaw[chatTool] `json:"tools"`
	ToolChoice        jsontext.Value      `json:"tool_choice"`
	ParallelToolCalls *bool               `json:"parallel_tool_calls"` // of no effect: the model decides
}

type chatTool struct {
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"` // of no effect: a forced call satisfies its schema
}

// toolMessageFields are those of messages that call tools and answer calls.
type toolMessageFields struct {
	ToolCalls  []toolCallJSON `json:"tool_calls"`
	ToolCallID *string        `json:"tool_call_id"`
}

type toolCallJSON struct {
	Index    *int             `json:"index,omitempty"` // in chunks
	ID       string           `json:"id,omitempty"`    // not in the chunks after the first, as the next
	Type     string           `json:"type,omitempty"`
	Function toolFunctionJSON `json:"function"`
}

type toolFunctionJSON struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// use reads the fields.
func (f *toolFields) use(s *Server) (*toolUse, error) {
	var tools []tool
	for i, in := range f.Tools {
		t := in.value
		if t.Type != "function" || t.Function == nil {
			return nil, badField("tools", "tool %d: want type function and a function", i)
		}
		one := newTool(t.Function.Name, t.Function.Description, t.Function.Parameters)
		one.raw = in.raw
		tools = append(tools, one)
	}
	choice, err := f.choice()
	if err != nil {
		return nil, err
	}
	return s.newToolUse(tools, choice)
}

func newTool(name string, description *string, parameters jsontext.Value) tool {
	t := tool{Name: name, Parameters: parameters}
	if description != nil {
		t.Description = *description
	}
	if parameters.Kind() == 'n' {
		t.Parameters = nil
	}
	return t
}

// choice reads tool_choice: a word, or the function to call.
func (f *toolFields) choice() (string, error) {
	if len(f.ToolChoice) == 0 || f.ToolChoice.Kind() == 'n' {
		return "auto", nil
	}
	var word string
	if json.Unmarshal(f.ToolChoice, &word) == nil {
		if word == "none" || word == "auto" || word == "required" {
			return word, nil
		}
		return "", badField("tool_choice", "%.20q: want none, auto, required or a function", word)
	}
	var named struct {
		Type     string  `json:"type"`
		Name     *string `json:"name"` // as Responses has it
		Function *struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(f.ToolChoice, &named, json.RejectUnknownMembers(true)) != nil || named.Type != "function" || (named.Function == nil) == (named.Name == nil) {
		return "", badField("tool_choice", "want none, auto, required or a function")
	}
	if named.Name != nil {
		return "=" + *named.Name, nil
	}
	return "=" + named.Function.Name, nil
}

// calls are those of message i.
func (f *toolMessageFields) calls(i int) ([]toolCall, error) {
	var calls []toolCall
	for _, c := range f.ToolCalls {
		if c.Type != "function" || c.Function.Name == "" || jsontext.Value(c.Function.Arguments).Kind() != '{' || !jsontext.Value(c.Function.Arguments).IsValid() {
			return nil, badField("messages", "message %d: tool_calls: want type function, a name, and arguments that are a JSON object in a string", i)
		}
		calls = append(calls, toolCall{c.ID, c.Function.Name, c.Function.Arguments})
	}
	return calls, nil
}

// toolCalls are calls in OpenAI's shape.
func toolCalls(calls []toolCall) (out []toolCallJSON) {
	for _, c := range calls {
		out = append(out, toolCallJSON{ID: c.ID, Type: "function", Function: toolFunctionJSON{c.Name, c.Arguments}})
	}
	return out
}
