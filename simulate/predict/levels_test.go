package predict

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"terrace/bench"
	"terrace/offload"
	"terrace/simulate"
)

// TestModelLevels: where nothing but transfers takes time, a step takes what its operations and bytes say, on each level below host memory;
// an SSD and a drive below it work at the same time, two SSDs are one device.
func TestModelLevels(t *testing.T) {
	p, _ := predictor(t, bench.Options{N: 4, D: 800, Repeats: 2, Continue: true, Seed: 1})
	const op, each = 1e-3, 1e-6 // seconds an operation or message, and a byte
	host := simulate.Host{Cores: 2, Rates: offload.HostRates{Copy: 1e18}, Storage: &offload.StorageRates{}, Device: &simulate.Device{Op: op, Byte: each},
		Drive: &simulate.Drive{Profile: "smartssd", Keys: "ddr", CapacityBytes: 64 << 20, Fetch: op, FetchByte: each}}
	model := func(tiers ...string) (step, took float64, moved map[string]int64) {
		t.Helper()
		got, err := p.Model(t.Context(), Case{Tiers: append([]string{"host=300KiB"}, tiers...)}, host)
		if err != nil {
			t.Fatal(err)
		}
		r := got.Predicted.Row
		if wait := got.Predicted.Parts.Wait; math.Abs(wait/(1e3*r.MeanStep())-1) > 0.01 {
			t.Errorf("%v: a step of %.1f ms waits %.1f", tiers, 1e3*r.MeanStep(), wait)
		}
		return r.MeanStep(), (op*float64(r.Tiers.Reads) + each*float64(r.Tiers.ReadBytes)) / float64(r.Steps()), r.Tiers.MovedBytes
	}
	alone, took, one := model("ssd=/a,16MiB")
	if math.Abs(alone/took-1) > 0.01 {
		t.Errorf("on an SSD a step takes %.4f s, its reads %.4f", alone, took)
	}
	step, took, two := model("ssd=/a,200KiB", "ssd=/b,16MiB")
	if math.Abs(step/took-1) > 0.01 || two["ssd>host"] < 1<<20 || two["ssd2>host"] < 1<<20 || math.Abs(float64(two["ssd>host"]+two["ssd2>host"])/float64(one["ssd>host"])-1) > 0.01 {
		t.Errorf("on two SSDs a step takes %.4f s, its reads %.4f: %v, on one %v", step, took, two, one)
	}
	drive, took, _ := model("csd=unix:/s")
	if math.Abs(drive/took-1) > 0.01 {
		t.Errorf("on a drive a step takes %.4f s, its fetches %.4f", drive, took)
	}
	step, took, both := model("ssd=/a,200KiB", "csd=unix:/s")
	if least := each * float64(both["csd>host"]) / 8; step < least || step > 0.9*took || both["ssd>host"] != two["ssd>host"] || both["csd>host"] == 0 {
		t.Errorf("on an SSD above a drive a step takes %.4f s, the drive's bytes %.4f, one after another %.4f: %v, above an SSD %v", step, least, took, both, two)
	}
}

// TestMeasureLevels: a case on two SSD tiers is measured and predicted; by the model about as much is read from them.
func TestMeasureLevels(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the host")
	}
	p, _ := predictor(t, bench.Options{N: 2, D: 800, Repeats: 1, Continue: true, Seed: 1})
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	got, err := p.Measure(t.Context(), Case{Tiers: []string{"host=400KiB", "ssd=" + a + ",200KiB", "ssd=" + b + ",16MiB"}})
	if err != nil {
		t.Fatal(err)
	}
	really, modelled := got.Measured.Row.Tiers.MovedBytes, got.Predicted.Row.Tiers.MovedBytes
	sum := [2]float64{}
	for _, from := range []string{"ssd>host", "ssd2>host"} { // which level has a record depends on the time at which others were written
		if really[from] == 0 || modelled[from] == 0 {
			t.Errorf("%s: %d bytes by the model, really %d", from, modelled[from], really[from])
		}
		sum[0], sum[1] = sum[0]+float64(modelled[from]), sum[1]+float64(really[from])
	}
	if math.Abs(sum[0]/sum[1]-1) > 0.25 {
		t.Errorf("%.0f bytes by the model, really %.0f", sum[0], sum[1])
	}
	if got.Ratio() <= 0 || got.Host.Device == nil || got.Host.Drive != nil {
		t.Errorf("%+v", got)
	}
	for _, own := range []string{a, b} {
		if _, err := os.Stat(filepath.Join(own, "calibration")); !os.IsNotExist(err) {
			t.Errorf("%s: a smaller case was left: %v", own, err)
		}
	}
}
