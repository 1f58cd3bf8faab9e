package answer

import "strings"

// DeepSeek's forms. V3.1: <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>. V3 and R1 write a kind before the name, and
// the arguments as a block of code. V3.2 and V4 have tags (dsml), whose attribute says whether a value is a string; GigaChat 3.5
// has the same with another word.
var (
	deepseekFamily = family{
		name: "deepseek", models: "DeepSeek V3, R1 and its distilled ones, V3.1", uses: holds("<｜tool▁call▁begin｜>", "<｜tool▁calls▁begin｜>"),
		example: "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		form:    Form{calls: []caller{deepseekNamed("")}},
		variant: func(template string, f *Form) {
			if strings.Contains(template, "```json") {
				f.calls = []caller{deepseekNamed("function<｜tool▁sep｜>")}
			}
		},
	}
	dsmlFamily = dsml("dsml", "DeepSeek V3.2, V4", "｜DSML｜")
	gcmlFamily = dsml("gcml", "GigaChat 3.5", "｜GCML｜")
)

// deepseekNamed is a form whose calls are written with a kind, or without.
func deepseekNamed(kind string) *namedCalls {
	return &namedCalls{
		sections: []string{"<｜tool▁calls▁begin｜>"},
		open:     []string{"<｜tool▁call▁begin｜>"},
		close:    []string{"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
		inner:    []string{"<｜tool▁sep｜>"},
		head: func(r *reader, _ string) (string, bool) {
			name, ok := r.wordTo("<｜tool▁sep｜>")
			if b := r.peek(); !ok || b == '{' || isSpace(b) || name != "function" {
				return strings.TrimSpace(name), ok
			}
			name, ok = r.word("\n")
			r.space()
			return strings.TrimSpace(name), ok && (r.take("```json") || r.has("{", 0))
		},
		before: func(name string) string {
			if kind == "" {
				return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>"
			}
			return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + kind + name + "\n```json\n"
		},
		after: map[bool]string{true: "", false: "\n```"}[kind == ""] + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
	}
}

func dsml(name, models, word string) family {
	call := &parameterCalls{
		sections: []string{"<" + word + "tool_calls>", "<" + word + "function_calls>"},
		open:     "<" + word + `invoke name="`, nameStop: `"`, nameEnd: ">", nameWritten: `">`,
		key: "<" + word + `parameter name="`, keyStop: `"`, keyEnd: ">",
		end: "</" + word + "parameter>", close: "</" + word + "invoke>",
		closing: []string{"</" + word + "tool_calls>", "</" + word + "function_calls>"},
		before:  "<" + word + "tool_calls>\n", after: "\n</" + word + "tool_calls>", gap: "\n",
		attribute: func(k kinds) string {
			if k&isString != 0 {
				return `" string="true"`
			}
			return `" string="false"`
		},
	}
	return family{
		name: name, models: models, uses: holds(word),
		example: "<" + word + "tool_calls>\n<" + word + "invoke name=\"f\">\n<" + word + "parameter name=\"x\" string=\"false\">1</" + word + "parameter>\n</" + word + "invoke>\n</" + word + "tool_calls>",
		form:    Form{calls: []caller{call}},
		variant: func(template string, f *Form) {
			if strings.Contains(template, word+"function_calls>") || strings.Contains(template, "}}function_calls>") {
				v := *call
				v.before, v.after = "<"+word+"function_calls>\n", "\n</"+word+"function_calls>"
				f.calls = []caller{&v}
			}
		},
	}
}
