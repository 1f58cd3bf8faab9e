package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/shelf"
	"terrace/eval"
	"terrace/internal/clock"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// Task is the task that outcomes of replays carry.
const Task = "contexts"

// Options of a replay.
type Options struct {
	Speed    float64 // divides the times of arrival; 0 = each request comes when the last is done
	SkipIdle bool    // arrivals are not waited for: where nobody is served, the clock goes on to the next
	Salt     string
}

// replaying is one placement over a trace.
type replaying struct {
	b         *Bench
	o         Options
	queue     queue
	byID      map[string]*Context
	shelf     *shelf.Shelf
	profile   *Profile
	placement policy.Placement
	whole     References
	use       *eval.StoreUse
	asked     map[string][]Question // of each context so far, newest last
	stale     []string              // contexts to profile again
	emit      func(eval.Outcome) error
	policy    string
}

// asked is a question about a context.
type asked struct{ context, question string }

// References are answers from the whole KV, by context and question.
type References map[asked]string

// reference is an answer as it is kept.
type reference struct {
	Context  string `json:"context"`
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// MarshalJSON writes a list of {context, question, answer}.
func (r References) MarshalJSON() ([]byte, error) {
	out := make([]reference, 0, len(r))
	for key, answer := range r {
		out = append(out, reference{key.context, key.question, answer})
	}
	slices.SortFunc(out, func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.Question, b.Question))
	})
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *References) UnmarshalJSON(data []byte) error {
	var list []reference
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*r = References{}
	for _, x := range list {
		(*r)[asked{x.Context, x.Question}] = x.Answer
	}
	return nil
}

// Cover reports whether every question of a trace has an answer.
func (r References) Cover(trace []Arrival) bool {
	return !slices.ContainsFunc(trace, func(a Arrival) bool {
		_, ok := r[asked{a.Context, a.Question}]
		return !ok
	})
}

// References answers every question of a trace from the whole KV, untimed; each context is read once.
func (b *Bench) References(ctx context.Context, trace []Arrival, contexts []Context) (References, error) {
	out := References{}
	for i := range contexts {
		c := &contexts[i]
		var s *engine.Session
		for _, a := range trace {
			key := asked{a.Context, a.Question}
			if _, done := out[key]; done || a.Context != c.ID {
				continue
			}
			if s == nil {
				ids, err := b.encode(c)
				if err != nil {
					return nil, err
				}
				base, err := b.Base(ctx, ids, nil, nil)
				if err != nil {
					return nil, err
				}
				s, err = b.Compress(ctx, base, ids, policy.Uncompressed)
				base.Close()
				if err != nil {
					return nil, err
				}
				defer s.Close()
			}
			question, err := b.question(a.Question)
			if err != nil {
				return nil, err
			}
			text, err := b.Ask(ctx, s, question)
			if err != nil {
				return nil, err
			}
			out[key] = text
		}
		if s != nil {
			s.Close()
		}
	}
	return out, nil
}

// Replay runs a trace under one placement on an empty store, and emits an outcome for each request.
func (b *Bench) Replay(ctx context.Context, text string, trace []Arrival, all []Context, whole References, profile *Profile, store *contexts.Store, o Options, emit func(eval.Outcome) error) (*eval.StoreUse, error) {
	p, err := policy.ParsePlacement(text)
	if err != nil {
		return nil, err
	}
	sh, err := shelf.New(shelf.Options{Reader: &b.Reader, Store: store, Placement: p})
	if err != nil {
		return nil, err
	}
	defer sh.Close()
	r := &replaying{b: b, o: o, placement: p, profile: profile, queue: queue{clock: clock.Real(), trace: trace, speed: o.Speed}, byID: map[string]*Context{}, shelf: sh, whole: whole, asked: map[string][]Question{}, emit: emit, policy: text}
	if o.SkipIdle {
		r.queue.clock = clock.NewSkipping()
	}
	for i := range all {
		r.byID[all[i].ID] = &all[i]
	}
	r.use = &eval.StoreUse{Source: "measured", StorePeak: map[string]int64{}, IdleSkipped: o.SkipIdle}
	if store.Modelled() && p.Kind != policy.PlaceNone {
		r.use.Source = "modelled"
	}
	if p.Kind == policy.PlaceEvicPress && profile != nil {
		r.use.ProfileS = profile.Seconds
	}
	serve := func(i int, arrived time.Duration) error { return r.request(ctx, i, arrived) }
	if err := r.queue.run(ctx, serve, func(i int) error { return r.tidy(ctx, i) }); err != nil {
		return nil, err
	}
	for i, t := range store.Tiers() {
		_, peak := store.On(i).Held()
		r.use.StorePeak[t.Kind] += peak
	}
	r.use.Moves, r.use.Shrunk = sh.Moved, sh.Shrunk
	return r.use, nil
}

// request serves one request and emits its outcome.
func (r *replaying) request(ctx context.Context, i int, arrived time.Duration) error {
	o, err := r.serve(ctx, i, arrived)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		o = eval.Outcome{Error: err.Error()}
	}
	o.Task, o.ID, o.Policy = Task, strconv.Itoa(i), r.policy
	if o.ContextUse == nil {
		o.ContextUse = &eval.ContextUse{Method: policy.Uncompressed.Method, Keep: 1}
	}
	o.Context, o.Question = r.queue.trace[i].Context, r.queue.trace[i].Question
	return r.emit(o)
}

// tidy puts contexts where they belong while nobody waits, and profiles again what has become worse than its profile.
func (r *replaying) tidy(ctx context.Context, i int) error {
	if err := r.shelf.Settle(ctx); err != nil && ctx.Err() == nil {
		r.use.Trouble = err.Error() // what could not be stored is computed when it is asked for
	}
	for len(r.stale) > 0 && r.queue.idle(i) {
		id := r.stale[0]
		r.stale = r.stale[1:]
		if err := r.reprofile(ctx, id); err != nil {
			return err
		}
		if err := r.shelf.Settle(ctx); err != nil && ctx.Err() == nil {
			r.use.Trouble = err.Error()
		}
	}
	return ctx.Err()
}

// serve answers one request.
func (r *replaying) serve(ctx context.Context, i int, arrived time.Duration) (o eval.Outcome, err error) {
	a := r.queue.trace[i]
	c := r.byID[a.Context]
	waited := r.queue.clock.Now() - arrived
	came := time.Now().Add(-waited) // on the machine's clock
	ids, err := r.b.encode(c)
	if err != nil {
		return o, err
	}
	question, err := r.b.question(a.Question)
	if err != nil {
		return o, err
	}
	res, config, base, err := r.answer(ctx, c, ids, question, came)
	if err != nil {
		return o, err
	}
	took := time.Since(came)
	score, err := r.score(res.Text, r.whole[asked{a.Context, a.Question}])
	if err != nil {
		return o, err
	}
	o = eval.Outcome{Score: &score, Pred: res.Text, Prompt: len(ids) + len(question), Generated: len(res.IDs), Finish: res.Finish, TTFT: millis(res.Timings.TTFT), ITL: millis(res.Timings.ITLP50)}
	o.ContextUse = &eval.ContextUse{QueueMS: millis(waited), E2EMS: millis(took), CachedTokens: res.Reused.Tokens, CacheTier: res.Reused.Tier, Method: config.Method, Keep: config.Keep}
	o.PromptHash = eval.HashPrompt(slices.Concat(ids, question), r.b.MaxTokens)
	r.asked[c.ID] = append(r.asked[c.ID], Question{Question: a.Question})
	r.watch(c, config, score)
	return o, r.used(c, ids, base)
}

// used tells the placement of a request: a context that it does not know arrives. base may be nil.
func (r *replaying) used(c *Context, ids []int, base *engine.Session) error {
	if r.placement.Kind == policy.PlaceNone {
		return nil
	}
	if r.shelf.Knows(c.ID) {
		return r.shelf.Use(c.ID, base)
	}
	have := shelf.Have{Base: base}
	if r.profile != nil {
		if p := r.profile.Of(c.ID); p != nil {
			have.Quality = p.Quality
		}
	}
	return r.shelf.Arrive(shelf.Context{ID: c.ID, IDs: ids, Salt: r.o.Salt}, have)
}

// score is how like an answer is to that from the whole KV. It belongs to no request: where the clock can tell, it takes no time.
func (r *replaying) score(text, whole string) (float64, error) {
	var scores []float64
	var err error
	score := func() { scores, err = r.b.Quality.Scores([]string{text}, []string{whole}) }
	if c, ok := r.queue.clock.(*clock.Skipping); ok {
		c.Untimed(score)
	} else {
		score()
	}
	if err != nil {
		return 0, err
	}
	return scores[0], nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// answer reads the context from the shelf, or computes it; base is then what the shelf may be filled from.
func (r *replaying) answer(ctx context.Context, c *Context, ids, question []int, arrived time.Time) (res *engine.Result, config policy.Config, base *engine.Session, err error) {
	e := r.b.Engine
	if r.placement.Kind == policy.PlaceNone {
		s, err := e.NewSession(nil)
		if err != nil {
			return nil, config, nil, err
		}
		defer s.Close()
		res, err = s.Generate(ctx, r.b.Request(slices.Concat(ids, question), arrived))
		return res, policy.Uncompressed, nil, err
	}
	config, stored := r.shelf.Where(c.ID)
	if !stored {
		return r.compute(ctx, ids, question, arrived)
	}
	under, err := shelf.KeptAs(config)
	if err != nil {
		return nil, config, nil, err
	}
	found := r.b.Cache.Find(ctx, ids, under, r.o.Salt)
	s, _, err := prefixcache.OpenContext(ctx, e, ids, under, found, engine.PrefillHooks{})
	if err != nil {
		return nil, config, nil, err
	}
	defer s.Close()
	if res, err = s.Generate(ctx, r.b.Request(question, arrived)); err == nil {
		res.Reused = found.Reused()
	}
	return res, config, nil, err
}

// compute reads the context as it is, its last rows in a fork, and keeps what came before them for the shelf.
func (r *replaying) compute(ctx context.Context, ids, question []int, arrived time.Time) (*engine.Result, policy.Config, *engine.Session, error) {
	base, err := r.b.Base(ctx, ids, shelf.Configs(r.placement), nil)
	if err != nil {
		return nil, policy.Uncompressed, nil, err
	}
	s, err := base.Fork(nil)
	if err != nil {
		base.Close()
		return nil, policy.Uncompressed, nil, err
	}
	defer s.Close()
	res, err := s.Generate(ctx, r.b.Request(slices.Concat(ids[base.Tokens():], question), arrived))
	if err != nil {
		base.Close()
		return nil, policy.Uncompressed, nil, err
	}
	return res, policy.Uncompressed, base, nil
}

// watch notes a context whose answer is worse than its profile says by more than the placement allows.
func (r *replaying) watch(c *Context, config policy.Config, score float64) {
	if !slices.Contains(r.stale, c.ID) && r.shelf.Worse(c.ID, config, score) {
		r.stale = append(r.stale, c.ID)
	}
}

// recordedMax is how many of the last questions a context is profiled on again.
const recordedMax = 50

// reprofile measures a context's qualities again, on the questions that came, and has it arrive again with them.
func (r *replaying) reprofile(ctx context.Context, id string) error {
	questions := r.asked[id]
	if n := len(questions); n > recordedMax {
		questions = questions[n-recordedMax:]
	}
	c := r.byID[id]
	begun := time.Now()
	p, err := r.b.profileOne(ctx, c, questions, shelf.Configs(r.placement))
	if err != nil {
		return fmt.Errorf("replay: profile of context %q again: %w", id, err)
	}
	if err := r.shelf.Profiled(id, p.Quality); err != nil {
		return err
	}
	r.use.Reprofiled++
	r.use.ProfileS += time.Since(begun).Seconds()
	return nil
}
