package terrace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"terrace/model"
	"terrace/policy"
	"terrace/serve"
	"terrace/serve/answer"
)

// Settings of an answer. The zero value samples as the model's makers have it (generation_config.json, GGUF's sampling keys), which is
// what the HTTP server and its page do with a request that says nothing, until the model ends or the context is full.
type Settings struct {
	MaxTokens     int     // 0 = no limit but the context
	Greedy        bool    // the likeliest token each time, whatever the next five say
	Temperature   float64 // 0 = the model's own, else 1
	TopK          int     // of the k likeliest; 0 = the model's own, else all, as -1
	TopP          float64 // of the smallest set with this probability; 0 = the model's own, else all, as 1
	MinP          float64 // of those no less likely than this share of the likeliest; 0 = the model's own, else all
	RepeatPenalty float64 // llama.cpp's, of the last 64 tokens; 0 = the model's own, else none, as 1
	Seed          uint64  // the same seed draws the same; 0 is a seed too

	// Sampler, where it is not nil, takes the place of all of these but Seed, and has every sampler that there is.
	Sampler *model.SamplerOptions

	Bias       map[int]float32 // added to the logits of these ids
	Stop       []string        // the answer ends before any of them
	StopTokens []int           // ids that end it too
	IgnoreEnd  bool            // the model's end tokens do not end it
	Format     Format          // what the answer must be; zero = anything
	Policy     string          // KV policy; "" = the model's
	Salt       string          // what Options.Store keeps is found by texts of the same salt only

	Logprobs bool // each piece has the log probabilities of its tokens
	Top      int  // and of so many that were likeliest there

	Tools   []Tool // of Chat: functions that the model may call
	Choice  string // of Tools: "" = the model decides; "none"; "required" = it calls one; or the name of the one that it calls
	Effort  string // of Chat: how much the model thinks: none, minimal, low, medium, high, xhigh or max; "" = as its template has it
	Thought int    // of Chat: tokens that it thinks at most; 0 = any number

	// Progress is told how much of the prompt is read, in tokens, by the goroutine that ranges over the answer.
	Progress func(read, total int)
}

// Piece is a part of an answer, as it comes.
type Piece struct {
	Text     string
	Thought  string // of Chat: of what the model thinks before it answers
	Calls    []Call // of Chat: calls of tools that are whole now
	Problem  string // of Chat: what is wrong with a call; "" = nothing
	Tokens   []int  // ids; text may come later than its tokens
	Logprobs []Logprob
	Finish   string // of the last piece: "stop" (the model's end, or a stop string), "length" (MaxTokens, the context, or memory) or "tool_calls"
	Use      *Use   // of the last piece
}

// Logprob is what a token was worth to the model: before samplers, penalties and constraints.
type Logprob struct {
	Token   int
	Name    string    // the token in a form that can be printed and is its own
	Bytes   []byte    // its part of the text; none for control tokens
	Logprob float32   // natural logarithm of its probability
	Top     []Logprob // the likeliest at its place, the likeliest first
}

// Use is what an answer took.
type Use struct {
	PromptTokens, CachedTokens int // of the prompt those that were not computed
	Tokens, ThoughtTokens      int // of the answer, its end token included; of them in thoughts
	KVBytes                    int64
	Queue, Prompt, Answer      time.Duration // waited; reading the prompt; from the first token to the last
}

// sampler is how tokens are chosen, own where the settings are silent.
func (s *Settings) sampler(own model.SamplerOptions) model.SamplerOptions {
	o := own
	if s.Sampler != nil {
		o = *s.Sampler
	} else {
		set := func(v float64, into *float64) {
			if v != 0 {
				*into = v
			}
		}
		set(s.Temperature, &o.Temperature)
		set(s.TopP, &o.TopP)
		set(s.MinP, &o.MinP)
		set(s.RepeatPenalty, &o.RepeatPenalty)
		if s.TopK != 0 {
			o.TopK = s.TopK
		}
		if s.Greedy {
			o = model.SamplerOptions{}
		}
	}
	o.Seed = s.Seed
	return o
}

// most is MaxTokens as the engine takes it.
func (s *Settings) most() (int, error) {
	switch {
	case s.MaxTokens < 0:
		return 0, fmt.Errorf("terrace: MaxTokens %d, want 0 or more: %w", s.MaxTokens, ErrOption)
	case s.MaxTokens == 0:
		return -1, nil
	}
	return s.MaxTokens, nil
}

// maxTop bounds Settings.Top.
const maxTop = 1000

// check refuses settings out of range; errors wrap ErrOption.
func (s *Settings) check(own model.SamplerOptions) error {
	if err := s.sampler(own).Validate(); err != nil {
		return fmt.Errorf("terrace: %w: %w", err, ErrOption)
	}
	if s.Top < 0 || s.Top > maxTop {
		return fmt.Errorf("terrace: Top %d, want 0 to %d: %w", s.Top, maxTop, ErrOption)
	}
	if slices.Contains(s.Stop, "") {
		return fmt.Errorf("terrace: an empty stop: want a text that ends the answer: %w", ErrOption)
	}
	return nil
}

// parsePolicy reads a specification; errors wrap ErrOption beside package policy's own.
func parsePolicy(text string) (*policy.Spec, error) {
	spec, err := policy.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("terrace: %w: %w", err, ErrOption)
	}
	return spec, nil
}

// Generate continues a text, without a chat template. The loop's error is the last thing it sees.
func (m *Model) Generate(ctx context.Context, prompt string, s Settings) iter.Seq2[Piece, error] {
	return m.answer(ctx, s, func(r *serve.Request) (splitter, error) {
		if len(s.Tools) > 0 || s.Choice != "" || s.Effort != "" || s.Thought != 0 {
			return nil, fmt.Errorf("terrace: tools and thoughts are of a chat, not of a text that goes on: want Chat: %w", ErrOption)
		}
		ids, err := m.tok.Encode(prompt, true, true)
		r.Prompts = [][]int{ids}
		return nil, err
	})
}

// splitter makes pieces of events; nil = their text is the answer's.
type splitter func(serve.Event) []answer.Event

// answer hands a request to the server's loop, which makes all answers in one batch.
func (m *Model) answer(ctx context.Context, s Settings, prompt func(*serve.Request) (splitter, error)) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		r, split, err := m.request(ctx, s, prompt)
		if err != nil {
			yield(Piece{}, m.saidError(err))
			return
		}
		reply, err := m.server.Do(ctx, r)
		if err != nil {
			yield(Piece{}, m.saidError(err))
			return
		}
		defer reply.Close()
		a := answering{reply: reply, split: split, logprobs: s.Logprobs}
		for done := false; !done; {
			var events []serve.Event
			if events, done, err = reply.Next(ctx); err != nil {
				yield(Piece{}, m.saidError(err))
				return
			}
			for _, e := range events {
				if e.Read > 0 {
					if s.Progress != nil {
						s.Progress(e.Read, len(r.Prompts[0]))
					}
					continue
				}
				if !yield(a.piece(e), nil) {
					return
				}
			}
		}
	}
}

func (m *Model) request(ctx context.Context, s Settings, prompt func(*serve.Request) (splitter, error)) (*serve.Request, splitter, error) {
	most, err := s.most()
	if err != nil {
		return nil, nil, err
	}
	own := m.server.Sampling()
	if err := s.check(own); err != nil {
		return nil, nil, err
	}
	r := &serve.Request{MaxTokens: most, Sampler: s.sampler(own), Bias: s.Bias, Breakers: model.DefaultBreakers, Stops: s.Stop, StopIDs: s.StopTokens, IgnoreEOS: s.IgnoreEnd,
		CacheSalt: s.Salt, Logprobs: -1, StreamText: true, Progress: s.Progress != nil}
	if s.Logprobs {
		r.Logprobs = s.Top
	}
	if s.Policy != "" {
		if r.Policy, err = parsePolicy(s.Policy); err != nil {
			return nil, nil, err
		}
	}
	if r.Machine, err = m.machine(ctx, s.Format); err != nil {
		return nil, nil, err
	}
	split, err := prompt(r)
	if err != nil {
		return nil, nil, err
	}
	if ids := r.Prompts[0]; len(ids) >= m.Context() {
		return nil, nil, fmt.Errorf("terrace: a prompt of %d tokens, the context holds %d: %w", len(ids), m.Context(), ErrContext)
	}
	return r, split, nil
}

// answering makes pieces of an answer's events.
type answering struct {
	reply    *serve.Reply
	split    splitter
	logprobs bool
	call     *Call // whose arguments are coming
	called   bool
}

func (a *answering) piece(e serve.Event) Piece {
	p := Piece{Finish: string(e.Finish)}
	for _, t := range e.Tokens {
		p.Tokens = append(p.Tokens, t.ID)
		if a.logprobs {
			p.Logprobs = append(p.Logprobs, logprobOf(&t))
		}
	}
	if a.split == nil {
		p.Text = e.Text
	} else {
		a.add(&p, a.split(e))
	}
	if e.Finish != "" {
		a.whole(&p)
		if a.called && e.Finish == serve.FinishStop {
			p.Finish = string(serve.FinishCalls)
		}
		u, t := a.reply.Usage(), a.reply.Timings()
		p.Use = &Use{PromptTokens: u.Prompt, CachedTokens: u.Cached, Tokens: u.Generated, ThoughtTokens: u.Thought, KVBytes: t.KVBytes, Queue: t.Queue, Prompt: t.Prompt, Answer: t.Predicted}
	}
	return p
}

// add puts what an answer's form says into a piece.
func (a *answering) add(p *Piece, parts []answer.Event) {
	for _, x := range parts {
		switch x.Kind {
		case answer.Thought:
			p.Thought += x.Text
		case answer.Text:
			p.Text += x.Text
		case answer.CallStart:
			a.whole(p)
			a.call, a.called = &Call{ID: serve.NewCallID(), Name: x.Name}, true
		case answer.CallArguments:
			a.call.Arguments += x.Text
		case answer.Problem:
			p.Problem = x.Text
		}
	}
}

// whole hands the last call out.
func (a *answering) whole(p *Piece) {
	if a.call != nil {
		p.Calls = append(p.Calls, *a.call)
		a.call = nil
	}
}

func logprobOf(t *serve.Token) Logprob {
	l := Logprob{Token: t.ID, Name: t.Name, Bytes: t.Own, Logprob: t.Logprob}
	for _, x := range t.Top {
		l.Top = append(l.Top, Logprob{Token: x.ID, Name: x.Name, Bytes: x.Own, Logprob: x.Logprob})
	}
	return l
}

// saidError is an error of the server as this package's callers compare it; one of a model that was closed says so.
func (m *Model) saidError(err error) error {
	said := (*serve.Error)(nil)
	switch {
	case !errors.As(err, &said) || said.Cause != nil || said.Status != http.StatusBadRequest:
	case said.Code == "context_length_exceeded":
		err = marked{err, ErrContext}
	default:
		err = marked{err, ErrOption}
	}
	return m.closedError(err)
}

// closedError says that the model was closed, where that is why.
func (m *Model) closedError(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.closed {
		return ErrClosed
	}
	return err
}

// Text is a whole answer.
func Text(answer iter.Seq2[Piece, error]) (string, error) {
	var text strings.Builder
	for p, err := range answer {
		if err != nil {
			return text.String(), err
		}
		text.WriteString(p.Text)
	}
	return text.String(), nil
}
