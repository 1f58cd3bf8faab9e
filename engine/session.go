package engine

import (
	"context"
	"errors"
	"fmt"

	"terrace/engine/past"
	"terrace/kvmanager"
	"terrace/policy"
	"terrace/retrieval"
)

// Session is one text in progress, under a policy of its own: its KV and where it stands. Reading a prompt, decoding, forking,
// taking back and reading again are its methods because each changes that place.
type Session struct {
	e        *Engine
	text     *retrieval.Sequence
	policy   *policy.Spec // what the text is read under
	tokens   []int        // every id read so far
	logits   []float32
	onDevice bool // logits are on the device
	long     bool // what was read was turned as of a long text (longrope.go)
	reach    int  // tokens that the text had before it began to be read again, and one (ReadAgain)
	past     past.History
	chunked  func()  // called after each chunk of the prompt (AfterChunks); nil = not
	border   int     // chunks of that prompt end at multiples of it; 0 = anywhere
	arriving Arrival // KV on its way (Expect); nil = all is there
	revival  revival // of a pruning policy whose active tokens are followed while decoding
	flops    FLOPs
	repeats  RepeatUse
	rowsSeen func(layer int, x []float32, pos []int32) // rows [n, Hidden] of its prompts that attention projects from (ZipRows); nil = nobody looks
	alone    [1]*Session
	id       [1]int
}

// NewSession returns an empty session under a policy; nil = full attention. Every session has its own, as far as the engine's
// tiers permit (ErrOption says what they do not). Close it.
func (e *Engine) NewSession(under *policy.Spec) (*Session, error) {
	under, err := e.permit(under)
	if err != nil {
		return nil, err
	}
	text, err := e.retrieval.NewSequence(retrieval.SequenceOptions{Policy: under})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	return e.session(text, under)
}

// session is one on a text.
func (e *Engine) session(text *retrieval.Sequence, under *policy.Spec) (*Session, error) {
	s := &Session{e: e, text: text, policy: under}
	s.revival.s = s
	if err := checkPolicy(text); err != nil {
		return nil, errors.Join(err, text.Free())
	}
	return s, nil
}

// Close frees the session's KV.
func (s *Session) Close() {
	s.dropLogits()
	if s.arriving != nil {
		s.arriving.Close()
	}
	s.e.device.forget(s.text)
	s.revival.drop()
	_ = s.text.Free() // what is under way for it belongs to nobody any more
}

// Tokens is the number of tokens read so far.
func (s *Session) Tokens() int { return len(s.tokens) }

// IDs are the ids read so far; the caller must not change them.
func (s *Session) IDs() []int { return s.tokens }

// Sequence is the session's KV (for reports and policies' plans).
func (s *Session) Sequence() *kvmanager.Sequence { return s.text.Seq() }

// Positions are those that the session holds of a layer and KV head, wherever they lie.
func (s *Session) Positions(layer, kvHead int) []int32 { return s.text.Positions(layer, kvHead) }

// InMemory reports whether a token of a layer and KV head, by its index in Positions, is in host memory now, and not only on the tier below.
func (s *Session) InMemory(layer, kvHead, index int) bool {
	return s.text.InMemory(layer, kvHead, index)
}

// Policy is what the session is read under.
func (s *Session) Policy() *policy.Spec { return s.policy }

// fits reports whether n more tokens fit the context.
func (s *Session) fits(n int) error {
	if have := len(s.tokens); have+n > s.e.o.Context {
		return TooLong(n, 0, s.e.o.Context, have)
	}
	return nil
}

// room refuses a prompt of ids whose KV cannot lie in host memory, before it is read, and says which size would do. Where there
// is a tier below, each pass is planned; where rows leave on the way, how much is read is known at the end.
func (s *Session) room(ids []int) error {
	e, n := s.e, len(ids)
	if e.o.KVBudgetBytes == 0 || e.retrieval.Tiered() || s.text.OnDrives() || s.text.Policy().Pruner != nil {
		return nil
	}
	c := s.course(n, 0)
	if s.arriving != nil {
		c.Have, c.Prompt = 0, c.Have+n
	}
	return s.roomFor(c)
}

// course is how the session would read n tokens of a prompt more, and take so many steps behind them.
func (s *Session) course(n, steps int) kvmanager.Course {
	c := kvmanager.Course{Have: len(s.tokens), Prompt: n, Steps: steps, Slides: slides(&s.e.o, s.text.Plain()), Rows: func(left int) int { return s.text.ChunkRows(left, s.e.o.ChunkTokens) }}
	c.ByLayer = c.Have == 0 && readsByLayer(s.text.Policy())
	c.Beside = s.text.WaitingBytes(n)
	if s.text.Selects() {
		c.Index = s.text.IndexBytes
	}
	if s.rereads() {
		for _, r := range s.repetitions(c.Have+n, 0) {
			c.Again = append(c.Again, r.rows)
		}
	}
	return c
}

// roomFor refuses a course that the budget has no room for.
func (s *Session) roomFor(c kvmanager.Course) error {
	e := s.e
	most, now := e.kv.Most(c)
	more, used := most-now-s.text.ChargedBytes()-e.kv.SavedBytes(), e.kv.Stats().InUseBytes
	if e.kv.Room(more) == nil {
		return nil
	}
	return &kvmanager.BudgetError{What: fmt.Sprintf("a prompt of %d tokens", c.Prompt), NeedBytes: used + more, BudgetBytes: e.o.KVBudgetBytes}
}

// Decode reads one more token; afterwards Logits holds what follows it.
func (s *Session) Decode(id int) error {
	s.alone, s.id = [1]*Session{s}, [1]int{id} // here, not on the heap at each step
	return s.e.DecodeBatch(s.alone[:], s.id[:])
}

// Rewind forgets all tokens but the first n, so that another continuation can be read. Logits are those of no token until
// the next Prefill. What a policy dropped cannot come back and what it knows belongs to the whole text, so under a policy
// the n tokens are read again; so they are where a sliding window has let go of what they read (Options.WindowOnly).
func (s *Session) Rewind(n int) error {
	switch {
	case n >= len(s.tokens):
		return nil
	case s.arriving != nil:
		return errArriving
	}
	s.dropLogits()
	s.reach = 0
	if s.text.Causal() && n < s.past.Fixed() {
		return fmt.Errorf("engine: rewind to %d of a text whose first %d tokens were compressed before it was forked: %w", n, s.past.Fixed(), ErrOption)
	}
	if s.text.Causal() {
		at := int(s.Sequence().States().Before(int32(n)))
		if at < s.past.Fixed() {
			return fmt.Errorf("engine: rewind to %d of a text whose first %d tokens were compressed, where the state of recurrent layers is not known: %w", n, s.past.Fixed(), ErrOption)
		}
		if err := s.goBack(at, n); !errors.Is(err, kvmanager.ErrSlid) {
			return err
		}
	}
	again := s.tokens[:n:n]
	if err := s.restart(); err != nil || n == 0 {
		return err
	}
	return s.Prefill(context.Background(), again, PrefillHooks{})
}

// restart empties the session; its policy starts from nothing, in new places on the tiers: what these have of the old ones
// may be damaged, or told to a drive.
func (s *Session) restart() error {
	text, err := s.e.retrieval.NewSequence(retrieval.SequenceOptions{Policy: s.policy, HostScores: s.past.HostScores})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	text.SetLong(s.long)
	s.dropLogits()
	s.e.device.forget(s.text)
	s.revival.drop()
	err = s.text.Free()
	s.text, s.tokens, s.logits, s.past.Reads, s.arriving, s.reach = text, nil, s.logits[:0], nil, nil, 0
	if s.e.retrieval.Recovers() {
		return nil // what is lost with the old places was lost before
	}
	return err
}
