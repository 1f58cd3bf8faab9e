package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/tokenizer"
	"terrace/weights"
)

func init() { register(newChat) }

// chatMaxTokens bounds an answer unless --max-tokens says otherwise: a model that repeats itself stops.
const chatMaxTokens = 1024

type chatCommand struct {
	*app

	load      loadFlags
	sample    sampleFlags
	kv        kvFlags
	store     storeFlags
	speculate speculateFlags
	system    string
	noHistory bool
}

func newChat(a *app) *cobra.Command {
	ch := &chatCommand{app: a}
	cmd := &cobra.Command{
		Use:   "chat [MODEL]",
		Short: "Talk with a model",
		Long: "Talk with a model, turn by turn. Lines that begin with / are commands: /help lists them, Tab completes them. " +
			"A pasted text is one message, whatever lines it has; \"\"\" begins and ends one that is typed. Ctrl-C stops an answer, at the prompt twice leaves; " +
			"the arrow keys and Ctrl-R go back to earlier messages, those of earlier conversations too (kept in the home folder, unless --no-history). " +
			"What a model thinks before it answers is one line with its length on a terminal, which /thought unfolds. An answer ends after 1024 tokens unless --max-tokens says otherwise. Without a terminal each line of standard input is a message.",
		Example: "  infer chat\n  infer chat gemma3:1b\n  infer chat --system \"Answer in one sentence.\" --temperature 0.2",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("chat takes one model, got %d arguments (see 'infer chat --help')", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ch.sample.given(cmd)
			if err := ch.load.takeModel(a, cmd, args); err != nil {
				return err
			}
			return ch.run()
		},
	}
	ch.load.addRun(cmd)
	ch.load.addWeights(cmd)
	ch.load.addTemplate(cmd)
	ch.sample.add(cmd, chatMaxTokens)
	ch.kv.add(cmd)
	ch.store.add(cmd)
	ch.store.addPlacement(cmd)
	ch.speculate.add(cmd)
	cmd.Flags().StringVar(&ch.system, "system", "", "system message")
	cmd.Flags().BoolVar(&ch.noHistory, "no-history", false, "neither read nor keep the history of messages")
	return cmd
}

// conversation is the state of a chat.
type conversation struct {
	a        *app
	f        *chatCommand
	l        *loaded
	guesses  *drafting
	session  *engine.Session
	msgs     []tokenizer.Message
	tiers    engine.TierUse // after the last turn
	terminal bool           // somebody types
	retries  uint64         // answers to the last message that were thrown away
	thought  string         // before the last answer; "" = there was none
	stops    stops
}

func (ch *chatCommand) run() error {
	if _, err := ch.sample.request(); err != nil {
		return err
	}
	if err := ch.speculate.check(); err != nil {
		return err
	}
	if err := ch.store.placed(); err != nil {
		return err
	}
	ch.kv.store = len(ch.store.stores) > 0
	ch.kv.beside = ch.store.hostBytes()
	l, err := ch.openKVEngine(&ch.load, &ch.kv)
	if err != nil {
		return err
	}
	defer l.close()
	ch.sample.takeOwn(l.own, &ch.sample.o)
	defer ch.store.close(ch.app)
	if err := ch.openStore(&ch.store, l, ch.load.threads); err != nil {
		return err
	}
	if !l.tok.HasTemplate() {
		return usageErrorf("%s has no chat template; 'infer generate --raw' continues a text with it", l.name)
	}
	guesses, err := ch.speculate.open(ch.app, &ch.load, l)
	if err != nil {
		return err
	}
	defer guesses.close()
	c := &conversation{a: ch.app, f: ch, l: l, guesses: guesses, terminal: ch.stdinIsTerminal()}
	if err := c.reset(); err != nil {
		return err
	}
	defer func() { c.session.Close() }()
	in, err := c.input()
	if err != nil {
		return err
	}
	defer in.close()
	c.stops.say = c.sayHowToLeave
	if c.terminal {
		defer ch.interrupts.take(c.stops.take)()
		ch.notice("%s, a context of %d tokens, policy %s. /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.", modelName(l.name), l.engine.Options().Context, ch.kv.policyName())
	}
	return c.talk(in)
}

// talk answers message after message.
func (c *conversation) talk(in chatInput) error {
	for {
		rested := c.f.store.behind(c.a.ctx)
		text, err := in.message(c.a.ctx)
		rested()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errInterrupted) && !c.stops.take():
			return nil
		case errors.Is(err, errInterrupted):
			continue
		case err != nil:
			return err
		}
		c.stops.during(nil) // Ctrl-C begins again
		if strings.TrimSpace(text) == "" {
			continue
		}
		if isCommand(text) {
			if leave, err := c.command(text); leave || err != nil {
				return err
			}
			continue
		}
		c.retries = 0
		if err := c.turn(text); err != nil {
			return err
		}
	}
}

// reset starts the conversation again, with the system message alone.
func (c *conversation) reset() error {
	c.msgs = nil
	if c.f.system != "" {
		c.msgs = append(c.msgs, tokenizer.Message{Role: "system", Content: c.f.system})
	}
	return c.renew()
}

// renew gives the conversation a session that has read nothing; the next turn reads all its messages.
func (c *conversation) renew() error {
	if c.session != nil {
		c.session.Close()
	}
	var err error
	c.session, err = c.l.engine.NewSession(c.l.engine.Policy())
	return err
}

// turn answers one message. Only what the template adds to the tokens already read is prefilled; where the template rewrote
// earlier turns, the conversation is read again. What fails is said, and the conversation goes on; an error ends it.
func (c *conversation) turn(text string) error {
	ctx, release := c.stoppable()
	res, err := c.answer(ctx, text)
	release()
	if c.a.ctx.Err() != nil {
		if res != nil {
			fmt.Fprintln(c.a.stdout)
			c.a.lineEnded = c.a.isTTY(c.a.stdout)
		}
		return c.a.ctx.Err()
	}
	if res != nil {
		fmt.Fprintln(c.a.stdout)
		c.tiers = c.a.noticeTiers(c.l.engine, c.tiers)
		if len(c.msgs) == 0 {
			c.a.noticeDrop(c.l.engine, res)
		}
		c.msgs = append(c.msgs, tokenizer.Message{Role: "user", Content: text}, tokenizer.Message{Role: "assistant", Content: res.Text})
		c.sayWhyEnded(res)
	}
	switch {
	case errors.Is(err, weights.ErrFileChanged):
		return err
	case errors.Is(err, context.Canceled) && res != nil:
		c.a.notice("stopped; /retry answers again")
	case errors.Is(err, context.Canceled):
		c.a.notice("stopped before the answer; the message was not kept")
		return c.renew() // the prompt was read in part
	case errors.Is(err, engine.ErrContext):
		c.a.notice("%s", oneLine(err))
		c.adviseFull()
	case err != nil:
		fmt.Fprintf(c.a.stderr, "infer: %s\n", oneLine(err))
	}
	return nil
}

// stops is what Ctrl-C does in a conversation on a terminal: it ends the answer, the second time the program; between answers
// the first one says so and the second leaves, whether the line editor reads them or the terminal turns them into signals (while an
// answer is made, and before the editor is back).
type stops struct {
	mu     sync.Mutex
	answer context.CancelFunc // of the answer under way; nil = none
	count  int                // since an answer began or ended
	say    func()
}

func (s *stops) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	switch {
	case s.count > 1:
		return false
	case s.answer != nil:
		s.answer()
	default:
		s.say()
	}
	return true
}

// during says which answer is under way; nil = none.
func (s *stops) during(answer context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.count = answer, 0
}

// stoppable is a context that Ctrl-C ends while somebody types here.
func (c *conversation) stoppable() (context.Context, func()) {
	ctx, cancel := context.WithCancel(c.a.ctx)
	c.stops.during(cancel)
	return ctx, func() { c.stops.during(nil); cancel() }
}

// sayHowToLeave answers a Ctrl-C at the prompt.
func (c *conversation) sayHowToLeave() {
	fmt.Fprintln(c.a.stderr, "Ctrl-C again, Ctrl-D or /bye leaves.")
}

// answer reads the message and generates; nil where it did not come to that.
func (c *conversation) answer(ctx context.Context, text string) (*engine.Result, error) {
	msgs := append(c.msgs[:len(c.msgs):len(c.msgs)], tokenizer.Message{Role: "user", Content: text})
	ids, err := c.l.tok.EncodeMessages(msgs, true)
	if err != nil {
		return nil, err
	}
	if most := c.l.engine.Options().Context; len(ids) > most { // before the session forgets anything for it
		return nil, fmt.Errorf("the conversation with this message has %d tokens, the context holds %d: %w", len(ids), most, engine.ErrContext)
	}
	have := c.session.IDs()
	n := 0
	for n < len(have) && n < len(ids)-1 && have[n] == ids[n] {
		n++
	}
	if n < len(have) {
		if err := c.session.Rewind(n); err != nil {
			return nil, err
		}
	}
	req, err := c.f.sample.request()
	if err != nil {
		return nil, err
	}
	req.Sampler.Seed += c.retries
	if req.Breakers, err = c.f.sample.breakersOf(c.l.tok); err != nil {
		return nil, err
	}
	req.IDs, req.IsEnd, req.Text, req.Started, req.Speculate = ids[n:], c.l.tok.IsEOG, c.l.tok.NewDetokenizer(), time.Now(), c.guesses.drafter()
	if c.session.Tokens() == 0 { // a new conversation, or one that was kept: what it shares with earlier prompts is read back
		req.Prefix = c.f.store.find(c.a, ids, c.session.Policy())
	}
	out, marks := c.answering(ids)
	req.Text, req.OnText = c.l.tok.NewDetokenizer().Show(marks), out.write
	res, err := c.session.Generate(ctx, req)
	err = errors.Join(err, out.end())
	if c.thought = strings.TrimSpace(out.thought.String()); res != nil && (c.thought != "" || len(marks) > 0) {
		res.Text = out.text.String() // templates are given answers without thoughts and marks
	}
	return res, err
}

// sayWhyEnded says why an answer ended where its text does not.
func (c *conversation) sayWhyEnded(res *engine.Result) {
	limit := c.f.sample.maxTokens
	switch {
	case res.Finish == "context", res.Finish == "length" && (limit < 0 || len(res.IDs) < limit):
		c.adviseFull()
	case res.Finish == "length":
		c.a.notice("stopped after %d tokens: /set max-tokens N changes that (-1: until the context is full)", limit)
	}
}

// adviseFull says what can be done about a full context.
func (c *conversation) adviseFull() {
	n := c.l.engine.Options().Context
	c.a.notice("the context of %d tokens is full: /clear begins a new conversation; /save NAME keeps this one, and 'infer chat --context %d' with /load NAME goes on", n, 2*n)
}
