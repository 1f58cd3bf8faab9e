package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"terrace/bench"
	"terrace/engine/tier"
	"terrace/internal/replace"
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

// benchPredict measures each case on tiers and predicts it: the case, in turns with a smaller one from which rates are learnt; its policy in
// memory; what asking costs; and the case on the hardware model.
func (bc *benchCommand) benchPredict(kvs []kvFlags) error {
	if bc.o.N == 0 || bc.o.D == 0 || !bc.o.Continue || len(bc.load.backends) != 1 || bc.load.backends[0] != "native" {
		return usageErrorf("--predict: want -n and -d above 0, --continue, and the native backend")
	}
	bc.o.P = 0
	if bc.hardware != "" {
		return bc.benchModelled(kvs)
	}
	rates := offload.MeasureHost(bc.load.threads, hostEach)
	var rec *simulate.Recording
	if bc.record != "" {
		rec = simulate.NewRecording()
	}
	plain, err := bc.timedInMemory("full", nil)
	if err != nil {
		return err
	}
	var rows []predictedRow
	for _, kv := range kvs {
		if len(kv.tiers) == 0 {
			return usageErrorf("--predict: case %s has no tiers", kv.policyName())
		}
		row, err := bc.predictCase(kv, rates, plain, rec)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if rec != nil {
		var b bytes.Buffer
		if err := errors.Join(rec.Write(&b), replace.WriteFile(bc.record, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	return bc.printPredicted(bc.format, rows)
}

// modelledCase is a case on the hardware model alone.
func (bc *benchCommand) modelledCase(kv kvFlags, host simulate.Host) (row predictedRow, err error) {
	var modelled *simulate.Timed
	paced := simulate.PaceHost(host)
	machine := tier.Machine{Clock: paced.Clock, Dial: paced.Dial, Wrap: func(b model.Backend) model.Backend {
		modelled = simulate.NewTimed(paced.Wrap(b), paced.Clock)
		return modelled
	}}
	if paced.Disk != nil {
		machine.Disk = paced.Disk
	}
	r, err := bc.openRun(kv, machine)
	if err != nil {
		return row, err
	}
	defer r.close()
	defer paced.Settle()
	paced.Settle()
	modelled.Reset()
	for range max(bc.o.Repeats, 1) {
		if err := bc.repeat(r); err != nil {
			return row, err
		}
	}
	predicted, predictedKV := r.Row(), r.kvUse()
	return predictedRow{Policy: kv.policyName(), Tiers: kv.tiers, Batch: predicted.Batch, Depth: bc.o.D, PredictedMS: 1e3 * medianStep(predicted),
		PredictedIn: partsOf(modelled, predicted), PredictedKV: predictedKV, Host: host, PredictedFrom: "modelled"}, nil
}

// benchModelled predicts cases for the host of a hardware file, which infer simulate --fit has written; nothing is measured.
func (bc *benchCommand) benchModelled(kvs []kvFlags) error {
	if bc.record != "" {
		return usageErrorf("--record-trace records what is measured: --hardware excludes it")
	}
	b, err := os.ReadFile(bc.hardware)
	if err != nil {
		return err
	}
	fitted, err := simulate.ReadHardware(b)
	if err != nil {
		return usageErrorf("--hardware %s: %v", bc.hardware, err)
	}
	var rows []predictedRow
	for _, kv := range kvs {
		host, ok := fitted.Of(kv.policyName(), max(bc.o.Batch, 1))
		if !ok {
			return usageErrorf("--hardware %s: nothing about policy %s at batch %d", bc.hardware, kv.policyName(), max(bc.o.Batch, 1))
		}
		if lacks := lacking(host, kv.tiers); lacks != "" {
			return usageErrorf("--hardware %s: nothing about a tier %s of policy %s: record a run on one (--record-trace) and fit it (infer simulate --fit)", bc.hardware, lacks, kv.policyName())
		}
		row, err := bc.modelledCase(kv, host)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return bc.printPredicted(bc.format, rows)
}

// lacking is the first kind of tier that a host knows nothing of; empty = it knows all.
func lacking(host simulate.Host, tiers []string) string {
	for _, t := range tiers {
		kind, _, _ := strings.Cut(t, "=")
		if kind == "csd" && host.Drive == nil || kind == "ssd" && host.Storage == nil {
			return kind + "="
		}
	}
	return ""
}

func medianStep(r bench.Row) float64 { return float64(r.Batch) / r.MedianTPS() }

func mean(r bench.Row) float64 { return r.Took.Seconds() / math.Max(1, float64(len(r.TPS)*r.N)) }

// printPredicted prints rows.
func (bc *benchCommand) printPredicted(format string, rows []predictedRow) error {
	if format == "json" {
		e := json.NewEncoder(bc.stdout)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	}
	if format != "table" && format != "auto" {
		return usageErrorf("--predict: -o %s: want table or json", format)
	}
	w := bc.newTable()
	fmt.Fprintln(w, "case\tbatch\tdepth\tin memory ms\tmeasured ms\tpredicted ms\tratio\tfrom")
	for _, r := range rows {
		memory, measured, ratio := fmt.Sprintf("%.1f", r.MemoryMS), fmt.Sprintf("%.1f", r.MeasuredMS), fmt.Sprintf("%.2f", r.Ratio)
		if r.MeasuredMS == 0 { // of a hardware file alone
			memory, measured, ratio = "-", "-", "-"
		}
		fmt.Fprintf(w, "%s on %s\t%d\t%d\t%s\t%s\t%.1f\t%s\t%s\n", r.Policy, strings.Join(r.Tiers, " "), r.Batch, r.Depth, memory, measured, r.PredictedMS, ratio, r.MeasuredFrom)
	}
	return w.Flush()
}
