package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/eval"
	"terrace/model"
	"terrace/policy"
	"terrace/tokenizer"
)

// Runner is an eval.Runner on an engine a policy; the engines share the model's weights. It is an eval.Batcher, too.
type Runner struct {
	model eval.Model
	tok   *tokenizer.Tokenizer
	open  func(policy string) (*engine.Engine, error)
	// engines by policy, kept open for the next sample
	engines map[string]*engine.Engine
	onTiers bool  // OnTiers
	work    *work // that this Runner belongs to, of a batch; nil = it decodes alone
}

// New makes a Runner. m.HasChat is filled in; open returns a new engine under a policy; Close closes them all.
func New(m eval.Model, tok *tokenizer.Tokenizer, open func(policy string) (*engine.Engine, error)) *Runner {
	m.HasChat = tok.HasTemplate()
	return &Runner{model: m, tok: tok, open: open, engines: map[string]*engine.Engine{}}
}

// OnTiers says that engines have KV below host memory: each policy reads its prompts itself, in the places that its engine has there, and
// no engine is opened that no policy asked for.
func (r *Runner) OnTiers() *Runner {
	r.onTiers = true
	return r
}

// Close gives the engines back.
func (r *Runner) Close() error {
	var err error
	for _, e := range r.engines {
		err = errors.Join(err, e.Close())
	}
	clear(r.engines)
	return err
}

// Model implements eval.Runner.
func (r *Runner) Model() eval.Model { return r.model }

// Check implements eval.Checker. Errors wrap weights.ErrFileChanged.
func (r *Runner) Check() error {
	for _, e := range r.engines { // they share the model
		return e.CheckModel()
	}
	return nil
}

// Now implements eval.Runner.
func (r *Runner) Now() time.Time { return time.Now() }

// Encode implements eval.Runner.
func (r *Runner) Encode(text string) ([]int, error) { return r.tok.Encode(text, true, true) }

// EncodePlain implements eval.Runner.
func (r *Runner) EncodePlain(text string) ([]int, error) {
	return r.tok.Encode(text, false, false)
}

// EncodeChat implements eval.Runner.
func (r *Runner) EncodeChat(text string) ([]int, error) {
	rendered, err := r.tok.RenderChat([]tokenizer.Message{{Role: "user", Content: text}}, true)
	if err != nil {
		return nil, err
	}
	return r.tok.EncodeChat(rendered)
}

// Decode implements eval.Runner.
func (r *Runner) Decode(ids []int) string { return r.tok.DecodeText(ids, false) }

// BOS implements eval.Runner.
func (r *Runner) BOS() (int, bool) {
	if !r.tok.AddsBOS() {
		return 0, false
	}
	return r.tok.BOS()
}

// engine is the open engine of a policy.
func (r *Runner) engine(policy string) (*engine.Engine, error) {
	if e := r.engines[policy]; e != nil {
		return e, nil
	}
	e, err := r.open(policy)
	if err != nil {
		return nil, err
	}
	r.engines[policy] = e
	return e, nil
}

// prompt reads ids in a new session under a policy.
func (r *Runner) prompt(ctx context.Context, ids []int, policy string) (*engineSession, error) {
	e, err := r.engine(policy)
	if err != nil {
		return nil, err
	}
	before := e.KV()
	if before.Sequences == 0 || r.work != nil {
		e.ResetKVPeak() // this sample's peak is its own
	}
	begun := time.Now()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return nil, err
	}
	es := &engineSession{r: r, e: e, s: s, prompt: ids, policy: policy}
	if _, err = s.PrefillStored(ctx, ids, "", engine.PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	es.prefill, es.reading = time.Since(begun), e.KV().PeakBytes-before.InUseBytes // no other session moves meanwhile
	es.note()
	return es, nil
}

// engineSession is an eval.Session.
type engineSession struct {
	r       *Runner
	e       *engine.Engine
	s       *engine.Session
	policy  string
	prompt  []int
	forced  []int        // read since, by Force
	on      *base        // what it was read on; nil = it was read for this session
	spec    *policy.Spec // of policy, where it was read on something
	prefill time.Duration
	base    int64            // KV bytes of the part of the prompt that was read for several policies; 0 = it was read for this one
	reading int64            // most KV bytes while the prompt was read, those of other sessions left out
	held    int64            // most KV bytes since the prompt was read
	below   map[string]int64 // most bytes of each tier since the prompt was read; nil = all KV lies in host memory
}

// note keeps the most KV of the session once the policy has acted on the prompt.
func (s *engineSession) note() {
	if s.held = max(s.held, s.s.Sequence().Bytes()); !s.r.onTiers {
		return
	}
	if s.below == nil {
		s.below = map[string]int64{}
	}
	for _, p := range s.e.Places() {
		s.below[p.Name] = max(s.below[p.Name], p.HeldBytes)
	}
}

// bytes are the most KV bytes by tier, at any moment and since the prompt was read. On lower tiers one sample runs at a time, and
// shares no prompt: what the tiers hold is its own. In host memory the peak is the session's own, of the prompt and of steps, so that it does not
// depend on which samples and forks run beside it. Where the prompt was shared it is what the policy would have taken alone, up to the pages of
// the last rows: the shared part, or what it held later.
func (s *engineSession) bytes() (peak, held map[string]int64) {
	if s.below != nil {
		return s.e.TierUse().PeakBytes, maps.Clone(s.below)
	}
	use := s.s.KVUse()
	beside := use.HeldBytes() - use.Bytes
	most := max(s.reading, use.StepMost+use.Swaps.AuxBytes+use.Swaps.ParkedBytes)
	if s.base > 0 {
		most = max(s.base, s.held) + beside
	}
	return map[string]int64{string(tier.Host): most}, map[string]int64{string(tier.Host): s.held + beside}
}

// decode reads one more token, in a batch together with the tokens of other samples.
func (s *engineSession) decode(id int) error {
	var err error
	if s.r.work != nil {
		err = s.r.work.decode(step{s.e, s.s, id})
	} else {
		err = s.s.Decode(id)
	}
	if err == nil {
		s.note()
	}
	return err
}

// Logits implements eval.Session.
func (s *engineSession) Logits() []float32 { return s.s.Logits() }

// Cost implements eval.Session.
func (s *engineSession) Cost() eval.Cost {
	use := s.s.KVUse()
	peak, most := s.bytes()
	return eval.Cost{Paced: s.e.TierUse().Paced, StepKV: use.StepKV, StepScanned: use.StepScanned, Prefill: s.prefill, Shared: s.base > 0, Kept: use.Tokens,
		KVBytes: peak, KVHeld: most}
}

// Generate implements eval.Session: greedy, with end tokens held off for the first MinTokens as transformers' min_length does.
func (s *engineSession) Generate(ctx context.Context, o eval.Generate) (*eval.Generation, error) {
	r := engine.Request{IDs: s.prompt, MaxTokens: max(0, o.MaxTokens), MinTokens: o.MinTokens,
		IsEnd: func(id int) bool { return s.r.tok.IsEOG(id) || slices.Contains(o.StopIDs, id) }}
	if len(o.Stops) > 0 {
		r.Stops, r.Text = o.Stops, s.r.tok.NewDetokenizer()
	}
	g, err := engine.NewGeneration(r)
	if err != nil {
		return nil, err
	}
	if err := g.Run(ctx, s.s, s.decode); err != nil {
		return nil, err
	}
	res := g.Result()
	text := s.r.Decode(res.IDs)
	if res.Stop != "" {
		text, _, _ = strings.Cut(text, res.Stop)
	}
	return &eval.Generation{IDs: res.IDs, Text: text, First: res.Timings.TTFT, Gaps: g.Gaps(), Finish: res.Finish}, nil
}

// Force implements eval.Session.
func (s *engineSession) Force(ctx context.Context, ids []int, each func(int, []float32) error) error {
	for i, id := range ids {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.decode(id); err != nil {
			return err
		}
		s.forced = append(s.forced, id)
		if err := each(i, s.s.Logits()); err != nil {
			return err
		}
	}
	return nil
}

// Continue implements eval.Session. What one token takes is known; further ones are read beside.
func (s *engineSession) Continue(ctx context.Context, ids []int) ([]eval.TokenScore, error) {
	scores, likeliest := make([]eval.TokenScore, 0, len(ids)), model.NewSampler(model.SamplerOptions{})
	logits := s.s.Logits()
	var other *engineSession
	for i, id := range ids {
		if id < 0 || id >= len(logits) {
			return nil, fmt.Errorf("local: token id %d, the model has %d: %w", id, len(logits), eval.ErrOption)
		}
		greedy, err := engine.Logits{Values: logits}.Choose(likeliest)
		if err != nil {
			return nil, err
		}
		scores = append(scores, eval.TokenScore{LogProb: float64(logits[id]) - logSumExp(logits), Greedy: greedy == id})
		if i+1 == len(ids) {
			break
		}
		if other == nil {
			if other, err = s.beside(ctx); err != nil {
				return nil, err
			}
			defer other.s.Close()
		}
		if err := other.Force(ctx, ids[i:i+1], func(_ int, l []float32) error { logits = l; return nil }); err != nil {
			return nil, err
		}
	}
	return scores, nil
}

// beside is another session that stands where this one does: a fork, or, for a policy whose state belongs to one text, the prompt, or
// what was not shared of it, read again with what Force has read since.
func (s *engineSession) beside(ctx context.Context) (*engineSession, error) {
	other := &engineSession{r: s.r, e: s.e, policy: s.policy}
	var err error
	switch other.s, err = s.s.Fork(s.s.Policy()); {
	case !errors.Is(err, engine.ErrOption):
		return other, err
	case s.on != nil && !s.spec.Watches(): // what was watched is one session's
		other, err = s.r.promptOn(ctx, s.on, s.prompt, s.spec, s.policy)
	default:
		other, err = s.r.prompt(ctx, s.prompt, s.policy)
	}
	if err != nil {
		return nil, err
	}
	if err := other.Force(ctx, s.forced, func(int, []float32) error { return nil }); err != nil {
		other.s.Close()
		return nil, err
	}
	return other, nil
}

// logSumExp is ln Σ exp(x), computed in float64.
func logSumExp(x []float32) float64 {
	peak := slices.Max(x)
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v - peak))
	}
	return float64(peak) + math.Log(sum)
}
