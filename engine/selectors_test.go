package engine

import (
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/tierspec"
)

// TestSelectorsOnEveryTier: what pqcache, topp, retroinfer, kvswap, double_sparsity, rocketkv, vattention, magicpig and tailcodes read gives the same logits in host memory, with
// the KV in a file of an SSD and on a drive (which scores nothing for them), bit for bit, alone and in a batch.
func TestSelectorsOnEveryTier(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(400, 1), fakes.IDs(24, 2) // more than retroinfer groups together
	for policy, pages := range map[string]int64{        // of host memory, less than the text's KV
		"pqcache:budget=60,bits=4,n_sink=4":                                      90,
		"topp:select=pqcache,budget=120,bits=4,n_sink=4":                         114,
		"topp:select=topk,budget=120,estimate=exact":                             90,
		"kvswap:budget=60":                                                       90,
		"kvswap:budget=60,rank=6,calibrate=model":                                90,
		"double_sparsity:budget=60":                                              90,
		"double_sparsity:budget=60,rank=6,labels=half,calibrate=model":           90,
		"rocketkv:budget=60,window_size=16,kernel_size=7":                        90,
		"rocketkv:budget=60,split=0":                                             100,
		"vattention:select=pqcache,budget=60,bits=4,n_sink=4":                    90,
		"vattention:select=double_sparsity,budget=60,dense_layers=0,epsilon=50%": 90,
		"magicpig:bits=4,tables=10,full_layers=1":                                142,
		"tailcodes:budget=60,bits=3":                                             100,
		"retroinfer:cluster=8,update=16,recent=4,retrieval=10%,estimation=50%":   142,
	} {
		t.Run(strings.ReplaceAll(policy, ":", " of "), func(t *testing.T) {
			t.Parallel()
			which := len(policy) % 2
			o := Options{Threads: 1 + which, Policy: policy, ChunkTokens: 32, Calibration: fakes.IDs(100, 3)}
			want := forced(t, small(t, o), prompt, next)
			drive := newTestDrive(t).start().tiers(0)[1]
			for i, kind := range []tierspec.Kind{tier.SSD, tier.CSD} {
				at := func(pages int64) []tier.Tier {
					low := drive
					if kind == tier.SSD { // a folder has one engine at a time
						low = tier.Tier{Kind: kind, Place: t.TempDir(), CapacityBytes: 16 << 20}
					}
					return []tier.Tier{{Kind: tier.Host, CapacityBytes: pages * 4096}, low}
				}
				o.Tiers = at(pages)
				e := small(t, o)
				if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
					t.Errorf("%s: logits differ by %g", kind, d)
				}
				if u := e.TierUse(); u.ReadBytes == 0 || u.Scored.DriveTokens != 0 {
					t.Errorf("%s: %d bytes were read, the drive scored %d tokens", kind, u.ReadBytes, u.Scored.DriveTokens)
				}
				if i != which && !golden.Thorough() {
					continue
				}
				o.Tiers = at(pages + 150)
				if d := fakes.Worst(want, inBatch(t, small(t, o), prompt, next)); d != 0 {
					t.Errorf("%s, in a batch: logits differ by %g", kind, d)
				}
			}
		})
	}
}
