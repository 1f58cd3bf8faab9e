package serve

import "github.com/go-json-experiment/json/jsontext"

// toolFields are those of a chat with tools.
type toolFields struct {
	Tools             jsontext.Value `json:"tools"`
	ToolChoice        jsontext.Value `json:"tool_choice"`
	ParallelToolCalls *bool          `json:"parallel_tool_calls"`
}

// toolMessageFields are those of messages that call tools and answer calls.
type toolMessageFields struct {
	ToolCalls  jsontext.Value `json:"tool_calls"`
	ToolCallID *string        `json:"tool_call_id"`
}

// tools fills a request in.
func (f *toolFields) tools(s *Server, r *Request) error {
	if len(f.Tools) > 0 && f.Tools.Kind() != 'n' {
		return badField("tools", "not supported")
	}
	if len(f.ToolChoice) > 0 && f.ToolChoice.Kind() != 'n' && string(f.ToolChoice) != `"none"` {
		return badField("tool_choice", "no tools are given")
	}
	return nil
}
