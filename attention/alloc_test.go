package attention

import (
	"fmt"
	"testing"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// TestAttendAllocatesNothing: after a first call, none of the phases allocates, ColumnSums included.
func TestAttendAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates on its own")
	}
	pool := kernels.NewPool(2)
	defer pool.Close()
	for _, c := range []attendCase{
		{name: "f16", p: params(9, 3, 64), k: kvpage.F16, v: kvpage.F16, tokens: 300, page: 16, withMass: true},
		{name: "int8", p: params(4, 1, 64), k: kvpage.I8, v: kvpage.I4, recent: kvpage.F16, tokens: 128, late: 20, page: 16},
		{name: "int3", p: params(4, 1, 64), k: kvpage.I3, v: kvpage.I2, recent: kvpage.F16, tokens: 256, late: 20, page: 128},
	} {
		for _, ph := range []kernels.Phase{kernels.Exact, kernels.Decode, kernels.Prefill} {
			t.Run(fmt.Sprintf("%s/%d", c.name, ph), func(t *testing.T) {
				seqs := []Seq{c.make(1, 9)}
				// AllocsPerRun counts whole allocations a run; the workspace's pool may lose its scratch to a collection.
				if n := testing.AllocsPerRun(50, func() { Attend(pool, ph, c.p, seqs) }); n > 0 {
					t.Errorf("%v allocations a call, want none", n)
				}
			})
		}
	}
}
