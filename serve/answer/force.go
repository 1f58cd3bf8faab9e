package answer

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/grammar/automaton"
	"terrace/grammar/schema"
)

// Grammar is that of one call of one of some tools, as the form writes it. Where the form has JSON, the arguments satisfy the
// tool's schema; where it has text, they come in the schema's order, required ones always, and a string is any text (of an enum,
// one of its values; of arrays in tags of their own, the number of items holds and no other keyword of arrays). Properties that the schema does not name are written only if it says that there may be others. Where the
// prompt, of which tail is the end, has begun a thought, the model may finish it first. Errors are package grammar's.
func (f Form) Grammar(tools []Tool, promptTail string) (*grammar.Grammar, error) {
	var b grammar.Builder
	w := &writer{b: &b}
	var calls []*grammar.Expr
	if f.prompted != "" && strings.HasSuffix(promptTail, f.prompted) {
		w.prompted = f.prompted
	}
	for i := range tools {
		calls = append(calls, f.calls[0].write(w, &tools[i]))
	}
	whole := grammar.Seq(f.lead(w, promptTail), grammar.Alt(calls...))
	if w.err != nil {
		return nil, w.err
	}
	r := b.Rule("call")
	b.Set(r, whole)
	g, err := b.Compile(r)
	if err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	return g, nil
}

// Begun is all that Grammar reads of a prompt's tail: the mark of the thought, or the beginning of the call, that it ends in; "" for
// none. Prompts that have begun the same have one grammar.
func (f Form) Begun(promptTail string) string {
	begun := ""
	if f.prompted != "" && strings.HasSuffix(promptTail, f.prompted) {
		begun = f.prompted
	}
	if t := f.insideThought(promptTail); t != nil {
		begun += t.Open
	}
	return begun
}

// lead is what comes before a forced call.
func (f Form) lead(w *writer, promptTail string) *grammar.Expr {
	if t := f.insideThought(promptTail); t != nil {
		lead := t.lead
		if lead == "" {
			lead = t.Close
		}
		return grammar.Seq(w.without(t.Close), grammar.Literal(lead))
	}
	return grammar.Seq()
}

// writer builds the grammar of forced calls; its first error stays.
type writer struct {
	b        *grammar.Builder
	err      error
	prompted string // the beginning of a call that the prompt has written
}

func (w *writer) embed(t *Tool, text string) *grammar.Expr {
	e, err := schema.Embed(w.b, []byte(text))
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("answer: tool %q: %w", t.Name, err)
	}
	if err != nil {
		return grammar.Seq()
	}
	return e
}

// arguments is a tool's arguments as a JSON object.
func (w *writer) arguments(t *Tool) *grammar.Expr {
	if len(t.Schema) == 0 {
		return w.embed(t, `{"type":"object"}`)
	}
	m := t.resolve(t.Schema)
	closed := m["properties"] != nil
	for _, word := range []string{"additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "anyOf", "oneOf", "if", "$ref"} {
		closed = closed && m[word] == nil
	}
	of := string(t.Schema)
	if closed && t.Schema.Kind() == '{' && strings.HasPrefix(strings.TrimSpace(of), "{") {
		of = `{"additionalProperties":false,` + strings.TrimSpace(of)[1:]
	}
	return w.embed(t, t.within(of, "#"))
}

// within is a schema of objects that is kept to by a part of the tool's; its references stay inside it.
func (t *Tool) within(of, path string) string {
	if path == "#" && !strings.Contains(of, `"$ref"`) {
		return `{"type":"object","allOf":[` + of + `]}`
	}
	if !strings.Contains(of, `"$id"`) {
		of = `{"$id":"tool:/arguments",` + strings.TrimSpace(of)[1:]
	}
	if path != "#" {
		return `{"$ref":"tool:/arguments` + path + `","$defs":{"arguments":` + of + `}}`
	}
	return `{"type":"object","allOf":[` + of + `]}`
}

// json is a value of a property as JSON.
func (w *writer) json(t *Tool, s jsontext.Value) *grammar.Expr {
	switch {
	case len(s) == 0:
		return w.embed(t, `true`)
	case !strings.Contains(string(s), `"$ref"`):
		return w.embed(t, string(s))
	}
	names, _ := t.names()
	for _, name := range names {
		if of, _ := t.property(t.Schema, name, 0); string(of) == string(s) {
			path := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			return w.embed(t, t.within(string(t.Schema), "#/properties/"+path))
		}
	}
	return w.embed(t, `true`)
}

// plain is a value as text before a mark.
func (w *writer) plain(t *Tool, s jsontext.Value, end string) *grammar.Expr {
	if values, ok := enum(t.resolve(s)); ok {
		var alts []*grammar.Expr
		for _, v := range values {
			text := string(v)
			if v.Kind() == '"' {
				text = unquote(v)
			}
			alts = append(alts, grammar.Literal(text))
		}
		return grammar.Alt(alts...)
	}
	if t.kinds(s, 0)&isString != 0 {
		return w.without(end)
	}
	return w.json(t, s)
}

// without is any text that does not hold a mark.
func (w *writer) without(mark string) *grammar.Expr {
	found, err := automaton.Search(automaton.Text(mark))
	if err == nil {
		found, err = automaton.Complement(found)
	}
	if err != nil {
		w.err = fmt.Errorf("answer: texts without %q: %w", mark, err)
		return grammar.Seq()
	}
	return grammar.Text(found)
}

// each is the properties of a tool in their order, those that are not required as they like, with something between them.
func (w *writer) each(t *Tool, between string, argument func(name string, s jsontext.Value) *grammar.Expr) *grammar.Expr {
	names, required := t.names()
	some, none := grammar.Seq(), grammar.Seq() // what follows behind an argument, and where there was none
	for i := len(names) - 1; i >= 0; i-- {
		s, _ := t.property(t.Schema, names[i], 0)
		one := argument(names[i], s)
		behind := grammar.Seq(grammar.Literal(between), one, some)
		first := grammar.Seq(one, some)
		if !required[names[i]] {
			behind, first = grammar.Alt(behind, some), grammar.Alt(first, none)
		}
		some, none = w.rule(behind), w.rule(first)
	}
	return none
}

func (w *writer) rule(body *grammar.Expr) *grammar.Expr {
	r := w.b.Rule("arguments")
	w.b.Set(r, body)
	return grammar.Call(r)
}
