package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"terrace/engine"
	"terrace/engine/draft"
	"terrace/engine/shelf"
	"terrace/internal/trace"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/serve/answer"
	"terrace/serve/meter"
	"terrace/tokenizer"
)

// DefaultBatch is Options.Batch where nothing is said.
const DefaultBatch = 8

// Options of a server; Engine, Tokenizer and Names are needed.
type Options struct {
	Engine           *engine.Engine // the server's alone from New to Close; the caller closes it. A shelf.Keeper that is its prefix cache works while nobody is served
	Tokenizer        *tokenizer.Tokenizer
	Names            []string              // of the model; the first is what requests without one get
	Patterns         []string              // names that are answered besides, in which * is any text
	ModelPath        string                // for /props
	Encoders         *Encoders             // of /v1/embeddings, the caller's to close; nil = none
	Batch            int                   // choices that run at a time; 0 = DefaultBatch
	Queue            int                   // requests that wait beside them
	Keys             []string              // one of which each request needs; none = no keys
	MetricsKeys      []string              // which open /metrics alone, beside Keys
	OpenMetrics      bool                  // /metrics needs no key
	AnyHost          bool                  // any Host is served; otherwise only names of this machine's loopback
	ITLTarget        time.Duration         // wanted between two tokens of a text at most; 0 = as schedule.Pace says
	Origins          []string              // of web pages that may ask beside the server's own and those of localhost; "*" is any
	Speculate        func() draft.Drafter  // guesses for a text that decodes alone; nil = none
	Sampling         model.SamplerSettings // of requests that do not say; the model's own, or what was chosen over it
	Reasoning        string                // ReasoningAuto or ReasoningNone; "" = auto
	SpecialInContent bool                  // control tokens written in messages are what they name, not text
	Alias            string                // second set of metric names: llamacpp, or "" for none
	Log              *slog.Logger          // nil = none
	Meter            func() meter.Meter    // what /metrics shows, prom.New of serve/meter/prom; nil = there is nothing to see

	Traces func(id string) (io.WriteCloser, error) // where a request's timeline goes once it has ended; nil = there are none
}

// What becomes of what a model thinks before it answers.
const (
	ReasoningAuto = "auto" // it is separated from the answer, by the marks of the model's template
	ReasoningNone = "none" // it is part of the answer's text, with its marks
)

func (o *Options) setDefaults() error {
	if o.Reasoning == "" {
		o.Reasoning = ReasoningAuto
	}
	if o.Batch == 0 {
		o.Batch = DefaultBatch
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if o.Engine == nil || o.Tokenizer == nil || len(o.Names) == 0 {
		errs = append(errs, errors.New("serve: engine, tokenizer and a model name are needed"))
	}
	if o.Reasoning != ReasoningAuto && o.Reasoning != ReasoningNone {
		errs = append(errs, fmt.Errorf("serve: reasoning %q: want %s or %s", o.Reasoning, ReasoningAuto, ReasoningNone))
	}
	if o.Batch < 1 || o.Queue < 0 || o.ITLTarget < 0 {
		errs = append(errs, fmt.Errorf("serve: batch %d, queue %d, target %v: want 1 or more, 0 or more, 0 or more", o.Batch, o.Queue, o.ITLTarget))
	}
	return errors.Join(errs...)
}

// Server serves one engine. Its methods may be called from any goroutine.
type Server struct {
	form    answer.Form // how the model writes answers, by its template
	o       Options
	m       *metrics
	loop    *loop
	handler http.Handler
	core    http.Handler // behind the guards of hosts and origins
	started time.Time
	*promptWriter
	gateway  gateway
	draining atomic.Bool
	breakers breakerSets
	constraints
}

// usefulTokens is the shortest text that a server must have room for: what a chat's template puts around a question, and an answer.
const usefulTokens = 64

// New starts the loop that owns the engine. Where the engine's tiers have no room for a useful text the error wraps kvmanager.ErrBudget.
func New(o Options) (*Server, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if n, err := o.Engine.LongestText(0); err != nil {
		return nil, fmt.Errorf("serve: what the tiers hold: %w", err)
	} else if want := min(usefulTokens, o.Engine.Options().Context); n < want {
		return nil, fmt.Errorf("serve: the memory given holds %d tokens of a text's KV, want %d at least for a prompt and its answer: a larger host=SIZE would do, %s: %w", n, want, kvmanager.Roomier(o.Engine.KVBelowHost()), kvmanager.ErrBudget)
	}
	s := &Server{o: o, form: answer.FormOf(o.Tokenizer.Template()), m: newMetrics(o.Meter), started: time.Now(), promptWriter: newPromptWriter(&o)}
	s.constraints.marked.shown = o.Tokenizer.ControlTokens(s.form.Keeps)
	s.m.weights(o.Engine)
	s.loop = newLoop(&s.o, s.m)
	if k, ok := o.Engine.PrefixCache().(*shelf.Keeper); ok {
		s.loop.keeper, s.m.placement = k, newPlacementMetrics(s.m.meter, k.Figures())
	}
	if err := s.m.alias(o.Alias); err != nil {
		return nil, err
	}
	s.gateway = gateway{&s.o, s.m}
	s.handler = s.newHandler()
	go s.loop.run()
	return s, nil
}

// Handler is the server's HTTP side. Who listens with it sets the time limits of headers (see Limit).
func (s *Server) Handler() http.Handler { return s.handler }

// Limit sets the limits that an http.Server has of its own.
func Limit(h *http.Server) {
	h.ReadHeaderTimeout, h.IdleTimeout, h.MaxHeaderBytes = headerTimeout, idleTimeout, maxHeaderBytes
}

// Do begins a request. It is refused at once by an *Error where it can never be served, where the queue is full, or while the
// server drains. When ctx ends the request does; the reply must be read to its end or closed.
func (s *Server) Do(ctx context.Context, r *Request) (*Reply, error) {
	if r.received.IsZero() {
		r.received = time.Now()
	}
	if s.draining.Load() {
		return nil, errDraining
	}
	if err := s.check(r); err != nil {
		return nil, err
	}
	if err := s.breakersOf(ctx, r); err != nil {
		return nil, err
	}
	r.key = keyOf(ctx)
	ctx, cancel := context.WithCancel(ctx)
	j := &job{r: r, ctx: ctx, reply: newReply(r, cancel), left: r.choices()}
	j.reply.bounded = r.StreamText && exchangeOf(ctx) != nil
	if s.o.Traces != nil {
		j.reply.story = trace.NewStory(maxSpans)
	}
	if !s.loop.submit(j) {
		cancel()
		return nil, errQueue
	}
	return j.reply, nil
}

// check refuses what can never be served.
func (s *Server) check(r *Request) error {
	context, vocab := s.o.Engine.Options().Context, s.o.Engine.Model().Vocab
	for _, ids := range r.Prompts {
		if len(ids) == 0 {
			return badRequest("the prompt has no tokens")
		}
		if n := len(ids) + min(1, max(0, r.MaxTokens)); n > context || r.MaxTokens < 0 && len(ids) >= context {
			return &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded",
				Message: fmt.Sprintf("the prompt has %d tokens; the context is %d tokens, the answer's included", len(ids), context)}
		}
		if i := slices.IndexFunc(ids, func(id int) bool { return id < 0 || id >= vocab }); i >= 0 {
			return badRequest("token id %d of the prompt: want 0 to %d", ids[i], vocab-1)
		}
	}
	if i := slices.IndexFunc(r.StopIDs, func(id int) bool { return id < 0 || id >= vocab }); i >= 0 {
		return badField("stop_token_ids", "%d is no token id, want 0 to %d", r.StopIDs[i], vocab-1)
	}
	if r.MaxTokens >= 0 && r.MinTokens > r.MaxTokens {
		return badField("min_tokens", "%d, more than the %d tokens that are wanted at most", r.MinTokens, r.MaxTokens)
	}
	if err := s.o.Engine.Permits(r.Policy); err != nil {
		return badField("kv_policy", "%s", oneLine(err))
	}
	if r.Echo && r.Logprobs >= 0 && !s.policyOf(r).Causal() {
		return badField("logprobs", "with echo they need a policy that drops nothing, not %s", s.policyOf(r))
	}
	if err := r.Sampler.Validate(); err != nil {
		return badRequest("%s", oneLine(err))
	}
	return nil
}

// Drain refuses new requests and waits for those that run; when ctx ends it returns its error.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	for !s.loop.idle() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Close ends what still runs and stops the loop; nothing calls the engine afterwards.
func (s *Server) Close() {
	s.draining.Store(true)
	s.loop.stop()
}
