package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"terrace/kvmanager"
	"terrace/policy"
)

// Session is one text in progress: its KV and where it stands.
type Session struct {
	e          *Engine
	seq        *kvmanager.Sequence
	tokens     []int // every id read so far
	next       int32 // position of the next token
	logits     []float32
	late       bool       // logits are on the device (Engine.late)
	policy     *policyRun // nil for full
	history    []read     // how tokens were read
	lost       bool       // a tier has lost KV: the text must be read again first
	hostScores bool       // the drive's scores failed once: the host holds all low-bit keys
	place      *placement // of a selecting policy on tiers; nil = pages are read whole
	alone      [1]*Session
	id         [1]int

	work              Work
	swaps             SwapUse
	spec              *policy.Spec // what policy was made from
	reads, readTokens int64        // by decode attention: layers and KV heads, and tokens in them
}

// NewSession returns an empty session under the engine's policy. Close it.
func (e *Engine) NewSession() (*Session, error) {
	run, err := e.newRun(e.spec)
	if err != nil {
		return nil, err
	}
	return e.session(run, e.spec), nil
}

// session is an empty one under a run of a policy.
func (e *Engine) session(run *policyRun, spec *policy.Spec) *Session {
	s := &Session{e: e, seq: e.kv.NewSequence(), policy: run, spec: spec}
	s.place = e.newPlacement(s)
	return s
}

// Close frees the session's KV.
func (s *Session) Close() {
	s.dropLate()
	_ = s.place.free() // what is under way for it belongs to nobody any more
	_ = s.policy.free()
	if s.e.keeper != nil {
		s.e.keeper.ForgetKV(s.seq.ID())
	}
	s.seq.Free()
}

// Tokens is the number of tokens read so far.
func (s *Session) Tokens() int { return len(s.tokens) }

// IDs are the ids read so far; the caller must not change them.
func (s *Session) IDs() []int { return s.tokens }

// Sequence is the session's KV (for reports and policies' plans).
func (s *Session) Sequence() *kvmanager.Sequence { return s.seq }

// Fork returns a session at the same place that shares the KV so far. A session under a policy that has read something
// cannot be forked: its policy's state belongs to one text.
func (s *Session) Fork() (*Session, error) {
	if s.policy != nil && len(s.tokens) > 0 {
		return nil, fmt.Errorf("engine: fork of a session under policy %s: %w", s.policy.set, ErrOption)
	}
	logits, err := s.fetched()
	if err != nil {
		return nil, err
	}
	seq, err := s.seq.Fork()
	if err != nil {
		return nil, err
	}
	f, err := s.e.NewSession()
	if err != nil {
		seq.Free()
		return nil, err
	}
	f.seq.Free()
	f.seq, f.tokens, f.next, f.logits = seq, slices.Clone(s.tokens), s.next, slices.Clone(logits)
	f.history = slices.Clone(s.history)
	return f, nil
}

// RowLogits receives logits [rows, V] of the tokens from index first on; it must copy what it keeps.
type RowLogits func(first int, logits []float32) error

// PrefillHooks are called after each chunk; nil = not.
type PrefillHooks struct {
	Each     RowLogits             // the logits of every token (which are computed only then)
	Progress func(done, total int) // prompt tokens read so far
}

// Prefill reads a prompt in chunks; afterwards Logits holds those of its last token. A prompt that does not fit is
// ErrContext and changes nothing; a cancelled context stops between chunks. Where a tier loses KV the text is read again,
// but not when somebody has seen its logits (hooks.Each). A model file that changed meanwhile is weights.ErrFileChanged.
func (s *Session) Prefill(ctx context.Context, ids []int, hooks PrefillHooks) error {
	if err := s.found(); err != nil {
		return err
	}
	err := s.prefill(ctx, ids, hooks)
	if hooks.Each == nil {
		err = s.e.tryAgain([]*Session{s}, err, func() error { return s.prefill(ctx, ids, hooks) })
	}
	if err == nil {
		s.noteRead(len(ids), false)
		err = s.e.CheckModel()
	}
	return err
}

// prefill is Prefill without a second chance.
func (s *Session) prefill(ctx context.Context, ids []int, hooks PrefillHooks) error {
	if len(ids) == 0 {
		return fmt.Errorf("engine: the prompt has no tokens (nothing to predict from): %w", ErrOption)
	}
	if err := s.fits(len(ids)); err != nil {
		return err
	}
	if s.policy.byLayer() && len(s.tokens) == 0 {
		return s.readByLayer(ctx, ids, hooks)
	}
	total := int32(len(s.tokens) + len(ids))
	for first := 0; first < len(ids); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := s.policy.chunk(len(ids)-first, s.e.o.ChunkTokens)
		if err := s.chunk(ids[first:first+n], total, first+n == len(ids), hooks.Each); err != nil {
			return err
		}
		first += n
		if hooks.Progress != nil {
			hooks.Progress(first, len(ids))
		}
	}
	return nil
}

// fits reports whether n more tokens fit the context.
func (s *Session) fits(n int) error {
	if have := len(s.tokens); have+n > s.e.o.Context {
		return tooLong(n, 0, s.e.o.Context, have)
	}
	return nil
}

// chunk runs one prefill pass.
func (s *Session) chunk(ids []int, total int32, last bool, each RowLogits) error {
	e := s.e
	rows := 0
	if last {
		rows = 1
	}
	if each != nil {
		rows = len(ids)
	}
	e.begin(e.phase(true))
	for i, id := range ids {
		e.add(id, s.next+int32(i), total)
	}
	first := len(s.tokens)
	logits, err := e.forward([]*Session{s}, passKind{prefill: true, last: last, want: rows})
	if err != nil {
		return s.giveUp(err, s.place.free())
	}
	var x []float32 // rows of logits
	if err := guarded(func() error {
		if rows > 0 && (each != nil || !e.postpone(logits, []*Session{s})) {
			x = floats(logits)
		}
		return nil
	}); err != nil {
		return s.giveUp(err, s.place.free())
	}
	s.tokens = append(s.tokens, ids...)
	s.next += int32(len(ids))
	if each != nil {
		if err := each(first, x); err != nil {
			return err
		}
	}
	if last {
		if !s.late {
			s.logits = append(s.logits[:0], x[len(x)-e.m.Vocab:]...)
		}
		if s.policy != nil && s.policy.set.Keeper != nil {
			e.kv.Release() // what the policy dropped is not to stay resident
		}
	}
	return nil
}

// giveUp takes back what a pass that failed has added. A tier that is gone fails that too, for the same reason: it is said
// once.
func (s *Session) giveUp(err, more error) error {
	if cleanup := errors.Join(more, s.seq.Truncate(s.next)); s.e.tiers == nil {
		return errors.Join(err, cleanup)
	}
	return err
}

// Decode reads one more token; afterwards Logits holds what follows it.
func (s *Session) Decode(id int) error {
	s.alone, s.id = [1]*Session{s}, [1]int{id} // here, not on the heap at each step
	return s.e.DecodeBatch(s.alone[:], s.id[:])
}

// DecodeBatch reads one token in each of several sessions in one pass. A session's logits do not depend on the others. Where a
// tier loses KV the texts are read again.
func (e *Engine) DecodeBatch(sessions []*Session, ids []int) error {
	for _, s := range sessions {
		if err := s.found(); err != nil {
			return err
		}
	}
	err := e.decodeBatch(sessions, ids)
	if e.recoverable(sessions, err) {
		err = e.tryAgain(sessions, err, func() error { return e.decodeBatch(sessions, ids) })
	}
	if err == nil {
		for _, s := range sessions {
			s.noteRead(1, true)
		}
	}
	return err
}

// decodeBatch is DecodeBatch without a second chance.
func (e *Engine) decodeBatch(sessions []*Session, ids []int) error {
	e.begin(e.phase(false))
	for i, s := range sessions {
		if err := s.fits(1); err != nil {
			return err
		}
		e.add(ids[i], s.next, int32(len(s.tokens))+1)
	}
	logits, err := e.forward(sessions, passKind{want: len(sessions)})
	for _, s := range sessions {
		if err == nil {
			err = s.place.stepped(int(s.next) + 1)
		}
	}
	if err != nil {
		for _, s := range sessions {
			err = s.giveUp(err, s.place.cut(s.next))
		}
		return err
	}
	e.kept = kept{sessions: sessions, ids: ids}
	if !e.postpone(logits, sessions) {
		e.kept.logits = floats(logits)
	}
	if e.pool != nil {
		e.pool.Run(len(sessions), e.runKeep)
		return nil
	}
	for i := range sessions {
		e.keep(0, i)
	}
	return nil
}

// kept is what a decode step leaves to its sessions.
type kept struct {
	sessions []*Session
	ids      []int
	logits   []float32 // [sessions, V]; nil = late
}

// keep takes the step into session i.
func (e *Engine) keep(_, i int) {
	a, s := &e.kept, e.kept.sessions[i]
	s.tokens = append(s.tokens, a.ids[i])
	s.next++
	if a.logits != nil {
		s.logits = append(s.logits[:0], a.logits[i*e.m.Vocab:(i+1)*e.m.Vocab]...)
	}
}

// Rewind forgets all tokens but the first n, so that another continuation can be read. Logits are those of no token until
// the next Prefill. What a policy dropped cannot come back and what it knows belongs to the whole text, so under a policy
// the n tokens are read again.
func (s *Session) Rewind(n int) error {
	if n >= len(s.tokens) {
		return nil
	}
	s.dropLate()
	if s.policy == nil {
		s.tokens, s.next, s.logits = s.tokens[:n], int32(n), s.logits[:0]
		s.forgetReads(n)
		return s.seq.Truncate(s.next)
	}
	again := s.tokens[:n:n]
	if err := s.restart(); err != nil || n == 0 {
		return err
	}
	return s.Prefill(context.Background(), again, PrefillHooks{})
}

// restart empties the session; its policy starts from nothing.
func (s *Session) restart() error {
	run, err := s.e.newRun(s.spec)
	if err != nil {
		return err
	}
	s.dropLate()
	err = errors.Join(s.place.free(), s.policy.free())
	s.policy, s.tokens, s.next, s.logits, s.history = run, nil, 0, s.logits[:0], nil
	if s.e.tiers != nil { // into new places: what a tier has of the old ones may be damaged, or told to a drive
		s.seq.Free()
		s.seq = s.e.kv.NewSequence()
	} else {
		err = errors.Join(err, s.seq.Truncate(0))
	}
	s.place = s.e.newPlacement(s)
	return err
}

func (e *Engine) newRun(spec *policy.Spec) (*policyRun, error) {
	run, err := newPolicyRun(e.m, spec, e.kvBytesPerToken(), e.decomposition, e.pool)
	if run != nil {
		if run.tiered = e.tiers != nil; run.stores(e.kv.Layout().K) {
			run.below = e.kv.NewStoredSketches()
		}
	}
	return run, err
}
