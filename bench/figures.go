package bench

import (
	"math"
	"slices"
	"time"
)

// Steps is how many decode steps the repeats took; 0 in a row of prompt processing.
func (r Row) Steps() int { return len(r.TPS) * r.N }

// Tokens is how many tokens the repeats read or generated.
func (r Row) Tokens() int { return len(r.TPS) * max(r.P, r.N*r.Batch) }

// MedianStep is the median over the repeats of a decode step's time, in seconds.
func (r Row) MedianStep() float64 { return float64(r.Batch) / r.MedianTPS() }

// MeanStep is the mean time of a decode step, in seconds.
func (r Row) MeanStep() float64 { return r.Took.Seconds() / float64(max(1, r.Steps())) }

// MeanTTFT is the mean time to the first token; 0 without any.
func (r Row) MeanTTFT() time.Duration {
	var sum time.Duration
	for _, t := range r.TTFT {
		sum += t
	}
	return sum / time.Duration(max(1, len(r.TTFT)))
}

// MedianRatio is the median of this row's speed over another's, repeat by repeat; 0 without any.
func (r Row) MedianRatio(to Row) float64 {
	var ratios []float64
	for i := range min(len(r.TPS), len(to.TPS)) {
		ratios = append(ratios, r.TPS[i]/to.TPS[i])
	}
	return median(ratios)
}

// MedianReadRate is the median of ReadRate, of an even number the upper one of the middle two; 0 without any.
func (r Row) MedianReadRate() float64 {
	if len(r.ReadRate) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(r.ReadRate))[len(r.ReadRate)/2]
}

// Source says where a row's times come from: "modelled" where a drive waits as the profile that it mimics says, whatever else is measured
// around it, else "measured".
func (r Row) Source() string {
	if r.Tiers.Paced {
		return "modelled"
	}
	return "measured"
}

// TierReads are what the repeats read from the lower tier.
type TierReads struct {
	TokenBytes float64 // a token that was read or generated
	Rate       float64 // bytes a second, while something was being read
	BusyShare  float64 // of the time, something was being read
	StallShare float64 // of the time, compute stood still for the lower tier
}

// TierReads works out what the repeats read from the lower tier; zero where there is none.
func (r Row) TierReads() (t TierReads) {
	if tokens := r.Tokens(); tokens > 0 && r.Took > 0 {
		t.TokenBytes = float64(r.Tiers.ReadBytes) / float64(tokens)
		t.BusyShare, t.StallShare = r.Tiers.ReadBusy.Seconds()/r.Took.Seconds(), r.Tiers.Stall.Seconds()/r.Took.Seconds()
	}
	if r.Tiers.ReadBusy > 0 {
		t.Rate = float64(r.Tiers.ReadBytes) / r.Tiers.ReadBusy.Seconds()
	}
	return t
}

// MeanDeviation is the mean of some figures and their sample's standard deviation (0 of one).
func MeanDeviation(x []float64) (mean, deviation float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / float64(len(x)-1))
}
