//go:build !lean

package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"terrace/eval"
	"terrace/eval/run"
)

// Join works for a run that another process keeps, until it is finished; it returns how many samples were run here. It
// waits for the run to be started.
func Join(ctx context.Context, o Options, opts run.Options, suite eval.Suite, r eval.Runner) (int, error) {
	l, err := connect(o, opts)
	if err != nil {
		return 0, err
	}
	defer l.close()
	samples, err := suite.Samples(ctx, r)
	if err != nil {
		return 0, err
	}
	if err := l.wait(ctx); err != nil {
		return 0, err
	}
	w := newWorker(l, suite, r, samples)
	return w.run(ctx)
}

// worker takes jobs one at a time.
type worker struct {
	l       *link
	suite   eval.Suite
	r       eval.Runner
	samples map[[2]string]eval.Sample
}

func newWorker(l *link, suite eval.Suite, r eval.Runner, samples []eval.Sample) *worker {
	w := &worker{l: l, suite: suite, r: r, samples: map[[2]string]eval.Sample{}}
	for _, s := range samples {
		w.samples[[2]string{s.Task, s.ID}] = s
	}
	return w
}

// run takes jobs until the streams are gone: the run is finished.
func (w *worker) run(ctx context.Context) (int, error) {
	done := 0
	cons, err := w.l.consumer(ctx, w.l.jobs(), workersName)
	for err == nil {
		var batch jetstream.MessageBatch
		if batch, err = cons.Fetch(1, jetstream.FetchMaxWait(w.l.o.AckWait/2+time.Second)); err != nil {
			break
		}
		for msg := range batch.Messages() {
			if err := w.one(ctx, msg); err != nil {
				return done, err
			}
			done++
		}
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if err = batch.Error(); err == nil || errors.Is(err, nats.ErrTimeout) {
			_, err = cons.Info(ctx) // an empty queue, or a run that is over
		}
	}
	switch {
	case ctx.Err() != nil:
		return done, ctx.Err()
	case w.l.over(ctx):
		return done, nil
	}
	return done, fmt.Errorf("share: jobs: %w: %w", ErrServer, err)
}

// over reports whether the run's streams are gone: it is finished. Errors that may be passing are not taken for it.
func (l *link) over(ctx context.Context) bool {
	_, err := l.js.Stream(ctx, l.jobs())
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// one runs a job, publishes its outcomes and then acknowledges it; until then the server is told that it is in work.
func (w *worker) one(ctx context.Context, msg jetstream.Msg) error {
	var j job
	if err := json.Unmarshal(msg.Data(), &j); err != nil {
		return errors.Join(fmt.Errorf("share: a job that is no job: %w", err), msg.Term())
	}
	s, ok := w.samples[[2]string{j.Task, j.ID}]
	if !ok {
		return fmt.Errorf("share: job %s/%s is not among this machine's samples: %w", j.Task, j.ID, eval.ErrData)
	}
	stop := w.heartbeat(msg)
	err := w.evaluate(ctx, s, j, msg)
	stop()
	if err != nil {
		_ = msg.Nak() // another worker may take it at once
		return err
	}
	if err := msg.DoubleAck(ctx); err != nil && ctx.Err() == nil {
		w.l.o.Notice(fmt.Sprintf("job %s/%s was not acknowledged and may be run again: %v", j.Task, j.ID, err))
	}
	return ctx.Err()
}

func (w *worker) evaluate(ctx context.Context, s eval.Sample, j job, msg jetstream.Msg) error {
	if meta, err := msg.Metadata(); err == nil && meta.NumDelivered > deliveries {
		for _, p := range j.Policies {
			err := fmt.Errorf("share: %d workers took this sample and did not finish it", meta.NumDelivered-1)
			if err := w.publish(ctx, eval.Failed(s, p, err)); err != nil {
				return err
			}
		}
		return nil
	}
	return run.EvaluateSample(ctx, w.suite, w.r, s, j.Policies, func(o eval.Outcome) error { return w.publish(ctx, o) })
}

// publish puts an outcome into the results stream, once even if the server's answer was lost.
func (w *worker) publish(ctx context.Context, o eval.Outcome) error {
	raw, err := json.Marshal(&o)
	if err != nil {
		return fmt.Errorf("share: outcome %s/%s: %w", o.Task, o.ID, err)
	}
	key := o.Task + "\x00" + o.ID + "\x00" + o.Policy
	for try := 0; ; try++ {
		_, err = w.l.js.Publish(ctx, w.l.resultSubject(), raw, jetstream.WithMsgID(hash(key)))
		if err == nil || w.l.over(ctx) { // over: the run was finished without this outcome
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if try == 10 {
			return fmt.Errorf("share: results: %w: %w", ErrServer, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// heartbeat tells the server that a job is in work, until stopped.
func (w *worker) heartbeat(msg jetstream.Msg) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(w.l.o.AckWait / 3)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				_ = msg.InProgress()
			}
		}
	}()
	return func() { close(quit); <-done }
}
