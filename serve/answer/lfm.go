package answer

// Forms that are calls as Python writes them. LFM2: <|tool_call_start|>[f(x=1)]<|tool_call_end|>, or a list of objects between the
// same marks. Olmo 3: on lines between <function_calls>.
var (
	lfmFamily = family{
		name: "lfm2", models: "LFM2, LFM2.5", uses: holds("<|tool_call_start|>", "<|tool_list_start|>", "List of tools: ["),
		example: "<|tool_call_start|>[f(x=1)]<|tool_call_end|>",
		form: Form{calls: []caller{&pythonCalls{
			open: []string{"<|tool_call_start|>"}, close: []string{"<|tool_call_end|>"}, list: true,
			objects: &objectCalls{open: []string{"<|tool_call_start|>"}},
		}}},
	}
	olmoFamily = family{
		name: "olmo3", models: "Olmo 3", uses: holds("<function_calls>"),
		example: "<function_calls>f(x=1)</function_calls>",
		form:    Form{calls: []caller{&pythonCalls{open: []string{"<function_calls>"}, close: []string{"</function_calls>"}}}},
	}
)
