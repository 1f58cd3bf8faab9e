// Package predict says what decode steps of a policy on its tiers take on a model of this host, beside what they take when measured:
// infer bench --predict.
//
// It owns the order of the measurements from which a prediction is made: the host's rates and its disk's, the policy with all KV in
// memory, the case in turns with a smaller one from which the rates on its tier are learnt, and what asking the tier costs. The hardware
// model and what is learnt for it are package simulate's, the timing of steps package bench's. It opens no model: an Opener does. It
// never prints.
//
// Units: seconds, but for Parts, which are milliseconds of an average step. What is measured is Prediction.Measured and Memory; all else
// is modelled.
//
// Concurrency: one call of a Predictor at a time.
package predict

import (
	"context"
	"time"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/model"
	"terrace/offload"
	"terrace/simulate"
)

// Predictor predicts cases on this host.
type Predictor struct {
	Open     Opener
	Bench    bench.Options // what each case reads and generates: N and D above 0, P 0, Continue
	Cores    int           // of the host that is modelled
	Threads  int           // by which the host's rates are measured
	HostEach time.Duration // for how long each of the host's rates is measured
	DiskEach time.Duration // and each of its disk's

	HostBytes int // on how much memory the host's rates are measured; 0 = more than caches hold (offload.HostOptions)

	ProfileOnly bool // Measure gives a drive's Prediction.AtProfile, Memory and Host alone; the drive says what it is

	Record *simulate.Recording // gets what the measured runs took, call by call; nil = nothing does

	rates offload.HostRates
	plain *inMemory // under full; nil = not measured yet
}

// Prediction is a case as it was measured, and as it was worked out from what the host does in memory and its tier.
type Prediction struct {
	Memory    float64      // the policy's step without tiers, measured, in seconds, the fastest repeat's; 0 = it was not
	Measured  *Measurement // nil = it was not measured
	Predicted *Measurement // modelled; nil = it was not asked for
	// AtProfile is the case on a drive that takes its profile's time, and nothing of the process that mimics it, by a host that computes as
	// fast as with all KV in memory; modelled. nil = no drive, or Model.
	AtProfile *Measurement
	Host      simulate.Host
}

// Ratio is the predicted step over the measured one; 0 without one.
func (p *Prediction) Ratio() float64 {
	if p.Measured == nil || p.Predicted == nil {
		return 0
	}
	return p.Predicted.Row.MedianStep() / p.Measured.Row.MedianStep()
}

// Measurement is a case's row, and its average step in parts.
type Measurement struct {
	Row   bench.Row
	Parts Parts
}

// StepsMS are the average steps of each repeat, in milliseconds.
func (m *Measurement) StepsMS() (all []float64) {
	for _, tps := range m.Row.TPS {
		all = append(all, 1e3*float64(m.Row.Batch)/tps)
	}
	return all
}

// Parts are what an average step consists of, in milliseconds, by what the computing thread does.
type Parts struct {
	Project float64 `json:"project"` // embedding too
	Attend  float64 `json:"attend"`
	Finish  float64 `json:"finish"`
	Logits  float64 `json:"logits"`
	Guess   float64 `json:"guess"`
	Wait    float64 `json:"wait"`   // for the lower tier
	Scores  float64 `json:"scores"` // waiting for those of a drive
	Rest    float64 `json:"rest"`   // policy, cache, handing transfers over, and the answers of a drive that attends
}

// partsOf divides a run's average step.
func partsOf(t *simulate.Timed, r bench.Row) (p Parts) {
	steps := float64(max(1, r.Steps())) / 1e3
	s := t.Spent()
	p = Parts{Project: (s.Embed + s.Project) / steps, Attend: s.Attend / steps, Finish: s.Finish / steps, Logits: s.Logits / steps, Guess: s.Guess / steps, Wait: r.Tiers.Stall.Seconds() / steps, Scores: r.Tiers.ScoreWait.Seconds() / steps}
	p.Rest = 1e3*r.MeanStep() - p.Project - p.Attend - p.Finish - p.Logits - p.Guess - p.Wait - p.Scores
	return p
}

// repeats is how often each case is measured.
func (p *Predictor) repeats() int { return max(p.Bench.Repeats, 1) }

// Model predicts a case on the hardware model alone; nothing is measured.
func (p *Predictor) Model(ctx context.Context, c Case, host simulate.Host) (out Prediction, err error) {
	var timed *simulate.Timed
	paced := simulate.PaceHost(host)
	rates := host.Balanced()
	machine := tier.Machine{Clock: paced.Clock, Dial: paced.Dial, Host: &rates, Wrap: func(b model.Backend) model.Backend {
		timed = simulate.NewTimed(paced.Wrap(b), paced.Clock)
		return timed
	}}
	if paced.Disk != nil {
		machine.Disk = paced.Disk
	}
	r, err := p.open(ctx, c, p.Bench, machine)
	if err != nil {
		return out, err
	}
	defer r.close()
	defer paced.Settle()
	paced.Settle()
	timed.Reset()
	if err := r.repeat(ctx, p.repeats()); err != nil {
		return out, err
	}
	return Prediction{Host: host, Predicted: &Measurement{r.Row(), partsOf(timed, r.Row())}}, nil
}
