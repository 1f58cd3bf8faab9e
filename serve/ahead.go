package serve

import (
	"terrace/engine"
	"terrace/internal/guard"
)

// guesses reads a step of the one sequence that decodes, with what may follow it; false = guesses cannot be taken back in its session.
func (l *loop) guesses(q *sequence, id int) (done bool, err error) {
	if l.o.Speculate == nil || q.noGuesses {
		return false, nil
	}
	if q.ahead == nil {
		d := l.o.Speculate()
		if q.ahead, err = q.session.Speculator(d); err != nil {
			q.noGuesses = true
			return false, d.Close()
		}
		q.drafter = d
	}
	left := q.job.r.MaxTokens - q.session.Tokens() + len(q.prompt)
	if q.job.r.MaxTokens < 0 {
		left = l.e.Options().Context
	}
	err = guard.Run(func() error { return q.ahead.Read(id, left) })
	l.m.guessed(q.ahead.Use(), &q.guessed)
	return true, err
}

// settle takes back what was read ahead of a sequence, before its session takes part in anything else.
func (q *sequence) settle() error {
	if q.ahead == nil {
		return nil
	}
	return guard.Run(q.ahead.Settle)
}

// dropGuesses ends guessing for a sequence whose session is given back.
func (q *sequence) dropGuesses() {
	if q.drafter != nil {
		_ = q.drafter.Close()
	}
	q.ahead, q.drafter, q.guessed = nil, nil, engine.Speculation{}
}
