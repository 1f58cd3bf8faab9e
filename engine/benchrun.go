package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// warmUp reads every weight once in both phases.
func (e *Engine) warmUp(ctx context.Context, o BenchOptions) error {
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	n := 32
	if e.o.Backend != "native" {
		n = max(n, o.P) // what these compile depends on how long the prompt is
	}
	n = min(n, e.o.Context-2)
	if err := s.Prefill(ctx, e.randomIDs(rng, max(1, n)), PrefillHooks{}); err != nil {
		return err
	}
	return s.Decode(0)
}

// benchBase is the text that every repeat goes on from. Without a policy it is read once and copied; what a policy knows
// belongs to one session, so under a policy each repeat reads it again, outside the time measured, unless repeats continue.
type benchBase struct {
	e   *Engine
	ids []int
	s   *Session // nil under a policy
}

// newBase reads the tokens before the depth of sequence i.
func (b *Bench) newBase(ctx context.Context, i int) (*benchBase, error) {
	base := &benchBase{e: b.e, ids: b.ids(i, b.o.D)}
	if b.e.spec.Lossless() || b.o.Continue {
		var err error
		base.s, err = base.read(ctx)
		return base, err
	}
	return base, nil
}

func (b *benchBase) read(ctx context.Context) (*Session, error) {
	s, err := b.e.NewSession()
	if err != nil || len(b.ids) == 0 {
		return s, err
	}
	if err := s.Prefill(ctx, b.ids, PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// copy returns a session that has read the text.
func (b *benchBase) copy(ctx context.Context) (*Session, error) {
	if b.s == nil {
		return b.read(ctx)
	}
	return b.s.Fork()
}

func (b *benchBase) close() {
	if b.s != nil {
		b.s.Close()
	}
}

// sessions are the bases' own.
func (b *Bench) sessions() []*Session {
	var out []*Session
	for _, base := range b.bases {
		out = append(out, base.s)
	}
	return out
}

// prompt measures reading P tokens.
func (b *Bench) prompt(ctx context.Context) error {
	b.at = b.o.D
	ids := b.ids(0, b.o.P)
	var s *Session
	var err error
	if b.o.Continue && !b.e.spec.Lossless() {
		s, err = b.bases[0].read(ctx)
	} else {
		s, err = b.bases[0].copy(ctx)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	before, begun := b.e.TierUse(), time.Now()
	if err := s.Prefill(ctx, ids, PrefillHooks{}); err != nil {
		return err
	}
	took := time.Since(begun)
	b.row.TTFT = append(b.row.TTFT, took)
	b.book(b.o.P, took, b.e.TierUse().since(before))
	return nil
}

// generation measures N steps of a batch of texts that have nothing in common: forks of one text would share the pages of
// their depth.
func (b *Bench) generation(ctx context.Context) error {
	batch := b.sessions()
	if !b.o.Continue {
		batch = batch[:0]
		defer func() {
			for _, s := range batch {
				s.Close()
			}
		}()
		for _, base := range b.bases {
			s, err := base.copy(ctx)
			if err != nil {
				return err
			}
			batch = append(batch, s)
		}
	}
	before := b.e.TierUse()
	took, err := b.decode(ctx, batch)
	if err != nil {
		return err
	}
	b.book(b.o.N*len(batch), took, b.e.TierUse().since(before))
	return nil
}

// decode takes N steps with a batch.
func (b *Bench) decode(ctx context.Context, batch []*Session) (time.Duration, error) {
	ids := make([][]int, len(batch))
	for i, s := range batch {
		b.at = s.Tokens()
		ids[i] = b.ids(i, b.o.N)
	}
	step := make([]int, len(batch))
	begun := time.Now()
	for n := range b.o.N {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		for i := range batch {
			step[i] = ids[i][n]
		}
		if err := b.e.DecodeBatch(batch, step); err != nil {
			return 0, err
		}
		if batch[0].late { // what a step of generation costs on the device
			if _, err := batch[0].likeliest(); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(begun), nil
}

func testName(kind string, n, depth int) string {
	if depth == 0 {
		return fmt.Sprintf("%s%d", kind, n)
	}
	return fmt.Sprintf("%s%d @ d%d", kind, n, depth)
}
