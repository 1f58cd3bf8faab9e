package prefixcache

import (
	"slices"
	"strings"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/vfs"
)

// TestResumeOnTiers: a store beside an ssd tier: a prompt's KV goes to both, a later run reads it back from the store, though it does not fit
// host memory, and all logits are those of a run in memory, to the bit. What one kind of run stored the other finds.
func TestResumeOnTiers(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(420, 3), fakes.IDs(4, 4)
	for name, c := range map[string]struct {
		o         engine.Options
		hostBytes int64
	}{
		"most of it streamed": {engine.Options{ChunkTokens: 64}, 300 << 10}, "most of it stays": {engine.Options{}, 700 << 10}, "exact": {engine.Options{Exact: true, ChunkTokens: 100}, 400 << 10},
		"pages of 48": {engine.Options{PageTokens: 48, ChunkTokens: 96}, 600 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.o
			o.Threads = 1
			onSSD := func(t testing.TB, o engine.Options) *engine.Engine {
				o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: c.hostBytes}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}
				return small(t, o)
			}
			want := forced(t, small(t, o), prompt, next)
			fs := vfs.NewMem(1 << 30)
			for turn, run := range []struct {
				open   func(testing.TB, engine.Options) *engine.Engine
				cached int
			}{{onSSD, 0}, {onSSD, 384}, {small, 384}} { // of 420, in blocks of 64 or 96
				reused, got := resumed(t, fs, run.open, o, prompt, next, "")
				if reused.Tokens != run.cached {
					t.Errorf("run %d: %v, want %d", turn, reused, run.cached)
				}
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						t.Fatalf("run %d, step %d: logits differ by %g", turn, i, fakes.Worst(got[i:i+1], want[i:i+1]))
					}
				}
			}
			other := slices.Concat(prompt[:200], fakes.IDs(40, 9))
			reused, got := resumed(t, fs, onSSD, o, other, nil, "")
			if want := forced(t, small(t, o), other, nil); reused.Tokens != 192 || !slices.Equal(got[0], want[0]) {
				t.Errorf("another end: %v of 200, or other logits", reused)
			}
		})
	}
}

// TestUnfitOnTiers: what is not kept from tiers is said.
func TestUnfitOnTiers(t *testing.T) {
	t.Parallel()
	tiers := func() []tier.Tier {
		return []tier.Tier{{Kind: tier.Host, CapacityBytes: 1 << 20}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}
	}
	for what, c := range map[string]struct {
		o    engine.Options
		want string
	}{
		"a dropping policy": {engine.Options{Policy: "snapkv:ratio=0.5", Tiers: tiers()}, "compressed context"},
		"the whole prompt":  {engine.Options{Tiers: tiers()}, ""},
		"no lower tier":     {engine.Options{Tiers: tiers()[:1]}, ""},
	} {
		e := small(t, c.o)
		cache, err := Use(e, stored(t, vfs.NewMem(1<<20), 1<<20), "small")
		if err != nil {
			t.Fatal(err)
		}
		if got := cache.Unfit(e.Policy()); c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}
