package answer

// Solar Open's form: messages whose kind is a mark, <|think|>, <|content|> or <|tool_calls|>.
var solarFamily = family{
	name: "solar", models: "Solar Open", uses: holds("<|tool_call:begin|>"),
	example: "<|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>f<|tool_call:args|>{\"x\": 1}<|tool_call:end|>",
	form: Form{
		Thoughts: []ThoughtMarks{{
			Open: "<|think|>", Close: "<|end|>", Anywhere: true,
			Closing: "<|end|><|begin|>assistant<|content|>", lead: "<|end|><|begin|>assistant",
		}},
		dropped: []string{"<|begin|>assistant", "<|content|>"},
		calls: []caller{&namedCalls{
			sections: []string{"<|tool_calls|>"},
			open:     []string{"<|tool_call:begin|>"},
			close:    []string{"<|tool_call:end|>"},
			inner:    []string{"<|tool_call:name|>", "<|tool_call:args|>"},
			head: func(r *reader, _ string) (string, bool) {
				if _, ok := r.wordTo("<|tool_call:name|>"); !ok {
					return "", false
				}
				return r.wordTo("<|tool_call:args|>")
			},
			before: func(name string) string {
				return "<|tool_calls|><|tool_call:begin|>call000000<|tool_call:name|>" + name + "<|tool_call:args|>"
			},
			after: "<|tool_call:end|>",
		}},
	},
}
