package answer

import (
	"slices"
	"strings"
)

// Form is how a model writes an answer: its thoughts, its calls, the end of its turn. A Form is a value that is never changed.
type Form struct {
	Name     string         // of the calls' form
	Thoughts []ThoughtMarks // the first is what the model is taught to write
	Ends     []string       // marks that end a turn, which the template writes

	calls    []caller // the first is what a forced call is written by
	dropped  []string // marks that say nothing: of channels and turns
	layout   layout   // nil: thoughts, text and calls follow each other
	prompted string   // the beginning of marks that prompts have written
}

// layout reads an answer whose parts have headers.
type layout interface {
	read(p *parser, promptTail string)
	marks() []string
}

// family is a row of the table of forms.
type family struct {
	name    string
	models  string // who writes it
	uses    func(template string) bool
	example string // a call of f with x = 1, as it is written
	form    Form   // Thoughts nil: as the template writes them
	variant func(template string, f *Form)
}

// FormOf is the form that a chat template teaches: the first row of the table whose marks it writes. A template that knows no
// tools gets the last row, JSON with or without Hermes' tags.
func FormOf(template string) Form {
	for _, row := range families {
		if row.uses(template) {
			return row.of(template)
		}
	}
	return plainFamily.of(template)
}

func (row *family) of(template string) Form {
	f := row.form
	f.Name = row.name
	if row.variant != nil {
		row.variant(template, &f)
	}
	if f.Thoughts == nil {
		f.Thoughts = thoughtsOf(template)
	}
	f.dropped = slices.DeleteFunc(slices.Clone(f.dropped), func(m string) bool { return !isControl(m) && m != ">>>all\n" && !strings.Contains(template, m) })
	for _, end := range turnEnds {
		if strings.Contains(template, end) {
			f.Ends = append(f.Ends, end)
		}
	}
	return f
}

// Row is a form for documents: its name, models that write it, a call of a function f with x = 1, and the marks of its thoughts,
// if they belong to it.
type Row struct{ Name, Models, Call, Thought string }

// Table is all forms, in the order in which FormOf looks for them.
func Table() (rows []Row) {
	for _, f := range append(slices.Clone(families), plainFamily) {
		thought := ""
		if len(f.form.Thoughts) > 0 {
			thought = f.form.Thoughts[0].Open + "…" + f.form.Thoughts[0].Close
		}
		rows = append(rows, Row{f.name, f.models, f.example, thought})
	}
	return rows
}

// Keeps says whether a parser needs the text of a control token, because it is, holds, or is part of one of the form's marks.
func (f Form) Keeps(token string) bool {
	return token != "" && slices.ContainsFunc(f.Marks(), func(m string) bool { return strings.Contains(m, token) || strings.Contains(token, m) })
}

// Marks are the texts that have a meaning in the form, each once.
func (f Form) Marks() []string {
	all := slices.Concat(f.dropped, f.Ends)
	for _, t := range f.Thoughts {
		all = append(all, t.Open, t.Close)
	}
	for _, c := range f.calls {
		all = slices.Concat(all, c.openers(), c.closers(), inner(c))
	}
	if f.layout != nil {
		all = append(all, f.layout.marks()...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(m string) bool { return m == "" })
}

// inner is the marks inside a call.
func inner(c caller) []string {
	switch c := c.(type) {
	case *namedCalls:
		return c.inner
	case *parameterCalls:
		return []string{c.key, c.keyEnd, c.value, c.end, c.close, c.nameEnd}
	case *gemmaCalls:
		return []string{c.quote}
	case *nestedCalls:
		return []string{c.mark}
	}
	return nil
}

// holds is whether a template holds one of some texts.
func holds(texts ...string) func(string) bool {
	return func(template string) bool {
		return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(template, t) })
	}
}

// families are the forms that templates show by their marks, those first whose marks hold others'.
var families = []family{
	harmonyFamily, museFamily, solarFamily, kimi3Family, kimiFamily, cohereFamily, commandFamily, gemmaFamily, functionGemmaFamily,
	dsmlFamily, gcmlFamily, deepseekFamily, minimax3Family, minimax2Family, glmFamily, stepFamily, seedFamily, qwenCoderFamily,
	functionaryFamily, functionary2Family, mistralFamily, lfmFamily, graniteFamily, nemotronFamily, apertusFamily, internFamily,
	toolCallsFamily, mcpFamily, olmoFamily, llama4Family, functoolsFamily, gigachatFamily, hermesFamily, llamaFamily,
}

// turnEnds are marks that end turns. Where a template writes one, it ends an answer, if nothing follows it.
var turnEnds = []string{
	"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<|eom|>", "<|return|>", "<|call|>", "<|end_of_text|>", "<|endoftext|>",
	"<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "<end_of_sentence>", "<|end_of_msg|>", "<|role_end|>",
	"<|message_sep|>", "[e~[", "<seed:eos>", "<SPECIAL_12>", "<|endofassistant|>", "<|eos|>",
}
