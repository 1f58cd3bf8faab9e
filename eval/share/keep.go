//go:build !lean

package share

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"terrace/eval"
	"terrace/eval/run"
)

// Keep hands out what the folder lacks, works on it too if work is set, and writes every outcome into the folder.
// onProgress may be nil.
func Keep(ctx context.Context, o Options, f *run.Folder, suite eval.Suite, r eval.Runner, work bool, onProgress func(run.Progress)) (*run.Results, error) {
	samples, err := suite.Samples(ctx, r)
	if err != nil {
		return nil, err
	}
	t := run.NewTracker(f, suite, samples, onProgress)
	if done, total := t.Done(); done == total {
		return t.Finish()
	}
	l, err := connect(o, f.Options())
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	if err := l.handOut(ctx, t, samples); err != nil {
		return nil, err
	}
	worked := make(chan error, 1)
	own, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		<-worked
	}()
	if work {
		go func() {
			_, err := newWorker(l, suite, r, samples).run(own)
			worked <- err
			if err != nil && own.Err() == nil {
				l.o.Notice("this machine stopped working for the run: " + err.Error())
			}
		}()
	} else {
		worked <- nil
	}
	if err := l.collect(ctx, f, t); err != nil {
		return nil, err
	}
	l.remove(ctx)
	return t.Finish()
}

// handOut publishes a job for every sample that lacks an outcome.
func (l *link) handOut(ctx context.Context, t *run.Tracker, samples []eval.Sample) error {
	if _, err := l.consumer(ctx, l.jobs(), workersName); err != nil {
		return fmt.Errorf("share: %w: %w", ErrServer, err)
	}
	for _, s := range samples {
		missing := t.Missing(s)
		if len(missing) == 0 {
			continue
		}
		raw, err := json.Marshal(job{s.Task, s.ID, missing})
		if err != nil {
			return fmt.Errorf("share: job %s/%s: %w", s.Task, s.ID, err)
		}
		if _, err := l.js.Publish(ctx, l.jobSubject(), raw); err != nil {
			return fmt.Errorf("share: job %s/%s: %w: %w", s.Task, s.ID, ErrServer, err)
		}
	}
	return nil
}

// collect writes outcomes into the folder until none is missing. Outcomes that are there already are dropped.
func (l *link) collect(ctx context.Context, f *run.Folder, t *run.Tracker) error {
	cons, err := l.consumer(ctx, l.results(), keeperName)
	if err != nil {
		return fmt.Errorf("share: results: %w: %w", ErrServer, err)
	}
	for {
		batch, err := cons.Fetch(64, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			return fmt.Errorf("share: results: %w: %w", ErrServer, err)
		}
		for msg := range batch.Messages() {
			if ctx.Err() != nil {
				return ctx.Err() // what is not acknowledged comes again
			}
			var o eval.Outcome
			if err := json.Unmarshal(msg.Data(), &o); err != nil {
				return fmt.Errorf("share: a result that is no outcome: %w", err)
			}
			if !f.Done(o.Key()) {
				if err := t.Add(o); err != nil {
					return err
				}
			}
			if err := msg.Ack(); err != nil {
				l.o.Notice("a result was not acknowledged and will come again: " + err.Error())
			}
		}
		if done, total := t.Done(); done == total {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) && !l.nc.IsReconnecting() && !l.nc.IsConnected() {
			return fmt.Errorf("share: results: %w: %w", ErrServer, err)
		}
	}
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
