package answer

import "strings"

// Llama 3's form: an object with parameters as the whole answer, or behind <|python_tag|>; there built-in tools are called as
// NAME.call(query="…"). Llama 4 writes a list of Python's calls, FireFunction and Phi functools[…].
var (
	llamaFamily = family{
		name: "llama3", models: "Llama 3.1 to 3.3",
		uses: func(t string) bool {
			return strings.Contains(t, "<|python_tag|>") || holds("<|start_header_id|>")(t) && holds(`"parameters"`)(t)
		},
		example: "{\"name\": \"f\", \"parameters\": {\"x\": 1}}",
		form: Form{calls: []caller{
			&objectCalls{name: "name", arguments: "parameters"},
			&pythonCalls{open: []string{"<|python_tag|>"}, objects: &objectCalls{open: []string{"<|python_tag|>"}}},
		}},
	}
	llama4Family = family{
		name: "llama4", models: "Llama 4", uses: holds("<|python_start|>"),
		example: "[f(x=1)]",
		form: Form{calls: []caller{
			&pythonCalls{list: true},
			&pythonCalls{open: []string{"<|python_start|>"}, close: []string{"<|python_end|>"}},
			&objectCalls{name: "name", arguments: "parameters"},
		}},
	}
	functoolsFamily = family{
		name: "functools", models: "FireFunction 2", uses: holds("functools["),
		example: "functools[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]",
		form:    Form{calls: []caller{&objectCalls{open: []string{"functools"}, name: "name", arguments: "arguments", list: true}}},
	}
)
