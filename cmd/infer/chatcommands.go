package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/reeflective/readline"

	"terrace/internal/nearest"
	"terrace/internal/replace"
	"terrace/internal/units"
	"terrace/tokenizer"
)

// slashCommands are the lines that begin with /, in the order of /help. run reports whether to leave; its errors are said and
// the conversation goes on.
var slashCommands []slashCommand

type slashCommand struct {
	names       []string // the first is listed
	args, about string
	run         func(c *conversation, rest string) (leave bool, err error)
	complete    func(c *conversation) []string // what may follow; nil = nothing
}

func init() {
	slashCommands = []slashCommand{
		{names: []string{"/help", "/?"}, about: "this list", run: func(c *conversation, _ string) (bool, error) { c.help(); return false, nil }},
		{names: []string{"/clear"}, about: "forget the conversation", run: func(c *conversation, _ string) (bool, error) { return false, c.reset() }},
		{names: []string{"/retry"}, about: "answer the last message again, with another seed", run: func(c *conversation, _ string) (bool, error) { return false, c.retry() }},
		{names: []string{"/system"}, args: "TEXT", about: "set the system message (and forget the conversation)", run: func(c *conversation, rest string) (bool, error) {
			c.f.system = rest
			return false, c.reset()
		}},
		{names: []string{"/set"}, args: "NAME VALUE", about: strings.Join(settingNames(), ", "), run: func(c *conversation, rest string) (bool, error) { return false, c.set(rest) },
			complete: func(*conversation) []string { return settingNames() }},
		{names: []string{"/thought"}, about: "what the model thought before its last answer", run: func(c *conversation, _ string) (bool, error) { return false, c.showThought() }},
		{names: []string{"/show"}, about: "model, context, policy, settings and system message", run: func(c *conversation, _ string) (bool, error) { c.show(); return false, nil }},
		{names: []string{"/kv"}, about: "memory the KV cache holds, and the policy", run: func(c *conversation, _ string) (bool, error) { c.showKV(); return false, nil }},
		{names: []string{"/save"}, args: "NAME", about: "keep the conversation, under a name or in a .json file", run: func(c *conversation, rest string) (bool, error) { return false, c.save(rest) },
			complete: (*conversation).saved},
		{names: []string{"/load"}, args: "NAME", about: "go on with one that was kept", run: func(c *conversation, rest string) (bool, error) { return false, c.load(rest) },
			complete: (*conversation).saved},
		{names: []string{"/bye", "/exit", "/quit"}, about: "leave (also Ctrl-D)", run: func(*conversation, string) (bool, error) { return true, nil }},
	}
}

func findCommand(name string) *slashCommand {
	for i := range slashCommands {
		for _, n := range slashCommands[i].names {
			if n == name {
				return &slashCommands[i]
			}
		}
	}
	return nil
}

func commandNames() []string {
	var out []string
	for _, c := range slashCommands {
		out = append(out, c.names...)
	}
	return out
}

// isCommand reports whether a text is a / line. One that is no command's name is a message where it can only be that: a path
// or a sentence, with a space, a second slash or a second line.
func isCommand(text string) bool {
	if !strings.HasPrefix(text, "/") {
		return false
	}
	name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if findCommand(name) != nil {
		return name == "/system" || !strings.Contains(rest, "\n")
	}
	return strings.TrimSpace(text) == "/" || commandWord.MatchString(name)
}

// commandWord is the shape of a command's name: what begins so is no message, known or not; a path is one.
var commandWord = regexp.MustCompile(`^/[A-Za-z][A-Za-z-]*$`)

// command runs a / line and reports whether to leave.
func (c *conversation) command(line string) (leave bool, err error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	cmd := findCommand(name)
	if cmd == nil {
		fmt.Fprintf(c.a.stderr, "infer: %s is not a command here%s; /help lists them (a message may begin with a space)\n", name, nearest.Hint(name, commandNames()))
		return false, nil
	}
	leave, err = cmd.run(c, strings.TrimSpace(rest))
	if err != nil && c.a.ctx.Err() == nil {
		fmt.Fprintf(c.a.stderr, "infer: %s\n", oneLine(err))
		err = nil
	}
	return leave, err
}

// complete offers what Tab can add to a line.
func (c *conversation) complete(line string) readline.Completions {
	if !strings.HasPrefix(line, "/") {
		return readline.CompleteValues()
	}
	name, _, more := strings.Cut(line, " ")
	if !more {
		var values []string
		for _, cmd := range slashCommands {
			values = append(values, cmd.names[0], cmd.about)
		}
		return readline.CompleteValuesDescribed(values...)
	}
	if cmd := findCommand(name); cmd != nil && cmd.complete != nil {
		return readline.CompleteValues(cmd.complete(c)...)
	}
	return readline.CompleteValues()
}

func (c *conversation) help() {
	for _, cmd := range slashCommands {
		fmt.Fprintf(c.a.stderr, "%-16s %s\n", strings.TrimSpace(cmd.names[0]+" "+cmd.args), cmd.about)
	}
	fmt.Fprintf(c.a.stderr, "%-16s %s\n%-16s %s\n%-16s %s\n", manyLines, "begin or end a message of several lines (a pasted one needs none)",
		"Ctrl-C", "stop the answer; at the prompt twice: leave", "Ctrl-R, Up", "search and go back to earlier messages")
}

// setting is what /set changes.
type setting struct {
	name, want string
	set        func(f *sampleFlags, value string) error
	get        func(f *sampleFlags) any
}

func float(at func(f *sampleFlags) *float64) (func(f *sampleFlags, value string) error, func(f *sampleFlags) any) {
	return func(f *sampleFlags, value string) (err error) {
			*at(f), err = strconv.ParseFloat(value, 64)
			return err
		},
		func(f *sampleFlags) any { return *at(f) }
}

func integer(at func(f *sampleFlags) *int) (func(f *sampleFlags, value string) error, func(f *sampleFlags) any) {
	return func(f *sampleFlags, value string) (err error) { *at(f), err = strconv.Atoi(value); return err },
		func(f *sampleFlags) any { return *at(f) }
}

var chatSettings = func() []setting {
	list := []setting{{name: "temperature", want: "a number"}, {name: "top-p", want: "a number"}, {name: "min-p", want: "a number"}, {name: "repeat-penalty", want: "a number"},
		{name: "top-k", want: "a whole number"}, {name: "max-tokens", want: "a whole number"}, {name: "seed", want: "a whole number of 0 or more, or -1 for a random one"}}
	list[0].set, list[0].get = float(func(f *sampleFlags) *float64 { return &f.o.Temperature })
	list[1].set, list[1].get = float(func(f *sampleFlags) *float64 { return &f.o.TopP })
	list[2].set, list[2].get = float(func(f *sampleFlags) *float64 { return &f.o.MinP })
	list[3].set, list[3].get = float(func(f *sampleFlags) *float64 { return &f.o.RepeatPenalty })
	list[4].set, list[4].get = integer(func(f *sampleFlags) *int { return &f.o.TopK })
	list[5].set, list[5].get = integer(func(f *sampleFlags) *int { return &f.maxTokens })
	list[6].set = func(f *sampleFlags, value string) error { return (*seedValue)(&f.o.Seed).Set(value) }
	list[6].get = func(f *sampleFlags) any { return f.o.Seed }
	return list
}()

func settingNames() []string {
	var out []string
	for _, s := range chatSettings {
		out = append(out, s.name)
	}
	return out
}

// set changes one sampling option; a bad value leaves all as they were. "parameter NAME VALUE" is Ollama's spelling.
func (c *conversation) set(s string) error {
	name, value, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(s, "parameter ")), " ")
	name, value = strings.ReplaceAll(name, "_", "-"), strings.TrimSpace(value)
	for _, x := range chatSettings {
		if x.name != name {
			continue
		}
		if value == "" {
			return fmt.Errorf("/set %s needs a value: %s (it is %v)", name, x.want, x.get(&c.f.sample))
		}
		before := c.f.sample
		if err := x.set(&c.f.sample, value); err != nil {
			c.f.sample = before
			return fmt.Errorf("/set %s: %q is not %s", name, value, x.want)
		}
		if _, err := c.f.sample.request(); err != nil {
			c.f.sample = before
			return fmt.Errorf("/set: %w", err)
		}
		return nil
	}
	if name == "" {
		return fmt.Errorf("/set needs a name and a value; there are %s", strings.Join(settingNames(), ", "))
	}
	return fmt.Errorf("/set %q: no such setting%s; there are %s", name, nearest.Hint(name, settingNames()), strings.Join(settingNames(), ", "))
}

func (c *conversation) show() {
	w := c.a.stderr
	fmt.Fprintf(w, "model          %s (%s)\n", c.l.name, c.l.path)
	fmt.Fprintf(w, "context        %d of %d tokens, %d messages\n", c.session.Tokens(), c.l.engine.Options().Context, len(c.msgs))
	fmt.Fprintf(w, "policy         %s\n", c.f.kv.policyName())
	for _, s := range chatSettings {
		fmt.Fprintf(w, "%-14s %v\n", s.name, s.get(&c.f.sample))
	}
	if c.f.system != "" {
		fmt.Fprintf(w, "system         %s\n", c.f.system)
	}
}

func (c *conversation) showKV() {
	fmt.Fprintf(c.a.stderr, "%d tokens, %s of KV in host memory, policy %s\n", c.session.Tokens(), units.FormatBytes(c.l.engine.KV().InUseBytes), c.f.kv.policyName())
}

// retry answers the last message again.
func (c *conversation) retry() error {
	n := len(c.msgs)
	if n < 2 || c.msgs[n-1].Role != "assistant" || c.msgs[n-2].Role != "user" {
		return errors.New("/retry: no message has been answered yet")
	}
	text := c.msgs[n-2].Content
	before := c.msgs
	c.msgs = c.msgs[:n-2]
	c.retries++
	err := c.turn(text)
	if len(c.msgs) < n { // no answer came: the one there was stays
		c.msgs = before
	}
	return err
}

// savedChat is a conversation in a file.
type savedChat struct {
	Format   int            `json:"format"`
	Model    string         `json:"model"`
	System   string         `json:"system,omitempty"`
	Messages []savedMessage `json:"messages"`
}

type savedMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

const savedFormat = 1

// chatDir is the folder of kept conversations and of the history.
func (c *conversation) chatDir() string { return filepath.Join(c.a.home(), "chats") }

// savedPath is where a conversation of a name lies; a path or a .json file is taken as it is.
func (c *conversation) savedPath(command, name string) (string, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%s needs a name or a .json file", command)
	case strings.HasSuffix(name, ".json"), strings.ContainsRune(name, filepath.Separator):
		return name, nil
	case name != filepath.Base(name), strings.HasPrefix(name, "."):
		return "", fmt.Errorf("%s %q: not a name", command, name)
	}
	return filepath.Join(c.chatDir(), name+".json"), nil
}

func (c *conversation) save(name string) error {
	path, err := c.savedPath("/save", name)
	if err != nil {
		return err
	}
	if len(c.msgs) == 0 {
		return errors.New("/save: there is no message yet")
	}
	out := savedChat{Format: savedFormat, Model: c.l.name, System: c.f.system}
	for _, m := range c.msgs {
		out.Messages = append(out.Messages, savedMessage{m.Role, m.Content})
	}
	raw, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	if filepath.Dir(path) == c.chatDir() {
		if err := os.MkdirAll(c.chatDir(), 0o700); err != nil {
			return fmt.Errorf("/save %s: %w", name, err)
		}
	}
	if err := replace.WriteFile(path, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("/save %s: %w", name, err)
	}
	c.a.notice("kept %d messages in %s", len(out.Messages), path)
	return nil
}

func (c *conversation) load(name string) error {
	path, err := c.savedPath("/load", name)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("/load %s: not a file", name)
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		saved := c.saved()
		there := "nothing is kept yet"
		if len(saved) > 0 {
			there = "there are " + strings.Join(saved, ", ")
		}
		return fmt.Errorf("/load %s: no such conversation%s; %s", name, nearest.Hint(name, saved), there)
	}
	if err != nil {
		return fmt.Errorf("/load %s: %w", name, err)
	}
	var in savedChat
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("/load %s: not a kept conversation: %v", name, err)
	}
	if in.Format != savedFormat {
		return fmt.Errorf("/load %s: format %d, want %d", name, in.Format, savedFormat)
	}
	msgs := make([]tokenizer.Message, 0, len(in.Messages))
	for i, m := range in.Messages {
		if m.Role != "system" && m.Role != "user" && m.Role != "assistant" {
			return fmt.Errorf("/load %s: message %d has role %q, want system, user or assistant", name, i+1, m.Role)
		}
		msgs = append(msgs, tokenizer.Message{Role: m.Role, Content: m.Content})
	}
	c.f.system, c.msgs, c.retries = in.System, msgs, 0
	c.a.notice("%d messages; they are read with the next one", len(msgs))
	if in.Model != c.l.name {
		c.a.notice("they are of %s, this is %s", in.Model, c.l.name)
	}
	return c.renew()
}

// saved are the names of kept conversations.
func (c *conversation) saved() []string {
	files, err := filepath.Glob(filepath.Join(c.chatDir(), "*.json"))
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range files {
		out = append(out, strings.TrimSuffix(filepath.Base(f), ".json"))
	}
	return out
}
