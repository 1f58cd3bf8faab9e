package serve

import (
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// toolFields are those of a chat with tools, as OpenAI writes them.
type toolFields struct {
	Tools      []jsontext.Value `json:"tools"`
	ToolChoice jsontext.Value   `json:"tool_choice"`
}

type chatTool struct {
	Type     string        `json:"type"`
	Function *chatFunction `json:"function"`

	Cache jsontext.Value `json:"cache_control"` // of no effect, as the next
	Defer *bool          `json:"defer_loading"`
}

type chatFunction struct {
	Name        string         `json:"name"`
	Description *string        `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      *bool          `json:"strict"`        // of no effect: a forced call satisfies its schema
	Cache       jsontext.Value `json:"cache_control"` // of no effect, as the next
	Response    jsontext.Value `json:"response"`
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

	Extra    jsontext.Value `json:"extra_content,omitzero"` // of calls that come back, of no effect, as the next two
	Specific jsontext.Value `json:"provider_specific_fields,omitzero"`
	Cache    jsontext.Value `json:"cache_control,omitzero"`
}

type toolFunctionJSON struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// use reads the fields.
func (f *toolFields) use(ctx context.Context, s *Server) (*toolUse, error) {
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
		var t chatTool
		if err := decodeTool(in, i, &t); err != nil {
			return nil, err
		}
		if t.Function == nil {
			return nil, badField("tools", "tool %d: want type function and a function", i)
		}
		one := newTool(t.Function.Name, t.Function.Description, t.Function.Parameters)
		one.raw = in
		tools = append(tools, one)
	}
	return s.choose(ctx, tools, out, f.ToolChoice)
}

// choose puts tools and tool_choice together; out are the kinds of tools that do not run here.
func (s *Server) choose(ctx context.Context, tools []tool, out []string, given jsontext.Value) (*toolUse, error) {
	choice, tools, err := toolChoice(given, tools)
	if err != nil {
		return nil, err
	}
	if err := offered(ctx, tools, out, choice); err != nil {
		return nil, err
	}
	return s.newToolUse(tools, choice)
}

// toolType is the type of a tool, whatever else it has.
func toolType(i int, v jsontext.Value) (string, error) {
	var t struct {
		Type string `json:"type"`
	}
	if v.Kind() != '{' || json.Unmarshal(v, &t) != nil || t.Type == "" || len(t.Type) > maxToolBytes {
		return "", badField("tools", "tool %d: want type function and a function", i)
	}
	return t.Type, nil
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

// toolChoice reads tool_choice: a word, the function to call, or the functions that may be called, as the list that is offered.
func toolChoice(v jsontext.Value, tools []tool) (string, []tool, error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return "auto", tools, nil
	}
	var word string
	if json.Unmarshal(v, &word) == nil {
		if word == "none" || word == "auto" || word == "required" {
			return word, tools, nil
		}
		if word == "any" { // Mistral's word
			return "required", tools, nil
		}
		return "", nil, badField("tool_choice", "%.20q: want none, auto, required or a function", word)
	}
	var named chosenTool
	if json.Unmarshal(v, &named, json.RejectUnknownMembers(true)) != nil {
		var t struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal(v, &t)
		return "", nil, badField("tool_choice", "type %.40q: want none, auto, required or a function", t.Type)
	}
	if named.Type == "allowed_tools" {
		return named.allowed(tools)
	}
	if name := named.name(); named.Type == "function" && name != nil {
		return "=" + *name, tools, nil
	}
	return "", nil, badField("tool_choice", "type %.40q: want none, auto, required or a function", named.Type)
}

// chosenTool names a tool, as chat or Responses do.
type chosenTool struct {
	Type     string  `json:"type"`
	Name     *string `json:"name"` // as Responses has it
	Function *struct {
		Name string `json:"name"`
	} `json:"function"`

	Allowed *allowedTools `json:"allowed_tools"` // as chat has them
	allowedTools
}

type allowedTools struct {
	Mode  string       `json:"mode"`
	Tools []chosenTool `json:"tools"`
}

func (c *chosenTool) name() *string {
	if (c.Function == nil) == (c.Name == nil) {
		return nil
	}
	if c.Function != nil {
		return &c.Function.Name
	}
	return c.Name
}

// allowed keeps the tools that may be called; those that do not run here may be named too.
func (c *chosenTool) allowed(tools []tool) (string, []tool, error) {
	a := c.Allowed
	if a == nil {
		a = &c.allowedTools
	}
	if a.Mode != "auto" && a.Mode != "required" {
		return "", nil, badField("tool_choice", "mode %.20q: want auto or required", a.Mode)
	}
	var kept []tool
	for _, t := range tools {
		if slices.ContainsFunc(a.Tools, func(c chosenTool) bool { n := c.name(); return c.Type == "function" && n != nil && *n == t.Name }) {
			kept = append(kept, t)
		}
	}
	if len(kept) == 0 {
		return "", nil, badField("tool_choice", "none of the allowed tools is a function of this request")
	}
	return a.Mode, kept, nil
}

// calls are those of message i.
func (f *toolMessageFields) calls(i int) ([]Call, error) {
	var calls []Call
	for _, c := range f.ToolCalls {
		if strings.TrimSpace(c.Function.Arguments) == "" {
			c.Function.Arguments = "{}"
		}
		if c.Type == "" {
			c.Type = "function"
		}
		if c.Type != "function" || c.Function.Name == "" || jsontext.Value(c.Function.Arguments).Kind() != '{' || !jsontext.Value(c.Function.Arguments).IsValid() {
			return nil, badField("messages", "message %d: tool_calls: want type function, a name, and arguments that are a JSON object in a string", i)
		}
		calls = append(calls, Call{c.ID, c.Function.Name, c.Function.Arguments})
	}
	return calls, nil
}

// toolCalls are calls in OpenAI's shape.
func toolCalls(calls []Call) (out []toolCallJSON) {
	for _, c := range calls {
		out = append(out, toolCallJSON{ID: c.ID, Type: "function", Function: toolFunctionJSON{Name: c.Name, Arguments: c.Arguments}})
	}
	return out
}
