package main

import (
	"fmt"
	"strings"

	"terrace/tokenizer"
)

// An example conversation, by parts that a template may refuse.
const (
	exampleSystem = `{"role": "system", "content": "You are a helpful assistant."}, `
	exampleTurns  = `{"role": "user", "content": "Why is the sky blue?"}, {"role": "assistant", "content": "Because air scatters blue light most."}, `
	exampleCall   = `{"role": "user", "content": "And how is the weather in Rome?"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}]}, ` +
		`{"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "21 degrees"}, {"role": "assistant", "content": "It is 21 degrees."}, `
	exampleLast  = `{"role": "user", "content": "Thanks!"}`
	exampleTools = `[{"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "its name"}}, "required": ["city"]}}}]`
)

// showTemplate writes an example conversation as the model is given it, with a tool and a call of it where the template knows them.
func (sc *showCommand) showTemplate(l *loaded) error {
	if err := sc.openTokenizer(l, sc.load.templateFile); err != nil {
		return err
	}
	if !l.tok.HasTemplate() {
		return dataErrorf("%s has no chat template (--chat-template FILE renders another)", l.name)
	}
	var first error
	for _, v := range []struct{ messages, tools, without string }{
		{exampleSystem + exampleTurns + exampleCall + exampleLast, exampleTools, ""},
		{exampleTurns + exampleCall + exampleLast, exampleTools, "a system message"},
		{exampleSystem + exampleTurns + exampleLast, "", "tools"},
		{exampleTurns + exampleLast, "", "a system message and tools"},
	} {
		if v.tools != "" && !strings.Contains(l.tok.Template(), "tools") {
			continue
		}
		c := tokenizer.Conversation{Messages: []byte("[" + v.messages + "]"), AddGenerationPrompt: true}
		if v.tools != "" {
			c.Tools = []byte(v.tools)
		}
		text, err := l.tok.Render(&c)
		if err == nil {
			if v.without != "" {
				sc.notice("without %s, which the template does not take", v.without)
			}
			if sc.asJSON {
				return sc.printJSON(struct {
					Name   string `json:"name"`
					Prompt string `json:"prompt"`
				}{l.name, text})
			}
			if sc.isTTY(sc.stdout) {
				text = visible(text, "\n\t")
			}
			_, err = fmt.Fprintln(sc.stdout, strings.TrimSuffix(text, "\n"))
			return err
		}
		if first == nil {
			first = err
		}
	}
	return dataErrorf("%s: the template renders no conversation: %w", l.name, first)
}
