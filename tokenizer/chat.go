package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"terrace/internal/jinja"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, or what the template knows
	Content string
}

// Conversation is what a chat template is rendered with, as JSON: objects keep the order of their members.
type Conversation struct {
	Messages []byte // an array of objects, in the form that Hugging Face's templates expect
	Tools    []byte // an array of tools; nil = none
	// Variables is an object whose members become variables of the template (documents, chat_template_kwargs); nil = none.
	Variables           []byte
	AddGenerationPrompt bool // the text ends with the head of an assistant's turn
	// ContinueFinal ends the text with the content of the last message, so that the model goes on with it.
	ContinueFinal bool
}

// Limits of one rendering: a template is a program that came with a model.
const (
	renderMaxExtra = 1 << 20 // bytes of output beyond four times the conversation's
	renderMaxWork  = 1 << 26 // steps, and bytes that they handle, beyond 64 times the conversation's
	renderTimeout  = 2 * time.Second
)

// chatTemplate is a model's own Jinja template.
type chatTemplate struct {
	source  string
	timeout time.Duration // of a rendering
	now     func() time.Time
}

func newChatTemplate(source string) *chatTemplate {
	return &chatTemplate{source: source, timeout: renderTimeout}
}

// HasTemplate reports whether the model came with a chat template.
func (t *Tokenizer) HasTemplate() bool { return t.template != nil }

// Template is the source of the chat template; "" = none.
func (t *Tokenizer) Template() string {
	if t.template == nil {
		return ""
	}
	return t.template.source
}

// RenderChat writes a conversation of plain turns as the model expects it: see Render.
func (t *Tokenizer) RenderChat(messages []Message, addGenerationPrompt bool) (string, error) {
	return t.RenderTools(messages, "", addGenerationPrompt)
}

// RenderTools is RenderChat for a conversation with tools, a JSON array. "" = none.
func (t *Tokenizer) RenderTools(messages []Message, tools string, addGenerationPrompt bool) (string, error) {
	list, size := t.messages(messages, tools)
	return t.render(list, &Conversation{Tools: []byte(tools), AddGenerationPrompt: addGenerationPrompt}, size, "")
}

// RenderPlain is RenderTools for turns that others than the assistant have written, and tools: control tokens in their words are plain
// text, as Mark says to EncodeWith. Those of the template and of the assistant's own turns stay what they are.
func (t *Tokenizer) RenderPlain(messages []Message, tools string, addGenerationPrompt bool) (text string, mark Mark, err error) {
	list, size := t.messages(messages, tools)
	words := []string{tools}
	for _, m := range messages {
		words = append(words, m.Content)
	}
	if mark, err = t.newMark(words); err != nil {
		return "", "", err
	}
	text, err = t.render(list, &Conversation{Tools: []byte(tools), AddGenerationPrompt: addGenerationPrompt}, size, mark)
	if mark != "" {
		text = strings.ReplaceAll(text, mark.escaped(), string(mark))
	}
	return text, mark, err
}

// RenderMarked is Render where control tokens are plain text in what others than the assistant have written, as Mark says to EncodeWith.
func (t *Tokenizer) RenderMarked(c *Conversation) (text string, mark Mark, err error) {
	list, err := c.list()
	if err != nil {
		return "", "", err
	}
	words := []string{string(c.Tools)}
	for _, m := range list.Items {
		jinja.MapStrings(m, func(s string) string {
			words = append(words, s)
			return s
		})
	}
	if mark, err = t.newMark(words); err != nil {
		return "", "", err
	}
	text, err = t.render(list, c, c.size(), mark)
	if mark != "" {
		text = strings.ReplaceAll(text, mark.escaped(), string(mark))
	}
	return text, mark, err
}

// EncodeMessages is RenderPlain and its ids, without tools and without a BOS that the template does not write.
func (t *Tokenizer) EncodeMessages(messages []Message, addGenerationPrompt bool) ([]int, error) {
	text, mark, err := t.RenderPlain(messages, "", addGenerationPrompt)
	if err != nil {
		return nil, err
	}
	return t.EncodeWith(text, EncodeOptions{ParseSpecial: true, Mark: mark})
}

// messages are values of a template, and how many bytes they and the tools hold.
func (t *Tokenizer) messages(messages []Message, tools string) (*jinja.List, int) {
	list, size := &jinja.List{}, 4*len(tools)
	for _, m := range messages {
		list.Items = append(list.Items, jinja.NewDict().Set("role", m.Role).Set("content", m.Content))
		size += len(m.Role) + len(m.Content)
	}
	return list, size
}

// Render writes a conversation with the model's own template, as Hugging Face's apply_chat_template does. The result
// holds control tokens as text: encode it with parseSpecial, and without addSpecial when it starts with BOS. It returns
// ErrNoTemplate when there is no template; what a template refuses, does wrong or takes too long for is an error that
// wraps ErrTemplate. No other template is ever used instead.
func (t *Tokenizer) Render(c *Conversation) (string, error) {
	list, err := c.list()
	if err != nil {
		return "", err
	}
	return t.render(list, c, c.size(), "")
}

// size is how many bytes a template may repeat; it may indent tools and variables.
func (c *Conversation) size() int { return len(c.Messages) + 4*len(c.Tools) + 4*len(c.Variables) }

func (c *Conversation) list() (*jinja.List, error) {
	v, err := jinja.FromJSON(c.Messages)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: messages: %w", err)
	}
	list, ok := v.(*jinja.List)
	if !ok {
		return nil, errors.New("tokenizer: messages: want an array")
	}
	return list, nil
}

// render: mark is put before control tokens in words that the assistant has not written; "" = it is not.
func (t *Tokenizer) render(messages *jinja.List, c *Conversation, size int, mark Mark) (string, error) {
	if t.template == nil {
		return "", fmt.Errorf("tokenizer: %w", ErrNoTemplate)
	}
	plain := func(v any) any {
		if mark == "" {
			return v
		}
		return jinja.MapStrings(v, func(s string) string { return t.marked(s, mark) })
	}
	for _, m := range messages.Items {
		if d, ok := m.(*jinja.Dict); ok {
			if role, _ := d.Get("role"); role != "assistant" {
				plain(d)
			}
		}
	}
	vars := jinja.NewDict().Set("messages", messages).Set("add_generation_prompt", c.AddGenerationPrompt)
	for name, id := range map[string]int{"bos_token": t.vocab.BOS, "eos_token": t.vocab.EOS, "unk_token": t.vocab.UNK, "pad_token": t.vocab.PAD} {
		text := ""
		if id >= 0 {
			text = t.vocab.Tokens[id]
		}
		vars.Set(name, text)
	}
	for name, data := range map[string][]byte{"tools": c.Tools, "documents": nil} {
		vars.Set(name, nil)
		if len(data) == 0 {
			continue
		}
		v, err := jinja.FromJSON(data)
		if err != nil {
			return "", fmt.Errorf("tokenizer: %s: %w", name, err)
		}
		vars.Set(name, plain(v))
	}
	if len(c.Variables) > 0 {
		v, err := jinja.FromJSON(c.Variables)
		more, ok := v.(*jinja.Dict)
		if err != nil || !ok {
			return "", errors.New("tokenizer: template variables: want a JSON object")
		}
		vars.Update(more)
	}
	text, err := t.template.render(vars, size)
	if err != nil || !c.ContinueFinal {
		return text, err
	}
	return continued(text, messages)
}

// render runs the template under limits; size is how many bytes the variables hold.
func (c *chatTemplate) render(vars *jinja.Dict, size int) (string, error) {
	tpl, err := jinja.Parse(c.source)
	if err != nil {
		return "", fmt.Errorf("tokenizer: %w: %w", ErrTemplate, err)
	}
	limits := jinja.Limits{Output: renderMaxExtra + 4*size, Work: renderMaxWork + 64*size, Time: c.timeout, Now: c.now}
	text, err := tpl.Render(vars, limits)
	// Some templates cannot run where tools is None, as transformers passes it: they ask whether it is defined.
	if v, ok := vars.Get("tools"); err != nil && ok && v == nil && !errors.Is(err, jinja.ErrLimit) && !isRaised(err) {
		vars.Delete("tools")
		if again, errAgain := tpl.Render(vars, limits); errAgain == nil || isRaised(errAgain) {
			text, err = again, errAgain
		}
	}
	if err != nil {
		return "", fmt.Errorf("tokenizer: %w: %w", ErrTemplate, err)
	}
	return text, nil
}

func isRaised(err error) bool {
	var raised *jinja.Raised
	return errors.As(err, &raised)
}

// continued cuts a rendering behind the content of the last message, as continue_final_message of transformers does.
func continued(text string, messages *jinja.List) (string, error) {
	var last string
	if n := len(messages.Items); n > 0 {
		if m, ok := messages.Items[n-1].(*jinja.Dict); ok {
			switch v, _ := m.Get("content"); v := v.(type) {
			case string:
				last = v
			case *jinja.List:
				for _, part := range v.Items {
					if d, ok := part.(*jinja.Dict); ok {
						if s, ok := d.Get("text"); ok {
							last, _ = s.(string)
						}
					}
				}
			}
		}
	}
	final := strings.TrimSpace(last)
	at := strings.LastIndex(text, final)
	if final == "" || at < 0 {
		return "", fmt.Errorf("tokenizer: %w: the last message has no content in the rendered chat that could be continued", ErrTemplate)
	}
	end := at + len(final)
	if whole := strings.TrimLeft(last, " \t\r\n"); strings.HasPrefix(text[at:], whole) {
		end = at + len(whole)
	}
	return text[:end], nil
}

// EncodeChat encodes what Render wrote: control tokens are recognised, BOS comes first when the model wants it and the
// template has not put it there, and nothing follows the text.
func (t *Tokenizer) EncodeChat(rendered string) ([]int, error) {
	ids, err := t.Encode(rendered, false, true)
	if err != nil || !t.AddsBOS() || len(ids) > 0 && ids[0] == t.vocab.BOS {
		return ids, err
	}
	return append([]int{t.vocab.BOS}, ids...), nil
}
