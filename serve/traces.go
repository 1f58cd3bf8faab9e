package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// maxSpans bounds a request's timeline: some 1 MB.
const maxSpans = 10000

// span notes what was done for a choice of a request; times before it came are cut off.
func (q *sequence) span(what string, start, end time.Time, count string, n int) {
	p := q.job.reply
	if p.story == nil {
		return
	}
	if q.job.r.choices() > 1 {
		what = fmt.Sprintf("%s, choice %d", what, q.choice)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.story.Add(what, max(0, start.Sub(q.job.r.received)), end.Sub(q.job.r.received), count, n)
}

// writeTrace hands a request's timeline out: where its time went, no text of it.
func (g *gateway) writeTrace(x *exchange, code int, took time.Duration) {
	if g.o.Traces == nil || x.reply == nil {
		return
	}
	w, err := g.o.Traces(x.id)
	if err == nil {
		p := x.reply
		p.mu.Lock()
		p.story.Add("request", 0, took, "generated_tokens", p.usage.Generated)
		err = p.story.Write(w, fmt.Sprintf("%s: status %d, %d prompt tokens, %d of them cached", x.id, code, p.usage.Prompt, p.usage.Cached))
		p.mu.Unlock()
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		g.o.Log.Warn("a timeline was not written", slog.String("id", x.id), slog.String("error", oneLine(err)))
	}
}
