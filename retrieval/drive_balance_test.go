package retrieval

import (
	"testing"

	"terrace/csdshim"
	"terrace/internal/kvpage"
	"terrace/offload"
	"terrace/policy"
)

// TestDriveBalanceRates computes a balance by hand.
func TestDriveBalanceRates(t *testing.T) {
	l := offload.Shape{Layers: 3, KVHeads: 3, GroupTokens: 16, Page: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
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
