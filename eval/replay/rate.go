package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"terrace/eval"
)

// Objective is what a rate of arrivals has to leave to a placement, as means over all requests.
type Objective struct {
	Quality float64       // percent, at least
	TTFT    time.Duration // from arrival to the first token, at most
}

// sustainedWithin is how near the highest rate that was kept and the lowest that was not come, as a factor.
const sustainedWithin = 1.1

// Rates beyond which nothing is searched, in rates of the service alone.
const (
	fastest = 1024.0
	slowest = 1.0 / 1024
)

// Sustain searches the highest rate of arrivals under which quality and time to the first token stay within an objective: EvicPress's
// request rate at a quality target and a TTFT (section 6.2). probe replays the trace at a speed and fills in all but QPS and Met.
// Speed 0 is probed first, where nobody waits; then rates from half of what was served a second there, by factors of two, until one
// is kept and a higher one is not; then between these two, until they are sustainedWithin of each other. What a rate does not keep
// no higher one is asked to keep. Errors wrap eval.ErrOption where the trace has no rate.
func Sustain(trace []Arrival, o Objective, probe func(speed float64) (eval.RateProbe, error)) (*eval.SustainedRate, error) {
	s := &search{o: o, probe: probe, out: &eval.SustainedRate{Floor: o.Quality, Objective: millis(o.TTFT)}}
	if n := len(trace); n > 1 {
		s.rate = float64(n-1) / (trace[n-1].AtS - trace[0].AtS)
	}
	if s.rate == 0 || math.IsInf(s.rate, 0) {
		return nil, fmt.Errorf("replay: %d requests that all come at one time have no rate of arrivals: %w", len(trace), eval.ErrOption)
	}
	met, err := s.try(0)
	if err != nil {
		return nil, err
	}
	if !met {
		return s.out, nil
	}
	alone := s.out.Probes[0].QPS
	low, high := 0.0, 0.0
	for speed := alone / 2 / s.rate; low == 0 || high == 0; {
		if rate := speed * s.rate; rate > fastest*alone || rate < slowest*alone {
			break
		}
		if met, err = s.try(speed); err != nil {
			return nil, err
		}
		if met {
			low, speed = speed, speed*2
		} else {
			high, speed = speed, speed/2
		}
	}
	for low > 0 && high > low*sustainedWithin {
		mid := math.Sqrt(low * high)
		if met, err = s.try(mid); err != nil {
			return nil, err
		}
		if met {
			low = mid
		} else {
			high = mid
		}
	}
	s.out.QPS, s.out.Above = low*s.rate, high*s.rate
	slices.SortStableFunc(s.out.Probes, func(a, b eval.RateProbe) int { return cmp.Compare(a.Speed, b.Speed) })
	return s.out, nil
}

// search is one Sustain.
type search struct {
	o     Objective
	rate  float64 // arrivals a second at speed 1
	probe func(speed float64) (eval.RateProbe, error)
	out   *eval.SustainedRate
}

// try probes one speed.
func (s *search) try(speed float64) (met bool, err error) {
	p, err := s.probe(speed)
	if err != nil {
		return false, err
	}
	p.Speed, p.QPS = speed, speed*s.rate
	if speed == 0 {
		p.QPS = 1000 / p.E2E
	}
	p.Met = p.Failed == 0 && p.Score >= s.o.Quality && p.TTFT <= millis(s.o.TTFT)
	s.out.Probes = append(s.out.Probes, p)
	return p.Met, nil
}

// ProbeOf sums up the outcomes of one replay.
func ProbeOf(outcomes []eval.Outcome) (p eval.RateProbe) {
	gaps := 0
	for _, o := range outcomes {
		if o.Score == nil {
			p.Failed++ // its quality is 0, and it has no times
			continue
		}
		p.Score += 100 * *o.Score
		p.TTFT += o.TTFT
		p.E2E += o.E2EMS
		if o.ITL > 0 {
			p.ITL += o.ITL
			gaps++
		}
	}
	p.Score /= float64(max(1, len(outcomes)))
	served := float64(max(1, len(outcomes)-p.Failed))
	p.TTFT, p.E2E, p.ITL = p.TTFT/served, p.E2E/served, p.ITL/float64(max(1, gaps))
	return p
}
