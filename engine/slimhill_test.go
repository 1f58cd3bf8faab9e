package engine

import (
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
)

// slimHill are pairs of a policy whose blocks come and go while decoding and one that selects single tokens.
var slimHill = []string{
	"sliminfer:layers=1/2,keep=160/96,block=32,gamma=1+hillinfer:guess_from=1,alpha=0.3",
	"sliminfer:layers=1/2,keep=192/128,block=32,gamma=1+hillinfer:guess_from=0,alpha=0.1,score=int4,block=16",
	"sliminfer:layers=1,keep=128,block=16,gamma=1+hillinfer:query=prev_step,alpha=0.2,recent_in_selection=true",
	"sliminfer:layers=1/2,keep=160/96,block=32,gamma=0.8+hillinfer:query=exact,scale=channel,beta_mode=fixed,beta=0.2",
	"sliminfer:layers=1/2,keep=160/96,block=32,gamma=1+hillinfer:guess_from=1,alpha=0.3,pools=paper,beta_mode=fixed,beta=0.5",
	"sliminfer:layers=1/2,keep=160/96,block=32,gamma=1+hillinfer:guess_from=1,alpha=0.3,exchange=false,beta_mode=fixed,beta=0.5",
	"sliminfer:layers=1/2,keep=160/96,block=32,gamma=1,async=false+hillinfer:guess_from=1,alpha=0.3,beta_mode=fixed,beta=0",
	"sliminfer:layers=1/2,keep=160/96,block=32,revive=none+hillinfer:guess_from=1,alpha=0.3",
	"sliminfer:layers=1/2,keep=160/96,block=32,revive=none+hillinfer:guess_from=1,alpha=0.2,score=fp16",
}

// TestBlocksComeAndGoInThePool: tokens of a prompt whose blocks leave and come back are selected on tiers as in memory, bit for bit,
// alone and in a batch: on a store that reads whole groups, on an SSD, which reads single tokens, and on a drive, which scores what is
// cold. The pool finds a part of what is read; host and drive score every active token once; what is left of the text is nothing.
func TestBlocksComeAndGoInThePool(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(24, 2)
	for i, spec := range slimHill {
		t.Run(strings.ReplaceAll(spec, "/", "-"), func(t *testing.T) {
			t.Parallel()
			plain := Options{Threads: 1 + i%2, Policy: spec, ChunkTokens: 32}
			want := forced(t, small(t, plain), prompt, next)
			host := 88*4096 + plain.rowsThatWait(t, len(prompt))
			for j, kind := range []string{"memory", "ssd", "drive"} {
				on := func(bytes int64) *Engine {
					o := plain
					switch kind {
					case "memory":
						o.Store, o.KVBudgetBytes = below(t, plain), bytes
					case "ssd":
						o.Tiers = []tier.Tier{{Kind: tier.Host, CapacityBytes: bytes}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}
					case "drive":
						o.Tiers = newTestDrive(t).start().tiers(bytes)
					}
					return small(t, o)
				}
				if kind == "ssd" {
					host += 32 * 4096 // its staging
				}
				e := on(host)
				slimHillAlone(t, e, kind, prompt, next, want)
				if p := e.KV().PeakBytes; p > host {
					t.Errorf("%s: %d bytes in host memory, the budget is %d", kind, p, host)
				}
				if i%3 != j && !golden.Thorough() {
					continue
				}
				if d := fakes.Worst(want, inBatch(t, on(3*host), prompt, next)); d != 0 {
					t.Errorf("%s, in a batch: logits differ by %g", kind, d)
				}
			}
		})
	}
}

// slimHillAlone decodes one text and looks at what was done for it.
func slimHillAlone(t *testing.T, e *Engine, kind string, prompt, next []int, want [][]float32) {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	got, ranked := [][]float32{slices.Clone(s.Logits())}, int64(0)
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		got = append(got, slices.Clone(s.Logits()))
		for layer := range e.m.Layers {
			ranked += int64(s.text.Seq().Tokens(layer, 0) - 1)
		}
	}
	if d := fakes.Worst(want, got); d != 0 {
		t.Errorf("%s: logits differ by %g", kind, d)
	}
	spec, use, swaps := e.Policy().String(), e.TierUse(), s.KVUse().Swaps
	if revives := !strings.Contains(spec, "revive=none"); revives && (swaps.Swaps < 3 || swaps.Revived == 0) || !revives && swaps.Swaps != 0 {
		t.Errorf("%s: %+v", kind, swaps)
	}
	if s.text.CacheBytes() == 0 || use.TokensFetched >= use.TokensRead {
		t.Errorf("%s: a pool of %d bytes; %d of the %d tokens that were read were not in memory", kind, s.text.CacheBytes(), use.TokensFetched, use.TokensRead)
	}
	scored := kind == "drive" && !strings.Contains(spec, "pools=paper")
	if u := use.Scored; scored && (u.DriveTokens == 0 || u.HostTokens == 0 || u.Refused != 0) || !scored && u.DriveTokens != 0 {
		t.Errorf("%s: %+v", kind, u)
	} else if scored && !strings.Contains(spec, "recent_in_selection") && u.HostTokens+u.DriveTokens != ranked {
		t.Errorf("%s: host and drive scored %d tokens together, %d were to be ranked: %+v", kind, u.HostTokens+u.DriveTokens, ranked, u)
	}
	s.Close()
	if n := e.KV().InUseBytes - e.retrieval.StoreBytes(); n != 0 {
		t.Errorf("%s: %d bytes are charged when no text is left", kind, n)
	}
}
