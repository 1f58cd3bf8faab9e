package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/model"
	"terrace/offload"
)

// span is when something was at work, by a clock of events.
type span struct{ from, to time.Duration }

// busy is the time in any of the spans, within is that of them in others too.
func busy(spans []span) (sum time.Duration) {
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	end := time.Duration(0)
	for _, s := range spans {
		if s.to > end {
			sum += s.to - max(s.from, end)
			end = s.to
		}
	}
	return sum
}

func within(spans, others []span) time.Duration {
	return busy(spans) + busy(others) - busy(slices.Concat(spans, others))
}

// paced takes a time for each of a layer's two calls around attention.
type paced struct {
	model.Backend
	clock *clock.Events
	each  time.Duration
	spans []span
}

func (b *paced) take() {
	from := b.clock.Now()
	_ = b.clock.Sleep(context.Background(), b.each)
	b.spans = append(b.spans, span{from, b.clock.Now()})
}

func (b *paced) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	b.take()
	return b.Backend.Project(p, layer, hidden)
}

func (b *paced) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	return b.Backend.Attend(p, layer, q, seqs)
}

func (b *paced) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	b.take()
	return b.Backend.Finish(p, layer, hidden, attended)
}

// slow takes a time for each call.
type slow struct {
	*offload.Memory
	clock *clock.Events
	each  time.Duration
	spans []span
}

func (s *slow) take() {
	from := s.clock.Now()
	_ = s.clock.Sleep(context.Background(), s.each)
	s.spans = append(s.spans, span{from, s.clock.Now()})
}

func (s *slow) Read(ctx context.Context, recs []offload.Record) error {
	s.take()
	return s.Memory.Read(ctx, recs)
}

func (s *slow) Write(ctx context.Context, recs []offload.Record) error {
	s.take()
	return s.Memory.Write(ctx, recs)
}

// swapRun is what decoding on tiers took, by the clock.
type swapRun struct {
	logits   [][]float32
	took     time.Duration
	store    time.Duration // at work
	overlap  time.Duration // while layers were computed
	use      SwapUse
	queue    offload.QueueStats
	hostPeak int64
}

// swapped decodes on a store that takes a time for each call, a host that takes another for each half of a layer, and host memory
// of some bytes.
func swapped(t *testing.T, spec string, store, half time.Duration, budget int64, prompt, next []int) (out swapRun) {
	t.Helper()
	ticks := clock.NewEvents()
	o := Options{Threads: 1, Policy: spec, ChunkTokens: 64}
	below, host := &slow{Memory: below(t, o), clock: ticks, each: store}, &paced{clock: ticks, each: half}
	o.Store, o.KVBudgetBytes = below, budget
	o.Machine = tier.Machine{Clock: ticks, Wrap: func(b model.Backend) model.Backend { host.Backend = b; return host }}
	e := small(t, o)
	s := prefilled(t, e, prompt)
	settle := func() { _ = ticks.Sleep(context.Background(), time.Hour) }
	settle()
	began, before := ticks.Now(), s.KVUse().Swaps.Waited
	below.spans, host.spans = nil, nil
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out.logits = append(out.logits, slices.Clone(s.Logits()))
	}
	out.took = ticks.Now() - began
	settle()
	out.store, out.overlap = busy(below.spans), within(below.spans, host.spans)
	out.use, out.queue, out.hostPeak = s.KVUse().Swaps, e.tiers.queue.Stats(), e.KV().PeakBytes
	out.use.Waited -= before
	s.Close()
	settle()
	return out
}

// TestSwapsOverlapLayers: blocks that come and go move while layers compute, and cost no time where a transfer takes less than what
// lies between the choice and the next attention (a feed-forward network, then queries); with async=false the same blocks move
// while nothing is computed, and the step takes as much longer as they do. What is decoded is the same, bit for bit.
func TestSwapsOverlapLayers(t *testing.T) {
	const half = time.Millisecond
	prompt, next := fakes.IDs(400, 1), fakes.IDs(40, 2)
	for _, layers := range []string{"layers=1,keep=128", "layers=1/2,keep=160/96"} {
		spec := "sliminfer:" + layers + ",block=32,gamma=1"
		memory := forced(t, small(t, Options{Threads: 1, Policy: spec, ChunkTokens: 64}), prompt, next)[1:]
		for _, c := range []struct {
			name   string
			store  time.Duration
			hidden bool // all of it
		}{{"quick", half * 3 / 2, true}, {"slow", 5 * half, false}} {
			t.Run(fmt.Sprint(c.name, " ", len(layers)), func(t *testing.T) {
				async := swapped(t, spec, c.store, half, 16<<20, prompt, next)
				sync := swapped(t, spec+",async=false", c.store, half, 16<<20, prompt, next)
				for name, run := range map[string]swapRun{"async": async, "async=false": sync} {
					if d := fakes.Worst(memory, run.logits); d != 0 {
						t.Errorf("%s: logits differ by %g from those in memory", name, d)
					}
				}
				if async.use.Swaps != sync.use.Swaps || sync.use.Swaps < 10 || async.queue.Bytes != sync.queue.Bytes || async.queue.Bytes[0] == 0 {
					t.Errorf("%d swaps of %d bytes, %d of %d with async=false", async.use.Swaps, async.queue.Bytes, sync.use.Swaps, sync.queue.Bytes)
				}
				if sync.overlap != 0 || sync.use.Waited != sync.store || sync.store < time.Duration(sync.use.Swaps)*c.store {
					t.Errorf("async=false: %d swaps waited %v of the %v that the store worked, %v of it beside layers", sync.use.Swaps, sync.use.Waited, sync.store, sync.overlap)
				}
				if saved := sync.took - async.took; saved != sync.use.Waited-async.use.Waited {
					t.Errorf("%v sooner, but waited %v instead of %v", saved, async.use.Waited, sync.use.Waited)
				}
				if c.hidden && (async.use.Waited != 0 || async.overlap != async.store) || async.overlap < async.store/4 || async.use.Waited >= sync.use.Waited {
					t.Errorf("waited %v of the %v that the store worked, %v of it beside layers", async.use.Waited, async.store, async.overlap)
				}
			})
		}
	}
}

// TestSwapsInLittleRoom: where host memory holds little more than two layers, blocks that come back are read with their layers, and
// nothing else changes.
func TestSwapsInLittleRoom(t *testing.T) {
	prompt, next := fakes.IDs(400, 1), fakes.IDs(20, 2)
	spec := "sliminfer:layers=1/2,keep=160/96,block=32,gamma=1"
	memory := forced(t, small(t, Options{Threads: 1, Policy: spec, ChunkTokens: 64}), prompt, next)[1:]
	const budget = 130 * 4096
	for _, switched := range []string{"", ",async=false"} {
		run := swapped(t, spec+switched, 2*time.Millisecond, time.Millisecond, budget, prompt, next)
		if d := fakes.Worst(memory, run.logits); d != 0 || run.hostPeak > budget || run.use.Swaps == 0 {
			t.Errorf("%q: logits differ by %g, %d bytes in host memory, %+v", switched, d, run.hostPeak, run.use)
		}
	}
}
