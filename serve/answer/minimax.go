package answer

// MiniMax's forms. M2: <minimax:tool_call> with <invoke> and <parameter>. M3: the same with a mark before each tag, and an
// argument is a tag of its own name, nested as deep as its value (nested.go). M1 writes objects between <tool_calls>.
var (
	minimax2Family = family{
		name: "minimax-m2", models: "MiniMax M2", uses: holds("<minimax:tool_call>"),
		example: "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"x\">1</parameter>\n</invoke>\n</minimax:tool_call>",
		form: Form{calls: []caller{&parameterCalls{
			sections: []string{"<minimax:tool_call>"},
			open:     `<invoke name="`, nameStop: `"`, nameEnd: ">", nameWritten: `">`,
			key: `<parameter name="`, keyStop: `"`, keyEnd: ">",
			end: "</parameter>", close: "</invoke>", closing: []string{"</minimax:tool_call>"},
			before: "<minimax:tool_call>\n", after: "\n</minimax:tool_call>", gap: "\n",
			attribute: func(kinds) string { return `"` },
		}}},
	}
	minimax3Family = family{
		name: "minimax-m3", models: "MiniMax M3", uses: holds("]<]minimax[>["),
		example: "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<x>1]<]minimax[>[</x>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
		form:    Form{calls: []caller{&nestedCalls{mark: "]<]minimax[>["}}},
	}
)
