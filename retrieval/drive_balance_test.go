package retrieval

import (
	"math"
	"testing"

	"terrace/csdshim"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/offload"
	"terrace/policy"
)

// TestDriveBalanceRates computes a balance by hand.
func TestDriveBalanceRates(t *testing.T) {
	l := offload.Shape{Layers: cacheshape.Equal(3, 3, cacheshape.KV{Heads: 3, KeyDim: 64, ValueDim: 64}), GroupTokens: 16, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
	id := csdshim.Identity{Keys: "ddr", LinkBytesPerS: 3e9, NANDBytesPerS: 6e9, ScanBytesPerS: 20e9}
	host := offload.HostRates{Threads: 4, Scan: map[string]float64{"int8": 40e9, "int4": 50e9}, Copy: 8e9}
	for _, c := range []struct {
		keys  string
		codes csdshim.Codes
		want  policy.Balance
	}{
		{"ddr", csdshim.CodesInt8, policy.Balance{FC: 20e9, FS: 80e9, BC: 8e9, BS: 3e9}}, // a code is a quarter of a token's KV in f16
		{"ddr", csdshim.CodesInt4, policy.Balance{FC: 25e9, FS: 160e9, BC: 8e9, BS: 3e9}},
		{"nand", csdshim.CodesInt8, policy.Balance{FC: 20e9, FS: 12e9, BC: 8e9, BS: 3e9}}, // keys are half of it
		{"ddr", csdshim.CodesNone, policy.Balance{}},
	} {
		id.Keys = c.keys
		if got := driveBalance(host, 2, id, c.codes, l); got != c.want {
			t.Errorf("keys in %s, %v: %+v, want %+v", c.keys, c.codes, got, c.want)
		}
	}
	if b := driveBalance(host, 2, csdshim.Identity{Keys: "ddr"}, csdshim.CodesInt8, l); b.FS != 0 || b.BS != 0 {
		t.Errorf("a drive without limits: %+v", b)
	}
}

// TestDriveTiming: a drive's rate is the bytes of a message's questions by the time of the last: each is timed from the message's arrival.
func TestDriveTiming(t *testing.T) {
	const bytes, one = 1 << 20, 250_000 // of a question, and nanoseconds that it takes
	for _, texts := range []int{1, 2, 8} {
		var d driveTiming
		for range timedQuestions {
			var m driveMessage
			for i := range texts { // the drive's own account, or the time on the wall where that is longer
				took := csdshim.Timing{TotalNs: uint64(one * (i + 1)), MeasuredNs: uint64(one*(i+1)) / 2}
				if i%2 == 1 {
					took.TotalNs, took.MeasuredNs = took.MeasuredNs, took.TotalNs
				}
				d.add(&m, took, bytes)
			}
		}
		if got, want := d.rate(), float64(bytes)/(one/1e9); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("%d questions a message: %g bytes a second, want %g", texts, got, want)
		}
	}
	var early driveTiming
	early.add(&driveMessage{}, csdshim.Timing{TotalNs: one}, bytes)
	if early.rate() != 0 {
		t.Errorf("a rate after one question: %g", early.rate())
	}
}
