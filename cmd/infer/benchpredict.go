package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/internal/replace"
	"terrace/internal/units"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/offload"
	"terrace/simulate"
)

// predictedRow is a case as it was measured, and as it was worked out from what the host does in memory and its disk.
type predictedRow struct {
	Policy        string        `json:"policy"`
	Tiers         []string      `json:"tiers"`
	Batch         int           `json:"batch"`
	Depth         int           `json:"depth"`
	MemoryMS      float64       `json:"memory_step_ms,omitempty"` // the policy's step without tiers, measured
	MeasuredMS    float64       `json:"measured_step_ms,omitempty"`
	AllMS         []float64     `json:"measured_all_ms,omitempty"`
	MeasuredIn    *stepParts    `json:"measured_parts_ms,omitempty"`
	PredictedMS   float64       `json:"predicted_step_ms"`
	PredictedIn   stepParts     `json:"predicted_parts_ms"`
	Ratio         float64       `json:"ratio,omitempty"` // predicted over measured
	MeasuredKV    *benchKV      `json:"measured_kv,omitempty"`
	PredictedKV   benchKV       `json:"predicted_kv"`
	Host          simulate.Host `json:"hardware"`
	MeasuredFrom  string        `json:"measured_source,omitempty"`
	PredictedFrom string        `json:"predicted_source"`
}

// stepParts are what an average step consists of, in milliseconds, by what the computing thread does.
type stepParts struct {
	Project float64 `json:"project"` // embedding too
	Attend  float64 `json:"attend"`
	Finish  float64 `json:"finish"`
	Logits  float64 `json:"logits"`
	Guess   float64 `json:"guess"`
	Wait    float64 `json:"wait"` // for the lower tier
	Rest    float64 `json:"rest"` // policy, cache, handing transfers over, and a drive's answers
}

// partsOf divides a run's average step.
func partsOf(t *simulate.Timed, r bench.Row) (p stepParts) {
	steps := float64(max(1, len(r.TPS)*r.N)) / 1e3
	s := t.Spent()
	p = stepParts{Project: (s.Embed + s.Project) / steps, Attend: s.Attend / steps, Finish: s.Finish / steps, Logits: s.Logits / steps, Guess: s.Guess / steps, Wait: r.Tiers.Stall.Seconds() / steps}
	p.Rest = 1e3*mean(r) - p.Project - p.Attend - p.Finish - p.Logits - p.Guess - p.Wait
	return p
}

// benchPredict measures each case on tiers and predicts it. A case is three runs one after the other: its policy in memory, with the
// backend's calls timed; the case; and the case on the hardware model.
func (a *app) benchPredict(f *benchFlags, kvs []kvFlags) error {
	if f.o.N == 0 || f.o.D == 0 || !f.o.Continue || len(f.load.backends) != 1 || f.load.backends[0] != "native" {
		return usageErrorf("--predict: want -n and -d above 0, --continue, and the native backend")
	}
	f.o.P = 0
	if f.hardware != "" {
		return a.benchModelled(f, kvs)
	}
	rates := offload.MeasureHost(f.load.threads, 100*time.Millisecond)
	var rec *simulate.Recording
	if f.record != "" {
		rec = simulate.NewRecording()
	}
	plain, err := a.timedInMemory(f, "full", nil, rec)
	if err != nil {
		return err
	}
	var rows []predictedRow
	for _, kv := range kvs {
		if len(kv.tiers) == 0 {
			return usageErrorf("--predict: case %s has no tiers", kv.policyName())
		}
		row, err := a.predictCase(f, kv, rates, plain, rec)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if rec != nil {
		var b bytes.Buffer
		if err := errors.Join(rec.Write(&b), replace.WriteFile(f.record, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	return a.printPredicted(f.format, rows)
}

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
	rec.Computed(out.compute)
	return out, nil
}

// predictCase measures and predicts one case.
func (a *app) predictCase(f *benchFlags, kv kvFlags, rates offload.HostRates, plain *inMemory, rec *simulate.Recording) (row predictedRow, err error) {
	host := simulate.Host{Cores: processors, Rates: rates}
	if host.Storage, err = a.storageOf(kv.tiers); err != nil {
		return row, err
	}
	t, err := a.timedCase(f, kv, rec)
	if err != nil {
		return row, err
	}
	memory, err := a.timedInMemory(f, kv.policyName(), plain, rec)
	if err != nil {
		return row, err
	}
	host.Compute = memory.compute
	if rec != nil {
		rec.Host.Cores, rec.Host.Rates = host.Cores, host.Rates
		if rec.Host.Storage == nil {
			rec.Host.Storage = host.Storage
		}
	}
	measured, real := t.row, t.timed
	if row, err = a.modelledCase(f, kv, host); err != nil {
		return row, err
	}
	row.MemoryMS, row.MeasuredMS, row.MeasuredKV, row.MeasuredFrom = 1e3*memory.step, 1e3*medianStep(measured), &t.kv, sourceOf(measured)
	parts := partsOf(real, measured)
	row.MeasuredIn = &parts
	for _, tps := range measured.TPS {
		row.AllMS = append(row.AllMS, 1e3*float64(measured.Batch)/tps)
	}
	row.Ratio = row.PredictedMS / row.MeasuredMS
	return row, nil
}

// modelledCase is a case on the hardware model alone.
func (a *app) modelledCase(f *benchFlags, kv kvFlags, host simulate.Host) (row predictedRow, err error) {
	var modelled *simulate.Timed
	paced := simulate.PaceHost(host)
	predicted, predictedKV, err := a.runCase(f, kv, caseHooks{
		machine: tier.Machine{Clock: paced.Clock, Disk: paced.Disk, Wrap: func(b model.Backend) model.Backend {
			modelled = simulate.NewTimed(paced.Wrap(b), paced.Clock)
			return modelled
		}},
		opened:  func(*loaded) { paced.Settle(); modelled.Reset() },
		closing: paced.Settle,
	})
	if err != nil {
		return row, err
	}
	return predictedRow{Policy: kv.policyName(), Tiers: kv.tiers, Batch: predicted.Batch, Depth: f.o.D, PredictedMS: 1e3 * medianStep(predicted),
		PredictedIn: partsOf(modelled, predicted), PredictedKV: predictedKV, Host: host, PredictedFrom: "modelled"}, nil
}

// benchModelled predicts cases for the host of a hardware file, which infer simulate --fit has written; nothing is measured.
func (a *app) benchModelled(f *benchFlags, kvs []kvFlags) error {
	if f.record != "" {
		return usageErrorf("--record-trace records what is measured: --hardware excludes it")
	}
	b, err := os.ReadFile(f.hardware)
	if err != nil {
		return err
	}
	fitted, err := simulate.ReadHardware(b)
	if err != nil {
		return usageErrorf("--hardware %s: %v", f.hardware, err)
	}
	var rows []predictedRow
	for _, kv := range kvs {
		host, ok := fitted.Of(kv.policyName(), max(f.o.Batch, 1))
		if !ok {
			return usageErrorf("--hardware %s: nothing about policy %s at batch %d", f.hardware, kv.policyName(), max(f.o.Batch, 1))
		}
		row, err := a.modelledCase(f, kv, host)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return a.printPredicted(f.format, rows)
}

// caseHooks are called while a case runs, on a machine; nil ones are not.
type caseHooks struct {
	machine tier.Machine  // what the case runs on
	opened  func(*loaded) // the depth is read
	closing func()
}

// runCase measures a case.
func (a *app) runCase(f *benchFlags, kv kvFlags, h caseHooks) (row bench.Row, use benchKV, err error) {
	own := *f
	own.load.machine = h.machine
	cases, err := a.openBenchCases(&own, []kvFlags{kv})
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	if err != nil {
		return row, use, err
	}
	if h.closing != nil {
		defer h.closing()
	}
	o := f.o
	o.Text = cases[0].text
	b, err := bench.Open(a.ctx, cases[0].l.engine, true, o)
	if err != nil {
		return row, use, fmt.Errorf("%s: %w", cases[0].name(), err)
	}
	defer b.Close()
	if h.opened != nil {
		h.opened(cases[0].l)
	}
	for range max(o.Repeats, 1) {
		if err := b.Repeat(a.ctx); err != nil {
			return row, use, fmt.Errorf("%s: %w", cases[0].name(), err)
		}
	}
	row = b.Row()
	return row, cases[0].row(row, row).KV, nil
}

// storageOf measures the directory that an ssd tier lies in; nil where there is none.
func (a *app) storageOf(specs []string) (*offload.StorageRates, error) {
	tiers, err := tierList(specs)
	if err != nil {
		return nil, err
	}
	for _, t := range tiers {
		switch t.Kind {
		case tier.SSD:
			r, err := offload.MeasureStorage(a.ctx, t.Path, offload.MeasureOptions{SizeBytes: 64 * units.MiB, Each: 300 * time.Millisecond, Rounds: 1})
			return &r, err
		case tier.CSD, tier.Device:
			return nil, usageErrorf("--predict: tier %s is not modelled: want host=SIZE ssd=DIR,SIZE", t.Kind)
		}
	}
	return nil, usageErrorf("--predict: want an ssd tier, as in host=SIZE ssd=DIR,SIZE")
}

func medianStep(r bench.Row) float64 { return float64(r.Batch) / r.MedianTPS() }

func mean(r bench.Row) float64 { return r.Took.Seconds() / math.Max(1, float64(len(r.TPS)*r.N)) }

// printPredicted prints rows.
func (a *app) printPredicted(format string, rows []predictedRow) error {
	if format == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	}
	if format != "table" {
		return usageErrorf("--predict: -o %s: want table or json", format)
	}
	w := a.newTable()
	fmt.Fprintln(w, "case\tbatch\tdepth\tin memory ms\tmeasured ms\tpredicted ms\tratio\tfrom")
	for _, r := range rows {
		fmt.Fprintf(w, "%s on %s\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%s\n", r.Policy, strings.Join(r.Tiers, " "), r.Batch, r.Depth, r.MemoryMS, r.MeasuredMS, r.PredictedMS, r.Ratio, r.MeasuredFrom)
	}
	return w.Flush()
}
