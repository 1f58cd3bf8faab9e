package answer

// Cohere's forms. Command R7B, Command A and later: <|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|> behind a
// thought, the answer between marks. Command R and R+: Action: and a block of JSON.
var (
	cohereFamily = family{
		name: "cohere", models: "Command R7B, Command A, North", uses: holds("<|START_ACTION|>"),
		example: "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"x\": 1}}\n]<|END_ACTION|>",
		form: Form{
			Thoughts: []ThoughtMarks{{Open: "<|START_THINKING|>", Close: "<|END_THINKING|>", Closing: "<|END_THINKING|>", Anywhere: true}},
			dropped: []string{
				"<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>",
				"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
			},
			calls: []caller{&objectCalls{
				open: []string{"<|START_ACTION|>"}, close: []string{"<|END_ACTION|>"},
				name: "tool_name", arguments: "parameters", list: true, after: "<|END_ACTION|>",
			}},
		},
	}
	commandFamily = family{
		name: "command-r", models: "Command R, R+",
		uses:    func(t string) bool { return holds("Action:")(t) && holds(`"tool_name"`)(t) },
		example: "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"x\": 1}\n    }\n]```",
		form: Form{calls: []caller{&objectCalls{
			open: []string{"Action:"}, fence: []string{"```json", "```"}, close: []string{"```"},
			name: "tool_name", arguments: "parameters", list: true, between: "\n```json\n", after: "```",
		}}},
	}
)
