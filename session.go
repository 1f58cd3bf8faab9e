package terrace

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"terrace/engine"
	"terrace/model"
	"terrace/serve"
)

// Session is a text that stays in the KV cache, under a policy of its own: what is read once is asked about many times, and what
// the policy keeps of it can be seen. Its methods are for one goroutine at a time. Close it.
type Session struct {
	m       *Model
	s       *engine.Session
	pending []int // tokens of the text that are not read yet: the last of an answer
	begun   bool  // something is read
}

// KV is what a session holds of its text.
type KV struct {
	Tokens   int     // read so far
	Kept     float64 // of them, by a layer and KV head, on average
	Bytes    int64   // of keys and values
	ScanSize int64   // bytes of what the policy scans instead of the keys
}

// NewSession returns an empty session under a policy; "" = the model's.
func (m *Model) NewSession(under string) (*Session, error) {
	spec := m.engine.Policy()
	if under != "" {
		var err error
		if spec, err = parsePolicy(under); err != nil {
			return nil, err
		}
	}
	var s *engine.Session
	err := m.call(func(e *engine.Engine) (err error) {
		s, err = e.NewSession(spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m.keep(&Session{m: m, s: s})
}

// keep has Close end the session.
func (m *Model) keep(s *Session) (*Session, error) {
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.sessions[s] = struct{}{}
	}
	m.mu.Unlock()
	if closed {
		s.end()
		return nil, ErrClosed
	}
	return s, nil
}

// call runs f where the engine may be called.
func (m *Model) call(f func(e *engine.Engine) error) error { return m.closedError(m.server.Call(f)) }

// Read reads more text, without a template; the model's first token comes before the first text.
func (s *Session) Read(ctx context.Context, text string) error {
	ids, err := s.m.tok.Encode(text, !s.begun, true)
	if err != nil {
		return err
	}
	return s.read(ctx, ids)
}

// read reads ids behind those that wait, in parts between which others are served.
func (s *Session) read(ctx context.Context, ids []int) error {
	if ids = append(slices.Clone(s.pending), ids...); len(ids) == 0 {
		return nil
	}
	var reading *engine.PromptReading
	err := s.m.call(func(*engine.Engine) (err error) {
		if s.s == nil {
			return ErrClosed
		}
		reading, err = s.s.BeginPrompt(ids, engine.PrefillHooks{})
		return err
	})
	for err == nil && reading.Left() > 0 {
		err = s.m.call(func(e *engine.Engine) error {
			if s.s == nil {
				return ErrClosed
			}
			return reading.Read(ctx, e.Options().ChunkTokens)
		})
	}
	if err == nil {
		s.pending, s.begun = nil, true
	}
	return err
}

// Generate goes on with the text; the answer then belongs to it. A session has a policy and a prompt of its own: what Settings say of
// those, of the store and of chats has to be empty.
func (s *Session) Generate(ctx context.Context, o Settings) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		g, err := s.begin(ctx, &o)
		for err == nil {
			var p Piece
			var more bool
			if p, more, err = s.step(ctx, g); err == nil && (!yield(p, nil) || !more) {
				return
			}
		}
		yield(Piece{}, err)
	}
}

// generation is an answer of a session in progress.
type generation struct {
	*engine.Generation
	text   string // since the last piece
	tokens int
	ranker *serve.Ranker // nil = no log probabilities are wanted
}

// begin reads what waits, and has the logits of the last token at hand.
func (s *Session) begin(ctx context.Context, o *Settings) (*generation, error) {
	most, err := o.most()
	if err != nil {
		return nil, err
	}
	own := s.m.server.Sampling()
	if err := o.check(own); err != nil {
		return nil, err
	}
	switch {
	case o.Policy != "":
		return nil, fmt.Errorf("terrace: policy %s: a session has its own, from NewSession: %w", o.Policy, ErrOption)
	case len(o.Tools) > 0 || o.Choice != "" || o.Effort != "" || o.Thought != 0 || o.Salt != "" || o.Progress != nil:
		return nil, fmt.Errorf("terrace: a session's text has no tools, thoughts, salt or progress: want Model.Chat or Model.Generate: %w", ErrOption)
	}
	machine, err := s.m.machine(ctx, o.Format)
	if err != nil {
		return nil, s.m.saidError(err)
	}
	if !s.begun && len(s.pending) == 0 {
		return nil, fmt.Errorf("terrace: nothing was read that could go on: %w", ErrOption)
	}
	if err := s.read(ctx, nil); err != nil {
		return nil, err
	}
	var ids []int
	if err := s.m.call(func(*engine.Engine) error {
		if s.s == nil {
			return ErrClosed
		}
		ids = s.s.IDs()
		return nil
	}); err != nil {
		return nil, err
	}
	g := &generation{}
	if o.Logprobs {
		g.ranker = serve.NewRanker(s.m.tok, o.Top)
	}
	r := engine.Request{IDs: ids, MaxTokens: most, Sampler: o.sampler(own), Bias: o.Bias, Stops: o.Stop, StopIDs: o.StopTokens, IgnoreEOS: o.IgnoreEnd, IsEnd: s.m.tok.IsEOG, Text: s.m.tok.NewDetokenizer(),
		OnText: func(piece string) error { g.text += piece; return nil }}
	if machine != nil {
		r.Constrain = machine.Start()
	}
	if sampler := &r.Sampler; sampler.DRY.Multiplier > 0 {
		if r.Breakers, err = serve.NewBreakers(s.m.tok, model.DefaultBreakers); err != nil {
			return nil, err
		}
	}
	g.Generation, err = engine.NewGeneration(r)
	return g, err
}

// step chooses a token and reads it.
func (s *Session) step(ctx context.Context, g *generation) (p Piece, more bool, err error) {
	err = s.m.call(func(e *engine.Engine) error {
		if s.s == nil {
			return ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.ranker != nil {
			g.ranker.Rank(s.s.Logits())
		}
		made := g.Generation.Tokens()
		id, goes, err := g.Step(s.s)
		if err != nil {
			return err
		}
		if id >= 0 {
			p.Tokens = []int{id}
			if g.ranker != nil {
				t := serve.Token{ID: id}
				g.ranker.Fill(&t)
				p.Logprobs = []Logprob{logprobOf(&t)}
			}
			g.tokens++
		}
		if more = goes && s.s.Tokens()+1 < e.Options().Context; more {
			if err := s.s.Decode(id); err != nil {
				return err
			}
		} else {
			p.Finish = "length"
			res := g.Result() // which hands out text that was held back
			if !goes && res.Finish == "stop" {
				p.Finish = "stop"
			}
			if res.Stop == "" && g.Generation.Tokens() > made { // part of the text, as an end token is not
				s.pending = []int{id}
			}
			use := s.s.KVUse()
			p.Use = &Use{Tokens: g.tokens, KVBytes: use.HeldBytes()}
		}
		p.Text, g.text = g.text, ""
		return nil
	})
	return p, more, err
}

// Fork is a session that goes on from here under another policy ("" = the model's), with the text so far shared; policies whose
// state belongs to one text refuse, by name, and so do models with Options.WindowOnly where the other policy drops anything.
func (s *Session) Fork(under string) (*Session, error) {
	spec := s.m.engine.Policy()
	if under != "" {
		var err error
		if spec, err = parsePolicy(under); err != nil {
			return nil, err
		}
	}
	var forked *engine.Session
	err := s.m.call(func(*engine.Engine) (err error) {
		if s.s == nil {
			return ErrClosed
		}
		forked, err = s.s.Fork(spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.m.keep(&Session{m: s.m, s: forked, pending: slices.Clone(s.pending), begun: s.begun})
}

// KV is what the session holds now.
func (s *Session) KV() (k KV, err error) {
	err = s.m.call(func(*engine.Engine) error {
		if s.s == nil {
			return ErrClosed
		}
		u := s.s.KVUse()
		k = KV{Tokens: s.s.Tokens(), Kept: u.Tokens, Bytes: u.Bytes, ScanSize: u.SketchBytes}
		return nil
	})
	return k, err
}

// Close gives the session's KV back.
func (s *Session) Close() {
	s.m.mu.Lock()
	delete(s.m.sessions, s)
	s.m.mu.Unlock()
	s.end()
}

// end gives the KV back, once.
func (s *Session) end() {
	_ = s.m.server.Call(func(*engine.Engine) error {
		if s.s != nil {
			s.s.Close()
			s.s = nil
		}
		return nil
	})
}
