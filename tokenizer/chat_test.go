package tokenizer

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func chatTokenizer(t *testing.T, template string) *Tokenizer {
	t.Helper()
	tok, err := New(Vocab{Model: ModelBPE, Pre: "gpt-2", Tokens: []string{"a", "<s>", "</s>"}, Types: []int32{1, 3, 3}, BOS: 1, EOS: 2, UNK: -1, PAD: -1, ChatTemplate: template})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestTemplateLimits(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"endless range":    {`{% for i in range(1000000000000) %}x{% endfor %}`, "range"},
		"nested loops":     {`{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}`, "limit"},
		"doubling string":  {`{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}`, "limit"},
		"doubling plus":    {`{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`, "limit"},
		"doubling list":    {`{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}`, "limit"},
		"nesting list":     {`{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}`, "limit"},
		"self reference":   {`{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}`, "limit"},
		"repeat":           {`{{ 'x' * 1000000000000 }}`, "limit"},
		"repeat negative":  {`{{ 'x' * -5 }}ok{{ 1 // 0 }}`, "zero"},
		"modulo zero":      {`{{ 1 % 0 }}`, "zero"},
		"macro recursion":  {`{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`, "limit"},
		"macro fan-out":    {`{% macro f(n) %}{% if n > 0 %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(40) }}`, "limit"},
		"silent loops":     {`{% set a = range(9000) %}{% for i in a %}{% for j in a %}{% for k in a %}{% endfor %}{% endfor %}{% endfor %}`, "limit"},
		"filtered loops":   {`{% set a = range(9000) %}{% for i in a if a %}{% for j in a if i in a %}{% for k in a if j %}{% endfor %}{% endfor %}{% endfor %}`, "limit"},
		"loops over text":  {`{% set a = 'x' * 900000 %}{% for i in a %}{% for j in a %}{% if i == j %}{% endif %}{% endfor %}{% endfor %}`, "limit"},
		"literal loops":    {strings.Repeat(`{% for i in [[1,2,3,4],[1,2,3,4],3,4,5,6,7,8] %}`, 30) + strings.Repeat(`{% endfor %}`, 30), "limit"},
		"writing macro":    {`{% macro f() %}{% for i in range(60000) %}` + strings.Repeat("x", 9000) + `{% endfor %}{% endmacro %}{% set a = f() %}`, "limit"},
		"many variables":   {`{% set a = 'x' * 1000000 %}` + many(2000, `{% set b%d = a ~ 'x' %}`), "limit"},
		"long sum of text": {`{% set a = 'x' * 1000000 %}{{ a` + strings.Repeat(" ~ a", 400) + ` }}`, "limit"},
		"list of text":     {`{% set a = 'x' * 1000000 %}{{ [a` + strings.Repeat(",a", 20000) + `] }}`, "limit"},
		"list with text":   {`{% set a = 'x' * 1000000 %}{% set b = [a` + strings.Repeat(",a", 20000) + `] ~ 'x' %}`, "limit"},
		"comparisons":      {`{% set a = range(60000)|list %}{% set b = range(60000)|list %}{% if a is eq(b)` + strings.Repeat(" and a is eq(b)", 400) + ` %}{% endif %}`, ""},
		"slices":           {`{% set a = range(60000) %}{{ a` + strings.Repeat("[0:]", 400) + ` }}`, ""},
		"output":           {`{% for i in range(90000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}`, "limit"},
		"data":             {`{% set a %}{% for i in range(90000) %}` + strings.Repeat("x", 1000) + `{% endfor %}{% endset %}`, "limit"},
		"replace":          {`{% set a = 'a' * 1000000 %}{{ a|replace('a', a) }}`, "limit"},
		"replace method":   {`{% set a = 'a' * 1000000 %}{{ a.replace('a', a) }}`, "limit"},
		"join":             {`{% set a = 'a' * 1000000 %}{{ range(90000)|join(a) }}`, "limit"},
		"append itself":    {`{% set a = [1] %}{% set b = a.append(a) %}{{ a == a }}{{ a }}`, ""},
		"squares":          {`{% set a = range(60000) %}{{ a|select('in', a)|list|length }}`, "limit"},
		"center":           {`{{ 'a'|center(1000000000) }}`, "limit"},
		"format":           {`{{ 'a'.ljust(1000000000) }}`, "limit"},
		"brackets":         {`{{ ` + strings.Repeat("(", 30000) + `1` + strings.Repeat(")", 30000) + ` }}`, "limit"},
		"nots":             {`{{ ` + strings.Repeat("not ", 15000) + `1 }}`, "limit"},
		"sums":             {`{{ ` + strings.Repeat("1 + ", 15000) + `1 }}`, "limit"},
		"size":             {strings.Repeat("x", 270000), "limit"},
		"syntax":           {`{% for m in messages %}{{ m.content }`, "syntax"},
		"unknown tag":      {`{% frobnicate %}`, "frobnicate"},
		"include":          {`{% include '/etc/passwd' %}`, "include"},
		"unknown filter":   {`{{ 1|frobnicate }}`, "frobnicate"},
		"unknown function": {`{{ frobnicate(1) }}`, "frobnicate"},
		"raise":            {`{{ raise_exception('roles must alternate') }}`, "roles must alternate"},
		"recursive":        {`{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}`, "limit"},
		"adding none":      {`{{ 'a' + none }}`, "concatenate"},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			tok := chatTokenizer(t, c.source)
			if tok.template.timeout != renderTimeout {
				t.Errorf("a rendering may take %v", tok.template.timeout)
			}
			tok.template.timeout = renderTimeout / 4
			out, err := tok.RenderChat([]Message{{"user", "hi"}}, true)
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if c.want == "" {
				return // must only end
			}
			if !errors.Is(err, ErrTemplate) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %.80q, %v; want an error with %q", out, err, c.want)
			}
			if len(err.Error()) > 700 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
		})
	}
}

// many writes a line of a template n times, each with its number.
func many(n int, line string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(line, "%d", strconv.Itoa(i)))
	}
	return b.String()
}

func TestRenderChat(t *testing.T) {
	smol := `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	got, err := chatTokenizer(t, smol).RenderChat([]Message{{"user", "Why is the sky blue?"}}, true)
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Fatalf("got %q, %v", got, err)
	}
	if _, err := chatTokenizer(t, "").RenderChat(nil, true); !errors.Is(err, ErrNoTemplate) {
		t.Fatalf("got %v", err)
	}
}

// chatCase is a row of testdata/chat/cases.json, made by generate.py there.
type chatCase struct {
	Name     string    `json:"name"`
	Source   string    `json:"source"`
	Messages []Message `json:"messages"`
	Add      bool      `json:"add_generation_prompt"`
	Want     string    `json:"want"`
	Error    string    `json:"error"`
}

func TestChatGolden(t *testing.T) {
	now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	data, err := os.ReadFile("testdata/chat/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []chatCase
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if c.Source == "" {
				source, err := os.ReadFile("testdata/chat/" + c.Name + ".jinja")
				if err != nil {
					t.Fatal(err)
				}
				c.Source = string(source)
			}
			tok := chatTokenizer(t, c.Source)
			if tok.template != nil {
				tok.template.now = now
			}
			got, err := tok.RenderChat(c.Messages, c.Add)
			switch {
			case c.Error != "":
				if !errors.Is(err, ErrTemplate) {
					t.Errorf("got %q, %v; want the error %q", got, err, c.Error)
				}
			case err != nil:
				t.Errorf("%v; want %q", err, c.Want)
			case got != c.Want:
				t.Errorf("\n got %q\nwant %q", got, c.Want)
			}
		})
	}
}

// TestRender: what a conversation holds beside role and content reaches the template, in its order.
func TestRender(t *testing.T) {
	source := "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ think }}{{ tools is none }}{% if add_generation_prompt %}<a>{% endif %}"
	c := &Conversation{
		Messages:            []byte(`[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":{"z":1,"a":[true,null,1.50,10000000000000000000000]}}}]}]`),
		Variables:           []byte(`{"think":false}`),
		AddGenerationPrompt: true,
	}
	want := `<user>hi<assistant>{"z": 1, "a": [true, null, 1.5, 10000000000000000000000]}FalseTrue<a>`
	if got, err := chatTokenizer(t, source).Render(c); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, bad := range []*Conversation{{Messages: []byte(`{}`)}, {Messages: []byte(`[`)}, {Messages: []byte(`[]`), Tools: []byte(`[`)}, {Messages: []byte(`[]`), Variables: []byte(`[]`)}} {
		if got, err := chatTokenizer(t, source).Render(bad); err == nil {
			t.Errorf("%s, %s, %s: rendered as %q", bad.Messages, bad.Tools, bad.Variables, got)
		}
	}
}

// TestContinueFinal: the text ends where the last message's content ends, with the blanks that the template leaves.
func TestContinueFinal(t *testing.T) {
	keep, trim := "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}", "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>{% endfor %}"
	for _, c := range []struct{ source, content, want string }{
		{keep, "It is ", "<user>It is</s><assistant>It is "},
		{trim, " It is ", "<user>It is</s><assistant>It is"},
		{keep, "  ", ""},
		{"{{ messages[0].content }}", "gone", ""},
	} {
		got, err := chatTokenizer(t, c.source).Render(&Conversation{Messages: []byte(`[{"role":"user","content":"It is"},{"role":"assistant","content":"` + c.content + `"}]`), ContinueFinal: true})
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v; want %q", c.content, got, err, c.want)
		}
	}
}

// TestToolsNone: tools is None where none are given, and undefined for a template that cannot run with None.
func TestToolsNone(t *testing.T) {
	for source, want := range map[string]string{
		"{{ tools }}": "None",
		"{% if tools is defined %}{% for t in tools %}{% endfor %}{% endif %}ok":                   "ok",
		"{% if tools is none %}{{ raise_exception('no tools') }}{% endif %}":                       "",
		"{% if tools is defined %}{{ 1 + none }}{% else %}{{ raise_exception('why') }}{% endif %}": "",
	} {
		got, err := chatTokenizer(t, source).RenderChat([]Message{{"user", "hi"}}, true)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", source, got, err, want)
		}
	}
}
