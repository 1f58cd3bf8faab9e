package engine

import (
	"math"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/offload"
)

// TestDriveBalance: in every mode a session on a drive is divided by the host's measured and the drive's own throughputs where
// both paths take as long by a search of the test's own, or as the user said; the correction uses the share that was found in
// memory; logits are those of the policy alone.
func TestDriveBalance(t *testing.T) {
	t.Parallel()
	host := offload.HostRates{Threads: 2, Scan: map[string]float64{"int8": 3e9, "int4": 4e9, "f16": 1e9}, Copy: 5e9}
	prompt, next := someIDs(300, 1), someIDs(9, 2)
	for _, c := range []struct {
		args     string
		keys     csdshim.KeyPlace
		host, by float64 // GB of KV a second that the host scores by its figures above, and the drive by smartssd.toml, by hand
	}{
		{"query=guess", csdshim.KeysDDR, 3, 4 * 19.2}, // a code is a quarter of a token's KV
		{"skew=true", csdshim.KeysDDR, 3, 4 * 19.2},
		{"score=int4", csdshim.KeysNAND, 4, 2 * 3.2}, // half of a token's KV comes from the flash
		{"beta_mode=store_forward", csdshim.KeysDDR, 3, 4 * 19.2},
		{"beta_mode=store_forward,skew=true", csdshim.KeysNAND, 3, 2 * 3.2},
		{"beta_mode=ratio,score=fp16,skew=true", csdshim.KeysDDR, 1, 2 * 19.2},
		{"beta_mode=fixed,beta=0.25", csdshim.KeysDDR, 3, 4 * 19.2},
	} {
		t.Run(strings.ReplaceAll(c.args, ",", " "), func(t *testing.T) {
			o := Options{Threads: 2, Policy: "hillinfer:guess_from=1,alpha=0.1," + c.args, ChunkTokens: 32, Host: host}
			want := forced(t, small(t, o), prompt, next)
			drive := newTestDrive(t)
			drive.keys, drive.profile = c.keys, "smartssd"
			o.Tiers = drive.start().tiers(100 * 4096)
			e := small(t, o)
			if d := worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("logits differ by %g", d)
			}
			u := e.TierUse().Balance
			if u == nil {
				t.Fatal("nothing was balanced")
			}
			if strings.Contains(c.args, "fixed") {
				if math.Abs(u.Share-0.2) > 1e-9 {
					t.Errorf("beta 0.25 makes %g hot", u.Share)
				}
				return
			}
			if want := balancedShare(c.args, u.Found, c.host, c.by, 5, 3.2); !u.Known() || math.Abs(u.Share-want) > 1e-6 {
				t.Errorf("%g of the tokens hot, want %g: by %+v", u.Share, want, u.Balance)
			}
			if skewed := u.Found >= 0; skewed != strings.Contains(c.args, "skew=true") || u.Found > 1 {
				t.Errorf("corrected by a share of %g", u.Found)
			}
			if hot := int(math.Round(u.Share * float64(u.Tokens))); u.HotTokens != min(hot, u.Capacity) || u.HostTokens > u.HotTokens+e.kv.Layout().Tokens {
				t.Errorf("%d of %d tokens are to be hot, %d are, %d fit, want %d", u.HotTokens, u.Tokens, u.HostTokens, u.Capacity, hot)
			}
		})
	}
}

// balancedShare is the hot share at which both paths take as long, found by halving: host and drive score f_c and f_s and
// deliver a tenth at b_c and b_s, GB of KV a second. found is the share of the selection that is hot; below 0 it is the
// pools'.
func balancedShare(args string, found, fc, fs, bc, bs float64) float64 {
	later := func(hot float64) bool { // the host is
		fromHot, fromCold := 0.1*hot, 0.1*(1-hot)
		if found >= 0 {
			fromHot, fromCold = 0.1*found, 0.1*(1-found)
		}
		host, drive := fromHot/bc, fromCold/bs
		switch {
		case strings.Contains(args, "ratio"):
			host, drive = 0, 0
		case strings.Contains(args, "store_forward"):
			drive += fromCold / bc
		}
		return host+hot/fc > drive+(1-hot)/fs
	}
	low, high := 0.0, 1.0
	for range 60 {
		if middle := (low + high) / 2; later(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}
