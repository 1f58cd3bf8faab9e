package answer

import "strings"

// Mistral's form: [TOOL_CALLS][{"name": …, "arguments": {…}, "id": …}], and since Devstral [TOOL_CALLS]NAME[ARGS]{…}, with
// [CALL_ID]… before [ARGS] in Small 3.2.
var (
	mistralList  = &objectCalls{open: []string{"[TOOL_CALLS]"}, name: "name", arguments: "arguments", list: true}
	mistralNamed = &namedCalls{
		open: []string{"[TOOL_CALLS]"},
		head: func(r *reader, _ string) (string, bool) {
			r.space()
			name, ok := r.word("[{")
			if r.take("[CALL_ID]") {
				_, ok = r.word("[")
			}
			r.take("[ARGS]")
			return strings.TrimSpace(name), ok
		},
		before: func(name string) string { return "[TOOL_CALLS]" + name + "[ARGS]" },
		inner:  []string{"[ARGS]", "[CALL_ID]"},
	}
	mistralFamily = family{
		name: "mistral", models: "Nemo, Mistral Small, Ministral, Magistral (list); Devstral, Small 3.2 and later (name)", uses: holds("[TOOL_CALLS]"),
		example: "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": 1}}] or [TOOL_CALLS]f[ARGS]{\"x\": 1}",
		form:    Form{calls: []caller{mistralList, mistralNamed}},
		variant: func(template string, f *Form) {
			if strings.Contains(template, "[ARGS]") {
				f.calls = []caller{mistralNamed, mistralList}
			}
		},
	}
)
