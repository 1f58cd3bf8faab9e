package answer

// Qwen3-Coder's form, which Qwen 3.5, Nemotron 3, Step 3.5 and Seed-OSS share: <function=NAME> with <parameter=KEY>, values as
// text. Step 3 has the same in tags of its own.
var (
	qwenCoderCalls = parameterCalls{
		sections: []string{"<tool_call>"},
		open:     "<function=", nameStop: ">\n", nameEnd: ">", nameWritten: ">",
		key: "<parameter=", keyStop: ">\n", keyEnd: ">",
		end: "</parameter>", close: "</function>", closing: []string{"</tool_call>"},
		lines: true, before: "<tool_call>\n", after: "\n</tool_call>", gap: "\n",
	}
	qwenCoderFamily = family{
		name: "qwen3-coder", models: "Qwen3-Coder, Qwen 3.5, Nemotron 3, Step 3.5",
		uses: func(t string) bool {
			return holds("<tool_call>")(t) && holds("<function=")(t) && holds("<parameter=")(t)
		},
		example: "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
		form:    Form{calls: []caller{&qwenCoderCalls, hermesCalls}},
	}
	seedFamily = family{
		name: "seed", models: "Seed-OSS", uses: holds("<seed:tool_call>"),
		example: "<seed:tool_call>\n<function=f>\n<parameter=x>1</parameter>\n</function>\n</seed:tool_call>",
		form:    Form{dropped: []string{"<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>"}, calls: []caller{seedCalls()}},
	}
	stepFamily = family{
		name: "step3", models: "Step 3", uses: holds("<steptml:invoke"),
		example: "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"x\">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
		form: Form{calls: []caller{&parameterCalls{
			sections: []string{"<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>", "<｜tool_call_begin｜>function<｜tool_sep｜>"},
			open:     `<steptml:invoke name="`, nameStop: `"`, nameEnd: ">", nameWritten: `">`,
			key: `<steptml:parameter name="`, keyStop: `"`, keyEnd: ">",
			end: "</steptml:parameter>", close: "</steptml:invoke>", closing: []string{"<｜tool_call_end｜>", "<｜tool_calls_end｜>"},
			before: "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>", after: "<｜tool_call_end｜><｜tool_calls_end｜>",
			attribute: func(kinds) string { return `"` },
		}}},
	}
)

func seedCalls() *parameterCalls {
	c := qwenCoderCalls
	c.sections, c.closing = []string{"<seed:tool_call>"}, []string{"</seed:tool_call>"}
	c.before, c.after, c.written = "<seed:tool_call>\n", "\n</seed:tool_call>", ""
	c.oneLine = true
	return &c
}
