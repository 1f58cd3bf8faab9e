package replay

import (
	"context"
	"time"

	"terrace/internal/clock"
)

// queue has the requests of a trace served one at a time, in the order of their arrival: open loop, whoever comes while another is
// served waits.
type queue struct {
	clock clock.Clock
	begun time.Duration
	trace []Arrival
	speed float64 // divides the times of arrival; 0 = each request comes when the last is done
}

// due is when request i arrives, on the queue's clock.
func (q *queue) due(i int) time.Duration {
	if q.speed == 0 {
		return q.clock.Now()
	}
	return q.begun + time.Duration(q.trace[i].AtS/q.speed*float64(time.Second))
}

// idle reports whether nobody waits after request i.
func (q *queue) idle(i int) bool {
	return q.speed == 0 || i+1 >= len(q.trace) || q.clock.Now() < q.due(i+1)
}

// run serves every request, and has tidied up after each while nobody waits.
func (q *queue) run(ctx context.Context, serve func(i int, arrived time.Duration) error, tidy func(i int) error) error {
	q.begun = q.clock.Now()
	for i := range q.trace {
		at := q.due(i)
		if err := q.clock.Sleep(ctx, at-q.clock.Now()); err != nil {
			return err
		}
		if err := serve(i, at); err != nil {
			return err
		}
		if !q.idle(i) {
			continue
		}
		if err := tidy(i); err != nil {
			return err
		}
	}
	return nil
}
