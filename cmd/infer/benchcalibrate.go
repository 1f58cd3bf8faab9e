package main

import (
	"fmt"
	"time"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/internal/units"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/simulate"
)

// What bench --predict measures before it predicts, and for how long each of the host's and of the disk's rates is measured.
var hostEach, diskEach = 100 * time.Millisecond, 250 * time.Millisecond

// timedRun is a case that was measured.
type timedRun struct {
	row   bench.Row
	kv    benchKV
	timed *simulate.Timed
	model *model.Model
}

// timedCase measures a case, with the calls of its backend timed, and recorded where there is a recording.
func (a *app) timedCase(f *benchFlags, kv kvFlags, rec *simulate.Recording) (t timedRun, err error) {
	machine := tier.Machine{Wrap: func(b model.Backend) model.Backend { t.timed = rec.Backend(b); return t.timed }}
	if rec != nil {
		machine.Disk = rec.Disk(vfs.OS{})
	}
	t.row, t.kv, err = a.runCase(f, kv, caseHooks{
		machine: machine,
		opened:  func(l *loaded) { t.model = l.model; t.timed.Reset(); rec.Begin() },
	})
	if err == nil {
		p := partsOf(t.timed, t.row)
		rec.End(simulate.RecordedRun{Policy: kv.policyName(), Tiers: kv.tiers, Batch: t.row.Batch, Depth: f.o.D, Steps: len(t.row.TPS) * t.row.N, StepS: mean(t.row), OutsideS: p.Rest / 1e3})
	}
	return t, err
}

// inMemory is a policy's step with all KV in host memory.
type inMemory struct {
	compute simulate.Compute
	step    float64 // seconds
	rest    float64 // of them outside of the backend's calls
	beside  float64 // simulate.Host.Beside
}

// timedInMemory measures a policy without tiers; what plain has outside of the backend's calls is a layer's own.
func (a *app) timedInMemory(f *benchFlags, policy string, plain *inMemory, rec *simulate.Recording) (*inMemory, error) {
	t, err := a.timedCase(f, kvFlags{policy: policy}, rec)
	if err != nil {
		return nil, err
	}
	c, timed, m := t.row, t.timed, t.model
	out := &inMemory{step: medianStep(c)}
	var calls float64
	out.compute, calls = timed.Compute()
	out.compute.Policy, out.compute.Batch = policy, c.Batch
	out.rest = max(0, mean(c)-calls)
	fixed := out.rest
	if plain != nil {
		fixed = min(fixed, plain.rest)
		scanned := float64(c.Batch*(f.o.D+f.o.N*(2+len(c.TPS))/2)) * float64(2*m.Layers*m.KVHeads*(m.KeyDim+m.ValDim))
		out.compute.Scan = (out.rest - fixed) / scanned
	}
	out.compute.Layer = fixed / float64(m.Layers)
	return out, nil
}

// shallow is the depth at which calls are timed beside other work: weights are nearly all that they read.
const shallow = 64

// measureBeside measures how much longer the backend's calls take beside work of another core.
func (a *app) measureBeside(f *benchFlags) (float64, error) {
	own := *f
	own.o.D, own.o.Repeats, own.o.Batch = shallow, 2, 1
	return simulate.MeasureBeside(func() (float64, error) {
		t, err := a.timedCase(&own, kvFlags{policy: "full"}, nil)
		if err != nil {
			return 0, err
		}
		_, calls := t.timed.Compute()
		return calls, nil
	})
}

// calibrateShare is how much of a case's depth, and of its host memory, the run has that says what the host does for its tiers.
const calibrateShare = 0.75

// calibrate takes from a run of the policy at another depth, on a disk that is none, what calls of the backend take and what the host does
// for its tiers.
func (a *app) calibrate(f *benchFlags, kv kvFlags, host *simulate.Host) error {
	own, less := *f, kvFlags{policy: kv.policy}
	own.o.D, own.o.Repeats = int(calibrateShare*float64(f.o.D)), 2
	tiers, err := tierList(kv.tiers)
	if err != nil {
		return err
	}
	for i, t := range tiers {
		spec := kv.tiers[i]
		if t.Kind == tier.Host {
			spec = fmt.Sprintf("host=%d", int64(calibrateShare*float64(t.Bytes)))
		}
		less.tiers = append(less.tiers, spec)
	}
	var timed *simulate.Timed
	work, metered, free := simulate.HostWork{}, clock.NewMetered(), simulate.NewFreeDisk()
	row, _, err := a.runCase(&own, less, caseHooks{
		machine: tier.Machine{Clock: metered, Disk: free, Wrap: func(b model.Backend) model.Backend { timed = simulate.NewTimed(b, nil); return timed }},
		opened: func(l *loaded) {
			timed.Reset()
			_, _ = metered.Spent(), free.Used()
			work.Layers = float64(l.model.Layers)
		},
		measured: func() { work.Work, work.Free = metered.Spent(), free.Used() },
	})
	if err != nil {
		return fmt.Errorf("calibrating %s: %w", kv.policyName(), err)
	}
	steps := float64(len(row.TPS) * row.N)
	calls, all := timed.Compute()
	before := host.Compute
	calls.Policy, calls.Batch, calls.Layer, calls.Scan, calls.Prompt = before.Policy, before.Batch, before.Layer, before.Scan, before.Prompt
	host.Compute = calls
	work.Layers *= steps
	work.Outside = row.Took.Seconds() - all*steps
	host.Calibrate(work)
	return nil
}

// predictCase measures and predicts one case.
func (a *app) predictCase(f *benchFlags, kv kvFlags, rates offload.HostRates, plain *inMemory, rec *simulate.Recording) (row predictedRow, err error) {
	host := simulate.Host{Cores: processors, Rates: rates, Beside: plain.beside}
	ssd, socket, err := lowerTier(kv.tiers)
	if err != nil {
		return row, err
	}
	if host.Storage, err = a.storageOf(ssd); err != nil {
		return row, err
	}
	t, err := a.timedCase(f, kv, rec)
	if err != nil {
		return row, err
	}
	after, err := a.storageOf(ssd)
	if err != nil {
		return row, err
	}
	memory, err := a.timedInMemory(f, kv.policyName(), plain, rec)
	if err != nil {
		return row, err
	}
	host.Compute = memory.compute
	if ssd != "" {
		later, err := a.storageOf(ssd)
		if err != nil {
			return row, err
		}
		host.Storage = offload.Middle(host.Storage, after, later) // of a device that is not the same at all times
		if err := a.calibrate(f, kv, &host); err != nil {
			return row, err
		}
	} else if host.Drive, err = a.driveOf(socket, kv, t.model); err != nil {
		return row, err
	}
	rec.Computed(host.Compute)
	if rec != nil {
		rec.Host.Cores, rec.Host.Rates, rec.Host.Beside, rec.Host.Drive = host.Cores, host.Rates, host.Beside, host.Drive
		if rec.Host.Storage == nil {
			rec.Host.Storage = host.Storage
		}
	}
	if row, err = a.modelledCase(f, kv, host); err != nil {
		return row, err
	}
	row.MemoryMS, row.MeasuredMS, row.MeasuredKV, row.MeasuredFrom = 1e3*memory.step, 1e3*medianStep(t.row), &t.kv, sourceOf(t.row)
	parts := partsOf(t.timed, t.row)
	row.MeasuredIn = &parts
	for _, tps := range t.row.TPS {
		row.AllMS = append(row.AllMS, 1e3*float64(t.row.Batch)/tps)
	}
	row.Ratio = row.PredictedMS / row.MeasuredMS
	return row, nil
}

// lowerTier is the directory of a case's ssd tier, or the socket of its drive.
func lowerTier(specs []string) (ssd, socket string, err error) {
	tiers, err := tierList(specs)
	if err != nil {
		return "", "", err
	}
	for _, t := range tiers {
		switch {
		case t.Kind == tier.SSD:
			ssd = t.Path
		case t.Kind == tier.CSD && socket == "":
			socket = t.Path
		case t.Kind != tier.Host:
			return "", "", usageErrorf("--predict: tier %s: want host=SIZE ssd=DIR,SIZE, or one drive, csd=unix:SOCKET", t.Kind)
		}
	}
	if ssd == "" && socket == "" {
		return "", "", usageErrorf("--predict: want a tier below host memory, as in host=SIZE ssd=DIR,SIZE")
	}
	return ssd, socket, nil
}

// storageOf measures a directory; nil where there is none.
func (a *app) storageOf(dir string) (*offload.StorageRates, error) {
	if dir == "" {
		return nil, nil
	}
	r, err := offload.MeasureStorage(a.ctx, dir, offload.MeasureOptions{SizeBytes: 64 * units.MiB, Each: diskEach, Rounds: 1, NoStore: true})
	return &r, err
}

// driveOf measures what a policy's steps ask of a drive.
func (a *app) driveOf(socket string, kv kvFlags, m *model.Model) (*simulate.Drive, error) {
	spec, err := policy.Parse(kv.policyName())
	if err != nil {
		return nil, err
	}
	return simulate.MeasureDrive(a.ctx, socket, m, spec)
}
