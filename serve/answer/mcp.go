package answer

// MiroThinker's form: <use_mcp_tool> with the tool's server, its name, and its arguments as JSON. Its template writes Hermes'
// form into histories.
var mcpFamily = family{
	name: "mcp", models: "MiroThinker", uses: holds("<use_mcp_tool>"),
	example: "<use_mcp_tool>\n<server_name>S</server_name>\n<tool_name>f</tool_name>\n<arguments>\n{\"x\": 1}\n</arguments>\n</use_mcp_tool>",
	form: Form{calls: []caller{
		&namedCalls{
			sections: []string{"<use_mcp_tool>"},
			open:     []string{"<server_name>"},
			close:    []string{"</arguments>", "</use_mcp_tool>"},
			head: func(r *reader, _ string) (string, bool) {
				if _, ok := r.wordTo("</server_name>"); !ok {
					return "", false
				}
				r.space()
				if !r.take("<tool_name>") {
					return "", false
				}
				name, ok := r.wordTo("</tool_name>")
				r.space()
				return name, ok && r.take("<arguments>")
			},
			before: func(name string) string {
				return "<use_mcp_tool>\n<server_name>generic-extras</server_name>\n<tool_name>" + name + "</tool_name>\n<arguments>\n"
			},
			after: "\n</arguments>\n</use_mcp_tool>",
		},
		hermesCalls,
	}},
}
