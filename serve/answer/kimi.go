package answer

import "strings"

// Kimi's forms. K2: a section of <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|>. K3: tags
// of <|open|>TAG KEY="…"<|sep|> and <|close|>TAG<|sep|>, with the kind of each argument.
var (
	kimiFamily = family{
		name: "kimi-k2", models: "Kimi K2, K2 Thinking", uses: holds("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
		example: "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\": 1}<|tool_call_end|><|tool_calls_section_end|>",
		form: Form{calls: []caller{&namedCalls{
			sections: []string{"<|tool_calls_section_begin|>"},
			open:     []string{"<|tool_call_begin|>"},
			close:    []string{"<|tool_call_end|>", "<|tool_calls_section_end|>"},
			inner:    []string{"<|tool_call_argument_begin|>"},
			head: func(r *reader, _ string) (string, bool) {
				id, ok := r.wordTo("<|tool_call_argument_begin|>")
				name := strings.TrimPrefix(strings.TrimSpace(id), "functions.")
				if i := strings.LastIndexByte(name, ':'); i >= 0 {
					name = name[:i]
				}
				return name, ok
			},
			before: func(name string) string {
				return "<|tool_calls_section_begin|><|tool_call_begin|>functions." + name + ":0<|tool_call_argument_begin|>"
			},
			after: "<|tool_call_end|><|tool_calls_section_end|>",
		}}},
	}
	kimi3Family = family{
		name: "kimi-k3", models: "Kimi K3",
		uses:    func(t string) bool { return holds("'<|open|>'")(t) && holds("<|sep|>")(t) },
		example: "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"x\" type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
		form: Form{
			Thoughts: []ThoughtMarks{{
				Open: "<|open|>think<|sep|>", Close: "<|close|>think<|sep|>", Anywhere: true,
				Closing: "<|close|>think<|sep|><|open|>response<|sep|>", lead: "<|close|>think<|sep|><|open|>response<|sep|><|close|>response<|sep|>",
			}},
			dropped: []string{"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"},
			calls: []caller{&parameterCalls{
				sections: []string{"<|open|>tools<|sep|>"},
				open:     `<|open|>call tool="`, nameStop: `"`, nameEnd: "<|sep|>", nameWritten: `" index="1"<|sep|>`,
				key: `<|open|>argument key="`, keyStop: `"`, keyEnd: "<|sep|>",
				end: "<|close|>argument<|sep|>", close: "<|close|>call<|sep|>",
				closing:  []string{"<|close|>tools<|sep|>"},
				unescape: strings.NewReplacer("&quot;", `"`, "&amp;", "&"),
				before:   "<|open|>tools<|sep|>", after: "<|close|>tools<|sep|>",
				attribute: func(k kinds) string { return `" type="` + k.name() + `"` },
			}},
		},
	}
)

// name is the kind that a value most likely has.
func (k kinds) name() string {
	for _, name := range []string{"string", "number", "boolean", "object", "array", "null"} {
		if k&kindNames[name] != 0 {
			return name
		}
	}
	return "string"
}
