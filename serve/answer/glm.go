package answer

// GLM's form since 4.5, which Ling 3, Spark and Laguna share: <tool_call>NAME, then pairs of <arg_key> and <arg_value>, with line
// ends between the tags or without.
var glmFamily = family{
	name: "glm", models: "GLM 4.5 to 4.7, Ling 3, Spark 2.5, Laguna", uses: holds("<arg_key>"),
	example: "<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
	form: Form{
		dropped: []string{"<|assistant|>"},
		calls: []caller{
			&parameterCalls{
				open: "<tool_call>", nameStop: "\n<{", key: "<arg_key>", keyStop: "<", keyEnd: "</arg_key>",
				value: "<arg_value>", end: "</arg_value>", close: "</tool_call>",
				gap: "\n", written: "\n<arg_value>",
			},
			hermesCalls,
		},
	},
}
