package predict

import (
	"context"
	"fmt"

	"terrace/bench"
	"terrace/engine"
	"terrace/engine/tier"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/simulate"
)

// Opened is a case whose engine is open.
type Opened struct {
	Name   string // of the case, for messages
	Engine *engine.Engine
	Text   []int  // ids that it reads; nil = random ones
	Close  func() // frees the engine and what was opened with it
}

// Opener opens a case on a machine, for so many tokens.
type Opener func(c Case, tokens int, m tier.Machine) (*Opened, error)

// run is a case that is open and has read its depth.
type run struct {
	*bench.Run
	*Opened
}

// open opens a case and reads its depth.
func (p *Predictor) open(ctx context.Context, c Case, o bench.Options, m tier.Machine) (*run, error) {
	opened, err := p.Open(c, o.Tokens(), m)
	if err != nil {
		return nil, err
	}
	o.Text = opened.Text
	b, err := bench.Open(ctx, opened.Engine, true, o)
	if err != nil {
		opened.Close()
		return nil, fmt.Errorf("%s: %w", opened.Name, err)
	}
	return &run{b, opened}, nil
}

// close ends the run; what it has measured stays.
func (r *run) close() {
	r.Run.Close()
	r.Opened.Close()
}

// repeat measures some times more.
func (r *run) repeat(ctx context.Context, times int) error {
	for range times {
		if err := r.Repeat(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return nil
}

// recorded is a run that is recorded, call by call.
type recorded struct {
	*run
	c     Case
	depth int
	timed *simulate.Timed
	rec   *simulate.Recording
}

// record opens a case and records it from then on.
func (p *Predictor) record(ctx context.Context, c Case, o bench.Options) (t *recorded, err error) {
	t = &recorded{c: c, depth: o.D, rec: simulate.NewRecording()}
	m := tier.Machine{Disk: t.rec.Disk(vfs.OS{}), Dial: t.rec.Dial(nil), Wrap: func(b model.Backend) model.Backend { t.timed = t.rec.Backend(b); return t.timed }}
	if t.run, err = p.open(ctx, c, o, m); err != nil {
		return nil, err
	}
	t.timed.Reset()
	t.rec.Begin()
	return t, nil
}

// measurement is what was measured so far.
func (t *recorded) measurement() Measurement {
	return Measurement{Row: t.Row(), Parts: partsOf(t.timed, t.Row())}
}

// end is what was recorded.
func (t *recorded) end() *simulate.RecordedRun {
	m := t.measurement()
	t.rec.End(simulate.RecordedRun{Policy: t.c.PolicyName(), Tiers: t.c.Tiers, Batch: m.Row.Batch, Depth: t.depth, Steps: m.Row.Steps(), StepS: m.Row.MeanStep(), OutsideS: m.Parts.Rest / 1e3})
	return &t.rec.Runs[0]
}
