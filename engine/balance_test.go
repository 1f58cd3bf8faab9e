package engine

import (
	"math"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/offload"
)

// TestDriveBalance: in every mode a session on a drive is divided by the host's measured and the drive's own throughputs so
// that both of the mode's path times are equal, or as the user said; the correction uses the share that was found in memory;
// logits are those of the policy alone.
func TestDriveBalance(t *testing.T) {
	t.Parallel()
	host := offload.HostRates{Threads: 2, Scan: map[string]float64{"int8": 3e9, "int4": 4e9, "f16": 1e9}, Copy: 5e9}
	prompt, next := someIDs(300, 1), someIDs(9, 2)
	for _, c := range []struct {
		args string
		keys csdshim.KeyPlace
	}{
		{"query=guess", csdshim.KeysDDR}, {"skew=true", csdshim.KeysDDR}, {"score=int4", csdshim.KeysNAND}, {"beta_mode=store_forward", csdshim.KeysDDR},
		{"beta_mode=store_forward,skew=true", csdshim.KeysNAND}, {"beta_mode=ratio,score=fp16,skew=true", csdshim.KeysDDR}, {"beta_mode=fixed,beta=0.25", csdshim.KeysDDR},
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
			a, b := u.Times(1e9)
			if !u.Known() || u.Share <= 0 || u.Share >= 1 || math.Abs(a-b) > 1e-9*a {
				t.Errorf("%g of the tokens hot: host %g s, drive %g s, by %+v", u.Share, a, b, u.Balance)
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
