package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"terrace/retrieval"
)

// history is how a session's text was read. A session whose KV a tier has lost reads its text again: prompts as prompts,
// generated tokens one a step, so that every number is what it was (a token's row depends on how it was read, not on when).
// What a drive could not score once, the host scores from then on.
type history struct {
	reads      []read
	lost       bool // a tier has lost KV: the text must be read again first
	hostScores bool // the drive's scores failed once: the host holds all low-bit keys
}

// read is a part of what a session has read.
type read struct {
	tokens int
	steps  bool // one token a pass, as decoded; else as prompts
	open   bool // the beginning of a prompt whose rest is not read yet (Fork to another policy)
	mixed  bool // read in a way that the session's own policy cannot repeat
}

// maxReplays is how often a call reads a text again before its error is the caller's.
const maxReplays = 2

// noteRead adds tokens to the session's history.
func (s *Session) noteRead(tokens int, steps bool) {
	h := &s.past
	if n := len(h.reads); n > 0 {
		if last := &h.reads[n-1]; last.steps && steps || last.open && !steps {
			last.tokens += tokens
			last.open = false
			return
		}
	}
	h.reads = append(h.reads, read{tokens: tokens, steps: steps})
}

// forked is the history of a fork with n tokens: the same under the same policy. Under another the prompt's beginning, read
// under none, is read again together with the rest; a compressed context cannot be read again by a session that does not
// compress.
func (h *history) forked(n int, same, compressed bool) history {
	switch {
	case n == 0:
		return history{}
	case compressed:
		return history{reads: []read{{tokens: n, mixed: true}}}
	case same:
		return history{reads: slices.Clone(h.reads)}
	}
	one := len(h.reads) == 1 && !h.reads[0].steps
	return history{reads: []read{{tokens: n, open: true, mixed: !one}}}
}

// repeatable reports whether reading the text again gives what it gave: not while the rest of a shared prompt is missing.
func (h *history) repeatable() bool {
	for _, r := range h.reads {
		if r.open || r.mixed {
			return false
		}
	}
	return true
}

// fixed is how many tokens the text began with that it can neither read again nor take apart.
func (h *history) fixed() int {
	if len(h.reads) > 0 && h.reads[0].mixed {
		return h.reads[0].tokens
	}
	return 0
}

// cut forgets all but the first n tokens.
func (h *history) cut(n int) {
	for i := range h.reads {
		if h.reads[i].tokens = min(h.reads[i].tokens, n); h.reads[i].tokens == 0 {
			h.reads = h.reads[:i]
			return
		}
		n -= h.reads[i].tokens
	}
}

// tokens is how many tokens are noted; a prompt that failed is not.
func (h *history) tokens() (n int) {
	for _, r := range h.reads {
		n += r.tokens
	}
	return n
}

// recoverable reports whether the text could be read again: a tier lost something, and is still there.
func (s *Session) recoverable(err error) bool {
	return s.e.floor.Recovers() && errors.Is(err, ErrTier) && !retrieval.Gone(err) && s.past.repeatable()
}

// tryAgain reads the session's text again after a pass that failed, where that may help, and repeats the pass.
func (s *Session) tryAgain(err error, pass func() error) error {
	if retrieval.Refused(err) {
		s.e.floor.NoteRefused()
	}
	for replays := 0; replays < maxReplays && s.recoverable(err); replays++ {
		s.past.hostScores = s.past.hostScores || retrieval.Refused(err)
		again := s.replay()
		if again == nil {
			again = pass()
		}
		if err = again; err == nil {
			s.e.replays++
		}
	}
	s.past.lost = s.past.lost || errors.Is(err, ErrTier)
	return err
}

// replay empties the session and reads its text again, into new places. Where that fails the session is lost until it
// succeeds; what it shows of itself, tokens and logits, stays.
func (s *Session) replay() error {
	n := s.past.tokens()
	ids, reads := s.tokens[:n:n], s.past.reads
	logits, err := s.fetched()
	logits = slices.Clone(logits)
	if err == nil {
		err = s.restart()
	}
	for rest := ids; err == nil && len(s.tokens) < len(ids); rest = ids[len(s.tokens):] {
		r := reads[len(s.past.reads)]
		err = s.readAgain(rest[:r.tokens], r.steps)
	}
	if s.past.lost = err != nil; s.past.lost {
		s.tokens, s.past.reads, s.logits = ids, reads, logits
		return fmt.Errorf("engine: reading the text again: %w", err)
	}
	return nil
}

// found makes sure that the session is not lost.
func (s *Session) found() error {
	if !s.past.lost {
		return nil
	}
	if !s.past.repeatable() {
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
	for _, id := range ids {
		if err := s.stepAlone(id); err != nil {
			return err
		}
	}
	s.noteRead(len(ids), true)
	return nil
}
