package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestPages: every command that a page shows in a block is one of this program: command, flags, number of arguments, policies, tiers and
// sizes; what it reads is in the repository, made by an earlier command of the page, or a placeholder in capitals; one that is shown to
// fail fails in those words. Commands within a line, and the examples of --help, are held to the same but for their files.
func TestPages(t *testing.T) {
	t.Chdir("../..")
	pages, err := pagesOf(".")
	if err != nil {
		t.Fatal(err)
	}
	blocks, inline := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		shown, spans := commandsOf(string(text))
		p := &pageCheck{files: true, made: map[string]bool{}}
		for _, c := range shown {
			blocks++
			if err := p.shown(t, &c); err != nil {
				t.Errorf("%s:%d: %s: %v", page, c.line, c, err)
			}
		}
		p.files = false
		for _, c := range spans {
			inline++
			if err := p.check(&c); err != nil {
				t.Errorf("%s:%d: `%s`: %v", page, c.line, c, err)
			}
		}
	}
	examples := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		shown, _ := commandsOf("```\n" + cmd.Example + "\n```")
		for _, c := range shown {
			examples++
			if err := (&pageCheck{}).check(&c); err != nil {
				t.Errorf("%s --help: %s: %v", cmd.CommandPath(), c, err)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(newApp(t.Context(), strings.NewReader(""), io.Discard, io.Discard)))
	if blocks < 60 || inline < 60 || examples < 60 {
		t.Errorf("%d commands in blocks, %d within lines, %d in examples: the test sees little", blocks, inline, examples)
	}
}

// pagesOf are the pages of a repository that tell users what to type.
func pagesOf(root string) (pages []string, err error) {
	pages = []string{"README.md", "CONTRIBUTING.md", "AGENTS.md"}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	})
	return pages, err
}

// pageCommand is a command line of a page.
type pageCommand struct {
	line          int
	words         []string // all of them
	infer         int      // of words, those that name this program; 0 = another program
	reads, writes []string // where it is redirected
	remark        string
	answer        string // the line below it, where that is what it prints
}

func (c pageCommand) String() string { return strings.Join(c.words, " ") }

var (
	spanPattern   = regexp.MustCompile("`(infer [a-z][^`]*)`")
	flagPattern   = regexp.MustCompile(`(?:^|[\s(])(--[a-z][a-z-]*)`)
	assignPattern = regexp.MustCompile(`^[A-Z_]+=`)
)

// commandsOf are the commands in the blocks of a page, and this program's within its lines.
func commandsOf(text string) (blocks, spans []pageCommand) {
	lines := strings.Split(text, "\n")
	fenced, prompts := false, false
	for i := 0; i < len(lines); i++ {
		line, at := lines[i], i+1
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			if fenced = !fenced; fenced {
				prompts = i+1 < len(lines) && strings.HasPrefix(lines[i+1], "$ ") // what has none is output
			}
			continue
		}
		if !fenced {
			for _, m := range spanPattern.FindAllStringSubmatch(line, -1) {
				spans = append(spans, simpleCommands(m[1], at)...)
			}
			continue
		}
		line, typed := strings.CutPrefix(line, "$ ")
		if prompts && !typed {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + lines[i]
		}
		list := simpleCommands(line, at)
		if len(list) > 0 && prompts && i+1 < len(lines) {
			list[len(list)-1].answer = lines[i+1]
		}
		blocks = append(blocks, list...)
	}
	return blocks, spans
}

// simpleCommands takes a line of a shell apart, as far as pages use one: quotes, pipes, redirections, a remark at the end.
func simpleCommands(line string, at int) (list []pageCommand) {
	c, word, some := pageCommand{line: at}, "", false
	var into *[]string // of a redirection
	end := func() {
		if some {
			if into == nil {
				into = &c.words
			}
			*into = append(*into, word)
			word, some, into = "", false, nil
		}
	}
	close := func() {
		end()
		for len(c.words) > 0 && assignPattern.MatchString(c.words[0]) {
			c.words = c.words[1:]
		}
		switch {
		case len(c.words) == 0:
			return
		case c.words[0] == "infer":
			c.infer = 1
		case len(c.words) > 2 && slices.Equal(c.words[:3], []string{"go", "run", "./cmd/infer"}):
			c.infer = 3
		}
		list, c = append(list, c), pageCommand{line: at}
	}
	runes := []rune(line)
	for i := 0; i < len(runes); i++ {
		switch r := runes[i]; {
		case r == '\'' || r == '"':
			some = true
			for i++; i < len(runes) && runes[i] != r; i++ {
				if r == '"' && runes[i] == '\\' && i+1 < len(runes) {
					i++
				}
				word += string(runes[i])
			}
		case r == '#' && !some:
			end()
			c.remark, i = string(runes[i+1:]), len(runes)
		case r == '|' || r == ';' || r == '&':
			close()
		case r == '<' || r == '>':
			end()
			if into = &c.reads; r == '>' {
				into = &c.writes
			}
		case r == ' ' || r == '\t':
			end()
		default:
			word, some = word+string(r), true
		}
	}
	close()
	return list
}

// pageCheck is what the commands of a page have done so far.
type pageCheck struct {
	files bool // they are looked for
	made  map[string]bool
}

// shown checks a command of a block.
func (p *pageCheck) shown(t *testing.T, c *pageCommand) error {
	err := p.check(c)
	if err == nil || !strings.HasPrefix(c.answer, "infer: ") {
		return err
	}
	if _, _, errs := inferWith(t, "", c.words[c.infer:]...); errs != c.answer+"\n" { // it is shown to fail
		return fmt.Errorf("it says %q, and the page %q", errs, c.answer)
	}
	return nil
}

// check holds a command to the program's command tree.
func (p *pageCheck) check(c *pageCommand) error {
	for _, f := range c.reads {
		if err := p.reads(f); err != nil {
			return err
		}
	}
	defer p.writes(c.writes...)
	if c.infer == 0 {
		return nil
	}
	a := newApp(context.Background(), strings.NewReader(""), io.Discard, io.Discard)
	root := newRoot(a)
	cmd, rest, err := root.Find(expandAliases(c.words[c.infer:]))
	switch {
	case err != nil:
		return err
	case cmd == root && len(rest) > 0 && rest[0] != "COMMAND" && !strings.HasPrefix(rest[0], "-"):
		return noCommand(root, rest)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	for _, m := range flagPattern.FindAllStringSubmatch(c.remark, -1) {
		if !flagOf(root, m[1][2:]) && cmd.Flags().Lookup(m[1][2:]) == nil {
			return fmt.Errorf("the remark names %s: no command has it", m[1])
		}
	}
	args := cmd.Flags().Args()
	if p.files {
		if err := cmd.ValidateArgs(args); err != nil {
			return err
		}
	}
	var errs []error
	cmd.Flags().Visit(func(f *pflag.Flag) { errs = append(errs, p.flag(cmd, f)) })
	for i, arg := range args {
		if kinds := pageArgs[strings.TrimPrefix(cmd.CommandPath(), "infer ")]; len(kinds) > 0 {
			if err := kinds[min(i, len(kinds)-1)](p, cmd, arg); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", arg, err))
			}
		}
	}
	return errors.Join(errs...)
}

// flagOf says whether a command below cmd has a flag.
func flagOf(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || slices.ContainsFunc(cmd.Commands(), func(sub *cobra.Command) bool { return flagOf(sub, name) })
}

// flag checks the values of a flag that is given.
func (p *pageCheck) flag(cmd *cobra.Command, f *pflag.Flag) error {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	path := strings.TrimPrefix(cmd.CommandPath(), "infer ")
	kind, ok := pageFlags[path+" --"+f.Name]
	if !ok {
		kind, ok = pageFlags[f.Name]
	}
	if !ok {
		if !strings.HasPrefix(f.Value.Type(), "string") {
			return nil // which parsing has checked
		}
		return fmt.Errorf("--%s: pageFlags does not say what it names", f.Name)
	}
	for _, v := range values {
		if err := kind(p, cmd, v); err != nil {
			return fmt.Errorf("--%s %s: %w", f.Name, v, err)
		}
	}
	return nil
}

var placeholder = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(\.[a-z]+)?$|…`)

// reads wants a file or folder to be there.
func (p *pageCheck) reads(path string) error {
	path = filepath.Clean(path)
	if !p.files || placeholder.MatchString(path) || path == "-" || p.made[path] {
		return nil
	}
	if _, err := os.Stat(path); err != nil || filepath.IsAbs(path) {
		return errors.New("is neither in the repository nor made by an earlier command of the page: take one that is, or a placeholder in capitals")
	}
	return nil
}

// writes notes what a command makes.
func (p *pageCheck) writes(paths ...string) {
	for _, path := range paths {
		if p.made != nil {
			p.made[filepath.Clean(path)] = true
		}
	}
}

// place wants a folder that a command makes to be one that anybody may make.
func (p *pageCheck) place(path string) error {
	if p.files && path != "" && !placeholder.MatchString(path) {
		if err := parentThere(path); err != nil {
			return err
		}
		p.writes(path)
	}
	return nil
}

// TestPageCommands: a line is taken apart as a shell does it, and what does not hold is found.
func TestPageCommands(t *testing.T) {
	list := simpleCommands(`X=1 printf 'a|b\n' | go run ./cmd/infer generate "say \"x\"" <in >out.txt   # as --top-k says`, 7)
	if len(list) != 2 || list[0].infer != 0 || list[1].infer != 3 || list[0].words[1] != `a|b\n` || !slices.Equal(list[1].words[3:], []string{"generate", `say "x"`}) || !slices.Equal(list[1].reads, []string{"in"}) ||
		!slices.Equal(list[1].writes, []string{"out.txt"}) || list[1].remark != " as --top-k says" {
		t.Errorf("%+v", list)
	}
	page := "```\n$ infer eval --suite perplexity --data pages_test.go --out run\nof it --no-such\n$ infer compare run \\\n  --html x\n```\n`infer show MODEL` and\n```\ninfer list\n```\n"
	blocks, spans := commandsOf(page)
	if len(blocks) != 3 || len(spans) != 1 || blocks[0].answer != "of it --no-such" || blocks[1].line != 4 || len(blocks[1].words) != 5 {
		t.Errorf("%+v, %+v", blocks, spans)
	}
	p := &pageCheck{files: true, made: map[string]bool{}}
	for _, c := range blocks {
		if err := p.check(&c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	for _, line := range []string{"infer genrate x", "infer generate --polcy full x", "infer show a b", "infer generate --policy snapkv:rato=1 x", "infer generate --tier host=x y", "infer generate -f no.txt", "infer generate < no.txt", "infer compare other",
		"infer fit smolm2", "infer fit smollm2 -c 8x", "infer fit smollm2 --memory 1XB", "infer generate --kv-type int9 x", "infer serve --placement lrux", "infer eval --suite longbanch --out o", "infer eval --suite longbench --tasks qasperx --out o",
		`infer bench --case "full on host=1MiB sd=x,1GiB"`, "infer simulate hillinfer-fig99", "infer generate --store ssd=/no/such/kv,1GiB x", "infer generate --tier csd=unix:/no/s x", "infer generate --json-schema '{\"type\": 5}' x",
		"infer bench   # --no-such-flag says more", "infer generate --temperature hot x", "infer policies snapkw", "infer generate --lora no.gguf=0.5 x"} {
		for _, c := range simpleCommands(line, 1) {
			if err := p.check(&c); err == nil {
				t.Errorf("%s: taken", line)
			}
		}
	}
}
