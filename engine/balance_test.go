package engine

import (
	"math"
	"strings"
	"testing"

	"terrace/csdshim"
	"terrace/engine/fakes"
	"terrace/offload"
	"terrace/retrieval"
)

// TestDriveBalance: in every mode a session on a drive is divided by the host's measured and the drive's own throughputs where
// both paths take as long by a search of the test's own, or as the user said; the correction uses the share that was found in
// memory; logits are those of the policy alone.
func TestDriveBalance(t *testing.T) {
	t.Parallel()
	host := offload.HostRates{Threads: 2, Scan: map[string]float64{"int8": 3e9, "int4": 4e9, "f16": 1e9}, Copy: 5e9}
	prompt, next := fakes.IDs(300, 1), fakes.IDs(9, 2)
	for _, c := range []struct {
		args     string
		keys     csdshim.KeyPlace
		host, by float64 // GB of KV a second that the host scores by its figures above, and the drive by smartssd.toml, by hand
	}{
		{"beta_mode=overlap", csdshim.KeysDDR, 3, 4 * 19.2},            // a code is a quarter of a token's KV
		{"beta_mode=overlap,score=int4", csdshim.KeysNAND, 4, 2 * 3.2}, // half of a token's KV comes from the flash
		{"query=guess", csdshim.KeysDDR, 3, 4 * 19.2},                  // overlap, unless another is named
		{"beta_mode=eq4,query=guess", csdshim.KeysDDR, 3, 4 * 19.2},
		{"beta_mode=eq4,skew=true", csdshim.KeysDDR, 3, 4 * 19.2},
		{"beta_mode=eq4,score=int4", csdshim.KeysNAND, 4, 2 * 3.2},
		{"beta_mode=store_forward", csdshim.KeysDDR, 3, 4 * 19.2},
		{"beta_mode=store_forward,skew=true", csdshim.KeysNAND, 3, 2 * 3.2},
		{"beta_mode=ratio", csdshim.KeysNAND, 3, 2 * 3.2},
		{"beta_mode=ratio,score=fp16,skew=true", csdshim.KeysDDR, 1, 2 * 19.2},
		{"beta_mode=fixed,beta=0.25", csdshim.KeysDDR, 3, 4 * 19.2},
	} {
		t.Run(strings.ReplaceAll(c.args, ",", " "), func(t *testing.T) {
			o := Options{Threads: 2, Policy: "hillinfer:guess_from=1,alpha=0.1,drive=true," + c.args, ChunkTokens: 32, Host: host}
			if strings.HasPrefix(c.args, "query") { // a machine that is modelled says what it does
				o.Host, o.Machine.Host = offload.HostRates{Threads: 2, Scan: map[string]float64{"int8": 9e9}, Copy: 9e9}, &host
			}
			want := forced(t, small(t, o), prompt, next)
			drive := newTestDrive(t)
			drive.keys, drive.profile = c.keys, "smartssd"
			o.Tiers = drive.start().tiers(100 * 4096)
			e := small(t, o)
			if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("logits differ by %g", d)
			}
			u := e.TierUse().Balance
			if u == nil {
				t.Fatal("nothing was balanced")
			}
			if !strings.Contains(c.args, "beta_mode") {
				c.args += ",beta_mode=overlap"
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
			if skewed := u.Found >= 0; skewed != (strings.Contains(c.args, "skew=true") || strings.Contains(c.args, "overlap")) || u.Found > 1 {
				t.Errorf("corrected by a share of %g", u.Found)
			}
			if hot := int(math.Round(u.Share * float64(u.Tokens))); u.HotTokens != min(hot, u.Capacity) || u.HostTokens > u.HotTokens+e.kv.Format().Tokens {
				t.Errorf("%d of %d tokens are to be hot, %d are, %d fit, want %d", u.HotTokens, u.Tokens, u.HostTokens, u.Capacity, hot)
			}
		})
	}
}

// TestHostScoresWhereThatPays: a drive scores unless the host is measured to be sooner done alone and has room for all low-bit
// keys, or the user decides; the logits are the same, and the report says why.
func TestHostScoresWhereThatPays(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(300, 1), fakes.IDs(9, 2)
	const base = "hillinfer:guess_from=1,alpha=0.1"
	want := forced(t, small(t, Options{Threads: 2, Policy: base}), prompt, next)
	for _, c := range []struct {
		name, args string
		scan       float64 // of the host
		pages      int64
		host       bool
		batch      int
	}{
		{"fast host", "", 1e15, 130, true, 0}, {"slow host", "", 1e4, 130, false, 0}, {"nothing measured", "", 0, 66, false, 0},
		{"no room for all keys", "", 1e15, 60, false, 0}, {"no room for others", "", 1e15, 130, false, 4},
		{"the user wants the drive", ",drive=true", 1e15, 130, false, 0}, {"the user wants the host", ",drive=false", 1e7, 130, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Threads: 2, Policy: base + c.args, ChunkTokens: 32, Batch: c.batch}
			if c.scan > 0 {
				o.Host = offload.HostRates{Threads: 2, Scan: map[string]float64{"int8": c.scan}, Copy: 5e9}
			}
			drive := newTestDrive(t)
			drive.profile = "smartssd"
			o.Tiers = drive.start().tiers(c.pages * 4096)
			e := small(t, o)
			if d := fakes.Worst(want, forced(t, e, prompt, next)); d != 0 {
				t.Errorf("logits differ by %g", d)
			}
			u, scored := e.TierUse(), drive.drive.Stats().TokensScored
			if (scored == 0) != c.host {
				t.Errorf("the drive scored %d tokens", scored)
			}
			if p := e.KV().PeakBytes; p > e.o.KVBudgetBytes {
				t.Errorf("%d bytes in host memory, the budget is %d", p, e.o.KVBudgetBytes)
			}
			if c.scan == 0 || c.args != "" {
				if u.Balance != nil && u.Balance.Weighed != nil {
					t.Errorf("there was nothing to weigh: %+v", u.Balance.Weighed)
				}
				return
			}
			if u.Balance == nil || u.Balance.Weighed == nil {
				t.Fatalf("no word about the choice: %+v", u.Balance)
			}
			w := u.Balance.Weighed
			if alone := 300 * 256 / c.scan; math.Abs(w.Alone-alone) > 1e-9*alone || w.Host() != c.host || (w.Room == retrieval.CodesAndKV) != (c.pages > 100 && c.batch < 2) || w.RoundTrip <= 0 || w.Together < w.RoundTrip {
				t.Errorf("%+v, want %g s alone", w, alone)
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
		case strings.Contains(args, "overlap"): // delivery and scores at the same time
			return max(host, hot/fc) > max(drive, (1-hot)/fs)
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
