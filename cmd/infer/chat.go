package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"terrace/engine"
	"terrace/internal/units"
	"terrace/tokenizer"
	"terrace/weights"
)

func init() { register(newChat) }

type chatFlags struct {
	load   loadFlags
	sample sampleFlags
	kv     kvFlags
	system string
}

func newChat(a *app) *cobra.Command {
	f := &chatFlags{}
	cmd := &cobra.Command{
		Use:     "chat",
		Short:   "Talk with a model",
		Long:    "Talk with a model, turn by turn. Lines that begin with / are commands: /help lists them. \"\"\" begins and ends a message of several lines.",
		Example: "  infer chat\n  infer chat --system \"Answer in one sentence.\" --temperature 0.2",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.chat(f) },
	}
	f.load.addRun(cmd)
	f.sample.add(cmd, -1)
	f.kv.add(cmd)
	cmd.Flags().StringVar(&f.system, "system", "", "system message")
	return cmd
}

const chatHelp = `/help           this list
/clear          forget the conversation
/system TEXT    set the system message (and forget the conversation)
/kv             memory the KV cache holds, and the policy
/set NAME VALUE temperature, top-k, top-p, min-p, seed or max-tokens
/bye            leave (also Ctrl-D)
"""             begin or end a message of several lines
`

// conversation is the state of a chat.
type conversation struct {
	a       *app
	f       *chatFlags
	l       *loaded
	session *engine.Session
	msgs    []tokenizer.Message
	tiers   engine.TierUse // after the last turn
	prompt  bool
}

func (a *app) chat(f *chatFlags) error {
	if _, err := f.sample.request(); err != nil {
		return err
	}
	l, err := a.openKVEngine(&f.load, &f.kv)
	if err != nil {
		return err
	}
	defer l.close()
	if !l.tok.HasTemplate() {
		return usageErrorf("%s has no chat template; 'infer generate --raw' continues a text with it", l.name)
	}
	c := &conversation{a: a, f: f, l: l, prompt: a.stdinIsTerminal()}
	if err := c.reset(); err != nil {
		return err
	}
	defer func() { c.session.Close() }()
	read, restore := c.reader()
	defer restore()
	for {
		text, err := c.message(read)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(text) == "" {
			continue
		}
		if strings.HasPrefix(text, "/") {
			if leave, err := c.command(text); leave || err != nil {
				return err
			}
			continue
		}
		if err := c.turn(text); err != nil {
			if a.ctx.Err() != nil {
				return a.ctx.Err()
			}
			if errors.Is(err, weights.ErrFileChanged) {
				return err
			}
			fmt.Fprintf(a.stderr, "infer: %s\n", oneLine(err))
		}
	}
}

// reset starts the conversation again.
func (c *conversation) reset() error {
	if c.session != nil {
		c.session.Close()
	}
	var err error
	if c.session, err = c.l.engine.NewSession(c.l.engine.Policy()); err != nil {
		return err
	}
	c.msgs = nil
	if c.f.system != "" {
		c.msgs = append(c.msgs, tokenizer.Message{Role: "system", Content: c.f.system})
	}
	return nil
}

// reader reads lines: with editing and history on a terminal, plainly otherwise.
func (c *conversation) reader() (read func() (string, error), restore func()) {
	file, ok := c.a.stdin.(*os.File)
	if !ok || !c.prompt || !c.a.isTTY(c.a.stdout) {
		in := bufio.NewReader(c.a.stdin)
		return func() (string, error) {
			line, err := in.ReadString('\n')
			if err != nil && line == "" {
				return "", err
			}
			return strings.TrimRight(line, "\r\n"), nil
		}, func() {}
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{file, c.a.stdout}, ">>> ")
	return func() (string, error) {
		old, err := term.MakeRaw(int(file.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(file.Fd()), old)
		if w, h, err := term.GetSize(int(file.Fd())); err == nil {
			_ = t.SetSize(w, h)
		}
		return t.ReadLine()
	}, func() {}
}

// message reads one message; """ begins and ends one of several lines.
func (c *conversation) message(read func() (string, error)) (string, error) {
	line, err := read()
	if err != nil {
		return "", err
	}
	rest, many := strings.CutPrefix(strings.TrimSpace(line), `"""`)
	if !many {
		return line, nil
	}
	var b strings.Builder
	for {
		if text, end := strings.CutSuffix(rest, `"""`); end {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(rest + "\n")
		if rest, err = read(); err != nil {
			return b.String(), err
		}
	}
}

// command runs a / line and reports whether to leave.
func (c *conversation) command(line string) (leave bool, err error) {
	w := c.a.stderr
	name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch name {
	case "/bye", "/exit", "/quit":
		return true, nil
	case "/help", "/?":
		fmt.Fprint(w, chatHelp)
	case "/clear":
		return false, c.reset()
	case "/system":
		c.f.system = rest
		return false, c.reset()
	case "/kv":
		kv := c.l.engine.KV()
		fmt.Fprintf(w, "%d tokens, %s of KV in host memory, policy %s\n", c.session.Tokens(), units.FormatBytes(kv.InUseBytes), c.f.kv.policyName())
	case "/set":
		if err := c.set(rest); err != nil {
			fmt.Fprintf(w, "infer: %v\n", err)
		}
	default:
		fmt.Fprintf(w, "infer: %s is not a command here; /help lists them\n", name)
	}
	return false, nil
}

// set changes one sampling option.
func (c *conversation) set(s string) error {
	name, value, _ := strings.Cut(s, " ")
	old, s2 := c.f.sample.o, &c.f.sample.o
	var err error
	switch name {
	case "temperature":
		_, err = fmt.Sscan(value, &s2.Temperature)
	case "top-k":
		_, err = fmt.Sscan(value, &s2.TopK)
	case "top-p":
		_, err = fmt.Sscan(value, &s2.TopP)
	case "min-p":
		_, err = fmt.Sscan(value, &s2.MinP)
	case "seed":
		_, err = fmt.Sscan(value, &s2.Seed)
	case "max-tokens":
		_, err = fmt.Sscan(value, &c.f.sample.maxTokens)
	default:
		return fmt.Errorf("/set %q: want temperature, top-k, top-p, min-p, seed or max-tokens", name)
	}
	if err == nil {
		_, err = c.f.sample.request()
	}
	if err != nil {
		c.f.sample.o = old
		return fmt.Errorf("/set %s %q: %w", name, value, err)
	}
	return nil
}

// turn answers one message. Only what the template adds to the tokens already read is prefilled; where the template rewrote
// earlier turns, the conversation is read again.
func (c *conversation) turn(text string) error {
	msgs := append(c.msgs[:len(c.msgs):len(c.msgs)], tokenizer.Message{Role: "user", Content: text})
	rendered, err := c.l.tok.RenderChat(msgs, true)
	if err != nil {
		return err
	}
	ids, err := c.l.tok.Encode(rendered, false, true)
	if err != nil {
		return err
	}
	have := c.session.IDs()
	n := 0
	for n < len(have) && n < len(ids)-1 && have[n] == ids[n] {
		n++
	}
	if n < len(have) {
		if err := c.session.Rewind(n); err != nil {
			return err
		}
	}
	req, err := c.f.sample.request()
	if err != nil {
		return err
	}
	req.IDs, req.IsEnd, req.Text, req.Started = ids[n:], c.l.tok.IsEOG, c.l.tok.NewDetokenizer(), time.Now()
	req.OnText = func(piece string) error {
		_, err := io.WriteString(c.a.stdout, piece)
		return err
	}
	res, err := c.session.Generate(c.a.ctx, req)
	if res != nil {
		fmt.Fprintln(c.a.stdout)
		c.tiers = c.a.noticeTiers(c.l.engine, c.tiers)
		if n == 0 {
			n = len(ids)
		}
		c.a.noticeLongRope(c.l, n, c.session.Tokens())
		c.msgs = append(msgs, tokenizer.Message{Role: "assistant", Content: res.Text})
		if res.Finish == "context" {
			c.a.notice("the context of %d tokens is full: /clear, a larger --context or --on-overflow shift", c.l.engine.Options().Context)
		}
	}
	return err
}
