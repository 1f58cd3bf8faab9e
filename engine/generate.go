package engine

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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

// Request is one generation.
type Request struct {
	IDs       []int // prompt
	MaxTokens int   // -1 = until the context is full
	CutToFit  bool  // MaxTokens is a default nobody chose: less is generated where the context holds less
	Sampler   model.SamplerOptions
	Stops     []string
	IgnoreEOS bool
	IsEnd     func(id int) bool // end-of-generation ids; nil = none
	Text      Text              // nil = ids only
	Overflow  Overflow
	OnText    func(piece string) error // called as text becomes certain; nil = not
	OnPrefill func(done, total int)    // prompt tokens read so far; nil = not
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
	IDs          []int  // generated, the end token left out
	Text         string // up to a stop string
	Finish       string // stop (end token or stop string), length (max tokens), context (full)
	Dropped      int    // prompt or history tokens dropped by the overflow the user chose
	Timings      Timings
	KV           KVUse // at the end
}

// Generate reads the prompt into a new session and samples until something ends it. When ctx is cancelled it returns what
// there is so far together with the context's error; where the model's file changed meanwhile, with weights.ErrFileChanged.
func (e *Engine) Generate(ctx context.Context, r Request) (*Result, error) {
	s, err := e.NewSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Generate(ctx, r)
}

// Generate is Engine.Generate going on in this session, which then holds prompt and answer.
func (s *Session) Generate(ctx context.Context, r Request) (*Result, error) {
	if err := r.Sampler.Validate(); err != nil {
		return nil, fmt.Errorf("engine: %w: %w", err, ErrOption)
	}
	if r.Started.IsZero() {
		r.Started = time.Now()
	}
	res := &Result{}
	if err := s.fitPrompt(&r, res); err != nil {
		return nil, err
	}
	g := generation{s: s, r: &r, res: res, stops: stopScanner{stops: r.Stops}}
	begun := time.Now()
	if err := s.Prefill(ctx, r.IDs, PrefillHooks{Progress: r.OnPrefill}); err != nil {
		return nil, err
	}
	res.PromptTokens = len(r.IDs)
	res.Timings.Prefill = time.Since(begun)
	res.Timings.PrefillTPS = perSecond(len(r.IDs), res.Timings.Prefill)
	err := g.run(ctx)
	g.finish()
	res.KV = s.KVUse()
	if err == nil {
		err = s.e.CheckModel()
	}
	return res, err
}

// fitPrompt checks the prompt against the context and cuts its middle out where the user asked for that.
func (s *Session) fitPrompt(r *Request, res *Result) error {
	room, want := s.e.o.Context-len(s.tokens), max(0, r.MaxTokens)
	if left := room - len(r.IDs); r.CutToFit && left > 0 && want > left {
		r.MaxTokens, want = left, left
	}
	if len(r.IDs) == 0 {
		return fmt.Errorf("engine: the prompt has no tokens: %w", ErrOption)
	}
	if r.Overflow == OverflowTruncateMiddle && len(r.IDs)+max(want, 1) > room {
		keep := room - max(want, 1)
		if keep < 2 {
			return fmt.Errorf("engine: %d tokens to generate leave no room for a prompt in a context of %d: %w", want, s.e.o.Context, ErrContext)
		}
		res.Dropped = len(r.IDs) - keep
		r.IDs = slices.Concat(r.IDs[:keep/2], r.IDs[len(r.IDs)-(keep-keep/2):])
	}
	if len(r.IDs)+want > room && (r.Overflow != OverflowShift || len(r.IDs) > room) {
		return fmt.Errorf("%w, or choose --on-overflow", tooLong(len(r.IDs), want, s.e.o.Context, len(s.tokens)))
	}
	return nil
}

// generation is the state of one request while it decodes.
type generation struct {
	s     *Session
	r     *Request
	res   *Result
	stops stopScanner
	text  strings.Builder
	gaps  []time.Duration
	first time.Time
	last  time.Time
	cut   bool // a stop string ended the text
}

func (g *generation) run(ctx context.Context) error {
	sampler := model.NewSampler(g.r.Sampler)
	for {
		if g.r.MaxTokens >= 0 && len(g.res.IDs) >= g.r.MaxTokens {
			g.res.Finish = "length"
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		id, err := g.s.choose(sampler)
		if err != nil {
			return err
		}
		g.tick()
		if !g.r.IgnoreEOS && g.r.IsEnd != nil && g.r.IsEnd(id) {
			g.res.Finish = "stop"
			return nil
		}
		g.res.IDs = append(g.res.IDs, id)
		if stopped, err := g.emit(id); err != nil || stopped {
			g.res.Finish = "stop"
			return err
		}
		if g.r.MaxTokens >= 0 && len(g.res.IDs) >= g.r.MaxTokens {
			continue // the last token's own forward pass would only be thrown away
		}
		if full, err := g.step(ctx, id); full || err != nil {
			g.res.Finish = "context"
			return err
		}
	}
}

// step reads the new token; when the context is full it shifts, or reports full.
func (g *generation) step(ctx context.Context, id int) (full bool, err error) {
	s := g.s
	if len(s.tokens)+1 > s.e.o.Context {
		if g.r.Overflow != OverflowShift {
			return true, nil
		}
		if err := g.shift(ctx); err != nil {
			return false, err
		}
	}
	return false, s.Decode(id)
}

// shift drops the older half of the history after the first tokens and reads what is left again, at new positions.
func (g *generation) shift(ctx context.Context) error {
	s := g.s
	drop := (len(s.tokens) - ShiftSink) / 2
	if drop < 1 {
		return fmt.Errorf("engine: a context of %d tokens is too short to shift: %w", s.e.o.Context, ErrContext)
	}
	keep := slices.Concat(s.tokens[:ShiftSink], s.tokens[ShiftSink+drop:])
	if err := s.restart(); err != nil {
		return err
	}
	g.res.Dropped += drop
	return s.Prefill(ctx, keep, PrefillHooks{})
}

// emit turns the token into text and hands over what is certain.
func (g *generation) emit(id int) (stopped bool, err error) {
	if g.r.Text == nil {
		return false, nil
	}
	show, stopped := g.stops.push(g.r.Text.Push(id))
	g.cut = stopped
	return stopped, g.show(show)
}

func (g *generation) show(text string) error {
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
func (g *generation) tick() {
	now := time.Now()
	if g.first.IsZero() {
		g.first = now
		g.res.Timings.TTFT = now.Sub(g.r.Started)
	} else {
		g.gaps = append(g.gaps, now.Sub(g.last))
	}
	g.last = now
}

// finish flushes text that was held back and sums up the times.
func (g *generation) finish() {
	if g.r.Text != nil && !g.cut {
		show, _ := g.stops.push(g.r.Text.Flush())
		_ = g.show(show + g.stops.flush())
	}
	g.res.Text = g.text.String()
	t := &g.res.Timings
	if len(g.gaps) > 0 {
		t.Decode = g.last.Sub(g.first)
		t.DecodeTPS = perSecond(len(g.gaps), t.Decode)
		slices.Sort(g.gaps)
		t.ITLP50, t.ITLP99 = quantile(g.gaps, 0.5), quantile(g.gaps, 0.99)
	}
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

// notFiniteHint says what to do about logits that are not finite.
const notFiniteHint = "a weight or the arithmetic is broken; 'infer show --verify' scans the weights"

// CheckFinite refuses logits of any number of rows from which no token can be chosen honestly; errors wrap ErrNotFinite.
func CheckFinite(logits []float32) error {
	var sum float32
	for _, v := range logits {
		sum += v * 0 // NaN and Inf times 0 are NaN
	}
	if sum != 0 {
		return fmt.Errorf("engine: %w (%s)", ErrNotFinite, notFiniteHint)
	}
	return nil
}
