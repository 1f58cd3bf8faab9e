package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"terrace/engine/draft"
	"terrace/engine/stops"
	"terrace/model"
)

// Overflow is what generation does when the context is full.
type Overflow uint8

const (
	OverflowError          Overflow = iota // fail with both numbers
	OverflowShift                          // drop the older half after the first ShiftSink tokens and read the rest again
	OverflowTruncateMiddle                 // cut the middle out of the prompt before reading it
)

// ShiftSink is the number of first tokens that a shift keeps.
const ShiftSink = 4

// ParseOverflow reads error, shift or truncate-middle.
func ParseOverflow(s string) (Overflow, error) {
	switch s {
	case "", "error":
		return OverflowError, nil
	case "shift":
		return OverflowShift, nil
	case "truncate-middle":
		return OverflowTruncateMiddle, nil
	}
	return 0, fmt.Errorf("engine: overflow %q, want error, shift or truncate-middle: %w", s, ErrOption)
}

// Text turns ids into text piece by piece (tokenizer.Detokenizer).
type Text interface {
	Push(id int) string
	Flush() string
}

// Constraint says which tokens may come next in one text; grammar.State is one. Logits stay the model's own.
type Constraint interface {
	Mask() ([]uint64, error) // ids that may come next, a bit each; end tokens where the text may end
	Accept(id int) error     // a token that was chosen and ends nothing
	Ended() bool             // the text is complete, and nothing can follow
}

// Request is one generation.
type Request struct {
	IDs       []int // prompt
	MaxTokens int   // -1 = until the context is full
	MinTokens int   // end tokens and StopIDs are not chosen before this many, as with min_length of transformers; stop strings still end the text
	HoldStops bool  // stop strings end nothing before MinTokens either, as with min_tokens of vLLM
	CutToFit  bool  // MaxTokens is a default nobody chose: less is generated where the context holds less
	Sampler   model.SamplerOptions
	Breakers  *model.Breakers // of DRY; nil = none
	Bias      map[int]float32 // added to these ids' logits; nil = to none
	Stops     []string
	StopIDs   []int // end the text as end tokens do, whatever IgnoreEOS says
	IgnoreEOS bool
	IsEnd     func(id int) bool // end-of-generation ids; nil = none
	Text      Text              // nil = ids only
	Overflow  Overflow
	Constrain Constraint               // what the text must be; it belongs to this request. nil = anything
	OnText    func(piece string) error // called as text becomes certain; nil = not
	OnPrefill func(done, total int)    // prompt tokens read so far; nil = not
	OnLogits  func(logits []float32)   // the model's own, before each token is chosen; to be read only. nil = not
	Speculate draft.Drafter            // guesses tokens, so that a pass reads several; the text stays the same; nil = none
	Prefix    Prefix                   // what a prefix cache has of IDs; nil = nothing is looked up
	Started   time.Time                // when the request arrived (TTFT counts from here); zero = now
}

// Timings of one generation.
type Timings struct {
	TTFT       time.Duration // request to first token
	Prefill    time.Duration // reading the prompt
	Decode     time.Duration // from the first token to the last
	ITLP50     time.Duration // between tokens
	ITLP99     time.Duration
	PrefillTPS float64
	DecodeTPS  float64 // 0 with fewer than two tokens
}

// Result is what a generation made.
type Result struct {
	PromptTokens int
	Reused       Reused // of the prompt, from a store of contexts
	IDs          []int  // generated, the end token left out
	Text         string // up to a stop string
	Finish       string // stop (end token or stop string), length (max tokens), context (full)
	Stop         string // the stop string that ended it; "" = none did
	Dropped      int    // prompt or history tokens dropped by the overflow the user chose
	Timings      Timings
	KV           KVUse        // at the end
	Speculation  *Speculation // nil = none
}

// Generate reads the prompt into a new session under the engine's policy and samples until something ends it. When ctx is
// cancelled it returns what there is so far together with the context's error; where the model's file changed meanwhile, with
// weights.ErrFileChanged.
func (e *Engine) Generate(ctx context.Context, r Request) (*Result, error) {
	s, err := e.NewSession(e.policy)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Generate(ctx, r)
}

// Generate is Engine.Generate going on in this session, which then holds prompt and answer.
func (s *Session) Generate(ctx context.Context, r Request) (*Result, error) {
	g, err := s.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	err = g.decode(ctx, s)
	res := g.Result()
	res.KV = s.KVUse()
	if err == nil {
		err = s.e.CheckModel()
	}
	return res, err
}

// begin reads the prompt.
func (s *Session) begin(ctx context.Context, r Request) (*Generation, error) {
	if r.Started.IsZero() {
		r.Started = time.Now()
	}
	dropped, err := r.fit(s.e.o.Context, len(s.tokens))
	if err != nil {
		return nil, err
	}
	g, err := NewGeneration(r)
	if err == nil && r.Speculate != nil {
		err = s.canSpeculate(r.Speculate)
	}
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if dropped == 0 && r.Prefix != nil {
		if g.res.Reused, err = r.Prefix.Resume(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := s.Prefill(ctx, r.IDs[g.res.Reused.Tokens:], PrefillHooks{Progress: r.OnPrefill}); err != nil {
		return nil, err
	}
	if dropped == 0 && r.Prefix != nil {
		g.res.Reused = r.Prefix.Reused()
		r.Prefix.Read(s)
	}
	g.res.Dropped, g.res.Timings.Prefill = dropped, time.Since(begun)
	g.res.Timings.PrefillTPS = perSecond(len(r.IDs)-g.res.Reused.Tokens, g.res.Timings.Prefill)
	return g, nil
}

// decode reads token after token in a session until the generation ends.
func (g *Generation) decode(ctx context.Context, s *Session) (err error) {
	read := s.Decode
	if g.r.Speculate != nil {
		ahead := newSpeculator(s, g.r.Speculate)
		g.res.Speculation = &ahead.use
		defer func() { err = errors.Join(err, ahead.settle()) }()
		read = func(id int) error { return ahead.read(id, g.left()) }
	}
	return g.Run(ctx, shownLogits{s, g.r.OnLogits}, func(id int) error {
		switch room := s.e.o.Context - len(s.tokens) - 1; {
		case room <= 0 && g.r.Overflow != OverflowShift:
			g.End("context")
			return nil
		case room < 0:
			dropped, err := s.shift(ctx)
			if err != nil {
				return err
			}
			g.res.Dropped += dropped
		}
		return read(id)
	})
}

// shownLogits is a session whose logits somebody looks at before a token is chosen; nil = nobody.
type shownLogits struct {
	*Session
	look func(logits []float32)
}

// Choose implements Chooser.
func (l shownLogits) Choose(sampler *model.Sampler) (int, error) {
	if l.look != nil {
		l.look(l.Logits())
	}
	return l.Session.Choose(sampler)
}

// left is how many tokens may still come.
func (g *Generation) left() int {
	if g.r.MaxTokens < 0 {
		return math.MaxInt
	}
	return g.r.MaxTokens - len(g.res.IDs)
}

// fit checks the prompt against a context, of which some tokens are taken, and cuts its middle out where the user asked for
// that; it returns how many tokens were cut.
func (r *Request) fit(context, taken int) (dropped int, err error) {
	room, want := context-taken, max(0, r.MaxTokens)
	if left := room - len(r.IDs); r.CutToFit && left > 0 && want > left {
		r.MaxTokens, want = left, left
	}
	if len(r.IDs) == 0 {
		return 0, fmt.Errorf("engine: the prompt has no tokens: %w", ErrOption)
	}
	if r.Overflow == OverflowTruncateMiddle && len(r.IDs)+max(want, 1) > room {
		keep := room - max(want, 1)
		if keep < 2 {
			return 0, fmt.Errorf("engine: %d tokens to generate leave no room for a prompt in a context of %d: %w", want, context, ErrContext)
		}
		dropped = len(r.IDs) - keep
		r.IDs = slices.Concat(r.IDs[:keep/2], r.IDs[len(r.IDs)-(keep-keep/2):])
	}
	if len(r.IDs)+want > room && (r.Overflow != OverflowShift || len(r.IDs) > room) {
		return 0, fmt.Errorf("%w, or choose --on-overflow", TooLong(len(r.IDs), want, context, taken))
	}
	return dropped, nil
}

// shift drops the older half of the history after the first tokens and reads what is left again, at new positions; it returns
// how many tokens were dropped.
func (s *Session) shift(ctx context.Context) (int, error) {
	drop := (len(s.tokens) - ShiftSink) / 2
	if drop < 1 {
		return 0, fmt.Errorf("engine: a context of %d tokens is too short to shift: %w", s.e.o.Context, ErrContext)
	}
	keep := slices.Concat(s.tokens[:ShiftSink], s.tokens[ShiftSink+drop:])
	if err := s.restart(); err != nil {
		return 0, err
	}
	return drop, s.Prefill(ctx, keep, PrefillHooks{})
}

// Chooser draws a token from logits: a Session, where they may lie on a device, or Logits.
type Chooser interface {
	Choose(s *model.Sampler) (id int, err error)
}

// Logits are the logits [V] of a text's next token, with the tokens before it, as samplers look at them.
type Logits struct {
	Values []float32
	Tokens []int
}

// Choose implements Chooser; ErrNotFinite where no token can be chosen honestly.
func (l Logits) Choose(s *model.Sampler) (int, error) {
	if err := CheckFinite(l.Values); err != nil {
		return 0, err
	}
	return s.Next(l.Values, l.Tokens), nil
}

// Generation is one request while it decodes, as a step function: logits in, token and text out. It computes nothing itself,
// so that whoever runs it may decode many together.
type Generation struct {
	r       *Request
	res     *Result
	sampler *model.Sampler
	stops   stops.Scanner
	forced  []int // tokens that come next, whatever the sampler would choose
	text    strings.Builder
	gaps    []time.Duration
	first   time.Time
	last    time.Time
	cut     bool // a stop string ended the text
	summed  bool
}

// NewGeneration begins a request whose prompt has been read, or is about to be.
func NewGeneration(r Request) (*Generation, error) {
	if err := r.Sampler.Validate(); err != nil {
		return nil, fmt.Errorf("engine: %w: %w", err, ErrOption)
	}
	if r.Started.IsZero() {
		r.Started = time.Now()
	}
	g := &Generation{r: &r, res: &Result{PromptTokens: len(r.IDs)}, sampler: model.NewSampler(r.Sampler), stops: stops.Scanner{Stops: r.Stops}}
	g.sampler.Bias(r.Bias)
	g.sampler.Break(r.Breakers)
	return g, nil
}

// Run takes steps until the generation ends: each token goes to read, after which next has the logits that follow it. read may
// end the generation by End. When ctx is cancelled Run stops between steps.
func (g *Generation) Run(ctx context.Context, next Chooser, read func(id int) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, more, err := g.Step(next)
		if err != nil || !more {
			return err
		}
		if err := read(id); err != nil || g.res.Finish != "" {
			return err
		}
	}
}

// Step takes the logits after the last token, chooses the next, and hands out the text that has become certain. more says that
// the token is to be read, and its logits given to the next Step; otherwise the generation has ended: id is -1 where it had before.
func (g *Generation) Step(next Chooser) (id int, more bool, err error) {
	if g.full() {
		g.End("length")
		return -1, false, nil
	}
	if g.r.Constrain != nil && g.r.Constrain.Ended() {
		g.End("stop")
		return -1, false, nil
	}
	if err := g.bar(); err != nil {
		return -1, false, err
	}
	id, forced := g.force()
	if !forced {
		if id, err = next.Choose(g.sampler); err != nil {
			return -1, false, err
		}
	}
	if id < 0 {
		return -1, false, g.nothingLeft()
	}
	g.tick()
	if !forced && (!g.r.IgnoreEOS && g.r.ends(id) || slices.Contains(g.r.StopIDs, id)) {
		g.End("stop")
		return id, false, nil
	}
	g.res.IDs = append(g.res.IDs, id)
	complete, err := g.constrain(id)
	if err != nil {
		return id, false, err
	}
	if stopped, err := g.emit(id, forced); err != nil || stopped || complete {
		g.End("stop")
		return id, false, err
	}
	if g.full() { // the last token's own forward pass would only be thrown away
		g.End("length")
		return id, false, nil
	}
	return id, true, nil
}

func (g *Generation) full() bool { return g.r.MaxTokens >= 0 && len(g.res.IDs) >= g.r.MaxTokens }

// End ends the generation for a reason of the caller's.
func (g *Generation) End(finish string) { g.res.Finish = finish }

// Gaps are the times between the tokens so far, in their order.
func (g *Generation) Gaps() []time.Duration { return g.gaps }

// Tokens is how many were generated so far.
func (g *Generation) Tokens() int { return len(g.res.IDs) }

// Result sums up what was generated: text that was held back is handed out.
func (g *Generation) Result() *Result {
	if g.summed {
		return g.res
	}
	g.summed = true
	if g.r.Text != nil && !g.cut {
		show, _ := g.stops.Push(g.r.Text.Flush())
		_ = g.show(show + g.stops.Flush())
	}
	g.res.Text = g.text.String()
	t := &g.res.Timings
	if len(g.gaps) > 0 {
		t.Decode = g.last.Sub(g.first)
		t.DecodeTPS = perSecond(len(g.gaps), t.Decode)
		gaps := slices.Sorted(slices.Values(g.gaps))
		t.ITLP50, t.ITLP99 = quantile(gaps, 0.5), quantile(gaps, 0.99)
	}
	return g.res
}

// emit turns the token into text and hands over what is certain.
func (g *Generation) emit(id int, forced bool) (stopped bool, err error) {
	if g.r.Text == nil {
		return false, nil
	}
	piece := g.r.Text.Push(id)
	if forced || g.r.HoldStops && len(g.res.IDs) <= g.r.MinTokens {
		return false, g.show(g.stops.Pass(piece))
	}
	show, stopped := g.stops.Push(piece)
	g.cut = stopped
	if stopped {
		g.res.Stop = g.stops.Met
	}
	return stopped, g.show(show)
}

func (g *Generation) show(text string) error {
	if text == "" {
		return nil
	}
	g.text.WriteString(text)
	if g.r.OnText != nil {
		return g.r.OnText(text)
	}
	return nil
}

// tick notes that a token was chosen.
func (g *Generation) tick() {
	now := time.Now()
	if g.first.IsZero() {
		g.first = now
		g.res.Timings.TTFT = now.Sub(g.r.Started)
	} else {
		g.gaps = append(g.gaps, now.Sub(g.last))
	}
	g.last = now
}

// quantile of sorted durations, nearest rank.
func quantile(sorted []time.Duration, q float64) time.Duration {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
