// Package answer reads what a model writes in its template's own form: thoughts, text, and calls of tools, token by token. It
// also says how a forced call has to be written, as a grammar.
//
// It owns: which form a chat template teaches (form.go: the table of forms, one file a form or a few of one house), the marks
// of thoughts (thoughts.go), the parser (parser.go, channels.go for answers made of messages with headers, reader.go, call.go,
// event.go), the kinds of calls that forms share (objects.go: JSON objects with a name; named.go: a name, then JSON;
// parameters.go: a name, then arguments as text between tags; nested.go, pythoncalls.go, gemmacalls.go), arguments typed by
// their schema (tool.go, typed.go, python.go), and grammars (force.go). It knows no server, model, tokenizer or file.
//
// A server gives the parser the end of the prompt, which may have opened a thought, and the text of every token, also of
// control tokens whose text is one of the form's Marks. A call is told as soon as its name is known; its arguments follow as
// they come.
//
// Invariants: (1) how a text is cut changes nothing in what it means; (2) no byte outside of the form's marks is lost or told
// twice, but for white space beside a mark; (3) what only resembles the form is text, and so is a call of a tool that was not
// given, which is a Problem too; (4) arguments of a whole call are a JSON object, of members that the tool's schema names or
// allows, each once; a call that breaks off has a Problem of its index; (5) time and memory are linear in the text.
//
// Concurrency: a Form is immutable; a Parser belongs to one answer. It is a coroutine, which ends with End or, if the parser is
// dropped before, with the garbage collection.
package answer
