package answer_test

import (
	"fmt"

	"terrace/serve/answer"
)

// A server finds the form once, makes a parser for each answer, and passes events on as they come.
func Example() {
	template := "{{ '<tool_call>' }} {{ '</think>' }}" // the model's chat template
	form := answer.FormOf(template)
	tools := []answer.Tool{{Name: "get_weather", Schema: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)}}
	p := form.Parser(tools, "<|im_start|>assistant\n<think>\n") // the end of the prompt, which has begun a thought

	show := func(events []answer.Event) {
		for _, e := range events {
			fmt.Printf("%s %d %s%q\n", e.Kind, e.Index, e.Name, e.Text)
		}
	}
	for _, token := range []string{"I should", " look.", "\n</th", "ink>\n", "<tool_call>\n", `{"name": "get_wea`, `ther", "arguments": {`, `"city": "Zü`, `rich"}}`, "\n</tool_call>"} {
		show(p.Push(token))
	}
	show(p.End())
	// Output:
	// thought 0 "I should"
	// thought 0 " look."
	// call start 0 get_weather""
	// call arguments 0 "{"
	// call arguments 0 "\"city\": \"Zü"
	// call arguments 0 "rich\"}"
	// call end 0 get_weather""
}

// A forced call is written under a grammar; behind a prompt that has begun a thought, the model finishes it first.
func ExampleForm_Grammar() {
	form := answer.FormOf("{{ '[TOOL_CALLS]' }}[ARGS]")
	g, err := form.Grammar([]answer.Tool{{Name: "get_time"}}, "")
	fmt.Println(g != nil, err, form.CloseThought() != "")
	// Output: true <nil> true
}
