package answer

// Forms that are lists of objects between marks of their own.
var (
	// toolCallsFamily is Apriel's, Hunyuan's and Jamba's, and MiniMax M1's, whose objects stand on lines.
	toolCallsFamily = family{
		name: "tool-calls", models: "MiniMax M1, Apriel 1.5 and 1.6, Hunyuan, Jamba", uses: holds("<tool_calls>"),
		example: "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]</tool_calls>",
		form: Form{
			dropped: []string{"[END FINAL RESPONSE]", "<answer>", "</answer>"},
			calls:   []caller{listCalls("<tool_calls>", "</tool_calls>"), hermesCalls},
		},
	}
	// graniteFamily is Granite 3's, whose list has no end, and Phi-4-mini's, one object between marks.
	graniteFamily = family{
		name: "granite3", models: "Granite 3, Phi 4 mini", uses: holds("<|tool_call|>"),
		example: "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]",
		form: Form{
			dropped: []string{"<response>", "</response>"},
			calls: []caller{
				&objectCalls{open: []string{"<|tool_call|>"}, close: []string{"<|/tool_call|>"}, name: "name", arguments: "arguments", list: true},
				hermesCalls,
			},
		},
		variant: func(template string, f *Form) {
			if holds("<|/tool_call|>")(template) {
				f.calls = []caller{&objectCalls{
					open: []string{"<|tool_call|>"}, close: []string{"<|/tool_call|>"}, name: "name", arguments: "arguments", after: "<|/tool_call|>",
				}}
			}
		},
	}
	nemotronFamily = family{
		name: "nemotron", models: "Nemotron Nano 2, Super 1.5", uses: holds("<TOOLCALL>"),
		example: "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]</TOOLCALL>",
		form:    Form{dropped: []string{"<SPECIAL_12>", "<SPECIAL_11>Assistant"}, calls: []caller{listCalls("<TOOLCALL>", "</TOOLCALL>")}},
	}
	// apertusFamily names a call by its only member.
	apertusFamily = family{
		name: "apertus", models: "Apertus", uses: holds("<|tools_prefix|>"),
		example: "<|tools_prefix|>[{\"f\": {\"x\": 1}}]<|tools_suffix|>",
		form: Form{calls: []caller{&objectCalls{
			open: []string{"<|tools_prefix|>"}, close: []string{"<|tools_suffix|>"}, list: true, keyed: true, after: "<|tools_suffix|>",
		}}},
	}
	internFamily = family{
		name: "internlm", models: "InternLM 2.5 and 3", uses: holds("<|action_start|>"),
		example: "<|action_start|><|plugin|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|action_end|>",
		form: Form{calls: []caller{&objectCalls{
			open: []string{"<|action_start|>"}, fence: []string{"<|plugin|>", "<|interpreter|>"}, close: []string{"<|action_end|>"},
			name: "name", arguments: "parameters", between: "<|plugin|>", after: "<|action_end|>",
		}}},
	}
	// gigachatFamily writes a call as a message of another role.
	gigachatFamily = family{
		name: "gigachat3", models: "GigaChat 3", uses: holds("function call<|role_sep|>", "'function call'"),
		example: "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
		form: Form{
			dropped: []string{"<|message_sep|>"},
			calls: []caller{&objectCalls{
				open: []string{"<|message_sep|>\n\nfunction call<|role_sep|>", "function call<|role_sep|>"},
				name: "name", arguments: "arguments", between: "\n",
			}},
		},
	}
)

func listCalls(open, close string) *objectCalls {
	return &objectCalls{open: []string{open}, close: []string{close}, name: "name", arguments: "arguments", list: true, after: close}
}
