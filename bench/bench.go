package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"terrace/engine"
)

// Options are one benchmark: prompt processing of P tokens and generation of N, each at depth D.
type Options struct {
	P, N, D int
	Repeats int // 0 = 5
	Batch   int // sequences decoded together; 0 = 1
	Seed    uint64
	// Text are the ids of a text whose pieces are read and decoded, over and over where it is short; nil = random ids. What
	// policies select, and so what tiers move, depends on the text.
	Text []int
	// Continue lets each repeat of generation go on where the last ended, after N steps that are not measured, so that the
	// depth is read once under any policy. It grows by N a repeat.
	Continue bool
}

// Row is one measured row.
type Row struct {
	Test  string // ppP or tgN, @ dD
	P, N  int
	Depth int
	Batch int
	TPS   []float64 // tokens a second of each repeat
	TTFT  []time.Duration
	Tiers engine.TierUse // what the tiers moved in the repeats; PeakBytes count from the engine's start
	Took  time.Duration  // all repeats

	// WeightBytes are the bytes of weights that a step of generation reads, and ReadRate the bytes a second at which the same
	// threads read them without computing, measured after each repeat; 0 and none where the backend does not say.
	WeightBytes int64
	ReadRate    []float64
}

// ReadShare is the median over the repeats of the rate at which steps read weights over that of reading alone: 1 where
// decoding is as fast as memory, 0 without such a measurement. KV read beside the weights does not count.
func (r Row) ReadShare() float64 {
	shares := make([]float64, len(r.ReadRate))
	for i, rate := range r.ReadRate {
		shares[i] = r.TPS[i] / float64(r.Batch) * float64(r.WeightBytes) / rate
	}
	return median(shares)
}

// MedianTPS is the row's median tokens a second.
func (r Row) MedianTPS() float64 { return median(r.TPS) }

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	if len(s) == 0 {
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Run is a row in the making. Repeat adds one measurement, so that several engines can take turns.
type Run struct {
	e     *engine.Engine
	o     Options
	row   Row
	rng   *rand.Rand
	bases []*base
	at    int // where in Text the next repeat goes on
	run   func(context.Context) error
}

// Open warms the engine up and reads the text before the depth: a row of prompt processing, or of generation. Close it.
func Open(ctx context.Context, e *engine.Engine, generation bool, o Options) (_ *Run, err error) {
	if o.Repeats == 0 {
		o.Repeats = 5
	}
	if o.Batch == 0 {
		o.Batch = 1
	}
	if o.P < 0 || o.N < 0 || o.D < 0 || o.Repeats < 1 || o.Batch < 1 || (o.P == 0 && o.N == 0) {
		return nil, fmt.Errorf("bench: bench of %d prompt and %d generated tokens at depth %d, %d repeats, batch %d: %w", o.P, o.N, o.D, o.Repeats, o.Batch, engine.ErrOption)
	}
	if need := o.Tokens(); need > e.Options().Context {
		return nil, engine.TooLong(need, 0, e.Options().Context, 0)
	}
	b := &Run{e: e, o: o, row: Row{Test: testName("pp", o.P, o.D), P: o.P, Depth: o.D, Batch: 1}, rng: rand.New(rand.NewPCG(o.Seed, 2))}
	b.run = b.prompt
	if generation {
		b.row = Row{Test: testName("tg", o.N, o.D), N: o.N, Depth: o.D, Batch: o.Batch}
		b.run, b.rng = b.generation, rand.New(rand.NewPCG(o.Seed, 3))
	}
	if err := warmUp(ctx, e, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	for i := range b.row.Batch {
		base, err := b.newBase(ctx, i)
		if err != nil {
			return nil, err
		}
		b.bases = append(b.bases, base)
	}
	if generation && o.Continue {
		_, err = b.decode(ctx, b.sessions())
	}
	return b, err
}

// Tokens is the longest that a session of the benchmark gets.
func (o *Options) Tokens() int {
	if o.Continue {
		return o.D + max(o.P, o.N*(max(o.Repeats, 1)+1))
	}
	return o.D + max(o.P, o.N)
}

// Row is what was measured so far.
func (b *Run) Row() Row { return b.row }

// Close frees the sessions.
func (b *Run) Close() {
	for _, base := range b.bases {
		base.close()
	}
}

// Repeat measures once more. A model file that changed meanwhile is weights.ErrFileChanged.
func (b *Run) Repeat(ctx context.Context) error {
	if err := b.run(ctx); err != nil {
		return err
	}
	return b.e.CheckModel()
}

// book adds a repeat that took a time for some tokens; the tiers' accounts are its own.
func (b *Run) book(tokens int, took time.Duration, use engine.TierUse) {
	b.row.TPS = append(b.row.TPS, perSecond(tokens, took))
	b.row.Took += took
	b.row.Tiers = b.row.Tiers.Plus(use)
}

// ids draws n token ids for sequence i.
func (b *Run) ids(i, n int) []int {
	if len(b.o.Text) == 0 {
		return randomIDs(b.e, b.rng, n)
	}
	ids := make([]int, n)
	from := i*(b.o.D+b.o.N) + b.at
	for j := range ids {
		ids[j] = b.o.Text[(from+j)%len(b.o.Text)]
	}
	return ids
}

// randomIDs are token ids any vocabulary has.
func randomIDs(e *engine.Engine, rng *rand.Rand, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(e.Model().Vocab)
	}
	return ids
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
