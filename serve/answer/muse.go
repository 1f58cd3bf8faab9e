package answer

// Muse Glimmer's ATEM: messages to=self (thoughts), to=user (the answer) and to=TOOL, whose text is a block of calls.
var museFamily = family{
	name: "atem", models: "Muse Glimmer", uses: holds("<atem:invoke"),
	example: " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"x\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>",
	form: Form{
		Thoughts: []ThoughtMarks{{
			Open: " to=self<|message|>", Close: "<|eom|>", Anywhere: true,
			Closing: "<|eom|><|start|>assistant to=user<|message|>", lead: "<|eom|><|start|>assistant",
		}},
		calls: []caller{&parameterCalls{
			sections: []string{"<atem:function_calls>"},
			open:     `<atem:invoke name="`, nameStop: `"`, nameEnd: ">", nameWritten: `">`,
			key: `<atem:parameter name="`, keyStop: `"`, keyEnd: ">",
			end: "</atem:parameter>", close: "</atem:invoke>", closing: []string{"</atem:function_calls>"},
			before: "<atem:function_calls>\n", after: "\n</atem:function_calls>", gap: "\n",
			attribute: func(kinds) string { return `"` },
			header:    func(name string) string { return " to=" + name + "<|message|>" },
		}},
		layout: &channels{
			start: "<|start|>", message: "<|message|>", ends: []string{"<|eom|>", "<|eot|>"},
			thinks: func(_, to string) bool { return to == "self" },
		},
	},
}
