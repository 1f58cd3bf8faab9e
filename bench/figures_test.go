package bench

import (
	"math"
	"testing"
	"time"

	"terrace/engine"
)

// TestFigures: what is worked out of a row of two repeats of 5 steps of 2 texts.
func TestFigures(t *testing.T) {
	r := Row{N: 5, Batch: 2, TPS: []float64{10, 20}, Took: 2 * time.Second, TTFT: []time.Duration{time.Second, 3 * time.Second}, ReadRate: []float64{4, 1},
		Tiers: engine.TierUse{ReadBytes: 4000, ReadBusy: 500 * time.Millisecond, Stall: 200 * time.Millisecond}}
	for name, c := range map[string][2]float64{
		"steps":             {float64(r.Steps()), 10},
		"tokens":            {float64(r.Tokens()), 20},
		"median step":       {r.MedianStep(), 2.0 / 15},
		"mean step":         {r.MeanStep(), 0.2},
		"TTFT":              {r.MeanTTFT().Seconds(), 2},
		"ratio":             {r.MedianRatio(Row{TPS: []float64{10, 10, 1}}), 1.5},
		"read rate":         {r.MedianReadRate(), 4},
		"bytes a token":     {r.TierReads().TokenBytes, 200},
		"bytes a second":    {r.TierReads().Rate, 8000},
		"busy":              {r.TierReads().BusyShare, 0.25},
		"stalled":           {r.TierReads().StallShare, 0.1},
		"prompts' tokens":   {float64(Row{P: 7, Batch: 1, TPS: []float64{1, 1, 1}}.Tokens()), 21},
		"nothing measured":  {Row{}.TierReads().TokenBytes + Row{}.MedianReadRate() + Row{}.MedianRatio(r) + Row{}.MeanStep() + Row{}.MeanTTFT().Seconds(), 0},
		"no time was taken": {Row{N: 1, Batch: 1, TPS: []float64{1}, Tiers: engine.TierUse{ReadBytes: 9}}.TierReads().TokenBytes, 0},
	} {
		if math.Abs(c[0]-c[1]) > 1e-12 {
			t.Errorf("%s: %g, want %g", name, c[0], c[1])
		}
	}
	if got := r.Source(); got != "measured" {
		t.Errorf("source %s", got)
	}
	if r.Tiers.Paced = true; r.Source() != "modelled" {
		t.Errorf("source of a drive that waits: %s", r.Source())
	}
	for _, c := range []struct {
		x               []float64
		mean, deviation float64
	}{{nil, 0, 0}, {[]float64{3}, 3, 0}, {[]float64{1, 2, 3}, 2, 1}} {
		if mean, deviation := MeanDeviation(c.x); math.Abs(mean-c.mean) > 1e-12 || math.Abs(deviation-c.deviation) > 1e-12 {
			t.Errorf("%v: %g ± %g", c.x, mean, deviation)
		}
	}
}
