package engine

import (
	"context"
	"errors"
	"fmt"
)

// A session whose KV a tier has lost reads its text again: prompts as prompts, generated tokens one a step, so that every
// number is what it was (a token's row depends on how it was read, not on when). What a drive could not score once, the
// host scores from then on.

// read is a part of what a session has read.
type read struct {
	tokens int
	steps  bool // one token a pass, as decoded; else as prompts
	open   bool // the beginning of a prompt whose rest is not read yet (ForkUnder)
	mixed  bool // read under no policy and in several parts: a policy cannot read it again as it was
}

// maxReplays is how often a call reads a text again before its error is the caller's.
const maxReplays = 2

// noteRead adds tokens to a session's history.
func (s *Session) noteRead(tokens int, steps bool) {
	if n := len(s.history); n > 0 {
		if last := &s.history[n-1]; last.steps && steps || last.open && !steps {
			last.tokens += tokens
			last.open = false
			return
		}
	}
	s.history = append(s.history, read{tokens: tokens, steps: steps})
}

// sharedReads is the history of a fork that goes on under a policy: the prompt's beginning was read under none, which the
// policy reads again together with the rest.
func (s *Session) sharedReads() []read {
	if len(s.tokens) == 0 {
		return nil
	}
	one := len(s.history) == 1 && !s.history[0].steps
	return []read{{tokens: len(s.tokens), open: true, mixed: !one}}
}

// replayable reports whether reading the text again gives what it gave: not while the rest of a shared prompt is missing.
func (s *Session) replayable() bool {
	for _, r := range s.history {
		if r.open || r.mixed {
			return false
		}
	}
	return true
}

// forgetReads cuts the history to n tokens.
func (s *Session) forgetReads(n int) {
	for i := range s.history {
		if s.history[i].tokens = min(s.history[i].tokens, n); s.history[i].tokens == 0 {
			s.history = s.history[:i]
			return
		}
		n -= s.history[i].tokens
	}
}

// noted is how many tokens the history has; a prompt that failed is not in it.
func (s *Session) noted() (n int) {
	for _, r := range s.history {
		n += r.tokens
	}
	return n
}

// recoverable reports whether the texts could be read again: a tier lost something, and is still there.
func (e *Engine) recoverable(sessions []*Session, err error) bool {
	if e.tiers == nil || !errors.Is(err, ErrTier) || lost(err) {
		return false
	}
	for _, s := range sessions {
		if !s.replayable() {
			return false
		}
	}
	return true
}

// tryAgain reads the sessions' texts again after a pass that failed, where that may help, and repeats it.
func (e *Engine) tryAgain(sessions []*Session, err error, pass func() error) error {
	if errors.Is(err, errScoring) {
		e.scoreUse.Refused++
	}
	for replays := 0; e.recoverable(sessions, err) && replays < maxReplays; replays++ {
		again := error(nil)
		for _, s := range sessions {
			s.hostScores = s.hostScores || errors.Is(err, errScoring)
			if again = s.replay(); again != nil {
				break
			}
		}
		if again == nil {
			again = pass()
		}
		if err = again; err == nil {
			e.replays++
		}
	}
	if errors.Is(err, ErrTier) {
		for _, s := range sessions {
			s.lost = true
		}
	}
	return err
}

// replay empties a session and reads its text again, into new places. Where that fails the session is lost until it
// succeeds.
func (s *Session) replay() error {
	ids, history := s.tokens[:s.noted():s.noted()], s.history
	err := s.restart()
	for rest := ids; err == nil && len(s.tokens) < len(ids); rest = ids[len(s.tokens):] {
		r := history[len(s.history)]
		err = s.readAgain(rest[:r.tokens], r.steps)
	}
	if s.lost = err != nil; s.lost {
		s.tokens, s.history = ids, history
		return fmt.Errorf("engine: reading the text again: %w", err)
	}
	return nil
}

// found makes sure that a session is not lost.
func (s *Session) found() error {
	if !s.lost {
		return nil
	}
	if !s.replayable() {
		return fmt.Errorf("engine: %w: the text was begun under another policy and cannot be read again", ErrTier)
	}
	return s.replay()
}

func (s *Session) readAgain(ids []int, steps bool) error {
	if !steps {
		if err := s.prefill(context.Background(), ids, PrefillHooks{}); err != nil {
			return err
		}
		s.noteRead(len(ids), false)
		return nil
	}
	for i := range ids {
		if err := s.e.decodeBatch([]*Session{s}, ids[i:i+1]); err != nil {
			return err
		}
	}
	s.noteRead(len(ids), true)
	return nil
}
