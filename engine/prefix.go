package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"terrace/engine/past"
	"terrace/engine/tier"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/policy"
)

// PrefixCache has KV of prompts' beginnings that were read before, here or in another process: engine/prefixcache.
type PrefixCache interface {
	// Lookup begins to fetch what there is of ids as a session under a policy reads them; nil = full attention. What was kept under
	// a salt is found under that salt alone. May be called at any time, from any goroutine.
	Lookup(ctx context.Context, ids []int, under *policy.Spec, salt string) Prefix
	// Stored reports whether Lookup would find as much of the first n tokens of ids as is kept of them, as far as is known without asking a
	// server: they are there, or nothing is being stored any more.
	Stored(ids []int, n int, under *policy.Spec, salt string) bool
	// Unfit says why the cache is of no use to sessions under a policy; empty = it is of use.
	Unfit(under *policy.Spec) string
}

// Prefix is what a PrefixCache has of a prompt, on its way.
type Prefix interface {
	// Resume gives an empty session the KV of the prompt's beginning, as far as it is there in time; the prompt's rest is read next.
	// Text is what it would be without, bit for bit. After an error the session cannot be used.
	Resume(ctx context.Context, s *Session) (Reused, error)
	// Keep is called after each token that the session has decoded behind the prompt; a cache that keeps answers stores it.
	Keep(s *Session)
	// Read is called when the session has read the prompt, to its end.
	Read(s *Session)
	// Reused is what the session did not have to compute, once the prompt was read: less than Resume said where KV was lost on
	// the way.
	Reused() Reused
	// Close gives up what was not taken.
	Close()
}

// Reused is what a session did not have to compute.
type Reused struct {
	Tokens int    // of the prompt, those that a policy has dropped included
	Tier   string // the slowest that they came from: host, ssd, valkey or s3; empty = none
	// Method and Keep say how they were compressed when they were kept: the text is then not that of computing them. Empty = not.
	Method string
	Keep   float64
}

// String is for messages.
func (r Reused) String() string { return strconv.Itoa(r.Tokens) + " tokens from " + r.Tier }

// SetPrefixCache gives the engine's callers a prefix cache to find; nil = none.
func (e *Engine) SetPrefixCache(c PrefixCache) { e.prefixes = c }

// PrefixCache is what SetPrefixCache gave; nil = none.
func (e *Engine) PrefixCache() PrefixCache { return e.prefixes }

// Lend has whoever keeps prompts in host memory hold there what running texts leave of its budget, or, for good, all that it can use:
// kvmanager.ErrBudget where the budget does not have that.
func (e *Engine) Lend(b kvmanager.Borrower, forGood bool) error {
	if forGood {
		return e.kv.Charge(b.Most())
	}
	e.kv.Lend(b)
	return nil
}

// Arrival is KV of a prompt's beginning that comes layer by layer while what follows it is read.
type Arrival interface {
	// Layer puts a layer's KV into the session's pages, and waits for it; it does nothing for a layer that is there.
	Layer(kv *kvmanager.Sequence, layer int) error
	// Lost is called once after an error of Layer, with the session empty again: it may Adopt what is left.
	Lost(s *Session) error
	Close() // the session was closed
}

// Expect is Adopt of KV that is on its way: the session's rest is read next, whose first pass waits for each layer.
func (s *Session) Expect(ids []int, compressed bool, a Arrival) {
	s.adopt(ids, compressed)
	s.arriving = a
}

func (s *Session) adopt(ids []int, compressed bool) {
	s.tokens = append(s.tokens, ids...)
	s.text.SetRead(int32(len(ids)))
	if s.past.Note(len(ids), false); compressed {
		s.past.Reads = []past.Read{{Tokens: len(ids), Mixed: true}}
		s.Sequence().States().Pin()
	}
	s.saveStates()
}

// arriveStored waits for a layer of the sessions whose KV is on its way.
func arriveStored(sessions []*Session, layer, layers int) error {
	for _, s := range sessions {
		if s.arriving == nil {
			continue
		}
		if err := s.arriving.Layer(s.Sequence(), layer); err != nil {
			return fmt.Errorf("engine: layer %d of stored KV: %w: %w", layer, errLost, err)
		}
		if layer == layers-1 {
			s.arriving = nil
		}
	}
	return nil
}

var (
	errLost     = errors.New("it was lost on its way") // KV that a session expected does not come
	errArriving = fmt.Errorf("engine: the session's KV is on its way: its prompt is to be read first: %w", ErrOption)
)

// rewind has the prompt's beginning computed where KV of it was lost on its way: the session has what is left of it, and what is
// to be read has the rest.
func (r *PromptReading) rewind(err error) error {
	s, a := r.s, r.s.arriving
	if a == nil || !errors.Is(err, errLost) {
		return err
	}
	ids := s.tokens
	if err := s.restart(); err != nil {
		return err
	}
	err = a.Lost(s)
	r.ids = slices.Concat(ids[len(s.tokens):], r.ids)
	return err
}

// PrefillStored is Prefill of an empty session's prompt through the engine's prefix cache, where there is one.
func (s *Session) PrefillStored(ctx context.Context, ids []int, salt string, hooks PrefillHooks) (reused Reused, err error) {
	c := s.e.prefixes
	if c == nil {
		return reused, s.Prefill(ctx, ids, hooks)
	}
	p := c.Lookup(ctx, ids, s.policy, salt)
	if reused, err = p.Resume(ctx, s); err == nil {
		err = s.Prefill(ctx, ids[reused.Tokens:], hooks)
	}
	return p.Reused(), err
}

// Adopt gives an empty session KV of ids that was computed before: fill puts it into the session's pages. compressed says that a
// policy has dropped some of it, which this session could not compute again. Where fill fails the session is empty again and ok is
// false; an error means that it cannot be used any more.
func (s *Session) Adopt(ids []int, compressed bool, fill func(*kvmanager.Sequence) error) (ok bool, err error) {
	if trouble := fill(s.Sequence()); trouble != nil {
		if err = s.restart(); err != nil {
			err = errors.Join(trouble, err)
		}
		return false, err
	}
	s.adopt(ids, compressed)
	return true, nil
}

// AfterChunks has f called after each chunk of the prompt that is read next, until its end. Chunks end at multiples of border among
// others; 0 = anywhere.
func (s *Session) AfterChunks(border int, f func()) { s.border, s.chunked = border, f }

// Causal reports whether the session holds all that it has read, each token as it is whatever comes later.
func (s *Session) Causal() bool { return s.text.Causal() }

// Ranker is the session's policy where its choice can be made smaller later; nil otherwise.
func (s *Session) Ranker() policy.Ranker { return s.text.Policy().Ranker() }

// Layouts are those of the cache's pages: of all tokens, and of a quantised cache's window.
func (e *Engine) Layouts() (main, window kvpage.Layout) { return e.kv.Format(), e.kv.RecentFormat() }

// MainTokens is how many of a text's first tokens lie outside the window of a quantised cache once n were read.
func (e *Engine) MainTokens(n int) int { return e.kv.MainOf(n) }

// KVBelowHost reports whether KV may lie on a tier below host memory.
func (e *Engine) KVBelowHost() bool { return e.retrieval.Tiered() }

// KVOnSSD reports whether that is an ssd tier, and no drive below it.
func (e *Engine) KVOnSSD() bool {
	lower := tier.Lower(e.o.Tiers)
	return e.retrieval.Tiered() && len(lower) > 0 && lower[len(lower)-1].Kind == tier.SSD
}

// KVOnDevice reports whether the backend keeps KV on a device of its own.
func (e *Engine) KVOnDevice() bool { return e.device.keeper != nil }
