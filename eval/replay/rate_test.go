package replay

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"terrace/eval"
	"terrace/internal/clock"
)

// service is a made-up engine with a shelf: a context that is stored takes few milliseconds to its first token, another takes many;
// what was computed is stored, compressed, while nobody waits, which takes time too. Stored contexts have a lower quality.
type service struct {
	computed, stored, rest, settle int // milliseconds
	quality                        float64
}

// served is a request's arrival and first token, in milliseconds, and its quality.
type served struct {
	at, first, done float64
	quality         float64
}

// replayed runs the queue on a clock that the service's work alone moves.
func (s service) replayed(t *testing.T, trace []Arrival, speed float64) (out []served) {
	t.Helper()
	c := clock.NewJumping()
	work := func(ms int) {
		if err := c.Sleep(t.Context(), time.Duration(ms)*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	stored, waiting := map[string]bool{}, map[string]bool{}
	q := queue{clock: c, trace: trace, speed: speed}
	err := q.run(t.Context(), func(i int, arrived time.Duration) error {
		x := served{at: millis(arrived), quality: 1}
		id := trace[i].Context
		if stored[id] {
			work(s.stored)
			x.quality = s.quality
		} else {
			work(s.computed)
			waiting[id] = true
		}
		x.first = millis(c.Now())
		work(s.rest)
		x.done = millis(c.Now())
		out = append(out, x)
		return nil
	}, func(int) error {
		for id := range waiting {
			work(s.settle)
			stored[id] = true
		}
		clear(waiting)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// reference is the same service, one tenth of a millisecond after the other: who is there is served, who comes waits.
func (s service) reference(trace []Arrival, speed float64) (out []served) {
	const tick = 0.1
	line := []int{}                // of requests that have arrived
	next, now, left := 0, 0.0, 0.0 // left of what the server does
	serving, settling := -1, false // what it is
	stored, waiting := map[string]bool{}, map[string]bool{}
	out = make([]served, len(trace))
	for done := 0; done < len(trace) || settling; now += tick {
		for next < len(trace) && trace[next].AtS*1000/speed <= now {
			line = append(line, next)
			out[next].at = trace[next].AtS * 1000 / speed
			next++
		}
		if left > tick/2 {
			left -= tick
			if left > tick/2 {
				continue
			}
			switch {
			case serving >= 0:
				out[serving].done = now
				serving = -1
				done++
			case settling:
				settling = false
			}
		}
		if serving < 0 && !settling && len(line) == 0 && len(waiting) > 0 {
			left = float64(s.settle * len(waiting))
			for id := range waiting {
				stored[id] = true
			}
			clear(waiting)
			settling = left > 0
		} else if serving < 0 && !settling && len(line) == 0 && next < len(trace) {
			now = max(now, trace[next].AtS*1000/speed-2*tick) // nothing happens before
		} else if serving < 0 && !settling && len(line) > 0 {
			serving, line = line[0], line[1:]
			first := float64(s.computed)
			out[serving].quality = 1
			if id := trace[serving].Context; stored[id] {
				first, out[serving].quality = float64(s.stored), s.quality
			} else {
				waiting[id] = true
			}
			out[serving].first, left = now+first, first+float64(s.rest)
		}
	}
	return out
}

// summary is a probe of what was served.
func summary(all []served) eval.RateProbe {
	var outcomes []eval.Outcome
	for _, x := range all {
		outcomes = append(outcomes, eval.Outcome{Score: &x.quality, TTFT: x.first - x.at, ContextUse: &eval.ContextUse{E2EMS: x.done - x.at}})
	}
	return ProbeOf(outcomes)
}

func syntheticTrace(seed uint64) (trace []Arrival) {
	r := rand.New(rand.NewPCG(seed, 5))
	at := 0.0
	for range 60 {
		trace = append(trace, Arrival{AtS: at, Context: strconv.Itoa(r.IntN(12)), Question: "q"})
		at += r.ExpFloat64()
	}
	return trace
}

// TestQueue: waiting, serving and tidying up while nobody waits come out as in a simulation by small steps of time.
func TestQueue(t *testing.T) {
	s := service{computed: 400, stored: 60, rest: 90, settle: 35, quality: 0.9}
	for seed := range uint64(3) {
		trace := syntheticTrace(seed)
		for _, speed := range []float64{0.25, 1, 2.5, 8, 100} {
			got, want := summary(s.replayed(t, trace, speed)), summary(s.reference(trace, speed))
			// The reference sees an arrival up to a step late, once for each busy spell.
			if math.Abs(got.TTFT-want.TTFT) > 0.5+0.01*want.TTFT || math.Abs(got.E2E-want.E2E) > 0.5+0.01*want.E2E || math.Abs(got.Score-want.Score) > 0.5 {
				t.Errorf("seed %d, speed %g: %+v, want %+v", seed, speed, got, want)
			}
		}
	}
}

// TestSustain: the rate found lies where a scan of many rates, each simulated by small steps, finds the last that is kept.
func TestSustain(t *testing.T) {
	for name, c := range map[string]struct {
		s service
		o Objective
	}{
		"time":    {service{computed: 400, stored: 60, rest: 90, settle: 20, quality: 0.9}, Objective{80, 600 * time.Millisecond}},
		"tight":   {service{computed: 300, stored: 20, rest: 30, settle: 5, quality: 0.95}, Objective{90, 150 * time.Millisecond}},
		"nothing": {service{computed: 300, stored: 300, rest: 30, settle: 0, quality: 1}, Objective{100, 400 * time.Millisecond}},
	} {
		trace := syntheticTrace(7)
		found, err := Sustain(trace, c.o, func(speed float64) (eval.RateProbe, error) { return summary(c.s.replayed(t, trace, speed)), nil })
		if err != nil {
			t.Fatal(err)
		}
		rate := float64(len(trace)-1) / (trace[len(trace)-1].AtS - trace[0].AtS)
		last, first := 0.0, math.Inf(1) // the highest rate below which all are kept, and the lowest that is not
		for speed := 0.25; speed < 40; speed *= 1.05 {
			p := summary(c.s.reference(trace, speed))
			if p.TTFT <= millis(c.o.TTFT) && p.Score >= c.o.Quality {
				last = speed * rate
			} else {
				first = speed * rate
				break
			}
		}
		if last == 0 || math.IsInf(first, 1) {
			t.Fatalf("%s: the scan has no end: %g, %g", name, last, first)
		}
		if found.QPS <= 0 || found.Above > found.QPS*sustainedWithin*1.0001 || found.QPS > first*1.05 || found.Above < last/1.05 {
			t.Errorf("%s: sustains %.3g, not %.3g; by the scan %.3g and %.3g", name, found.QPS, found.Above, last, first)
		}
		if len(found.Probes) > 16 || !slices.IsSortedFunc(found.Probes, func(a, b eval.RateProbe) int { return int(math.Copysign(1, a.QPS-b.QPS)) }) && found.Probes[0].Speed != 0 {
			t.Errorf("%s: probes %+v", name, found.Probes)
		}
	}
}

// TestSustainEnds: a quality that is too low alone is kept at no rate; a time that nothing exceeds at every one; and a trace without a
// rate is refused.
func TestSustainEnds(t *testing.T) {
	trace := syntheticTrace(9)
	s := service{computed: 50, stored: 20, rest: 10, settle: 5, quality: 0.5}
	probe := func(speed float64) (eval.RateProbe, error) { return summary(s.replayed(t, trace, speed)), nil }
	if found, err := Sustain(trace, Objective{90, time.Minute}, probe); err != nil || found.QPS != 0 || len(found.Probes) != 1 {
		t.Errorf("quality: %+v %v", found, err)
	}
	if found, err := Sustain(trace, Objective{0, time.Hour}, probe); err != nil || found.QPS <= 0 || found.Above != 0 || len(found.Probes) > 16 {
		t.Errorf("no end: %+v %v", found, err)
	}
	if _, err := Sustain(trace[:1], Objective{0, time.Hour}, probe); !errors.Is(err, eval.ErrOption) {
		t.Errorf("one request: %v", err)
	}
	broken := errors.New("broken")
	if _, err := Sustain(trace, Objective{0, time.Hour}, func(float64) (eval.RateProbe, error) { return eval.RateProbe{}, broken }); !errors.Is(err, broken) {
		t.Errorf("a probe that fails: %v", err)
	}
}

// TestQueueStops: an ended context ends the waiting for an arrival.
func TestQueueStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := queue{clock: clock.Real(), trace: []Arrival{{AtS: 0}, {AtS: 3600}}, speed: 1}
	n := 0
	err := q.run(ctx, func(int, time.Duration) error { n++; return nil }, func(int) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%d served, %v", n, err)
	}
}
