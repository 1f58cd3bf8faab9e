package serve

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turnLasts is how long a turn goes on while others wait.
const turnLasts = 10 * time.Millisecond

// turns are processor time before requests are queued (texts that are tokenised, templates that are rendered, grammars that are
// compiled): a few go on at a time, next is who waits longest of the key that has used least. Work that pauses now and then gives way to
// others, so that small work waits for little of what is large.
type turns struct {
	mu      sync.Mutex
	free    int
	waiting []*turn
	here    map[string]int           // those that wait or go on, by key
	used    map[string]time.Duration // by keys that are here
}

// turn is one piece of work.
type turn struct {
	of      *turns
	key     string
	begins  chan struct{}
	started time.Time
}

func newTurns(n int) *turns {
	return &turns{free: n, here: map[string]int{}, used: map[string]time.Duration{}}
}

// take waits for a turn; end it. A context that ends first ends the waiting.
func (t *turns) take(ctx context.Context, key string) (*turn, error) {
	w := &turn{of: t, key: key}
	t.mu.Lock()
	if t.here[key]++; t.here[key] == 1 { // time in which it asked for nothing gives it no credit
		first := true
		for k, used := range t.used {
			if k != key && (first || used < t.used[key]) {
				t.used[key], first = used, false
			}
		}
	}
	t.mu.Unlock()
	if err := w.wait(ctx); err != nil {
		w.leave()
		return nil, err
	}
	return w, nil
}

// wait begins a turn.
func (w *turn) wait(ctx context.Context) error {
	t := w.of
	w.begins = make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.next()
	t.mu.Unlock()
	select {
	case <-w.begins:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.free++ // it had begun meanwhile
		t.next()
	}
	return ctx.Err()
}

// next lets turns begin; the lock is held.
func (t *turns) next() {
	for t.free > 0 && len(t.waiting) > 0 {
		at := 0
		for i, w := range t.waiting {
			if t.used[w.key] < t.used[t.waiting[at].key] {
				at = i
			}
		}
		w := t.waiting[at]
		t.waiting = slices.Delete(t.waiting, at, at+1)
		t.free--
		w.started = time.Now()
		close(w.begins)
	}
}

// pause gives way to those who wait, where the turn has lasted; an error says that the work is not wanted any more, and that its turn
// has ended.
func (w *turn) pause(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := w.of
	t.mu.Lock()
	if time.Since(w.started) < turnLasts || len(t.waiting) == 0 {
		t.mu.Unlock()
		return nil
	}
	w.stop()
	t.mu.Unlock()
	return w.wait(ctx)
}

// stop ends the time that counts; the lock is held.
func (w *turn) stop() {
	t := w.of
	t.used[w.key] += time.Since(w.started)
	w.started = time.Time{}
	t.free++
	t.next()
}

// end ends a turn, also one that a pause has ended.
func (w *turn) end() {
	w.of.mu.Lock()
	if !w.started.IsZero() {
		w.stop()
	}
	w.of.mu.Unlock()
	w.leave()
}

func (w *turn) leave() {
	t := w.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.here[w.key]--; t.here[w.key] == 0 {
		delete(t.here, w.key)
		delete(t.used, w.key)
	}
}
