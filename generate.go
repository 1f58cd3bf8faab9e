package terrace

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"terrace/model"
	"terrace/policy"
	"terrace/serve"
	"terrace/tokenizer"
)

// Message is one of a conversation.
type Message = tokenizer.Message

// Settings of an answer. The zero value takes the likeliest token each time, until the model ends or the context is full.
type Settings struct {
	MaxTokens     int      // 0 = no limit but the context
	Temperature   float64  // 0 = the likeliest token
	TopK          int      // of the k likeliest; 0 = of all
	TopP          float64  // of the smallest set with this probability; 0 = of all
	MinP          float64  // of those no less likely than this share of the likeliest; 0 = of all
	RepeatPenalty float64  // 0 or 1 = none
	Seed          uint64   // the same seed draws the same
	Stop          []string // the answer ends before any of them
	IgnoreEnd     bool     // the model's end tokens do not end it
	Policy        string   // KV policy; "" = the model's
}

// Piece is a part of an answer, as it comes.
type Piece struct {
	Text   string
	Tokens []int  // ids; text may come later than its tokens
	Finish string // of the last piece: "stop" (the model's end, or a stop string) or "length" (MaxTokens, or the context)
	Use    *Use   // of the last piece
}

// Use is what an answer took.
type Use struct {
	PromptTokens, CachedTokens int // of the prompt those that were not computed
	Tokens                     int // of the answer, its end token included
	KVBytes                    int64
	Queue, Prompt, Answer      time.Duration // waited; reading the prompt; from the first token to the last
}

func (s *Settings) sampler() model.SamplerOptions {
	o := model.SamplerOptions{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, RepeatPenalty: s.RepeatPenalty, Seed: s.Seed}
	if s.TopP == 0 {
		o.TopP = 1
	}
	o.TopPSet = true
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

// check refuses settings out of range; errors wrap ErrOption.
func (s *Settings) check() error {
	if err := s.sampler().Validate(); err != nil {
		return fmt.Errorf("terrace: %w: %w", err, ErrOption)
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
	return m.answer(ctx, s, func() ([]int, error) { return m.tok.Encode(prompt, true, true) })
}

// Chat answers the last of the messages, by the model's template; ErrNoTemplate where it has none.
func (m *Model) Chat(ctx context.Context, messages []Message, s Settings) iter.Seq2[Piece, error] {
	return m.answer(ctx, s, func() ([]int, error) { return m.encodeChat(messages) })
}

// roles are those that templates know.
var roles = []string{"system", "developer", "user", "assistant", "tool"}

func (m *Model) encodeChat(messages []Message) ([]int, error) {
	if len(messages) == 0 {
		return nil, fmt.Errorf("terrace: a chat of no messages: %w", ErrOption)
	}
	for i, x := range messages {
		if !slices.Contains(roles, x.Role) {
			return nil, fmt.Errorf("terrace: message %d has role %q: want %s: %w", i, x.Role, strings.Join(roles, ", "), ErrOption)
		}
	}
	return m.tok.EncodeMessages(messages, true)
}

// answer hands a request to the server's loop, which makes all answers in one batch.
func (m *Model) answer(ctx context.Context, s Settings, prompt func() ([]int, error)) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		r, err := m.request(s, prompt)
		if err != nil {
			yield(Piece{}, err)
			return
		}
		reply, err := m.server.Do(ctx, r)
		if err != nil {
			yield(Piece{}, m.closedError(err))
			return
		}
		defer reply.Close()
		for done := false; !done; {
			var events []serve.Event
			if events, done, err = reply.Next(ctx); err != nil {
				yield(Piece{}, m.closedError(err))
				return
			}
			for _, e := range events {
				if !yield(pieceOf(e, reply), nil) {
					return
				}
			}
		}
	}
}

func (m *Model) request(s Settings, prompt func() ([]int, error)) (*serve.Request, error) {
	most, err := s.most()
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	r := &serve.Request{MaxTokens: most, Sampler: s.sampler(), Stops: s.Stop, IgnoreEOS: s.IgnoreEnd, Logprobs: -1, StreamText: true}
	if s.Policy != "" {
		if r.Policy, err = parsePolicy(s.Policy); err != nil {
			return nil, err
		}
	}
	ids, err := prompt()
	if err != nil {
		return nil, err
	}
	if len(ids) >= m.Context() {
		return nil, fmt.Errorf("terrace: a prompt of %d tokens, the context holds %d: %w", len(ids), m.Context(), ErrContext)
	}
	r.Prompts = [][]int{ids}
	return r, nil
}

func pieceOf(e serve.Event, reply *serve.Reply) Piece {
	p := Piece{Text: e.Text, Finish: string(e.Finish)}
	for _, t := range e.Tokens {
		p.Tokens = append(p.Tokens, t.ID)
	}
	if e.Finish != "" {
		u, t := reply.Usage(), reply.Timings()
		p.Use = &Use{PromptTokens: u.Prompt, CachedTokens: u.Cached, Tokens: u.Generated, KVBytes: t.KVBytes, Queue: t.Queue, Prompt: t.Prompt, Answer: t.Predicted}
	}
	return p
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
