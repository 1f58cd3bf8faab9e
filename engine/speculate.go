package engine

import (
	"context"
	"fmt"
	"time"

	"terrace/engine/draft"
	"terrace/model"
	"terrace/retrieval"
)

// Speculation says what guessing brought in one generation.
type Speculation struct {
	Drafter  string
	Passes   int           // passes that read tokens, with guesses or without
	Drafted  int           // guesses read
	Accepted int           // of them those that the model chose
	Drafting time.Duration // spent on guessing
}

// Speculator reads the tokens of one text, and guesses with them: its session's logits are those of decoding one token at a time, bit
// for bit. Between two Reads the session's KV may be ahead of its tokens; before anything else is done with it: Settle.
type Speculator struct{ p *speculator }

// Speculator has a session's tokens read with a drafter's guesses, which stays the caller's to close. Errors are those of options that
// guesses cannot be taken back under.
func (s *Session) Speculator(d draft.Drafter) (*Speculator, error) {
	if err := s.canSpeculate(d); err != nil {
		return nil, err
	}
	return &Speculator{newSpeculator(s, d)}, nil
}

// Read is Decode; left is how many tokens may follow.
func (x *Speculator) Read(id, left int) error { return x.p.read(id, left) }

// Settle takes back what was read ahead.
func (x *Speculator) Settle() error { return x.p.settle() }

// Use says what guessing has brought.
func (x *Speculator) Use() Speculation { return x.p.use }

// NewDraftModel returns a drafter on an engine of its own, which stays the caller's to close after it.
func NewDraftModel(name string, e *Engine) (*draft.Model, error) {
	s, err := e.NewSession(nil)
	if err != nil {
		return nil, err
	}
	return draft.NewModel(name, draftSession{s}), nil
}

// draftSession is a draft.Session.
type draftSession struct{ *Session }

func (s draftSession) Context() int { return s.e.o.Context }

func (s draftSession) Read(ids []int) error {
	return s.Prefill(context.Background(), ids, PrefillHooks{})
}

// speculator reads the tokens of one generation, and what is likely to follow them in the same pass. A row's result does not
// depend on the rows beside it, so the logits that a token is chosen from are those of decoding one token at a time, bit for
// bit; the KV of guesses that were wrong is taken back.
type speculator struct {
	s       *Session
	drafter draft.Drafter
	ahead   []int     // guesses whose KV follows the session's tokens
	logits  []float32 // [1+guesses, V] of the pass that read them
	row     int       // the session's row of logits
	pace    draft.Pace
	kind    int // of the guesses that were read last
	drafted int // how many these were; 0 = they are judged
	use     Speculation
	ids     []int
}

// canSpeculate refuses what cannot be taken back, or would not be the same to the bit.
func (s *Session) canSpeculate(d draft.Drafter) error {
	if name := s.e.o.Backend; name != "" && name != "native" {
		return fmt.Errorf("engine: speculation (%s) on backend %s: only the native backend computes a row alike alone and beside others: %w", d.Name(), name, model.ErrUnsupported)
	}
	if set := s.text.Policy(); set.Selector != nil || set.Dropper != nil || set.Pruner != nil {
		return fmt.Errorf("engine: speculation (%s) under policy %s: it acts while decoding, and what it did for a wrong guess cannot be taken back: %w", d.Name(), set, ErrOption)
	}
	return nil
}

func newSpeculator(s *Session, d draft.Drafter) *speculator {
	return &speculator{s: s, drafter: d, pace: draft.NewPace(), use: Speculation{Drafter: d.Name()}}
}

// read takes a token into the session; left is how many may be generated after it.
func (p *speculator) read(id, left int) error {
	if len(p.ahead) > 0 && p.ahead[0] == id {
		p.ahead = p.ahead[1:]
		p.row++
		p.use.Accepted++
		p.advance(id)
		return nil
	}
	if err := p.settle(); err != nil {
		return err
	}
	begun := time.Now()
	guesses, kind, err := p.guess(id, left)
	if err != nil {
		return err
	}
	p.use.Drafting += time.Since(begun)
	p.use.Passes++
	if len(guesses) == 0 {
		if err = p.s.Decode(id); err == nil {
			p.pace.Passed(0, time.Since(begun))
		}
		return err
	}
	if p.logits, err = p.s.readAhead(p.ids); err != nil {
		return p.s.Decode(id) // alone, where a lost tier is read again
	}
	p.pace.Passed(len(guesses), time.Since(begun))
	p.kind, p.drafted = kind, len(guesses)
	p.use.Drafted += len(guesses)
	p.ahead, p.row = guesses, 0
	p.advance(id)
	return nil
}

// guess asks the drafter for what may follow id; p.ids has id before it.
func (p *speculator) guess(id, left int) (guesses []int, kind int, err error) {
	s := p.s
	text := append(s.tokens, id)
	most := min(left-1, draft.Most, s.e.o.Context-len(text))
	if at := s.e.m.LongRopeAt(); len(text) <= at {
		most = min(most, at-len(text)) // a pass is turned by one set of frequencies
	}
	if kind = p.drafter.Look(text); kind < 0 || most <= 0 {
		return nil, kind, nil
	}
	n := s.text.Seq().Together(p.pace.Length(kind, most)+1) - 1
	p.ids = append(p.ids[:0], id)
	if n > 0 {
		p.ids, err = p.drafter.Draft(p.ids, n)
	}
	return p.ids[1:], kind, err
}

// advance notes that the token of p.row is read.
func (p *speculator) advance(id int) {
	s, v := p.s, p.s.e.m.Vocab
	s.tokens = append(s.tokens, id)
	s.logits = append(s.logits[:0], p.logits[p.row*v:(p.row+1)*v]...)
	s.past.Note(1, true)
}

// settle takes back what was read of guesses that were not chosen.
func (p *speculator) settle() error {
	if p.drafted > 0 {
		p.pace.Judged(p.kind, p.drafted, p.drafted-len(p.ahead))
		p.drafted = 0
	}
	if len(p.ahead) == 0 {
		return nil
	}
	p.ahead = nil
	return p.s.backTo(len(p.s.tokens))
}

// readAhead reads tokens in one pass of the decode arithmetic and returns the logits [len(ids), V] after each, which hold until
// the engine's next pass. The session counts none of them as read: its KV is ahead of it. After an error it is as before.
func (s *Session) readAhead(ids []int) ([]float32, error) {
	if err := s.fits(len(ids)); err != nil {
		return nil, err
	}
	if err := s.ready(len(ids)); err != nil {
		return nil, err
	}
	e, p := s.e, &s.e.pass
	p.open(e, e.phase(false))
	p.add(s, retrieval.Step, ids, len(s.tokens)+1)
	for i := range ids { // as if each came alone
		p.rows.Len[i] = int32(s.turnLength(len(s.tokens) + 1 + i))
	}
	p.want = len(ids)
	logits, err := e.run(p)
	switch {
	case err != nil:
		return nil, err
	case len(p.failed) > 0:
		return nil, p.failed[0].err
	}
	return floats(logits), nil
}
