package serve

import (
	"context"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"terrace/engine"
	"terrace/engine/schedule"
	"terrace/internal/guard"
)

// decode takes a step of each.
func (l *loop) decode(ids []int64) {
	qs, sessions, next := l.decoding(ids)
	if len(qs) == 0 {
		return
	}
	began := time.Now()
	errs, guessed := []error{nil}, false
	if len(qs) == 1 {
		guessed, errs[0] = l.guesses(qs[0], next[0])
	} else if !l.settled(qs) {
		return
	}
	if !guessed && errs[0] == nil {
		errs = l.decodeBatch(sessions, next)
	}
	l.stepped(qs, errs, began, time.Now())
	l.troubles(qs, errs)
	l.pace.Note(len(qs), 0, time.Since(began))
}

// decoding are the sequences of which a step is taken, their sessions, and the token that each reads.
func (l *loop) decoding(ids []int64) (qs []*sequence, sessions []*engine.Session, next []int) {
	for _, id := range ids {
		if q := lookup(l.running, id); q != nil && q.session != nil && q.reading == nil && !q.fresh && !q.job.over {
			if q.session.Turns(1) {
				if err := guard.Run(func() error { return errors.Join(q.settle(), q.turn()) }); err != nil {
					l.trouble(q, err)
				}
				continue
			}
			qs, sessions, next = append(qs, q), append(sessions, q.session), append(next, q.next)
		}
	}
	return qs, sessions, next
}

// settled takes back what was read ahead of sequences that are about to take a step together; false = one could not, and leaves.
func (l *loop) settled(qs []*sequence) bool {
	all := true
	for _, q := range qs {
		if err := q.settle(); err != nil {
			l.trouble(q, err)
			all = false
		}
	}
	return all
}

// stepped hands out what came of a step.
func (l *loop) stepped(qs []*sequence, errs []error, began, ended time.Time) {
	l.m.step.Observe(ended.Sub(began).Seconds())
	for i, q := range qs {
		if q.span("decode", began, ended, "texts", len(qs)); errs[i] == nil {
			if q.found != nil && (q.session.Tokens()%keptTokens != 0 || q.settle() == nil) {
				q.found.Keep(q.session)
			}
			l.advance(q)
		}
	}
}

// troubles comes after all that have what the pass gave them: who is youngest leaves with it. Of several that had no room one
// leaves at a time, since what it held may be enough for the others.
func (l *loop) troubles(qs []*sequence, errs []error) {
	gave := false
	for i, q := range qs {
		if errs[i] == nil || q.session == nil || q.job.over || gave && short(errs[i]) {
			continue
		}
		gave = gave || short(errs[i])
		l.trouble(q, errs[i])
	}
}

// together takes steps and parts of prompts in one pass, in which each weight is read once for all. false = they do not all share
// one, or it failed for all: nothing has been done yet.
func (l *loop) together(ids []int64, parts []schedule.Part) bool {
	if len(ids) == 0 || len(parts) == 0 {
		return false
	}
	for _, p := range parts {
		if l.reader(p) == nil {
			return false
		}
	}
	// Only now: who begins to read may have swapped others out.
	qs, sessions, next := l.decoding(ids)
	if len(qs) == 0 || slices.ContainsFunc(sessions, func(s *engine.Session) bool { return !s.Rides() }) || !l.settled(qs) {
		return false
	}
	var rs []*sequence
	var riding []engine.Part
	var left []int
	for _, p := range parts {
		q := lookup(l.running, p.ID)
		if q == nil || q.reading == nil || !q.reading.Rides() {
			return false
		}
		rs, riding = append(rs, q), append(riding, engine.Part{Reading: q.reading, Tokens: p.Tokens})
		left = append(left, q.reading.Left())
	}
	began := time.Now()
	var errs []error
	err := guard.Run(func() error {
		if l.crash != nil {
			l.crash("prompt")
		}
		errs = l.e.Advance(sessions, next, riding)
		return nil
	})
	if err != nil || !slices.Contains(errs, nil) {
		return false // each alone says whose fault it is
	}
	tokens, ended := 0, time.Now()
	l.stepped(qs, errs, began, ended)
	for i, q := range rs {
		if errs[len(qs)+i] == nil {
			n := left[i] - q.reading.Left()
			tokens += n
			l.charge(q, n, began, ended)
			l.partRead(q)
		}
	}
	l.troubles(slices.Concat(qs, rs), errs)
	l.pace.Note(len(qs), tokens, time.Since(began))
	return true
}

// reader is the sequence whose prompt a part is of, with its reading begun; nil where there is nothing to read.
func (l *loop) reader(p schedule.Part) *sequence {
	q := lookup(l.running, p.ID)
	if q == nil || q.session == nil || q.job.over {
		return nil
	}
	if q.fresh {
		if err := guard.Run(q.begin); err != nil {
			l.trouble(q, err)
			return nil
		}
	}
	if q.reading == nil {
		return nil
	}
	return q
}

// decodeBatch is engine.DecodeBatch with an error for each; where the whole batch failed by a bug each is tried alone.
func (l *loop) decodeBatch(sessions []*engine.Session, ids []int) []error {
	errs := make([]error, len(sessions))
	err := guard.Run(func() error { return l.batch(sessions, ids) })
	if err == nil {
		return errs
	}
	if some := (*engine.BatchError)(nil); errors.As(err, &some) && !errors.Is(err, engine.ErrInternal) {
		copy(errs, some.Errors)
		return errs
	}
	for i, s := range sessions {
		if len(sessions) > 1 && errors.Is(err, engine.ErrInternal) {
			errs[i] = guard.Run(func() error { return s.Decode(ids[i]) })
		} else {
			errs[i] = err
		}
	}
	return errs
}

// read takes parts of prompts in, one after the other.
func (l *loop) read(parts []schedule.Part) {
	for _, p := range parts {
		q := l.reader(p)
		if q == nil {
			continue
		}
		n := p.Tokens
		before, began := q.reading.Left(), time.Now()
		err := guard.Run(func() error {
			if l.crash != nil {
				l.crash("prompt")
			}
			return q.reading.Read(q.job.ctx, n)
		})
		n = max(0, before-q.reading.Left()) // more is left where stored KV was lost on its way
		l.pace.Note(0, n, time.Since(began))
		l.charge(q, n, began, time.Now())
		switch {
		case errors.Is(err, context.Canceled) && q.job.ctx.Err() != nil:
		case err != nil:
			l.trouble(q, err)
		default:
			l.partRead(q)
		}
	}
}

// charge notes that n tokens of a prompt were read.
func (l *loop) charge(q *sequence, n int, began, ended time.Time) {
	q.span("prompt", began, ended, "tokens", n)
	l.ledger.Charge(q.job.r.key, n, 0)
}

// partRead looks whether a prompt is at its end.
func (l *loop) partRead(q *sequence) {
	l.mine(q, func(q *sequence) {
		if q.job.r.Progress && !q.counted {
			q.job.reply.add(Event{Choice: q.choice, Read: len(q.prompt) - q.reading.Left()}, nil)
		}
		if q.reading.Left() == 0 {
			q.reading, q.behind, q.read = nil, nil, time.Now()
			l.promptRead(q)
		}
	})
}

// promptRead is the end of a prompt.
func (l *loop) promptRead(q *sequence) {
	j := q.job
	if !q.counted {
		q.counted = true
		if q.choice%max(1, j.r.Choices) == 0 {
			n, reused := len(q.prompt), engine.Reused{}
			if q.found != nil {
				reused = q.found.Reused()
				q.found.Read(q.session)
			}
			j.reply.note(func(u *Usage, t *Timings) {
				u.Prompt, u.Cached = u.Prompt+n, u.Cached+reused.Tokens
				t.CacheTier = slower(t.CacheTier, reused.Tier)
				if reused.Method != "" {
					t.CacheMethod, t.CacheKeep = reused.Method, reused.Keep
				}
			})
			l.m.prompted(n, reused)
		}
		took := time.Since(j.began)
		j.reply.note(func(_ *Usage, t *Timings) { t.Prompt = took })
		if j.r.Echo {
			if err := guard.Run(func() error { l.echo(q); return nil }); err != nil {
				l.fail(q, err)
				return
			}
		}
	}
	l.advance(q)
}

// echo hands the prompt's tokens out.
func (l *loop) echo(q *sequence) {
	if q.echo == nil {
		q.echo = make([]Token, len(q.prompt))
	}
	d, text := l.o.Tokenizer.NewStartDetokenizer(), ""
	for i, id := range q.prompt {
		t := &q.echo[i]
		t.ID, t.Text = id, d.Push(id)
		if t.Name, t.Own = l.o.Tokenizer.TokenView(id); t.Text != "" && utf8.Valid(t.Own) {
			t.Name = t.Text // without the blank that a model puts before a text
		}
		text += q.echo[i].Text
	}
	rest := d.Flush()
	q.echo[len(q.echo)-1].Text += rest
	q.echo[0].None = true
	q.job.reply.add(Event{Choice: q.choice, Text: text + rest, Tokens: q.echo, Echo: true}, nil)
	q.echo = nil
}

// advance chooses a sequence's next token and hands out what came of it.
func (l *loop) advance(q *sequence) {
	replays, began := len(q.again) > 0, time.Now()
	var more bool
	err := guard.Run(func() (err error) {
		if l.crash != nil {
			l.crash("step")
		}
		more, err = q.step(l.e.Options().Context)
		return err
	})
	q.span("sample", began, time.Now(), "", 0)
	switch {
	case err != nil:
		l.fail(q, err)
	case !replays:
		l.mine(q, func(q *sequence) { l.publish(q, more) })
	}
}

// publish hands out what a step made.
func (l *loop) publish(q *sequence, more bool) {
	if l.crash != nil {
		l.crash("publish")
	}
	j, made := q.job, len(q.tokens)-q.told
	now := time.Now()
	if made > 0 {
		l.m.generated.Add(float64(made))
		l.ledger.Charge(j.r.key, 0, made)
		if q.last.IsZero() {
			l.m.ttft.Observe(now.Sub(j.r.received).Seconds())
		} else {
			l.m.itl.Observe(now.Sub(q.last).Seconds())
		}
		q.last = now
		if j.first.IsZero() {
			j.first = now
		}
	}
	q.told = len(q.tokens)
	var predicted time.Duration
	if !j.first.IsZero() {
		predicted = now.Sub(j.first)
	}
	var held int64
	if !more && q.session != nil {
		use := q.session.KVUse()
		held = use.Bytes + use.SketchBytes
	}
	account := func(u *Usage, t *Timings) {
		u.Generated, t.Predicted, t.KVBytes = u.Generated+made, predicted, t.KVBytes+held
		u.Thought += q.thoughts()
	}
	if more && !j.r.StreamText {
		j.reply.note(account)
		return
	}
	if !more {
		if err := l.e.CheckModel(); err != nil {
			l.fail(q, err)
			return
		}
	}
	e := q.event(more)
	q.told = 0
	j.reply.add(e, account)
	if more {
		return
	}
	l.m.finished(e.Finish)
	l.running = slices.DeleteFunc(l.running, func(r *sequence) bool { return r == q })
	l.leave(q)
}
