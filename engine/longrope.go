package engine

import (
	"fmt"

	"terrace/engine/past"
)

// A model with two sets of rotary frequencies (longrope: model.Config.LongRopeAt) turns all positions of a text by the set that its
// whole length chooses. Hidden states above the first layer depend on the attention below, so keys that were written cannot be turned
// afterwards: where a text comes to be of the other length, it is read again, once.

// turnsLong reports whether a text of so many tokens is turned by the model's second set of frequencies.
func (e *Engine) turnsLong(tokens int) bool {
	at := e.m.LongRopeAt()
	return at > 0 && tokens > at
}

// turnLength is the length that rows of the session are turned by, on the way to a text of so many tokens.
func (s *Session) turnLength(tokens int) int {
	switch at := s.e.m.LongRopeAt(); {
	case at == 0:
		return tokens
	case s.long:
		return max(tokens, at+1)
	default:
		return min(tokens, at)
	}
}

// OfLength says how long the prompt is of which an empty session is given KV that was computed before (Adopt, Expect).
func (s *Session) OfLength(tokens int) { s.setLong(s.e.turnsLong(tokens)) }

func (s *Session) setLong(long bool) {
	s.long = long
	s.text.SetLong(long)
}

// becomesLong reports whether the text is a long one once n tokens more are read.
func (s *Session) becomesLong(n int) bool { return s.e.turnsLong(max(len(s.tokens)+n, s.reach)) }

// Turns reports whether n tokens more bring the text to a length at which all that it has read is read again first.
func (s *Session) Turns(n int) bool { return len(s.tokens) > 0 && s.becomesLong(n) != s.long }

// ready makes sure that n tokens can be read: what a tier has lost is read again, and what was turned for another length.
func (s *Session) ready(n int) error {
	if err := s.found(); err != nil {
		return err
	}
	if !s.Turns(n) {
		s.setLong(s.becomesLong(n))
		return nil
	}
	if err := s.mayTurn(); err != nil {
		return err
	}
	if s.text.Causal() {
		s.past.Reads = []past.Read{{Tokens: len(s.tokens)}} // as one prompt: no policy saw how it came about
	}
	s.setLong(!s.long)
	return s.replay()
}

// mayTurn refuses texts that cannot be read again.
func (s *Session) mayTurn() error {
	switch {
	case s.arriving != nil:
		return errArriving
	case !s.past.Repeatable():
		return fmt.Errorf("engine: the text passes %d tokens, where this model turns all positions again (longrope), and its beginning was compressed or begun under another policy and cannot be read again; give the whole text as one prompt: %w",
			s.e.m.LongRopeAt(), ErrOption)
	}
	return nil
}

// ReadAgain begins to read the text of a session that Turns, in parts between which steps of other sessions come; steps are the tokens at its
// end that are decoded afterwards, one after another, as they were. (Decode does the same at once.) The session is as if empty until
// the reading ends.
func (s *Session) ReadAgain() (r *PromptReading, steps []int, err error) {
	if err := s.found(); err != nil {
		return nil, nil, err
	}
	if err := s.mayTurn(); err != nil {
		return nil, nil, err
	}
	ids, n := s.tokens, len(s.tokens)
	if !s.text.Causal() {
		n = s.past.Reads[0].Tokens
	}
	if err := s.restart(); err != nil {
		return nil, nil, err
	}
	s.setLong(!s.long)
	s.reach = len(ids) + 1
	r, err = s.newReading(ids[:n:n], PrefillHooks{})
	return r, ids[n:], err
}
