package predict

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"terrace/bench"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/internal/cputime"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/internal/tierspec"
	"terrace/model"
	"terrace/offload"
	"terrace/simulate"
	"terrace/weights"
	"terrace/weights/convert"
)

const layers = 3

// predictor predicts on a small random model, and closed counts the engines that it has closed.
func predictor(t *testing.T, o bench.Options) (p *Predictor, closed *int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.gguf")
	spec := convert.Spec{Arch: "llama", Layers: layers, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 96, Vocab: 300, Context: 2048, Seed: 5}
	if err := convert.Synthesize(context.Background(), path, spec, convert.Options{Type: quant.Q8_0}); err != nil {
		t.Fatal(err)
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	closed = new(int)
	t.Cleanup(func() {
		if opened != *closed {
			t.Errorf("%d engines opened, %d closed", opened, *closed)
		}
	})
	open := func(c Case, tokens int, machine tier.Machine) (*Opened, error) {
		var tiers []tier.Tier
		for _, spec := range c.Tiers {
			one, err := tierspec.Parse(spec)
			if err != nil {
				return nil, err
			}
			tiers = append(tiers, one)
		}
		e, err := engine.Open(m, engine.Options{Policy: c.Policy, Context: tokens, ChunkTokens: 64, Threads: 1, Tiers: tiers, Machine: machine})
		if err != nil {
			return nil, err
		}
		opened++
		return &Opened{Name: c.PolicyName(), Engine: e, Close: func() { *closed++; e.Close() }}, nil
	}
	return &Predictor{Open: open, Bench: o, Cores: 1, Threads: 1, HostEach: time.Millisecond, DiskEach: time.Millisecond, HostBytes: 3 << 20}, closed
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		tiers []string
		ok    bool
	}{
		{nil, false}, {[]string{"host=1MiB"}, false}, {[]string{"host=1MiB", "ssd=/kv,1GiB"}, true}, {[]string{"csd=unix:/s"}, true},
		{[]string{"host=1MiB", "ssd=/kv,1GiB,xcache=auto"}, false},
		{[]string{"host=1MiB", "csd=unix:/s", "csd=unix:/t"}, false}, {[]string{"device=1MiB", "host=1MiB", "ssd=/kv,1GiB"}, false},
		{[]string{"host=1MiB", "ssd=/kv,1GiB", "csd=unix:/s"}, true}, {[]string{"host=1MiB", "ssd=/a,1GiB", "ssd=/b,2GiB"}, true},
		{[]string{"host=1MiB", "ssd=/a,1GiB", "ssd=/proc/b,2GiB"}, false}, // of another device
	} {
		if err := (Case{Tiers: c.tiers}).Check(); (err == nil) != c.ok || err != nil && !errors.Is(err, engine.ErrOption) {
			t.Errorf("%v: %v", c.tiers, err)
		}
	}
	ssd, drive := Case{Tiers: []string{"host=1MiB", "ssd=/kv,1GiB"}}, Case{Tiers: []string{"csd=unix:/s"}}
	host := simulate.Host{Storage: &offload.StorageRates{}}
	if ssd.Lacks(host) != "" || ssd.Lacks(simulate.Host{}) != "ssd=" || drive.Lacks(host) != "csd=" || drive.Lacks(simulate.Host{Drive: &simulate.Drive{}}) != "" {
		t.Errorf("lacks %q %q %q", ssd.Lacks(host), ssd.Lacks(simulate.Host{}), drive.Lacks(host))
	}
}

// TestSmaller: rates are learnt at three quarters of the depth and of host memory, in a folder of its own.
func TestSmaller(t *testing.T) {
	c := Case{Policy: "quest", Tiers: []string{"host=4MiB", "ssd=/kv,16MiB"}}
	less, own, made, err := smaller(c, bench.Options{N: 2, D: 1000, Repeats: 3})
	want := Case{Policy: "quest", Tiers: []string{"host=3145728", "ssd=/kv/calibration,16777216"}}
	if err != nil || !reflect.DeepEqual(less, want) || own.D != 750 || own.Repeats != 4 || own.N != 2 || !reflect.DeepEqual(made, []string{"/kv/calibration"}) {
		t.Errorf("%v, %+v, made %v, %v", less, own, made, err)
	}
	less, _, made, err = smaller(Case{Tiers: []string{"host=4MiB", "ssd=/a,8MiB", "ssd=/b,16MiB"}}, bench.Options{D: 1000})
	if want := []string{"host=3145728", "ssd=/a/calibration,6291456", "ssd=/b/calibration,16777216"}; err != nil || !reflect.DeepEqual(less.Tiers, want) || len(made) != 2 {
		t.Errorf("%v, made %v, %v", less, made, err)
	}
	if c.Tiers[0] != "host=4MiB" {
		t.Errorf("the case itself has changed: %v", c.Tiers)
	}
}

// TestModel: a step in memory takes what the host's rates say, part by part.
func TestModel(t *testing.T) {
	p, _ := predictor(t, bench.Options{N: 4, D: 40, Repeats: 2, Continue: true, Seed: 1})
	host := simulate.Host{Cores: 1, Compute: simulate.Compute{Embed: 1e-3, Project: 2e-3, Finish: 4e-3, Logits: 8e-3, Layer: 16e-3, Scan: 1e-12}}
	var told *offload.HostRates
	open := p.Open
	p.Open = func(c Case, tokens int, m tier.Machine) (*Opened, error) {
		told = m.Host
		return open(c, tokens, m)
	}
	got, err := p.Model(t.Context(), Case{}, host)
	if err != nil {
		t.Fatal(err)
	}
	if told == nil || math.Abs(told.ScanRate(kvpage.I8, 2, 32)/1e12-1) > 1e-9 {
		t.Errorf("a policy is told that the host does %+v", told)
	}
	want := Parts{Project: 1 + layers*(2+16), Finish: layers * 4, Logits: 8}
	for _, x := range [][2]float64{
		{got.Predicted.Parts.Project, want.Project}, {got.Predicted.Parts.Finish, want.Finish}, {got.Predicted.Parts.Logits, want.Logits}, {got.Predicted.Parts.Attend, 0},
		{1e3 * got.Predicted.Row.MeanStep(), want.Project + want.Finish + want.Logits}, {got.Predicted.Parts.Rest, 0},
	} {
		if math.Abs(x[0]-x[1]) > 1e-6 {
			t.Errorf("%g ms, want %g: %+v", x[0], x[1], got.Predicted.Parts)
		}
	}
	if got.Measured != nil || got.Ratio() != 0 || got.Memory != 0 || len(got.Predicted.StepsMS()) != 2 {
		t.Errorf("%+v", got)
	}
}

// TestMeasure: a case on an SSD is measured, recorded beside the smaller one, and predicted; what was made for it is removed.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the host")
	}
	p, closed := predictor(t, bench.Options{N: 2, D: 800, Repeats: 1, Continue: true, Seed: 1})
	p.Record = simulate.NewRecording()
	dir := t.TempDir()
	c := Case{Tiers: []string{"host=400KiB", "ssd=" + filepath.Join(dir, "kv") + ",16MiB"}}
	if err := os.Mkdir(filepath.Join(dir, "kv"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := p.Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got.Memory <= 0 || got.Measured == nil || got.Ratio() <= 0 || got.Measured.Row.Tiers.ReadBytes == 0 || got.Host.Storage == nil || got.Host.Device == nil {
		t.Errorf("%+v", got)
	}
	parts := got.Measured.Parts
	if sum := parts.Project + parts.Attend + parts.Finish + parts.Logits + parts.Guess + parts.Wait + parts.Rest; math.Abs(sum-1e3*got.Measured.Row.MeanStep()) > 1e-6 {
		t.Errorf("the parts sum to %g ms of %g", sum, 1e3*got.Measured.Row.MeanStep())
	}
	if r := p.Record.Runs; len(r) != 2 || r[0].Depth != 600 || r[1].Depth != 800 || len(r[0].Events) == 0 || len(r[1].Events) == 0 {
		t.Errorf("%d runs recorded: %+v", len(r), r)
	}
	var b bytes.Buffer
	if err := p.Record.Write(&b); err != nil || b.Len() == 0 {
		t.Errorf("%d bytes of recording, %v", b.Len(), err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "kv")); err != nil || len(left) > 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if *closed != 5 { // full in memory, whole and part, asking, modelled
		t.Errorf("%d engines", *closed)
	}
	if _, err := p.Measure(t.Context(), Case{Policy: "quest"}); !errors.Is(err, engine.ErrOption) {
		t.Errorf("without tiers: %v", err)
	}
	p.ProfileOnly = true
	if _, err := p.Measure(t.Context(), c); !errors.Is(err, engine.ErrOption) || *closed != 5 {
		t.Errorf("an SSD at its profile: %v, %d engines", err, *closed)
	}
}

// TestWatch: one thread is timed by the processor, several by the clock on the wall.
func TestWatch(t *testing.T) {
	before := cputime.Used()
	now := (&Predictor{Threads: 1}).watch().Now()
	if after := cputime.Used(); now < before || now > after {
		t.Errorf("one thread: %v, want from %v to %v of the processor's time", now, before, after)
	}
	if watch := (&Predictor{Threads: 2}).watch(); watch != clock.Real() {
		t.Errorf("two threads: %T", watch)
	}
}
