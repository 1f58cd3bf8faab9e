package serve

import (
	"context"
	"log/slog"
	"time"

	"terrace/internal/guard"
)

const (
	// keptTokens is where what a store keeps ends: every block is a multiple of it, but for odd page sizes.
	keptTokens = 64
	// sharedTokens is how much of a prompt has to be another's too before it waits for that one.
	sharedTokens = 128
	// storedIn is how long a prompt waits at most for what another has read to be stored.
	storedIn = 5 * time.Second
)

// ready are the sequences that wait and may begin. One whose prompt begins as that of another does, which is being read or waits before it,
// begins when that one has read what they share: then it is found, not computed again.
func (l *loop) ready() []*sequence {
	c := l.e.PrefixCache()
	if c == nil {
		return l.waiting
	}
	out := make([]*sequence, 0, len(l.waiting))
	for i, q := range l.waiting {
		if q.finds && (l.follows(q, l.waiting[:i], true) || l.follows(q, l.running, false) || l.awaitsStore(q)) {
			continue
		}
		out = append(out, q)
	}
	return out
}

// asks reports whether a store is asked for a sequence's prompt, and the prompt is long enough to wait for another's.
func (l *loop) asks(q *sequence) bool {
	c := l.e.PrefixCache()
	return c != nil && len(q.prompt) > sharedTokens && q.under.Causal() && !q.wantsRows() && c.Unfit(q.under) == ""
}

// sharing is what two prompts begin with.
type sharing struct {
	tokens int
	read   time.Time // by the other, as far as it is known; zero = not yet
}

// follows reports whether a sequence has to wait for one of others, which wait themselves or run.
func (l *loop) follows(q *sequence, others []*sequence, wait bool) bool {
	for _, x := range others {
		if x.job.over || !wait && x.session == nil || !x.finds {
			continue
		}
		s := q.shares(x)
		switch {
		case s.tokens < sharedTokens:
			continue
		case wait, x.fresh, x.reading != nil && x.session.Tokens() < s.tokens:
			return true
		case s.read.IsZero() && x.reading == nil && x.read.Before(q.job.r.received):
			continue // it was read before this one came
		case s.read.IsZero():
			s.read = time.Now()
		}
		if l.isStoring(q, s) {
			return true
		}
	}
	return false
}

// awaitsStore reports whether a sequence waits for what another has read, which may have left since, to be stored.
func (l *loop) awaitsStore(q *sequence) bool {
	for _, s := range q.common {
		if s.tokens >= sharedTokens && !s.read.IsZero() && l.isStoring(q, s) {
			return true
		}
	}
	return false
}

// isStoring reports whether what another has read of a sequence's prompt is on its way to the store.
func (l *loop) isStoring(q *sequence, s *sharing) bool {
	return time.Since(s.read) < storedIn && !l.e.PrefixCache().Stored(q.prompt, s.tokens, q.under, q.job.r.salt())
}

// shares is how much of two prompts is the same, where the one's KV may be the other's too.
func (q *sequence) shares(x *sequence) *sharing {
	if s := q.common[x.id]; s != nil {
		return s
	}
	s := &sharing{}
	if x.under.String() == q.under.String() && x.job.r.salt() == q.job.r.salt() {
		for s.tokens < min(len(q.prompt), len(x.prompt)) && q.prompt[s.tokens] == x.prompt[s.tokens] {
			s.tokens++
		}
	}
	if q.common == nil {
		q.common = map[int64]*sharing{}
	}
	q.common[x.id] = s
	return s
}

// keepContexts has contexts kept, moved and measured while nobody is served, up to the next arrival; false = nothing is left to do.
func (l *loop) keepContexts() (more bool) {
	if l.keeper == nil || len(l.waiting)+len(l.running)+len(l.swapped) > 0 {
		return false
	}
	l.mu.Lock()
	if len(l.inbox)+len(l.calls) > 0 {
		l.mu.Unlock()
		return true
	}
	select {
	case <-l.quit:
		l.mu.Unlock()
		return false
	default:
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.yield = cancel
	l.mu.Unlock()
	if err := guard.Run(func() error { more = l.keeper.Work(ctx); return nil }); err != nil {
		l.o.Log.Error("keeping contexts failed by a bug", slog.String("error", oneLine(err)))
		l.keeper = nil
	}
	l.mu.Lock()
	l.yield = nil
	l.mu.Unlock()
	cancel()
	return more
}

// keepBetween has one context put or moved between two steps of others, where nothing is computed for it.
func (l *loop) keepBetween(busy bool) {
	if l.keeper == nil || !busy {
		return
	}
	if err := guard.Run(func() error { l.keeper.Between(context.Background()); return nil }); err != nil {
		l.o.Log.Error("keeping contexts failed by a bug", slog.String("error", oneLine(err)))
		l.keeper = nil
	}
}

// interrupt ends what is done while nobody is served; mu is held.
func (l *loop) interrupt() {
	if l.yield != nil {
		l.yield()
	}
}
