package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"

	"terrace/policy"
)

// PromptReading is a prompt that is read in parts, so that steps of other sessions come between them. Between its parts the
// session must not be used for anything else; one that is given up is closed with its session.
type PromptReading struct {
	s      *Session
	ids    []int
	hooks  PrefillHooks
	read   int  // tokens read so far
	narrow bool // host memory had no room for a section
	second bool // the policy has had its second look at the prompt
}

// BeginPrompt begins to read a prompt; nothing is computed yet. Errors are those of Prefill.
func (s *Session) BeginPrompt(ids []int, hooks PrefillHooks) (*PromptReading, error) {
	if err := s.fits(len(ids)); err != nil {
		return nil, err
	}
	if err := s.ready(len(ids)); err != nil {
		return nil, err
	}
	return s.newReading(ids, hooks)
}

func (s *Session) newReading(ids []int, hooks PrefillHooks) (*PromptReading, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("engine: the prompt has no tokens (nothing to predict from): %w", ErrOption)
	}
	if err := cmp.Or(s.fits(len(ids)), s.fitsAgain(ids), s.room(ids)); err != nil {
		return nil, err
	}
	return &PromptReading{s: s, ids: ids, hooks: hooks}, nil
}

// Left is how many tokens are not read yet; where the policy's second look at the prompt is still to come it is 1 at least.
func (r *PromptReading) Left() int {
	if left := r.unread(); left > 0 || r.second || !r.s.rereads() {
		return left
	}
	return 1
}

func (r *PromptReading) unread() int { return len(r.ids) - r.read }

// LeastTokens is the smallest part that is read at once: where the cuts change bits, under a policy that adds up something over
// the prompt's rows and where KV is quantised behind a window, the chunks are those of Prefill; where a prompt passes layer by
// layer it is all of it.
func (r *PromptReading) LeastTokens() int {
	needs, l, left := r.s.text.Needs(), r.s.e.kv.Format(), r.Left()
	switch {
	case readsByLayer(r.s.text.Policy()) || r.s.text.OnDrives() && r.hooks.Each == nil || needs.WholePrompt:
		return left
	case needs.PromptSums == policy.AllRows || needs.Queries == policy.AllRows || needs.Weights != 0 || needs.ObservesPrompt() || l.K.Quantised() || l.V.Quantised():
		return min(left, r.s.e.o.ChunkTokens)
	}
	return min(left, 1)
}

// Read reads so many tokens more, at least LeastTokens. Once none is left the session's Logits are those of the last. A
// cancelled context stops between chunks, on tiers between a section's blocks: the section is as if not begun. After another
// error, such as kvmanager.ErrBudget, Read may be called again: a text under a policy is then read from its beginning, since the
// policy has seen, and dropped, what the failed part had of it.
func (r *PromptReading) Read(ctx context.Context, tokens int) error {
	if r.s.past.Lost {
		if err := r.s.found(); err != nil {
			return err
		}
		r.read, r.second = 0, false
	}
	s, to, least := r.s, len(r.ids), max(1, r.LeastTokens())
	if tokens < r.Left() {
		to = r.read + min(max(tokens-tokens%least, least), r.Left())
	}
	err := r.upTo(ctx, to, s.e.o.ChunkTokens)
	if r.hooks.Each == nil {
		err = s.tryAgain(err, func() error {
			r.read = 0
			return r.upTo(ctx, to, s.e.o.ChunkTokens)
		})
	}
	if err == nil && r.Left() > 0 {
		return nil
	}
	s.chunked = nil
	if err == nil {
		s.past.Note(len(r.ids), false)
	}
	return s.e.CheckAfter(err)
}

// upTo is Read up to a token, in chunks, without a second chance.
func (r *PromptReading) upTo(ctx context.Context, to, chunk int) error {
	s, total := r.s, len(r.s.tokens)+r.unread()
	if (readsByLayer(s.text.Policy()) || s.text.OnDrives() && r.hooks.Each == nil) && len(s.tokens) == 0 {
		err := s.readByLayer(ctx, r.ids, r.hooks)
		if err == nil {
			r.read = len(r.ids)
		}
		return err
	}
	for r.read < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.section(ctx, to-r.read)
		if err != nil {
			return r.spoilt(err)
		}
		if n > 0 {
			r.advance(n)
			continue
		}
		rows := min(chunk, to-r.read, s.toBorder())
		n = s.text.ChunkRows(r.unread(), rows)
		if err := s.chunk(r.ids[r.read:r.read+n], total, n == r.unread(), r.hooks.Each); err != nil {
			all := to == len(r.ids)
			if err = r.rewind(err); err != nil {
				return r.spoilt(err)
			}
			if all {
				to = len(r.ids)
			}
			continue
		}
		if s.chunked != nil {
			s.chunked()
		}
		r.advance(n)
	}
	if r.unread() == 0 && s.rereads() && !r.second {
		dropping := false
		if err := guarded(func() error { return s.reconstruct(ctx, &dropping) }); err != nil {
			if dropping {
				err = r.spoilt(err)
			}
			return err
		}
		r.second = true
	}
	return nil
}

// toBorder is how many tokens a chunk may have until it has to end (AfterChunks).
func (s *Session) toBorder() int {
	if s.chunked == nil || s.border == 0 {
		return math.MaxInt
	}
	return s.border - len(s.tokens)%s.border
}

// spoilt has the prompt read from its beginning after a part that failed with err, where a policy has acted on it.
func (r *PromptReading) spoilt(err error) error {
	s := r.s
	if s.text.Causal() {
		return err
	}
	r.read, s.past.Lost = 0, true
	if s.past.Tokens() > 0 || !s.past.Repeatable() {
		return err // what came before the prompt is read again when it is needed
	}
	return errors.Join(err, s.replay())
}

// advance notes that n tokens more are read.
func (r *PromptReading) advance(n int) {
	r.s.saveStates()
	if r.read += n; r.hooks.Progress != nil {
		r.hooks.Progress(r.read, len(r.ids))
	}
}
