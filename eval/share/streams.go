//go:build !lean

package share

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"terrace/eval/run"
)

// job is one sample with the policies it lacks.
type job struct {
	Task     string   `json:"task"`
	ID       string   `json:"id"`
	Policies []string `json:"policies"`
}

const (
	jobsPrefix    = "TERRACE_EVAL_JOBS_"
	resultsPrefix = "TERRACE_EVAL_RESULTS_"
	keeperName    = "keeper"  // consumer of the results
	workersName   = "workers" // consumer of the jobs
	optionsKey    = "terrace_options"
	deliveries    = 3 // a job whose workers died this often is kept as failed
)

// link is a connection to a run's streams.
type link struct {
	o       Options
	nc      *nats.Conn
	js      jetstream.JetStream
	id      string
	options []byte
}

// connect reaches the server. Lost connections are taken up again for as long as the run lasts.
func connect(o Options, opts run.Options) (*link, error) {
	o.setDefaults()
	raw, err := opts.Encode()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(o.URL, nats.Name("terrace eval"), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second), nats.Timeout(5*time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.Notice("lost the NATS server: " + err.Error())
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { o.Notice("the NATS server is back") }))
	if err != nil {
		return nil, fmt.Errorf("share: %s: %w: %w", o.URL, ErrServer, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("share: %w: %w", ErrServer, err)
	}
	sum := sha256.Sum256(raw)
	return &link{o: o, nc: nc, js: js, id: hex.EncodeToString(sum[:8]), options: raw}, nil
}

func (l *link) close() { l.nc.Close() }

func (l *link) jobs() string    { return jobsPrefix + l.id }
func (l *link) results() string { return resultsPrefix + l.id }

func (l *link) jobSubject() string    { return "terrace.eval." + l.id + ".job" }
func (l *link) resultSubject() string { return "terrace.eval." + l.id + ".result" }

// open creates the run's streams, or takes up those of a keeper that died; its jobs are dropped, since the folder says
// what is missing.
func (l *link) open(ctx context.Context) error {
	_, err := l.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: l.results(), Subjects: []string{l.resultSubject()}, Retention: jetstream.WorkQueuePolicy, Duplicates: 20 * time.Second})
	if err != nil {
		return fmt.Errorf("share: results stream: %w: %w", ErrServer, err)
	}
	s, err := l.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: l.jobs(), Subjects: []string{l.jobSubject()}, Retention: jetstream.WorkQueuePolicy,
		Metadata: map[string]string{optionsKey: string(l.options)}})
	if err == nil {
		err = s.Purge(ctx)
	}
	if err != nil {
		return fmt.Errorf("share: jobs stream: %w: %w", ErrServer, err)
	}
	return nil
}

// remove deletes the run's streams, which ends its workers.
func (l *link) remove(ctx context.Context) {
	for _, name := range []string{l.jobs(), l.results()} {
		if err := l.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			l.o.Notice("could not remove the stream " + name + ": " + err.Error())
		}
	}
}

// consumer is the one that all workers of a stream share.
func (l *link) consumer(ctx context.Context, stream, name string) (jetstream.Consumer, error) {
	return l.js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.o.AckWait, MaxAckPending: 4096})
}

// wait returns when the run's jobs are there. A run with other options on the server is an error that names the field.
func (l *link) wait(ctx context.Context) error {
	told := false
	for {
		_, err := l.js.Stream(ctx, l.jobs())
		if err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("share: %w: %w", ErrServer, err)
		}
		if err := l.others(ctx); err != nil {
			return err
		}
		if !told {
			l.o.Notice("waiting for the run to be started with the same command and --out instead of --join")
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// others compares with the runs that the server has and that somebody keeps: one with other options is an error. What a
// keeper left that was stopped is no hindrance.
func (l *link) others(ctx context.Context) error {
	list := l.js.ListStreams(ctx)
	for info := range list.Info() {
		id, ok := strings.CutPrefix(info.Config.Name, jobsPrefix)
		if !ok {
			continue
		}
		if err := run.Compare([]byte(info.Config.Metadata[optionsKey]), l.options); err != nil && l.kept(ctx, id) {
			return fmt.Errorf("share: a run is on the server, but %w", err)
		}
	}
	return nil
}

// kept reports whether a process is asking for a run's results: a keeper does so all the time, but for moments.
func (l *link) kept(ctx context.Context, id string) bool {
	for range 5 {
		c, err := l.js.Consumer(ctx, resultsPrefix+id, keeperName)
		if err != nil {
			return false
		}
		if info, err := c.Info(ctx); err == nil && info.NumWaiting > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return false
}
