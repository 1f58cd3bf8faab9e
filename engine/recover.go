package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"terrace/retrieval"
)

// maxReplays is how often a call reads a text again before its error is the caller's.
const maxReplays = 2

// recoverable reports whether the text could be read again: a tier lost something, and is still there.
func (s *Session) recoverable(err error) bool {
	return s.e.retrieval.Recovers() && errors.Is(err, ErrTier) && !retrieval.Gone(err) && s.past.Repeatable()
}

// tryAgain reads the session's text again after a pass that failed, where that may help, and repeats the pass.
func (s *Session) tryAgain(err error, pass func() error) error {
	if retrieval.Refused(err) {
		s.e.retrieval.Accounts().NoteRefused()
	}
	for replays := 0; replays < maxReplays && s.recoverable(err); replays++ {
		s.past.HostScores = s.past.HostScores || retrieval.Refused(err)
		again := s.replay()
		if again == nil {
			again = pass()
		}
		if err = again; err == nil {
			s.e.replays++
		}
	}
	s.past.Lost = s.past.Lost || errors.Is(err, ErrTier)
	return err
}

// replay empties the session and reads its text again, into new places. Where that fails the session is lost until it
// succeeds; what it shows of itself, tokens and logits, stays.
func (s *Session) replay() error {
	n := s.past.Tokens()
	ids, reads := s.tokens[:n:n], s.past.Reads
	logits, err := s.fetched()
	logits = slices.Clone(logits)
	if err == nil {
		err = s.restart()
	}
	for rest := ids; err == nil && len(s.tokens) < len(ids); rest = ids[len(s.tokens):] {
		r := reads[len(s.past.Reads)]
		err = s.readAgain(rest[:r.Tokens], r.Steps)
	}
	if s.past.Lost = err != nil; s.past.Lost {
		s.tokens, s.past.Reads, s.logits = ids, reads, logits
		return fmt.Errorf("engine: reading the text again: %w", err)
	}
	return nil
}

// found makes sure that the session is not lost.
func (s *Session) found() error {
	if !s.past.Lost {
		return nil
	}
	if !s.past.Repeatable() {
		return fmt.Errorf("engine: %w: KV of the text was lost; it was begun under another policy and cannot be read again", ErrTier)
	}
	return s.replay()
}

func (s *Session) readAgain(ids []int, steps bool) error {
	if !steps {
		if err := s.prefill(context.Background(), ids, PrefillHooks{}); err != nil {
			return err
		}
		s.past.Note(len(ids), false)
		return nil
	}
	for _, id := range ids {
		if err := s.stepAlone(id); err != nil {
			return err
		}
	}
	s.past.Note(len(ids), true)
	return nil
}
