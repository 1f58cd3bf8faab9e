package answer

import (
	"fmt"
	"strings"
	"testing"
)

var testTools = []Tool{
	{"f", []byte(`{"type":"object","properties":{"x":{"type":"integer"},"s":{"type":"string"},"l":{"type":"array","items":{"type":"string"}},"o":{"type":"object","properties":{"n":{"type":"number"},"b":{"type":"boolean"}}}},"required":["x"]}`)},
	{"get_time", nil},
}

// source is a template that writes some marks.
func source(marks ...string) string { return "{{ '" + strings.Join(marks, "' }}{{ '") + "' }}" }

// TestForms has answers of each form by its public definition: a template's marks, the prompt's end, the text, what it means.
func TestForms(t *testing.T) {
	const hermes, coder, glm = "<tool_call>", "<tool_call><function=<parameter=", "<tool_call><arg_key>"
	const kimi, v3, harmony = "<|tool_calls_section_begin|>", "<｜tool▁calls▁begin｜>", "<|channel|><|message|>"
	for i, c := range []struct{ template, prompt, emit, want string }{
		// Hermes: text around calls stays; the object may span lines, and the arguments may come first or as a string.
		{hermes, "", "One.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>\nTwo.", `thought "" text "One.\n\nTwo." f({"x": 1})`},
		{hermes, "", "<tool_call>{\"arguments\": {\"x\": 1}, \"name\": \"f\"}</tool_call>", `thought "" text "" f({"x": 1})`},
		{hermes, "", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}</tool_call>", `thought "" text "" f({"x": 1})`},
		{hermes, "", "<tool_call>{\"name\": \"get_time\"}</tool_call>", `thought "" text "" get_time({})`},
		{hermes, "", "{\"name\": \"f\", \"arguments\": {\"x\": 1}}", `thought "" text "" f({"x": 1})`},
		{hermes, "", "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>", `thought "" text "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>" problem: call of "g", a tool that was not given`},
		{hermes, "", "Write <tool_call> before a call, <tool_cal> is none.", `thought "" text "Write <tool_call> before a call, <tool_cal> is none."`},
		{hermes, "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": 2}}</tool_call>", `thought "" text "" f({"x": 1}) problem: argument "y" is none of the tool's, it is left out`},
		{hermes, "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1", `thought "" text "" f({"x": 1) problem: the text ends inside the call`},
		{hermes, "", "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1!}}</tool_call> Done.", `thought "" text "!}} Done." f({"x": 1) problem: the call breaks its form`},
		{hermes, "<think>\n", "So.\n</think>\n\nAnswer.", `thought "So." text "Answer."`},
		{hermes, "", "<think>So <b>.</think>Answer <think>.", `thought "So <b>." text "Answer <think>."`},
		{hermes, "", "{\"name\": \"Ann\", \"age\": 3}", `thought "" text "{\"name\": \"Ann\", \"age\": 3}"`},
		// Qwen3-Coder: values are typed; tags inside a value are text; a call without the outer tag.
		{coder, "", "<tool_call>\n<function=f>\n<parameter=x>\n3\n</parameter>\n<parameter=s>\na\n</parameter> b\n</parameter>\n<parameter=o>\n{'n': 1.5, 'b': True}\n</parameter>\n</function>\n</tool_call>", `thought "" text "" f({"x": 3, "s": "a\n</parameter> b", "o": {"n": 1.5, "b": true}})`},
		{coder, "", "<function=f>\n<parameter=x>\n3\n</parameter>\n</function>\n</tool_call>", `thought "" text "" f({"x": 3})`},
		{coder, "", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>", `thought "" text "" get_time({})`},
		{"<seed:tool_call><function=<parameter=</seed:think>", "", "<seed:think>So.</seed:think>\nYes.\n<seed:tool_call>\n<function=f>\n<parameter=x>3</parameter>\n<parameter=s>4</parameter>\n</function>\n</seed:tool_call>", `thought "So." text "Yes." f({"x": 3, "s": "4"})`},
		{"<steptml:invoke", "", "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\"><steptml:parameter name=\"x\">1</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>", `thought "" text "" f({"x": 1})`},
		// GLM
		{glm, "", "\n<think>So.</think>\n<tool_call>f\n<arg_key>x</arg_key>\n<arg_value>3</arg_value>\n<arg_key>l</arg_key>\n<arg_value>[\"<a>\"]</arg_value>\n</tool_call>", `thought "So." text "" f({"x": 3, "l": ["<a>"]})`},
		{glm, "", "<tool_call>get_time</tool_call>", `thought "" text "" get_time({})`},
		{glm, "", "<tool_call>get_time\n<arg_key>zone</arg_key>\n<arg_value>UTC</arg_value>\n</tool_call>", `thought "" text "" get_time({"zone": "UTC"})`},
		// Llama
		{"<|python_tag|>", "", "{\"name\": \"f\", \"parameters\": {\"x\": 1}}; {\"name\": \"get_time\", \"parameters\": {}}", `thought "" text "" f({"x": 1}) get_time({})`},
		{"<|python_tag|>", "", "<|python_tag|>f.call(x=1, s=\"a\")", `thought "" text "" f({"x": 1, "s": "a"})`},
		{"<|python_tag|>", "", "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"x\": 1}}", `thought "" text "" f({"x": 1})`},
		{"<|python_start|>", "", "[f(x=1), get_time()]", `thought "" text "" f({"x": 1}) get_time({})`},
		{"functools[", "", " functools[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]", `thought "" text "" f({"x": 1})`},
		// Mistral
		{"[TOOL_CALLS]", "", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"123456789\"}]", `thought "" text "" f({"x": 1})`},
		{"[TOOL_CALLS][ARGS]", "", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"x\": 1}[TOOL_CALLS]get_time[ARGS]{}", `thought "" text "" f({"x": 1}) get_time({})`},
		{"[TOOL_CALLS][ARGS][/THINK]", "", "[THINK]So.[/THINK]Yes.", `thought "So." text "Yes."`},
		// DeepSeek: R1 and V3 with a kind and a block of code, V3.1 without; V3.2 and V4
		{v3, "<think>\n", "So.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"x\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `thought "So." text "" f({"x": 1}) get_time({})`},
		{v3, "<think>", "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"x\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `thought "So." text "" f({"x": 1})`},
		{"｜DSML｜", "", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"s\" string=\"true\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", `thought "" text "" f({"x": 1, "s": "2"})`},
		{"｜GCML｜", "", "<｜GCML｜tool_calls>\n<｜GCML｜invoke name=\"get_time\">\n</｜GCML｜invoke>\n</｜GCML｜tool_calls>", `thought "" text "" get_time({})`},
		// Kimi
		{kimi, "", "<think>So.</think>Yes.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"x\": 1}<|tool_call_end|><|tool_calls_section_end|>", `thought "So." text "Yes." f({"x": 1})`},
		{"'<|open|>'<|sep|>", "<|open|>think<|sep|>", "So.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"x\" type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>", `thought "So." text "Yes." f({"x": 1})`},
		// Harmony, as openai/harmony's description of the format has it
		{harmony, "<|start|>assistant", "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>", `thought "So." text "I look." f({"x": 1})`},
		{harmony, "<|start|>assistant", "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>", `thought "One.\nTwo." text "Yes."`},
		{harmony, "<|start|>assistant", "<|channel|>commentary to=functions.f<|message|>{\"x\": 1!} or so<|call|>", `thought "" text "!} or so" f({"x": 1) problem: the call breaks its form`},
		{harmony, "<|start|>assistant", "Plain text.", `thought "" text "Plain text."`},
		{harmony, "<|start|>assistant", "<|channel|>commentary to=functions.g<|message|>{\"y\": 1}<|call|>", `thought "" text "{\"y\": 1}" problem: call of "g", a tool that was not given`},
		// Gemma
		{"<|tool_call>", "", "<|channel>thought\nSo.\n<channel|>Yes.<|tool_call>call:f{x:1,s:<|\"|>a, \"b\"}<|\"|>,l:[<|\"|>c<|\"|>],o:{n:1.5,b:true}}<tool_call|>", `thought "So." text "Yes." f({"x": 1, "s": "a, \"b\"}", "l": ["c"], "o": {"n": 1.5, "b": true}})`},
		{"<start_function_call>", "", "<start_function_call>call:f{x:1,s:<escape>a<escape>}<end_function_call>", `thought "" text "" f({"x": 1, "s": "a"})`},
		// Cohere
		{"<|START_ACTION|>", "", "<|START_THINKING|>So.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"x\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"get_time\", \"parameters\": {}}\n]<|END_ACTION|>", `thought "So." text "" f({"x": 1}) get_time({})`},
		{"<|START_ACTION|>", "", "<|START_RESPONSE|>Yes.<|END_RESPONSE|>", `thought "" text "Yes."`},
		{"Action: \"tool_name\"", "", "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": {\"x\": 1}\n    }\n]```", `thought "" text "" f({"x": 1})`},
		// MiniMax
		{"<minimax:tool_call>", "<think>\n", "So.\n</think>\n\nYes.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"x\">1</parameter>\n<parameter name=\"s\">a\nb</parameter>\n</invoke>\n</minimax:tool_call>", `thought "So." text "Yes." f({"x": 1, "s": "a\nb"})`},
		{"]<]minimax[>[</mm:think>", "", "</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<o>]<]minimax[>[<n>1.5]<]minimax[>[</n>]<]minimax[>[</o>]<]minimax[>[<l>]<]minimax[>[<item>3]<]minimax[>[</item>]<]minimax[>[</l>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>", `thought "" text "" f({"o": {"n": 1.5}, "l": ["3"]})`},
		{"<tool_calls>", "", "<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_calls>", `thought "" text "" f({"x": 1}) get_time({})`},
		// Lists
		{"<tool_calls><answer></answer>", "", "<think>\nSo.\n</think>\n<answer>Yes.</answer>\n<tool_calls>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]</tool_calls>", `thought "So." text "Yes." f({"x": 1})`},
		{"<tool_calls><answer></answer>", "", "<answer>Write <answer> first.</answer>", `thought "" text "Write <answer> first."`},
		{"<tool_calls>[BEGIN FINAL RESPONSE][END FINAL RESPONSE]", "Here are my reasoning steps:\n", "So.\n[BEGIN FINAL RESPONSE]\nYes.\n[END FINAL RESPONSE]", `thought "So." text "Yes."`},
		{"<|tool_call|>", "", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]", `thought "" text "" f({"x": 1})`},
		{"<|tool_call|><|/tool_call|>", "", "<|tool_call|>{\"name\": \"f\", \"arguments\": {\"x\": 1}}<|/tool_call|>", `thought "" text "" f({"x": 1})`},
		{"<TOOLCALL>", "", "Yes.<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"x\": 1}}]</TOOLCALL>", `thought "" text "Yes." f({"x": 1})`},
		{"<|tools_prefix|><|inner_suffix|>", "", "<|inner_prefix|>So.<|inner_suffix|><|tools_prefix|>[{\"f\": {\"x\": 1}}, {\"get_time\": {}}]<|tools_suffix|>", `thought "So." text "" f({"x": 1}) get_time({})`},
		{"<|action_start|>", "", "Yes.<|action_start|><|plugin|>{\"name\": \"f\", \"parameters\": {\"x\": 1}}<|action_end|>", `thought "" text "Yes." f({"x": 1})`},
		{"function call<|role_sep|>", "", "Yes.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}", `thought "" text "Yes." f({"x": 1})`},
		// Python's calls
		{"<|tool_list_start|>", "", "<|tool_call_start|>[f(x=1, s='it\\'s', l=[\"a\"], o={'b': False, 'n': None}), get_time()]<|tool_call_end|>Done.", `thought "" text "Done." f({"x": 1, "s": "it's", "l": ["a"], "o": {"b": false, "n": null}}) get_time({})`},
		{"<|tool_list_start|>", "", "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"x\": 1}, \"id\": \"1\"}]<|tool_call_end|>", `thought "" text "" f({"x": 1})`},
		{"<function_calls>", "", "<function_calls>f(x=1)\nget_time()</function_calls>", `thought "" text "" f({"x": 1}) get_time({})`},
		// The rest
		{"<tool_call><use_mcp_tool>", "", "Yes.\n<use_mcp_tool>\n<server_name>s</server_name>\n<tool_name>f</tool_name>\n<arguments>\n{\"x\": 1}\n</arguments>\n</use_mcp_tool>", `thought "" text "Yes." f({"x": 1})`},
		{"<function=", "", "<function=f>{\"x\": 1}</function><function=get_time>{}</function>", `thought "" text "" f({"x": 1}) get_time({})`},
		{">>>all", ">>>", "f\n{\"x\": 1}", `thought "" text "" f({"x": 1})`},
		{">>>all", ">>>", "all\nThat is all\nof it.>>> print()", `thought "" text "That is all\nof it.>>> print()"`},
		{"<seed:tool_call></seed:think>", "<seed:think><seed:cot_budget_reflect>", "None.</seed:cot_budget_reflect></seed:think>Yes.", `thought "None." text "Yes."`},
		{">>>all", ">>>", "all\nYes.>>>f\n{\"x\": 1}", `thought "" text "Yes." f({"x": 1})`},
		{"<|tool_call:begin|>", "<|begin|>assistant", "<|think|>So.<|end|><|begin|>assistant<|content|>Yes.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>f<|tool_call:args|>{\"x\": 1}<|tool_call:end|><|end|>", `thought "So." text "Yes." f({"x": 1})`},
		{"<atem:invoke<|eom|><|eot|>", "<|start|>assistant", " to=self<|message|>So.<|eom|><|start|>assistant to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">\n<atem:parameter name=\"x\">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|>", `thought "So." text "" f({"x": 1})`},
		{"a template without tools <|im_end|>", "", "Yes.<|im_end|>", `thought "" text "Yes."`},
		{"a template without tools <|im_end|>", "", "Say <|im_end|> at the end.", `thought "" text "Say <|im_end|> at the end."`},
	} {
		form := FormOf(source(c.template))
		t.Run(fmt.Sprintf("%d %s", i, form.Name), func(t *testing.T) {
			whole := readAll(form, testTools, c.prompt, c.emit)
			if got := read(t, whole).String(); got != c.want {
				t.Errorf("%q:\n got %s\nwant %s", c.emit, got, c.want)
			}
			bytes := strings.Split(c.emit, "")
			if cut := read(t, readAll(form, testTools, c.prompt, bytes...)).String(); cut != read(t, whole).String() {
				t.Errorf("%q byte by byte:\n got %s\nwant %s", c.emit, cut, read(t, whole))
			}
		})
	}
}
