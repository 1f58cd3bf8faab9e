package main

import (
	"errors"
	"fmt"
	"path/filepath"
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

// openRun is a case that is open and has read its depth.
type openRun struct {
	*bench.Run
	cases []*benchCase
	kv    kvFlags
	depth int
}

// openRun opens a case on a machine and reads its depth.
func (bc *benchCommand) openRun(kv kvFlags, machine tier.Machine) (*openRun, error) {
	own := *bc
	own.load.machine = machine
	var err error
	r := &openRun{kv: kv, depth: bc.o.D}
	if r.cases, err = own.openBenchCases([]kvFlags{kv}); err != nil {
		r.close()
		return nil, err
	}
	o := bc.o
	o.Text = r.cases[0].text
	if r.Run, err = bench.Open(bc.ctx, r.cases[0].l.engine, true, o); err != nil {
		err = fmt.Errorf("%s: %w", r.cases[0].name(), err)
		r.close()
		return nil, err
	}
	return r, nil
}

// close ends the run; what it has measured stays.
func (r *openRun) close() {
	if r.Run != nil {
		r.Run.Close()
	}
	for _, c := range r.cases {
		c.close()
	}
	r.Run, r.cases = nil, nil
}

// repeat measures once more.
func (bc *benchCommand) repeat(r *openRun) error {
	if err := r.Repeat(bc.ctx); err != nil {
		return fmt.Errorf("%s: %w", r.cases[0].name(), err)
	}
	return nil
}

// kvUse is what the tiers did.
func (r *openRun) kvUse() benchKV { return r.cases[0].row(r.Row(), r.Row()).KV }

// timedRun is a run that is recorded, call by call.
type timedRun struct {
	*openRun
	timed *simulate.Timed
	rec   *simulate.Recording
}

// openTimed opens a case and records it from then on.
func (bc *benchCommand) openTimed(kv kvFlags) (t *timedRun, err error) {
	t = &timedRun{rec: simulate.NewRecording()}
	machine := tier.Machine{Disk: t.rec.Disk(vfs.OS{}), Dial: t.rec.Dial(nil), Wrap: func(b model.Backend) model.Backend { t.timed = t.rec.Backend(b); return t.timed }}
	if t.openRun, err = bc.openRun(kv, machine); err != nil {
		return nil, err
	}
	t.timed.Reset()
	t.rec.Begin()
	return t, nil
}

// end is what was recorded.
func (t *timedRun) end() *simulate.RecordedRun {
	row := t.Row()
	p := partsOf(t.timed, row)
	t.rec.End(simulate.RecordedRun{Policy: t.kv.policyName(), Tiers: t.kv.tiers, Batch: row.Batch, Depth: t.depth, Steps: len(row.TPS) * row.N, StepS: mean(row), OutsideS: p.Rest / 1e3})
	return &t.rec.Runs[0]
}

// inMemory is a policy's step with all KV in host memory.
type inMemory struct {
	compute simulate.Compute
	step    float64 // seconds
	rest    float64 // of them outside of the backend's calls
}

// timedInMemory measures a policy without tiers; what plain has outside of the backend's calls is a layer's own.
func (bc *benchCommand) timedInMemory(policy string, plain *inMemory) (*inMemory, error) {
	var timed *simulate.Timed
	r, err := bc.openRun(kvFlags{policy: policy}, tier.Machine{Wrap: func(b model.Backend) model.Backend { timed = simulate.NewTimed(b, nil); return timed }})
	if err != nil {
		return nil, err
	}
	defer r.close()
	timed.Reset()
	for range max(bc.o.Repeats, 1) {
		if err := bc.repeat(r); err != nil {
			return nil, err
		}
	}
	c, m := r.Row(), r.cases[0].l.model
	out := &inMemory{step: medianStep(c)}
	var calls float64
	out.compute, calls = timed.Compute()
	out.compute.Policy, out.compute.Batch = policy, c.Batch
	out.rest = max(0, mean(c)-calls)
	fixed := out.rest
	if plain != nil {
		fixed = min(fixed, plain.rest)
		scanned := float64(c.Batch*(bc.o.D+bc.o.N*(2+len(c.TPS))/2)) * float64(2*m.Cache().Numbers())
		out.compute.Scan = (out.rest - fixed) / scanned
	}
	out.compute.Layer = fixed / float64(m.Layers)
	return out, nil
}

// calibrateShare is how much of a case's depth, and of its host memory, the runs have from which rates are learnt.
const calibrateShare = 0.75

// smaller is a case at calibrateShare, with a folder of its own on an SSD.
func smaller(f *benchCommand, kv kvFlags) (own benchCommand, less kvFlags, made []string, err error) {
	own, less = *f, kvFlags{policy: kv.policy}
	own.o.D, own.o.Repeats = int(calibrateShare*float64(f.o.D)), max(f.o.Repeats, 1)+1
	tiers, err := tierList(kv.tiers)
	for i, t := range tiers {
		spec := kv.tiers[i]
		switch t.Kind {
		case tier.Host:
			t.CapacityBytes = int64(calibrateShare * float64(t.CapacityBytes))
			spec = t.String()
		case tier.SSD:
			t.Place = filepath.Join(t.Place, "calibration")
			made, spec = append(made, t.Place), t.String()
		}
		less.tiers = append(less.tiers, spec)
	}
	return own, less, made, err
}

// inTurns measures a case, and in turns with it the smaller one from which the host's rates on its tier are learnt: a device, and a machine
// that is shared, are not the same at all times.
func (bc *benchCommand) inTurns(kv kvFlags) (whole, part *timedRun, err error) {
	own, less, made, err := smaller(bc, kv)
	if err != nil {
		return nil, nil, err
	}
	if whole, err = bc.openTimed(kv); err != nil {
		return nil, nil, err
	}
	if part, err = own.openTimed(less); err != nil {
		whole.close()
		return nil, nil, err
	}
	part.cases[0].made = made
	err = bc.repeat(part.openRun)
	for range max(bc.o.Repeats, 1) {
		if err == nil {
			err = errors.Join(bc.repeat(whole.openRun), bc.repeat(part.openRun))
		}
	}
	if err != nil {
		whole.close()
		part.close()
	}
	return whole, part, err
}

// asking takes from a run of the smaller case, on a disk that is none, what asking the tier for a record costs the host.
func (bc *benchCommand) asking(kv kvFlags, host *simulate.Host) error {
	own, less, _, err := smaller(bc, kv)
	if err != nil {
		return err
	}
	own.o.Repeats = 2
	var timed *simulate.Timed
	metered, free := clock.NewMetered(), simulate.NewFreeDisk()
	r, err := own.openRun(less, tier.Machine{Clock: metered, Disk: free, Wrap: func(b model.Backend) model.Backend { timed = simulate.NewTimed(b, nil); return timed }})
	if err != nil {
		return fmt.Errorf("calibrating %s: %w", kv.policyName(), err)
	}
	defer r.close()
	timed.Reset()
	_, _ = metered.Spent(), free.Used()
	for range own.o.Repeats {
		if err := bc.repeat(r); err != nil {
			return err
		}
	}
	row := r.Row()
	steps := float64(len(row.TPS) * row.N)
	_, all := timed.Compute()
	host.Calibrate(simulate.HostWork{Outside: row.Took.Seconds() - all*steps, Layers: steps * float64(r.cases[0].l.model.Layers), Work: metered.Spent(), Free: free.Used()})
	return nil
}

// predictCase measures and predicts one case.
func (bc *benchCommand) predictCase(kv kvFlags, rates offload.HostRates, plain *inMemory, rec *simulate.Recording) (row predictedRow, err error) {
	host := simulate.Host{Cores: processors, Rates: rates}
	ssd, socket, err := lowerTier(kv.tiers)
	if err != nil {
		return row, err
	}
	if host.Storage, err = bc.storageOf(ssd); err != nil {
		return row, err
	}
	whole, part, err := bc.inTurns(kv)
	if err != nil {
		return row, err
	}
	m, measured, use, learnt, seen := whole.cases[0].l.model, whole.Row(), whole.kvUse(), part.end(), whole.end()
	whole.close()
	part.close()
	memory, err := bc.timedInMemory(kv.policyName(), plain)
	if err != nil {
		return row, err
	}
	host.Compute = memory.compute
	if ssd != "" {
		err = bc.asking(kv, &host)
	} else {
		host.Drive, err = bc.driveOf(socket, kv, m)
	}
	if err != nil {
		return row, err
	}
	before := host
	learnt.Host, seen.Host = &before, &before
	rec.Add(learnt, seen)
	if _, err := host.Learn(learnt); err != nil {
		return row, err
	}
	if row, err = bc.modelledCase(kv, host); err != nil {
		return row, err
	}
	row.MemoryMS, row.MeasuredMS, row.MeasuredKV, row.MeasuredFrom = 1e3*memory.step, 1e3*medianStep(measured), &use, sourceOf(measured)
	parts := partsOf(whole.timed, measured)
	row.MeasuredIn = &parts
	for _, tps := range measured.TPS {
		row.AllMS = append(row.AllMS, 1e3*float64(measured.Batch)/tps)
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
			ssd = t.Place
		case t.Kind == tier.CSD && socket == "":
			socket = t.Place
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
func (bc *benchCommand) storageOf(dir string) (*offload.StorageRates, error) {
	if dir == "" {
		return nil, nil
	}
	r, err := offload.MeasureStorage(bc.ctx, dir, offload.MeasureOptions{SizeBytes: 64 * units.MiB, Each: diskEach, Rounds: 1, NoStore: true})
	return &r, err
}

// driveOf measures what a policy's steps ask of a drive.
func (bc *benchCommand) driveOf(socket string, kv kvFlags, m *model.Model) (*simulate.Drive, error) {
	spec, err := policy.Parse(kv.policyName())
	if err != nil {
		return nil, err
	}
	return simulate.MeasureDrive(bc.ctx, socket, m, spec)
}
