package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// BenchOptions are one benchmark: prompt processing of P tokens and generation of N, each at depth D.
type BenchOptions struct {
	P, N, D int
	Repeats int // 0 = 5
	Batch   int // sequences decoded together; 0 = 1
	Seed    uint64
}

// BenchRow is one measured row.
type BenchRow struct {
	Test  string // ppP or tgN, @ dD
	P, N  int
	Depth int
	Batch int
	TPS   []float64 // tokens a second of each repeat
	TTFT  []time.Duration
}

// MedianTPS is the row's median tokens a second.
func (r BenchRow) MedianTPS() float64 {
	s := slices.Sorted(slices.Values(r.TPS))
	if len(s) == 0 {
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Bench measures with random token ids, after one warm-up.
func (e *Engine) Bench(ctx context.Context, o BenchOptions) ([]BenchRow, error) {
	if o.Repeats == 0 {
		o.Repeats = 5
	}
	if o.Batch == 0 {
		o.Batch = 1
	}
	if o.P < 0 || o.N < 0 || o.D < 0 || o.Repeats < 1 || o.Batch < 1 || (o.P == 0 && o.N == 0) {
		return nil, fmt.Errorf("engine: bench of %d prompt and %d generated tokens at depth %d, %d repeats, batch %d: %w", o.P, o.N, o.D, o.Repeats, o.Batch, ErrOption)
	}
	if need := o.D + max(o.P, o.N); need > e.o.Context {
		return nil, fmt.Errorf("engine: bench needs %d tokens, the context holds %d: %w", need, e.o.Context, ErrContext)
	}
	if err := e.warmUp(ctx, o); err != nil {
		return nil, err
	}
	var rows []BenchRow
	if o.P > 0 {
		row, err := e.benchPrompt(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	if o.N > 0 {
		row, err := e.benchDecode(ctx, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// randomIDs are token ids any vocabulary has.
func (e *Engine) randomIDs(rng *rand.Rand, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(e.m.Vocab)
	}
	return ids
}

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
// belongs to one session, so under a policy each repeat reads it again, outside the time measured.
type benchBase struct {
	e   *Engine
	ids []int
	s   *Session // nil under a policy
}

// newBase draws o.D random tokens.
func (e *Engine) newBase(ctx context.Context, rng *rand.Rand, o BenchOptions) (*benchBase, error) {
	b := &benchBase{e: e, ids: e.randomIDs(rng, o.D)}
	if e.spec.Lossless() {
		var err error
		b.s, err = b.read(ctx)
		return b, err
	}
	return b, nil
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

func (e *Engine) benchPrompt(ctx context.Context, o BenchOptions) (BenchRow, error) {
	row := BenchRow{Test: testName("pp", o.P, o.D), P: o.P, Depth: o.D, Batch: 1}
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	base, err := e.newBase(ctx, rng, o)
	if err != nil {
		return row, err
	}
	defer base.close()
	for range o.Repeats {
		s, err := base.copy(ctx)
		if err != nil {
			return row, err
		}
		ids := e.randomIDs(rng, o.P)
		begun := time.Now()
		err = s.Prefill(ctx, ids, PrefillHooks{})
		took := time.Since(begun)
		s.Close()
		if err != nil {
			return row, err
		}
		row.TPS, row.TTFT = append(row.TPS, perSecond(o.P, took)), append(row.TTFT, took)
	}
	return row, nil
}

// benchDecode decodes a batch of texts that have nothing in common: forks of one text would share the pages of their depth.
func (e *Engine) benchDecode(ctx context.Context, o BenchOptions) (BenchRow, error) {
	row := BenchRow{Test: testName("tg", o.N, o.D), N: o.N, Depth: o.D, Batch: o.Batch}
	rng := rand.New(rand.NewPCG(o.Seed, 3))
	var bases []*benchBase
	defer func() {
		for _, b := range bases {
			b.close()
		}
	}()
	for range o.Batch {
		base, err := e.newBase(ctx, rng, o)
		if err != nil {
			return row, err
		}
		bases = append(bases, base)
	}
	for range o.Repeats {
		took, err := e.decodeSome(ctx, bases, rng, o)
		if err != nil {
			return row, err
		}
		row.TPS = append(row.TPS, perSecond(o.N*o.Batch, took))
	}
	return row, nil
}

// decodeSome times N steps of a batch that starts from copies of the bases.
func (e *Engine) decodeSome(ctx context.Context, bases []*benchBase, rng *rand.Rand, o BenchOptions) (time.Duration, error) {
	batch := make([]*Session, 0, o.Batch)
	defer func() {
		for _, s := range batch {
			s.Close()
		}
	}()
	for _, base := range bases {
		s, err := base.copy(ctx)
		if err != nil {
			return 0, err
		}
		batch = append(batch, s)
	}
	ids := e.randomIDs(rng, o.N*o.Batch)
	begun := time.Now()
	for i := range o.N {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := e.DecodeBatch(batch, ids[i*o.Batch:(i+1)*o.Batch]); err != nil {
			return 0, err
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
