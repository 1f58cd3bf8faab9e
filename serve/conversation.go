package serve

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"terrace/internal/jinja"
	"terrace/tokenizer"
)

// chatTurn is one message in the form that chat templates expect, that of Hugging Face: members in the order in which the
// client wrote them, arguments of calls as objects.
type chatTurn struct {
	members []chatMember
	calls   []Call // the value of the member tool_calls
}

type chatMember struct {
	name  string
	value jsontext.Value // nil for tool_calls
}

// newTurn is a turn of plain text.
func newTurn(role, content string) *chatTurn {
	return (&chatTurn{}).set("role", quote(role)).set("content", quote(content))
}

// set adds or replaces a member.
func (t *chatTurn) set(name, value string) *chatTurn {
	for i := range t.members {
		if t.members[i].name == name {
			t.members[i].value = jsontext.Value(value)
			return t
		}
	}
	t.members = append(t.members, chatMember{name, jsontext.Value(value)})
	return t
}

// think adds what the assistant thought before it answered; templates know it by two names.
func (t *chatTurn) think(thought string) *chatTurn {
	if thought != "" {
		t.set("reasoning_content", quote(thought)).set("thinking", quote(thought))
	}
	return t
}

// text is a member that is a string; "" where it is not there.
func (t *chatTurn) text(name string) (s string) {
	for _, m := range t.members {
		if m.name == name && m.value.Kind() == '"' {
			_ = json.Unmarshal(m.value, &s)
		}
	}
	return s
}

// call adds calls of tools.
func (t *chatTurn) call(calls ...Call) *chatTurn {
	if len(t.calls) == 0 {
		t.members = append(t.members, chatMember{name: "tool_calls"})
	}
	t.calls = append(t.calls, calls...)
	return t
}

// callsAsText moves the calls into the content, as a template that knows none has to be given them.
func (t *chatTurn) callsAsText(f callFormat) {
	if len(t.calls) == 0 {
		return
	}
	t.set("content", quote(strings.TrimLeft(t.text("content")+"\n"+f.write(t.calls), "\n")))
	t.calls = nil
	t.members = slices.DeleteFunc(t.members, func(m chatMember) bool { return m.name == "tool_calls" })
}

// conversation is a chat on its way to the model's template.
type conversation struct {
	turns  []*chatTurn
	tools  *toolUse
	fields *templateFields
	tail   string // the end of the rendered prompt, once it is rendered

	budget   *budgetFields // nil = none can be named
	thinking *int          // a budget by the name of the API's own
}

// templateFields are those of a chat that only its template reads.
type templateFields struct {
	AddGenerate     *bool          `json:"add_generation_prompt"`
	ContinueFinal   *bool          `json:"continue_final_message"`
	TemplateKwargs  jsontext.Value `json:"chat_template_kwargs"`
	Documents       jsontext.Value `json:"documents"`
	ReasoningEffort *string        `json:"reasoning_effort"`
	EnableThinking  *bool          `json:"enable_thinking"`

	thoughtless bool // thoughts are not wanted, whatever the template makes of it
}

var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// check refuses what no template can be given.
func (f *templateFields) check() error {
	if k := f.TemplateKwargs.Kind(); len(f.TemplateKwargs) > 0 && k != '{' && k != 'n' {
		return badField("chat_template_kwargs", "want an object")
	}
	if k := f.Documents.Kind(); len(f.Documents) > 0 && k != '[' && k != 'n' {
		return badField("documents", "want an array")
	}
	if f.ReasoningEffort != nil && !slices.Contains(efforts, *f.ReasoningEffort) {
		return badField("reasoning_effort", "%.20q: want one of %s", *f.ReasoningEffort, strings.Join(efforts, ", "))
	}
	if is(f.ContinueFinal) && is(f.AddGenerate) {
		return badField("continue_final_message", "not beside add_generation_prompt")
	}
	return nil
}

// variables are the template's variables as one JSON object; chat_template_kwargs come first.
func (f *templateFields) variables() jsontext.Value {
	var members []string
	given := map[string]bool{}
	add := func(name, value string) {
		if !given[name] {
			given[name] = true
			members = append(members, quote(name)+":"+value)
		}
	}
	if f.TemplateKwargs.Kind() == '{' {
		var kwargs map[string]jsontext.Value
		_ = json.Unmarshal(f.TemplateKwargs, &kwargs)
		for name, v := range kwargs {
			add(name, string(v))
		}
	}
	if f.EnableThinking != nil {
		add("enable_thinking", boolJSON(*f.EnableThinking))
	}
	if e := f.ReasoningEffort; e != nil && *e == "none" {
		add("enable_thinking", "false")
	} else if e != nil {
		add("reasoning_effort", quote(*e))
	}
	if f.Documents.Kind() == '[' {
		add("documents", string(f.Documents))
	}
	return jsontext.Value("{" + strings.Join(members, ",") + "}")
}

func boolJSON(b bool) string {
	if b {
		return "true"
	}
	return "false"
}

// render writes the conversation by the model's template. What others than the assistant have written is plain text, whatever
// control tokens it names: mark says where (Options.SpecialInContent). One that is too long for the context whatever the
// template makes of it is refused before.
func (w *promptWriter) render(ctx context.Context, c *conversation) (text string, mark tokenizer.Mark, err error) {
	if !w.tok.HasTemplate() {
		e := badRequest("the model has no chat template; /v1/completions continues text")
		e.Cause = tokenizer.ErrNoTemplate
		return "", "", e
	}
	if err := w.fits(c); err != nil {
		return "", "", err
	}
	err = w.busy(ctx, func() (err error) {
		text, mark, err = w.renderTools(c)
		return err
	})
	if err != nil && ctx.Err() == nil {
		err = badField("messages", "%s", oneLine(err))
	}
	return text, mark, err
}

// turnsFit refuses more turns than a prompt has tokens.
func (w *promptWriter) turnsFit(n int) error {
	if window := w.window; n > window {
		return badField("messages", "%d messages, more than the %d tokens of the context", n, window)
	}
	return nil
}

// fits refuses what is longer than any prompt.
func (w *promptWriter) fits(c *conversation) error {
	window, least := w.window, 0
	if err := w.turnsFit(len(c.turns)); err != nil {
		return err
	}
	for _, m := range c.turns {
		if least += w.tok.AtLeast(m.text("content")); least > countedContexts*window { // a template may cut some
			return w.tooLong(countedContexts * window)
		}
	}
	return nil
}

// renderTools has the template show tools and calls, or shows them in a form of this server's own where it knows neither.
func (w *promptWriter) renderTools(c *conversation) (string, tokenizer.Mark, error) {
	for _, m := range c.turns {
		if m.text("role") == "developer" && !strings.Contains(w.tok.Template(), "developer") {
			m.set("role", `"system"`)
		}
	}
	f := c.tools.format
	if f.native {
		return w.renderTurns(c)
	}
	for _, m := range c.turns {
		m.callsAsText(f)
	}
	if c.tools.active() {
		plain := c.turns
		c.turns = c.tools.inSystem(plain)
		if _, _, err := w.renderTurns(c); err != nil {
			c.turns = c.tools.inUser(plain)
		}
	}
	if w.losesResults(c) {
		for _, m := range c.turns {
			if m.text("role") == "tool" {
				m.set("role", `"user"`)
			}
		}
	}
	return w.renderTurns(c)
}

// losesResults says that the template leaves out what tools answer, since it does not know their role.
func (w *promptWriter) losesResults(c *conversation) bool {
	const mark = "\uFDD1"
	probe := *c
	probe.turns = slices.Clone(c.turns)
	results := 0
	for i, m := range probe.turns {
		if m.text("role") == "tool" {
			results++
			probe.turns[i] = newTurn("tool", mark)
		}
	}
	text, _, err := w.renderTurns(&probe)
	return err == nil && strings.Count(text, mark) < results
}

// Templates differ in what they can be given; each of these is tried where the plain form is an error that the template
// does not raise itself.
const (
	emptyContent    = 1 << iota // content "" beside calls, where it is null
	wholeTools                  // parameters and description of a tool, where they are missing
	argumentsAsText             // arguments as JSON in a string
	variants
)

// renderTurns renders the first form that the template can be given.
func (w *promptWriter) renderTurns(c *conversation) (text string, mark tokenizer.Mark, err error) {
	in := tokenizer.Conversation{Variables: c.fields.variables(), ContinueFinal: is(c.fields.ContinueFinal)}
	in.AddGenerationPrompt = c.fields.AddGenerate == nil && !in.ContinueFinal || is(c.fields.AddGenerate)
	calls := slices.ContainsFunc(c.turns, func(m *chatTurn) bool { return len(m.calls) > 0 })
	shown := c.tools.format.native && c.tools.active()
	var failed error
	for v := range variants {
		if v&(emptyContent|argumentsAsText) != 0 && !calls || v&wholeTools != 0 && !shown {
			continue
		}
		in.Messages = messagesJSON(c.turns, v)
		if shown {
			in.Tools = c.tools.list(v&wholeTools != 0)
		}
		if w.special {
			text, err = w.tok.Render(&in)
		} else {
			text, mark, err = w.tok.RenderMarked(&in)
		}
		if err == nil || raised(err) || errors.Is(err, jinja.ErrLimit) {
			return text, mark, err
		}
		if failed == nil {
			failed = err
		}
	}
	return "", "", failed
}

// raised says that the template itself refuses.
func raised(err error) bool {
	var r *jinja.Raised
	return errors.As(err, &r)
}

// messagesJSON is the turns as templates read them, in one of the forms.
func messagesJSON(turns []*chatTurn, variant int) []byte {
	list := make([]string, len(turns))
	for i, t := range turns {
		list[i] = t.json(variant)
	}
	return []byte("[" + strings.Join(list, ",") + "]")
}

func (t *chatTurn) json(variant int) string {
	var members []string
	content := false
	for _, m := range t.members {
		value := string(m.value)
		content = content || m.name == "content"
		if m.value == nil {
			var calls []string
			for _, c := range t.calls {
				calls = append(calls, c.json(variant&argumentsAsText != 0))
			}
			value = "[" + strings.Join(calls, ",") + "]"
		}
		members = append(members, quote(m.name)+":"+value)
	}
	if variant&emptyContent != 0 && !content {
		members = append(members, `"content":""`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// json is a call as templates read it.
func (c *Call) json(text bool) string {
	id, arguments := "", c.Arguments
	if c.ID != "" {
		id = `"id":` + quote(c.ID) + ","
	}
	if text {
		arguments = quote(arguments)
	}
	return "{" + id + `"type":"function","function":{"name":` + quote(c.Name) + `,"arguments":` + arguments + `}}`
}

// encodeChat renders a conversation and tokenises it.
func (w *promptWriter) encodeChat(ctx context.Context, c *conversation) ([]int, error) {
	text, mark, err := w.render(ctx, c)
	if err != nil {
		return nil, err
	}
	c.tail = tailOf(text)
	if mark != "" {
		c.tail = strings.ReplaceAll(c.tail, string(mark), "")
	}
	return w.encodePrompt(ctx, "messages", text, tokenizer.EncodeOptions{ParseSpecial: true, Mark: mark})
}

// tailOf is as much of a prompt's end as says whether it has begun a thought.
func tailOf(text string) string {
	const most = 512
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[len(text)-most:], "")
}

// withRaw is a value beside the JSON that it was read from.
type withRaw[T any] struct {
	value T
	raw   jsontext.Value
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (w *withRaw[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	v, err := d.ReadValue()
	if err != nil {
		return err
	}
	w.raw = v.Clone()
	err = json.Unmarshal(w.raw, &w.value, d.Options())
	var wrong *json.SemanticError
	if errors.As(err, &wrong) {
		wrong.JSONPointer = d.StackPointer() + wrong.JSONPointer
	}
	return err
}
