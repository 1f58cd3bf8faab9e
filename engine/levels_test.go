package engine

import (
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
)

// TestLevelsChangeNothing: with a small SSD above a larger one, or above a drive, logits are those without tiers, alone and in a batch; the
// upper level holds copies up to its size, the lower one everything, and both are read.
func TestLevelsChangeNothing(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(17, 2)
	for _, spec := range []string{"full", "quest:budget=64", "hillinfer:alpha=0.2", "topk:budget=60", "tova:budget=120", "sliminfer"} {
		t.Run(strings.ReplaceAll(spec, ":", " of "), func(t *testing.T) {
			t.Parallel()
			o := Options{Threads: 2, Policy: spec, ChunkTokens: 32}
			want := forced(t, small(t, o), prompt, next)
			for _, lower := range []string{"ssd2", "csd"} {
				below := tier.Tier{Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}
				if lower == "csd" {
					below = newTestDrive(t).start().tiers(0)[1]
				}
				on := func(host, above int64) *Engine {
					levels := o
					levels.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: host}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: above}, below}
					return small(t, levels)
				}
				host := 84*4096 + o.rowsThatWait(t, len(prompt))
				e := on(host, 100<<10)
				if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
					t.Errorf("above %s: logits differ by %g", lower, d)
				}
				u := e.TierUse()
				if u.PeakBytes["host"] > host || u.PeakBytes["ssd"] > 100<<10 || u.PeakBytes["ssd"] == 0 || u.PeakBytes[lower] < u.PeakBytes["ssd"] {
					t.Errorf("above %s: peaks %v", lower, u.PeakBytes)
				}
				if reads := spec == "full" || strings.HasPrefix(spec, "quest"); reads && (u.MovedBytes["ssd>host"] == 0 || u.MovedBytes[lower+">host"] == 0) {
					t.Errorf("above %s: moved %v", lower, u.MovedBytes)
				}
				if places := e.Places(); len(places) != 3 || places[1].Name != "ssd" || places[2].Name != lower {
					t.Errorf("places %+v", places)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				if d := fakes.Worst(want, inBatch(t, on(210*4096+4*o.rowsThatWait(t, len(prompt)), 100<<10), prompt, next)); d != 0 {
					t.Errorf("above %s in a batch: logits differ by %g", lower, d)
				}
			}
		})
	}
}
