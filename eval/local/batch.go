package local

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"terrace/engine"
	"terrace/eval"
	"terrace/internal/guard"
)

// MaxBatch is the most samples that may be in progress at a time.
const MaxBatch = 64

// work is one sample in progress: a coroutine that stands still while it waits for a decode step.
type work struct {
	resume func() (step, bool) // runs the work until it waits for another step; false = it has ended
	stop   func()
	wait   func(step) bool // of the work's own side: stands still until resumed; false = the batch was left
	step   step
	err    error // of the step; of the work, once it has ended
}

// step is one token that a session is to read.
type step struct {
	e  *engine.Engine
	s  *engine.Session
	id int
}

// begin makes a work of do, which has not started yet.
func (r *Runner) begin(ctx context.Context, do func(context.Context, eval.Runner) error) *work {
	w, own := &work{}, *r
	own.work = w
	w.resume, w.stop = iter.Pull(func(yield func(step) bool) {
		w.wait = yield
		w.err = do(ctx, &own)
	})
	return w
}

// goOn runs the work until it waits for a step, or has ended (false).
func (w *work) goOn() (waits bool) {
	w.step, waits = w.resume()
	return waits
}

// decode waits until the batch has read the token; afterwards the session's logits are those that follow it.
func (w *work) decode(x step) error {
	if !w.wait(x) {
		return fmt.Errorf("local: the batch was left: %w", context.Canceled)
	}
	return w.err
}

// Batch implements eval.Batcher. No clock decides what a batch is made of: works go on in turn, each until it waits for a step
// or has ended, and one that has ended is replaced; then the steps of all go down, one engine.DecodeBatch an engine.
func (r *Runner) Batch(ctx context.Context, size int, works iter.Seq[func(context.Context, eval.Runner) error]) (err error) {
	if size < 1 || size > MaxBatch {
		return fmt.Errorf("local: a batch of %d samples, want 1 to %d: %w", size, MaxBatch, eval.ErrOption)
	}
	ctx, cancel := context.WithCancel(ctx)
	more, done := iter.Pull(works)
	var active []*work
	defer func() {
		cancel() // first, so that works that a panic left behind keep nothing as failed
		for _, w := range active {
			w.stop()
		}
		done()
	}()
	goOn := func(w *work) bool {
		if w.goOn() {
			return true
		}
		if w.err != nil && err == nil {
			err = w.err
			cancel() // the others end at their next step
		}
		return false
	}
	for {
		kept := active[:0]
		for _, w := range active {
			if goOn(w) {
				kept = append(kept, w)
			}
		}
		active = kept
		for len(active) < size && err == nil {
			do, ok := more()
			if !ok {
				break
			}
			if w := r.begin(ctx, do); goOn(w) {
				active = append(active, w)
			}
		}
		if len(active) == 0 {
			return err
		}
		decode(ctx, active)
	}
}

// decode reads the tokens that works wait for, those of one engine in one batch.
func decode(ctx context.Context, works []*work) {
	for i, w := range works {
		if ctx.Err() != nil {
			w.err = ctx.Err()
			continue
		}
		first := slices.IndexFunc(works, func(x *work) bool { return x.step.e == w.step.e })
		if first < i {
			continue // read with those before
		}
		var of []*work
		var sessions []*engine.Session
		var ids []int
		for _, x := range works[i:] {
			if x.step.e == w.step.e {
				of, sessions, ids = append(of, x), append(sessions, x.step.s), append(ids, x.step.id)
			}
		}
		err := guard.Run(func() error { return w.step.e.DecodeBatch(sessions, ids) }) // a bug costs these samples, not the run
		var each *engine.BatchError
		for j, x := range of {
			if x.err = err; errors.As(err, &each) {
				x.err = each.Errors[j]
			}
		}
	}
}
