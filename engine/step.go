package engine

import (
	"errors"
	"slices"

	"terrace/retrieval"
)

// DecodeBatch reads one token in each of several sessions in one pass. A session's logits do not depend on the others. Where a
// tier loses KV the texts are read again. A session that fails stays as it was before the step, and the others go on: the
// error is a *BatchError then, or that of all sessions where they failed for one reason.
func (e *Engine) DecodeBatch(sessions []*Session, ids []int) error {
	var failed []sessionError
	for _, s := range sessions {
		err := s.found()
		if err == nil && s.fits(1) == nil { // else step says so
			err = s.ready(1)
		}
		if err != nil {
			failed = append(failed, sessionError{s, err})
		}
	}
	failed = e.step(sessions, ids, failed)
	for i := range failed {
		f := &failed[i]
		f.err = f.s.tryAgain(f.err, func() error { return f.s.stepAlone(idOf(sessions, ids, f.s)) })
	}
	failed, all := stillFailed(failed), len(failed) == len(sessions)
	for _, s := range sessions {
		if len(failed) == 0 || !hasFailed(failed, s) {
			s.past.Note(1, true)
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case all && len(failed) == len(sessions) && alike(failed):
		return failed[0].err
	}
	return batchError(sessions, failed)
}

// step is DecodeBatch without a second chance; sessions that have failed already stay out. It returns those that failed.
func (e *Engine) step(sessions []*Session, ids []int, failed []sessionError) []sessionError {
	if len(failed) == 0 && e.alternates(sessions) && !slices.ContainsFunc(sessions, func(s *Session) bool { return s.fits(1) != nil }) {
		return e.alternate(sessions, ids)
	}
	p := &e.pass
	p.open(e, e.phase(false))
	for i, s := range sessions {
		if hasFailed(failed, s) {
			continue
		}
		if err := s.fits(1); err != nil {
			failed = append(failed, sessionError{s, err})
			continue
		}
		p.add(s, retrieval.Step, ids[i:i+1], len(s.tokens)+1)
	}
	if len(p.sessions) == 0 {
		return failed
	}
	p.want = len(p.sessions)
	logits, err := e.run(p)
	if err != nil {
		for _, s := range p.sessions {
			p.failed = append(p.failed, sessionError{s, err})
		}
		p.sessions = p.sessions[:0]
	}
	if failed = append(failed, p.failed...); p.begun {
		spoil(p.failed)
	}
	if len(p.sessions) == 0 {
		return failed
	}
	k := &e.keeping
	*k = keeping{e: e, run: k.run, sessions: p.sessions, all: sessions, ids: ids}
	if !e.device.postpone(logits, p.sessions) {
		k.logits = floats(logits)
	}
	if k.run == nil {
		k.run = k.keep
	}
	e.pool.Run(len(p.sessions), k.run)
	return failed
}

// spoil notes that a step failed after policies had seen some of it: they may have dropped what does not come back with it, and so
// the text is read again before it is used.
func spoil(failed []sessionError) {
	for _, f := range failed {
		f.s.past.Lost = f.s.past.Lost || !f.s.text.Causal()
	}
}

// keeping is what a decode step leaves to its sessions.
type keeping struct {
	e        *Engine
	sessions []*Session // that came through, in the order of logits
	all      []*Session // of the step, in the order of ids
	ids      []int
	logits   []float32 // [sessions, V]; nil = on the device
	run      func(worker, i int)
}

// keep takes the step into session i.
func (k *keeping) keep(_, i int) {
	s, v := k.sessions[i], k.e.m.Vocab
	s.tokens = append(s.tokens, idOf(k.all, k.ids, s))
	if k.logits != nil {
		s.logits = append(s.logits[:0], k.logits[i*v:(i+1)*v]...)
	}
}

// stepAlone is a step of one session without a second chance.
func (s *Session) stepAlone(id int) error {
	if failed := s.e.step([]*Session{s}, []int{id}, nil); len(failed) > 0 {
		return failed[0].err
	}
	return nil
}

func idOf(sessions []*Session, ids []int, s *Session) int {
	for i, x := range sessions {
		if x == s {
			return ids[i]
		}
	}
	panic("engine: session is not of the batch")
}

func hasFailed(failed []sessionError, s *Session) bool {
	for i := range failed {
		if failed[i].s == s {
			return true
		}
	}
	return false
}

// stillFailed leaves out those that came through at the second attempt.
func stillFailed(failed []sessionError) []sessionError {
	kept := failed[:0]
	for _, f := range failed {
		if f.err != nil {
			kept = append(kept, f)
		}
	}
	return kept
}

// alike reports whether sessions failed for one reason.
func alike(failed []sessionError) bool {
	for _, f := range failed[1:] {
		if f.err.Error() != failed[0].err.Error() {
			return false
		}
	}
	return true
}

// BatchError says which sessions of a batch failed while others went on.
type BatchError struct {
	Errors []error // by session; nil = it went on
}

func batchError(sessions []*Session, failed []sessionError) *BatchError {
	b := &BatchError{Errors: make([]error, len(sessions))}
	for i, s := range sessions {
		for _, f := range failed {
			if f.s == s {
				b.Errors[i] = f.err
			}
		}
	}
	return b
}

func (b *BatchError) Error() string { return errors.Join(b.Errors...).Error() }

// Unwrap are the sessions' errors.
func (b *BatchError) Unwrap() []error {
	var out []error
	for _, err := range b.Errors {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}
