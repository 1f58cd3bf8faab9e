package answer

// Gemma's forms. Gemma 4: <|tool_call>call:NAME{KEY:VALUE,…}<tool_call|>, strings between <|"|>; thoughts in a channel. FunctionGemma
// has the same between other marks.
var (
	gemmaFamily = family{
		name: "gemma4", models: "Gemma 4", uses: holds("<|tool_call>"),
		example: "<|tool_call>call:f{x:1}<tool_call|>",
		form: Form{
			Thoughts: []ThoughtMarks{{Open: "<|channel>thought", Close: "<channel|>", Closing: "\n<channel|>", Anywhere: true}},
			dropped:  []string{"<|tool_response>", "<|channel>final"},
			calls:    []caller{&gemmaCalls{open: "<|tool_call>", close: "<tool_call|>", quote: `<|"|>`}},
		},
	}
	functionGemmaFamily = family{
		name: "functiongemma", models: "FunctionGemma", uses: holds("<start_function_call>"),
		example: "<start_function_call>call:f{x:1}<end_function_call>",
		form:    Form{calls: []caller{&gemmaCalls{open: "<start_function_call>", close: "<end_function_call>", quote: "<escape>"}}},
	}
)
