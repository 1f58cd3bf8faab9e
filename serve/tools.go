package serve

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/serve/answer"
)

// tool is a function that the model may call.
type tool struct {
	Name        string
	Description string
	Parameters  jsontext.Value // a JSON schema; nil = any object
	raw         jsontext.Value // as the client wrote it in OpenAI's form; nil = in another
}

// toolUse is which tools a request has, and whether they are to be called.
type toolUse struct {
	tools  []tool
	choice string      // none, auto, required, or "=" and a name
	format callFormat  // how calls are shown to a template that knows none
	form   answer.Form // how the model writes an answer
}

// Call is a call of a tool, as the model wrote it.
type Call struct {
	ID, Name, Arguments string // Arguments are a JSON object
}

// callFormat is how a model writes calls: {"name": …, ARGUMENTS: {…}} between two texts.
type callFormat struct {
	open, close string
	arguments   string
	native      bool // the template writes the tools into the prompt itself
}

// callFormatOf reads the template: Hermes' and Qwen's tags, Llama's "parameters", else plain JSON.
func callFormatOf(template string) callFormat {
	f := callFormat{arguments: "arguments", native: strings.Contains(template, "tools") || strings.Contains(template, "tool_calls")}
	switch {
	case strings.Contains(template, "<tool_call>"):
		f.open, f.close = "<tool_call>\n", "\n</tool_call>"
	case f.native && strings.Contains(template, `"parameters"`) && strings.Contains(template, "<|start_header_id|>"):
		f.arguments = "parameters"
	}
	return f
}

const (
	maxTools     = 128
	maxToolBytes = 64 // of a name
)

// newToolUse checks tools and a choice; field names the tools, and their choice is field + "_choice" but for the s.
func (s *Server) newToolUse(tools []tool, choice string) (*toolUse, error) {
	u := &toolUse{tools: tools, choice: choice, format: callFormatOf(s.o.Tokenizer.Template()), form: s.form}
	if len(tools) > maxTools {
		return nil, badField("tools", "%d tools, want at most %d", len(tools), maxTools)
	}
	names := map[string]bool{}
	for i, t := range tools {
		ok := t.Name != "" && len(t.Name) <= maxToolBytes && strings.Trim(t.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == ""
		if !ok || names[t.Name] {
			return nil, badField("tools", "tool %d: name %.80q: want 1 to %d of a-z, A-Z, 0-9, _, - and ., no name twice", i, t.Name, maxToolBytes)
		}
		names[t.Name] = true
		if k := t.Parameters.Kind(); len(t.Parameters) > 0 && k != '{' {
			return nil, badField("tools", "tool %q: parameters: want a JSON schema", t.Name)
		}
	}
	if name, ok := strings.CutPrefix(choice, "="); ok && !names[name] {
		return nil, badField("tool_choice", "there is no tool %.80q", name)
	}
	if len(tools) == 0 && choice != "none" && choice != "auto" {
		return nil, badField("tool_choice", "no tools are given")
	}
	return u, nil
}

// active says whether an answer may be a call.
func (u *toolUse) active() bool { return len(u.tools) > 0 && u.choice != "none" }

// forced says whether it has to be one.
func (u *toolUse) forced() bool { return u.active() && u.choice != "auto" }

// constrain has a forced answer be a valid call, in the model's own form; tail is the end of the prompt.
func (u *toolUse) constrain(ctx context.Context, s *Server, r *Request, tail string) (err error) {
	if !u.forced() {
		return nil
	}
	if r.Machine != nil {
		return badField("tool_choice", "one that forces a call does not go with another constraint")
	}
	tools := u.answers(u.choice)
	var key strings.Builder
	fmt.Fprintf(&key, "call %q %q", u.form.Name, u.form.Begun(tail))
	for _, t := range tools {
		fmt.Fprintf(&key, " %q %q", t.Name, t.Schema)
	}
	over := &s.constraints.words
	if len(s.constraints.marked.shown) > 0 {
		over = &s.constraints.marked
	}
	r.Machine, err = s.machineOver(ctx, over, "tools", key.String(), func() (*grammar.Grammar, error) { return u.form.Grammar(tools, tail) })
	return err
}

// write is calls as the model would have written them.
func (f callFormat) write(calls []Call) string {
	var b strings.Builder
	for i, c := range calls {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, `%s{"name": %s, %q: %s}%s`, f.open, quote(c.Name), f.arguments, c.Arguments, f.close)
	}
	return b.String()
}

// list is the tools as OpenAI and templates write them; whole adds what the client left out.
func (u *toolUse) list(whole bool) jsontext.Value {
	var all []string
	for _, t := range u.tools {
		if t.raw != nil && (!whole || len(t.Parameters) > 0 && t.Description != "") {
			all = append(all, string(t.raw))
			continue
		}
		parameters := `{"type": "object", "properties": {}}`
		if len(t.Parameters) > 0 {
			parameters = string(t.Parameters)
		}
		all = append(all, fmt.Sprintf(`{"type": "function", "function": {"name": %s, "description": %s, "parameters": %s}}`, quote(t.Name), quote(t.Description), parameters))
	}
	return jsontext.Value("[" + strings.Join(all, ", ") + "]")
}

// instructions show the tools to a model whose template knows none.
func (u *toolUse) instructions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "You can call functions. To call one, answer with nothing but\n%s{\"name\": NAME, %q: {…}}%s\nThe functions, with JSON schemas of their arguments:", u.format.open, u.format.arguments, u.format.close)
	for _, t := range u.tools {
		fmt.Fprintf(&b, "\n%s", t.Name)
		if t.Description != "" {
			b.WriteString(": " + t.Description)
		}
		if len(t.Parameters) > 0 {
			b.WriteString("\n  " + compact(t.Parameters))
		}
	}
	return b.String()
}

// inSystem adds the instructions to the system message.
func (u *toolUse) inSystem(turns []*chatTurn) []*chatTurn {
	if len(turns) > 0 && turns[0].text("role") == "system" {
		first := *turns[0]
		first.members = slices.Clone(first.members)
		first.set("content", quote(first.text("content")+"\n\n"+u.instructions()))
		return append([]*chatTurn{&first}, turns[1:]...)
	}
	return append([]*chatTurn{newTurn("system", u.instructions())}, turns...)
}

// inUser adds the instructions to the first message of the user, for templates without system messages.
func (u *toolUse) inUser(turns []*chatTurn) []*chatTurn {
	turns = slices.Clone(turns)
	for i, t := range turns {
		if t.text("role") == "user" {
			first := *t
			first.members = slices.Clone(first.members)
			turns[i] = first.set("content", quote(u.instructions()+"\n\n"+t.text("content")))
			break
		}
	}
	return turns
}
