package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"terrace/engine"
	"terrace/internal/clock"
)

// warmUp reads every weight once in both phases.
func warmUp(ctx context.Context, e *engine.Engine, o Options) error {
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return err
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(o.Seed, 1))
	n := 32
	if e.Options().Backend != "native" {
		n = max(n, o.P) // what these compile depends on how long the prompt is
	}
	n = min(n, e.Options().Context-2)
	if err := s.Prefill(ctx, randomIDs(e, rng, max(1, n)), engine.PrefillHooks{}); err != nil {
		return err
	}
	return s.Decode(0)
}

// base is the text that every repeat goes on from. Without a policy it is read once and copied; what a policy knows
// belongs to one session, so under a policy each repeat reads it again, outside the time measured, unless repeats continue.
type base struct {
	e   *engine.Engine
	ids []int
	s   *engine.Session // nil under a policy
}

// newBase reads the tokens before the depth of sequence i.
func (b *Run) newBase(ctx context.Context, i int) (*base, error) {
	out := &base{e: b.e, ids: b.ids(i, b.o.D)}
	if b.e.Policy().Causal() || b.o.Continue {
		var err error
		out.s, err = out.read(ctx)
		return out, err
	}
	return out, nil
}

func (b *base) read(ctx context.Context) (*engine.Session, error) {
	s, err := b.e.NewSession(b.e.Policy())
	if err != nil || len(b.ids) == 0 {
		return s, err
	}
	if err := s.Prefill(ctx, b.ids, engine.PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// copy returns a session that has read the text.
func (b *base) copy(ctx context.Context) (*engine.Session, error) {
	if b.s == nil {
		return b.read(ctx)
	}
	return b.s.Fork(b.s.Policy())
}

func (b *base) close() {
	if b.s != nil {
		b.s.Close()
	}
}

// sessions are the bases' own.
func (b *Run) sessions() []*engine.Session {
	var out []*engine.Session
	for _, base := range b.bases {
		out = append(out, base.s)
	}
	return out
}

// prompt measures reading P tokens.
func (b *Run) prompt(ctx context.Context) error {
	b.at = b.o.D
	ids := b.ids(0, b.o.P)
	var s *engine.Session
	var err error
	if b.o.Continue && !b.e.Policy().Causal() {
		s, err = b.bases[0].read(ctx)
	} else {
		s, err = b.bases[0].copy(ctx)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	before, begun := b.e.TierUse(), time.Now()
	if err := s.Prefill(ctx, ids, engine.PrefillHooks{}); err != nil {
		return err
	}
	took := time.Since(begun)
	b.row.TTFT = append(b.row.TTFT, took)
	b.book(b.o.P, took, b.e.TierUse().Since(before))
	return nil
}

// generation measures N steps of a batch of texts that have nothing in common: forks of one text would share the pages of
// their depth.
func (b *Run) generation(ctx context.Context) error {
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
	b.book(b.o.N*len(batch), took, b.e.TierUse().Since(before))
	return b.readWeights()
}

// readWeights measures the limit of the repeat: the same bytes, by the same threads, without arithmetic.
func (b *Run) readWeights() error {
	begun := time.Now()
	bytes, err := b.e.ReadWeights()
	if took := time.Since(begun); err == nil && bytes > 0 && took > 0 {
		b.row.WeightBytes, b.row.ReadRate = bytes, append(b.row.ReadRate, float64(bytes)/took.Seconds())
	}
	return err
}

// decode takes N steps with a batch.
func (b *Run) decode(ctx context.Context, batch []*engine.Session) (time.Duration, error) {
	ids := make([][]int, len(batch))
	for i, s := range batch {
		b.at = s.Tokens()
		ids[i] = b.ids(i, b.o.N)
	}
	step := make([]int, len(batch))
	c := clock.Or(b.e.Options().Machine.Clock)
	begun := c.Now()
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
		if err := batch[0].TouchLogits(); err != nil { // what a step of generation costs on a device
			return 0, err
		}
	}
	return c.Now() - begun, nil
}

func testName(kind string, n, depth int) string {
	if depth == 0 {
		return fmt.Sprintf("%s%d", kind, n)
	}
	return fmt.Sprintf("%s%d @ d%d", kind, n, depth)
}
