package serve

import (
	"context"
	"errors"
	"sync"

	"terrace/internal/trace"
)

// maxUnreadBytes is how far a client may be behind its stream, beside what kernels hold: who is further has left.
const maxUnreadBytes = 1 << 20

// errBehind is what such a client is told if it reads on.
var errBehind = errors.Join(errGone, &Error{Status: statusGone, Code: "too_slow", Message: "more than 1 MiB of the answer was made and not read"})

// Reply is the answer to a Request as it comes. The loop appends to it, one goroutine reads it; appending never waits, and what
// is not read yet is bounded by the context's tokens, of a stream to a client by maxUnreadBytes.
type Reply struct {
	Prompts [][]int // as in the Request

	mu      sync.Mutex
	events  []Event
	unread  int  // bytes of events, about
	bounded bool // by maxUnreadBytes; set before the loop knows the request
	ended   int  // choices
	choices int
	err     error
	usage   Usage
	timings Timings
	wake    chan struct{}
	cancel  context.CancelFunc
	story   *trace.Story // nil = none is wanted
}

func newReply(r *Request, cancel context.CancelFunc) *Reply {
	return &Reply{Prompts: r.Prompts, choices: r.choices(), wake: make(chan struct{}, 1), cancel: cancel}
}

// Next returns events in their order, at least one; done says that the request has ended, without error. When ctx ends Next
// returns its error; the request goes on.
func (p *Reply) Next(ctx context.Context) (events []Event, done bool, err error) {
	for {
		p.mu.Lock()
		events, p.events, p.unread = p.events, nil, 0
		done, err = p.ended == p.choices, p.err
		p.mu.Unlock()
		if err != nil {
			return nil, false, err
		}
		if len(events) > 0 || done {
			return events, done, nil
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// All waits for the whole answer: one Event a choice, in their order.
func (p *Reply) All(ctx context.Context) ([]Event, error) {
	whole := make([]Event, p.choices)
	for {
		events, done, err := p.Next(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			w := &whole[e.Choice]
			w.Choice = e.Choice
			w.Text += e.Text
			w.Tokens = append(w.Tokens, e.Tokens...)
			w.Echo = w.Echo || e.Echo
			if e.Finish != "" {
				w.Finish, w.Stop, w.Cut = e.Finish, e.Stop, e.Cut
			}
		}
		if done {
			return whole, nil
		}
	}
}

// Close ends the request if it has not ended.
func (p *Reply) Close() { p.cancel() }

// Usage is what the request has taken so far.
func (p *Reply) Usage() Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usage
}

// Timings are those of the request so far.
func (p *Reply) Timings() Timings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.timings
}

// add appends an event and notes what it counts.
func (p *Reply) add(e Event, account func(u *Usage, t *Timings)) {
	p.mu.Lock()
	p.events = append(p.events, e)
	if p.unread += e.bytes(); p.bounded && p.unread > maxUnreadBytes && p.err == nil {
		p.events, p.err = nil, errBehind
		p.cancel()
	}
	if e.Finish != "" {
		p.ended++
	}
	if account != nil {
		account(&p.usage, &p.timings)
	}
	p.mu.Unlock()
	p.signal()
}

// note changes the accounts.
func (p *Reply) note(account func(u *Usage, t *Timings)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	account(&p.usage, &p.timings)
}

// fail ends the request; the first error stays.
func (p *Reply) fail(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.signal()
}

func (p *Reply) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
