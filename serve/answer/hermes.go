package answer

// Hermes 2 Pro's form, which Qwen 2.5 and 3, Granite 4, MiMo, Bielik, EXAONE 4 and SmolLM3 share:
// <tool_call>{"name": …, "arguments": {…}}</tool_call>. Models that forget the tags write the object alone.
var (
	hermesCalls = &objectCalls{
		open: []string{"<tool_call>"}, close: []string{"</tool_call>"},
		name: "name", arguments: "arguments", between: "\n", after: "\n</tool_call>",
	}
	bareCalls = &objectCalls{name: "name", arguments: "arguments"}

	hermesFamily = family{
		name: "hermes", models: "Hermes 2 Pro and 3, Qwen 2.5, Qwen 3, QwQ, Granite 4, MiMo, Bielik, EXAONE 4, SmolLM3", uses: holds("<tool_call>"),
		example: "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
		form:    Form{calls: []caller{hermesCalls, bareCalls}},
	}

	// plainFamily is of templates that know no tools: the server tells the model to write the object.
	plainFamily = family{
		name: "json", models: "templates that know no tools: Gemma 2 and 3, Phi 3.5, …", uses: holds(""),
		example: "{\"name\": \"f\", \"arguments\": {\"x\": 1}}",
		form:    Form{calls: []caller{bareCalls, hermesCalls}},
	}
)
