package serve

import (
	"context"
	"errors"
	"slices"
	"time"

	"terrace/engine"
	"terrace/engine/schedule"
	"terrace/internal/guard"
)

// decode takes a step of each.
func (l *loop) decode(ids []int64) {
	var qs []*sequence
	var sessions []*engine.Session
	var next []int
	for _, id := range ids {
		if q := lookup(l.running, id); q != nil && q.session != nil && q.reading == nil && !q.fresh && !q.job.over {
			qs, sessions, next = append(qs, q), append(sessions, q.session), append(next, q.next)
		}
	}
	if len(qs) == 0 {
		return
	}
	began := time.Now()
	errs := l.decodeBatch(sessions, next)
	ended := time.Now()
	l.m.step.Observe(ended.Sub(began).Seconds())
	for i, q := range qs {
		if q.span("decode", began, ended, "texts", len(qs)); errs[i] == nil {
			l.advance(q)
		}
	}
	for i, q := range qs { // after all that have their token: who is youngest leaves with it
		if errs[i] != nil && q.session != nil && !q.job.over {
			l.trouble(q, errs[i])
		}
	}
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

// read takes parts of prompts in; it returns how many tokens.
func (l *loop) read(parts []schedule.Part) (tokens int) {
	for _, p := range parts {
		q := lookup(l.running, p.ID)
		if q == nil || q.session == nil || q.job.over {
			continue
		}
		if q.fresh {
			if err := guard.Run(q.begin); err != nil {
				l.trouble(q, err)
				continue
			}
		}
		n := p.Tokens
		if q.wantsRows() {
			n = min(n, echoRowsTokens)
		}
		before, began := q.reading.Left(), time.Now()
		err := guard.Run(func() error {
			if l.crash != nil {
				l.crash("prompt")
			}
			return q.reading.Read(q.job.ctx, n)
		})
		n = max(0, before-q.reading.Left()) // more is left where stored KV was lost on its way
		q.span("prompt", began, time.Now(), "tokens", n)
		tokens += n
		l.ledger.Charge(q.job.r.key, n, 0)
		switch {
		case errors.Is(err, context.Canceled) && q.job.ctx.Err() != nil:
		case err != nil:
			l.trouble(q, err)
		case q.reading.Left() == 0:
			q.reading = nil
			l.promptRead(q)
		}
	}
	return tokens
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
			}
			j.reply.note(func(u *Usage, t *Timings) {
				u.Prompt, u.Cached = u.Prompt+n, u.Cached+reused.Tokens
				t.CacheTier = slower(t.CacheTier, reused.Tier)
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
		q.echo[i].ID, q.echo[i].Text = id, d.Push(id)
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
		l.publish(q, more)
	}
}

// publish hands out what a step made.
func (l *loop) publish(q *sequence, more bool) {
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
