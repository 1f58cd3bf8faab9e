package predict

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/clock"
	"terrace/internal/cputime"
	"terrace/internal/units"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/simulate"
)

// processor is a clock of the processor's time that this process has used: where one thread computes and nothing else runs in the process,
// what it would take on a machine of its own.
type processor struct{ clock.Clock }

func (processor) Now() time.Duration { return cputime.Used() }

// watch is by what this host's work is timed.
func (p *Predictor) watch() clock.Clock {
	if p.Threads == 1 {
		return processor{clock.Real()}
	}
	return clock.Real()
}

// inMemory is a policy's step with all KV in host memory, of the fastest repeat: other work on the machine has disturbed it least. One
// thread's time is the processor's.
type inMemory struct {
	model   *model.Model
	compute simulate.Compute
	step    float64 // seconds
	rest    float64 // of them outside of the backend's calls
}

// inMemory measures a policy without tiers; what plain has outside of the backend's calls is a layer's own.
func (p *Predictor) inMemory(ctx context.Context, policy string, plain *inMemory) (*inMemory, error) {
	var timed *simulate.Timed
	watch := p.watch()
	r, err := p.open(ctx, Case{Policy: policy}, p.Bench, tier.Machine{Wrap: func(b model.Backend) model.Backend { timed = simulate.NewTimed(b, watch); return timed }})
	if err != nil {
		return nil, err
	}
	defer r.close()
	m := r.Engine.Model()
	out := &inMemory{model: m}
	for range p.repeats() {
		timed.Reset()
		began := watch.Now()
		if err := r.repeat(ctx, 1); err != nil {
			return nil, err
		}
		if step := (watch.Now() - began).Seconds() / float64(p.Bench.N); out.step == 0 || step < out.step {
			compute, calls := timed.Compute()
			out.step, out.compute, out.rest = step, compute, max(0, step-calls)
		}
	}
	row := r.Row()
	out.compute.Policy, out.compute.Batch = policy, row.Batch
	fixed := out.rest
	if plain != nil {
		fixed = min(fixed, plain.rest)
		scanned := float64(row.Batch*(p.Bench.D+p.Bench.N*(2+len(row.TPS))/2)) * float64(2*m.Cache().Numbers())
		out.compute.Scan = (out.rest - fixed) / scanned
	}
	out.compute.Layer = fixed / float64(m.Layers)
	return out, nil
}

// inTurns measures a case, and in turns with it the smaller one from which the host's rates on its tier are learnt: a device, and a machine
// that is shared, are not the same at all times.
func (p *Predictor) inTurns(ctx context.Context, c Case) (whole Measurement, learnt, seen *simulate.RecordedRun, err error) {
	less, own, made, err := smaller(c, p.Bench)
	if err != nil {
		return whole, nil, nil, err
	}
	defer func() {
		for _, dir := range made {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	all, err := p.record(ctx, c, p.Bench)
	if err != nil {
		return whole, nil, nil, err
	}
	defer all.close()
	part, err := p.record(ctx, less, own)
	if err != nil {
		return whole, nil, nil, err
	}
	defer part.close()
	err = part.repeat(ctx, 1)
	for range p.repeats() {
		if err == nil {
			err = errors.Join(all.repeat(ctx, 1), part.repeat(ctx, 1))
		}
	}
	if err != nil {
		return whole, nil, nil, err
	}
	return all.measurement(), part.end(), all.end(), nil
}

// asking takes from a run of the smaller case, on a disk that is none, what asking the tier for a record costs the host.
func (p *Predictor) asking(ctx context.Context, c Case, host *simulate.Host) error {
	less, own, _, err := smaller(c, p.Bench)
	if err != nil {
		return err
	}
	own.Repeats = 2
	var timed *simulate.Timed
	metered, free := clock.NewMetered(), simulate.NewFreeDisk()
	r, err := p.open(ctx, less, own, tier.Machine{Clock: metered, Disk: free, Wrap: func(b model.Backend) model.Backend { timed = simulate.NewTimed(b, nil); return timed }})
	if err != nil {
		return fmt.Errorf("calibrating %s: %w", c.PolicyName(), err)
	}
	defer r.close()
	timed.Reset()
	_, _ = metered.Spent(), free.Used()
	if err := r.repeat(ctx, own.Repeats); err != nil {
		return err
	}
	row := r.Row()
	steps := float64(row.Steps())
	_, all := timed.Compute()
	host.Calibrate(simulate.HostWork{Outside: row.Took.Seconds() - all*steps, Layers: steps * float64(r.Engine.Model().Layers), Work: metered.Spent(), Free: free.Used()})
	return nil
}

// calibrate measures, once, what does not depend on the case: the host's rates, and its steps under full.
func (p *Predictor) calibrate(ctx context.Context) (err error) {
	if p.plain != nil {
		return nil
	}
	p.rates = offload.MeasureHost(offload.HostOptions{Threads: p.Threads, Each: p.HostEach, Bytes: p.HostBytes, Clock: p.watch()})
	p.plain, err = p.inMemory(ctx, "full", nil)
	return err
}

// Measure measures a case and predicts it: the case, in turns with a smaller one from which rates are learnt; its policy in memory; what
// asking its tier costs; and the case on the hardware model, on a drive at its profile too.
func (p *Predictor) Measure(ctx context.Context, c Case) (out Prediction, err error) {
	if err := errors.Join(c.Check(), p.calibrate(ctx)); err != nil {
		return out, err
	}
	host := simulate.Host{Cores: p.Cores, Rates: p.rates}
	dirs, socket, err := c.lower()
	if err != nil {
		return out, err
	}
	if p.ProfileOnly && socket == "" {
		return out, fmt.Errorf("predict: case %s: an SSD has no profile: want a drive, csd=unix:SOCKET: %w", c.PolicyName(), engine.ErrOption)
	}
	if dirs != nil {
		rates, err := offload.MeasureStorage(ctx, dirs[0], offload.MeasureOptions{SizeBytes: 64 * units.MiB, Each: p.DiskEach, Rounds: 1, NoStore: true})
		if err != nil {
			return out, err
		}
		host.Storage = &rates
	}
	var whole Measurement
	var learnt, seen *simulate.RecordedRun
	if !p.ProfileOnly {
		if whole, learnt, seen, err = p.inTurns(ctx, c); err != nil {
			return out, err
		}
	}
	memory := p.plain
	if c.PolicyName() != "full" {
		if memory, err = p.inMemory(ctx, c.PolicyName(), p.plain); err != nil {
			return out, err
		}
	}
	host.Compute = memory.compute
	if socket != "" {
		host.Drive, err = p.driveOf(ctx, socket, c)
	} else {
		err = p.asking(ctx, c, &host)
	}
	if err != nil {
		return out, err
	}
	out.Memory = memory.step
	if host.Drive != nil { // as it was before anything is learnt of its process
		at := host
		drive := *host.Drive
		drive.Message, at.Drive = 0, &drive
		profile, err := p.Model(ctx, c, at)
		if err != nil {
			return out, err
		}
		if out.AtProfile, out.Host = profile.Predicted, at; p.ProfileOnly {
			return out, nil
		}
	}
	before := host
	learnt.Host, seen.Host = &before, &before
	p.Record.Add(learnt, seen)
	if _, err := host.Learn(learnt); err != nil {
		return out, err
	}
	predicted, err := p.Model(ctx, c, host)
	out.Predicted, out.Host, out.Measured = predicted.Predicted, host, &whole
	return out, err
}

// driveOf measures what a policy's steps ask of a drive.
func (p *Predictor) driveOf(ctx context.Context, socket string, c Case) (*simulate.Drive, error) {
	spec, err := policy.Parse(c.PolicyName())
	if err != nil {
		return nil, err
	}
	return simulate.MeasureDrive(ctx, socket, p.plain.model, spec)
}
