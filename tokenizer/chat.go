package tokenizer

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // system, user, assistant, or what the template knows
	Content string
}

// chatTemplate is a model's own Jinja template. It comes with the model and is
// not trusted: see chat_limits.go.
type chatTemplate struct {
	source  string
	timeout time.Duration // of a rendering
}

func newChatTemplate(source string) *chatTemplate { return &chatTemplate{source, renderTimeout} }

// HasTemplate reports whether the model came with a chat template.
func (t *Tokenizer) HasTemplate() bool { return t.template != nil }

// Template is the source of the chat template; "" = none.
func (t *Tokenizer) Template() string {
	if t.template == nil {
		return ""
	}
	return t.template.source
}

// RenderChat writes a conversation as the model expects it, with the model's
// own template as Hugging Face renders it (trim_blocks, lstrip_blocks). The
// result holds control tokens as text: encode it with parseSpecial, and without
// addSpecial when it starts with BOS. It returns ErrNoTemplate when there is no
// template; anything the template does that cannot be parsed or run, an
// exception it raises, or a limit it runs into is an error that wraps
// ErrTemplate. No other template is ever used instead.
//
// gonja does not tell none from undefined: "x is none" holds for both, and
// neither writes anything, where jinja2 writes None for the first.
func (t *Tokenizer) RenderChat(messages []Message, addGenerationPrompt bool) (string, error) {
	return t.RenderTools(messages, "", addGenerationPrompt)
}

// RenderTools is RenderChat for a conversation with tools: the template sees the JSON array as the variable tools. "" = none.
func (t *Tokenizer) RenderTools(messages []Message, tools string, addGenerationPrompt bool) (string, error) {
	if t.template == nil {
		return "", fmt.Errorf("tokenizer: %w", ErrNoTemplate)
	}
	list := make([]any, len(messages))
	bytes := 0
	for i, m := range messages {
		list[i] = &exec.Dict{Pairs: []*exec.Pair{
			{Key: exec.AsValue("role"), Value: exec.AsValue(m.Role)},
			{Key: exec.AsValue("content"), Value: exec.AsValue(m.Content)},
		}}
		bytes += len(m.Role) + len(m.Content)
	}
	special := func(id int) string {
		if id < 0 {
			return ""
		}
		return t.vocab.Tokens[id]
	}
	values := map[string]any{
		"messages":              list,
		"add_generation_prompt": addGenerationPrompt,
		"bos_token":             special(t.vocab.BOS),
		"eos_token":             special(t.vocab.EOS),
		"unk_token":             special(t.vocab.UNK),
		"pad_token":             special(t.vocab.PAD),
	}
	if tools != "" {
		v, err := templateJSON([]byte(tools))
		if err != nil {
			return "", fmt.Errorf("tokenizer: tools: %w", err)
		}
		values["tools"] = v
		bytes += 4 * len(tools) // a template may indent them
	}
	return t.template.render(bytes, values)
}

// EncodeChat encodes what RenderChat wrote: control tokens are recognised, BOS
// comes first when the model wants it and the template has not put it there,
// and nothing follows the text.
func (t *Tokenizer) EncodeChat(rendered string) ([]int, error) {
	ids, err := t.Encode(rendered, false, true)
	if err != nil || !t.AddsBOS() || len(ids) > 0 && ids[0] == t.vocab.BOS {
		return ids, err
	}
	return append([]int{t.vocab.BOS}, ids...), nil
}

// render runs the template under limits: depth, sizes and time.
// inputBytes is how much text the values hold, which the output may repeat.
func (c *chatTemplate) render(inputBytes int, values map[string]any) (string, error) {
	lim := newLimiter(inputBytes, c.timeout)
	var out strings.Builder
	err := guarded(c.timeout, func() error {
		tpl, err := c.parse(lim)
		if err != nil {
			return err
		}
		if err := tpl.Execute(&cappedWriter{lim: lim, out: &out}, exec.NewContext(values)); err != nil {
			return lim.explain(err)
		}
		return lim.err
	})
	if err != nil {
		return "", err
	}
	return out.String(), nil
}

// guarded runs f and turns a panic or the passing of the deadline into an
// error. Past the deadline f goes on until the limiter, which watches the same
// clock, stops it.
func guarded(limit time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("tokenizer: %w: %.200v", ErrTemplate, p)
			}
		}()
		err := f()
		if err != nil {
			err = fmt.Errorf("tokenizer: %w: %s", ErrTemplate, shorten(err.Error()))
		}
		done <- err
	}()
	timer := time.NewTimer(limit + limit/2)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("tokenizer: %w: no end after %v: time limit", ErrTemplate, limit)
	}
}

// shorten keeps the two ends of an error text: gonja repeats the whole
// template in it, and the cause stands last.
func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const side = 160
	if len(s) <= 2*side+5 {
		return s
	}
	return strings.ToValidUTF8(s[:side], "") + " … " + strings.ToValidUTF8(s[len(s)-side:], "")
}

// parse compiles the template with control structures, filters and functions
// that lim bounds.
func (c *chatTemplate) parse(lim *limiter) (*exec.Template, error) {
	if err := checkSource(c.source); err != nil {
		return nil, err
	}
	cfg := config.New()
	cfg.TrimBlocks = true
	g := &guard{lim: lim, seen: map[any]nodes.Expression{}}
	env, loader := g.environment(), sourceLoader("")
	tpl, err := exec.NewTemplate("chat template", cfg, loader, env)
	if err != nil {
		return nil, err
	}
	list, err := lex(c.source, cfg)
	if err != nil {
		return nil, err
	}
	root, err := parser.NewParser("chat template", tokens.NewStream(list), cfg, loader, env.ControlStructures).Parse()
	if err != nil {
		return nil, fmt.Errorf("syntax: %w", err)
	}
	if err := g.protect(reflect.ValueOf(root), 0); err != nil {
		return nil, err
	}
	root.Nodes = g.withToll(root.Nodes)
	*tpl.Root() = *root
	return tpl, nil
}

// lex returns the template's tokens with conditional expressions in the form
// that gonja's parser reads.
func lex(source string, cfg *config.Config) ([]*tokens.Token, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	var list []*tokens.Token
	stream := tokens.LexAll(source, cfg)
	for !stream.End() {
		list = append(list, stream.Next())
	}
	if stream.IsError() {
		return nil, fmt.Errorf("syntax: %s", stream.Current().Val)
	}
	stripLines(list, source)
	list, err := inlineConditions(list)
	if err != nil {
		return nil, err
	}
	return append(list, stream.Current()), nil // the end mark
}

// stripLines is lstrip_blocks: white space between the start of a line and a
// block or comment goes, unless the tag says "+". (gonja's own option also
// strips where the tag does not stand first on its line.)
func stripLines(list []*tokens.Token, source string) {
	for i, t := range list {
		if t.Type != tokens.Data || i+1 == len(list) {
			continue
		}
		next := list[i+1]
		if next.Type != tokens.BlockBegin && next.Type != tokens.CommentBegin || strings.HasSuffix(next.Val, "+") {
			continue
		}
		line := strings.LastIndexByte(t.Val, '\n') + 1
		if line == 0 && t.Pos > 0 && source[min(t.Pos, len(source))-1] != '\n' {
			continue
		}
		if strings.TrimLeft(t.Val[line:], " \t") == "" {
			t.Val = t.Val[:line]
		}
	}
}
