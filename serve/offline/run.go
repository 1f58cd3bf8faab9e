package offline

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/serve"
)

// maxLineBytes bounds a row.
const maxLineBytes = 16 << 20

// Options of a run.
type Options struct {
	Server   *serve.Server
	Defaults serve.Request                                                      // what rows do not say; its Prompts are not looked at
	Fields   []Field                                                            // of the bodies of a batch file's lines that ask for text and lack them
	NoBody   string                                                             // what was asked of all rows and no body has a field for: such lines are errors; "" = nothing
	Seeded   bool                                                               // the seed of Defaults is meant; otherwise rows without one draw their own
	Prompt   func(*Row) ([]int, error)                                          // renders and tokenises a row's prompt
	IsEnd    func(id int) bool                                                  // end tokens, which token_ids leave out
	Settings string                                                             // all else that decides an answer: it goes into the keys
	Ahead    int                                                                // rows that are given to the server at a time, at least 1; its queue must hold them
	Machine  func(schema jsontext.Value, gbnf string) (*grammar.Machine, error) // compiles what a row's text may be
	Check    func() error                                                       // before a line is written: an error ends the run; nil = none
	Progress func(Counts)                                                       // after a row; nil = not
}

// Counts of a run.
type Counts struct {
	Done   int // rows answered, those that were there before included
	Failed int // of them with an error
	Tokens int // generated now
}

// Run answers the rows of in that out lacks. It ends early with the error of reading, writing, Check or ctx.
func Run(ctx context.Context, in io.Reader, out *Output, o Options) (Counts, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{o: &o, out: out, cancel: cancel}
	slots := make(chan struct{}, max(1, o.Ahead))
	err := r.each(in, func(n int, line []byte) error {
		k := key(o.Settings, line)
		if have, err := out.has(n, k); err != nil || have {
			if have {
				r.counted(func(c *Counts) { c.Done++ })
			}
			return err
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.wait.Go(func() {
			defer func() { <-slots }()
			r.answer(ctx, n, k, line)
		})
		return nil
	})
	if err != nil {
		cancel(err)
	}
	r.wait.Wait()
	if cause := context.Cause(ctx); cause != nil && err == nil {
		err = cause
	}
	return r.counts, err
}

type runner struct {
	o      *Options
	out    *Output
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup

	mu     sync.Mutex
	counts Counts
}

func (r *runner) counted(change func(*Counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.counts)
	if r.o.Progress != nil {
		r.o.Progress(r.counts)
	}
}

// each calls f with the input's lines that are not empty, and their numbers.
func (r *runner) each(in io.Reader, f func(n int, line []byte) error) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxLineBytes)
	n := 1
	for ; scan.Scan(); n++ {
		line := bytes.Clone(bytes.TrimSpace(scan.Bytes()))
		if len(line) == 0 {
			continue
		}
		if err := f(n, line); err != nil {
			return err
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("offline: input line %d: %w", n, err)
	}
	return nil
}

// answer answers a row and writes its line; a row that the run's end cut off leaves none.
func (r *runner) answer(ctx context.Context, n int, k string, line []byte) {
	row, err := parse(line)
	a := &Answer{Row: n, ID: row.ID, Meta: row.Meta, Key: k, CustomID: row.CustomID}
	switch {
	case err == nil && row.URL != nil:
		a.Response, err = r.route(ctx, row)
	case err == nil:
		err = r.ask(ctx, row, a)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		*a = Answer{Row: n, ID: row.ID, Meta: row.Meta, Key: k, CustomID: row.CustomID, Error: message(err)}
	}
	if r.o.Check != nil {
		if err := r.o.Check(); err != nil {
			r.cancel(err)
			return
		}
	}
	if err := r.out.put(a); err != nil {
		r.cancel(fmt.Errorf("offline: row %d: %w", n, err))
		return
	}
	r.counted(func(c *Counts) {
		c.Done++
		c.Tokens += a.CompletionTokens
		if a.Error != "" || a.Response != nil && a.Response.Status >= 400 {
			c.Failed++
		}
	})
}

// message is what a row's line says of an error.
func message(err error) string {
	if e := (*serve.Error)(nil); errors.As(err, &e) && e.Cause != nil {
		return e.Message + ": " + e.Cause.Error()
	}
	return err.Error()
}

// route has a route of the server answer a line of a batch file. What it streams, and what it answers an error with, is the answer too.
func (r *runner) route(ctx context.Context, row *Row) (res *response, err error) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			res, err = nil, context.Cause(ctx) // the run's end has cut it off
		} else if p != nil {
			panic(p)
		}
	}()
	body, err := r.o.body(row)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+*row.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Host = "localhost"
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	r.o.Server.Handler().ServeHTTP(w, q)
	answer := jsontext.Value(bytes.TrimSpace(w.body.Bytes()))
	if !answer.IsValid() {
		return nil, errors.New("a streamed answer has no place in a line: leave \"stream\" out")
	}
	return &response{w.status, answer}, nil
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) { return w.body.Write(b) }

// ask has the server answer a row.
func (r *runner) ask(ctx context.Context, row *Row, a *Answer) error {
	q, err := row.request(&r.o.Defaults)
	if err != nil {
		return err
	}
	if row.Schema != nil || row.Grammar != nil {
		gbnf := ""
		if row.Grammar != nil {
			gbnf = *row.Grammar
		}
		if q.Machine, err = r.o.Machine(row.Schema, gbnf); err != nil {
			return err
		}
	}
	if row.Seed == nil && !r.o.Seeded || row.Seed != nil && *row.Seed < 0 {
		q.Sampler.Seed = uint64(rand.Uint32())
	}
	ids, err := r.o.Prompt(row)
	if err != nil {
		return err
	}
	q.Prompts, q.Choices, q.StreamText = [][]int{ids}, 1, false
	reply, err := r.o.Server.Do(ctx, q)
	if err != nil {
		return err
	}
	defer reply.Close()
	events, err := reply.All(ctx)
	if err != nil {
		return err
	}
	e, u := events[0], reply.Usage()
	a.Text, a.Finish, a.Cut, a.Seed = &e.Text, e.Finish, e.Cut, &q.Sampler.Seed
	a.PromptTokens, a.CachedTokens, a.TokenIDs = len(ids), u.Cached, []int{}
	tokens := e.Tokens
	if n := len(tokens); n > 0 && !q.IgnoreEOS && r.o.IsEnd(tokens[n-1].ID) {
		tokens = tokens[:n-1]
	}
	for _, t := range tokens {
		a.TokenIDs = append(a.TokenIDs, t.ID)
		if q.Logprobs >= 0 {
			a.Logprobs = append(a.Logprobs, NewLogprob(t))
		}
	}
	a.CompletionTokens = len(tokens)
	return nil
}

// NewLogprob is a token as it is shown.
func NewLogprob(t serve.Token) Logprob {
	l := Logprob{ID: t.ID, Token: t.Name, Logprob: t.Logprob}
	for _, x := range t.Top {
		l.Top = append(l.Top, Logprob{ID: x.ID, Token: x.Name, Logprob: x.Logprob})
	}
	return l
}
