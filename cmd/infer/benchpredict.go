package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"terrace/engine/tier"
	"terrace/internal/replace"
	"terrace/simulate"
	"terrace/simulate/predict"
)

// For how long bench --predict measures each of the host's and of the disk's rates.
var hostEach, diskEach = 100 * time.Millisecond, 250 * time.Millisecond

// hostBytes is on how much memory it measures the host's; 0 = more than caches hold.
var hostBytes = 0

// predictedRow is a case as it was measured, and as it was worked out from what the host does in memory and its disk.
type predictedRow struct {
	Policy        string         `json:"policy"`
	Tiers         []string       `json:"tiers"`
	Batch         int            `json:"batch"`
	Depth         int            `json:"depth"`
	MemoryMS      float64        `json:"memory_step_ms,omitempty"` // the policy's step without tiers, measured
	MeasuredMS    float64        `json:"measured_step_ms,omitempty"`
	AllMS         []float64      `json:"measured_all_ms,omitempty"`
	MeasuredIn    *predict.Parts `json:"measured_parts_ms,omitempty"`
	PredictedMS   float64        `json:"predicted_step_ms,omitempty"`
	PredictedIn   *predict.Parts `json:"predicted_parts_ms,omitempty"`
	Ratio         float64        `json:"ratio,omitempty"`              // predicted over measured
	ProfileMS     float64        `json:"at_profile_step_ms,omitempty"` // on a drive: its profile's time alone, modelled
	ProfileIn     *predict.Parts `json:"at_profile_parts_ms,omitempty"`
	ProfileTimes  float64        `json:"at_profile_times_first,omitempty"` // the speed there over that of the first case
	ProfileKV     *benchKV       `json:"at_profile_kv,omitempty"`
	MeasuredKV    *benchKV       `json:"measured_kv,omitempty"`
	PredictedKV   *benchKV       `json:"predicted_kv,omitempty"`
	Host          simulate.Host  `json:"hardware"`
	MeasuredFrom  string         `json:"measured_source,omitempty"`
	PredictedFrom string         `json:"predicted_source"`
}

// predictedRow is a prediction as it is printed.
func (bc *benchCommand) predictedRow(c predict.Case, p predict.Prediction) predictedRow {
	row := predictedRow{Policy: c.PolicyName(), Tiers: c.Tiers, Batch: max(bc.o.Batch, 1), Depth: bc.o.D, MemoryMS: 1e3 * p.Memory, Ratio: p.Ratio(), Host: p.Host, PredictedFrom: "modelled"}
	if m := p.Predicted; m != nil {
		use := kvOf(m.Row)
		row.PredictedMS, row.PredictedIn, row.PredictedKV = 1e3*m.Row.MedianStep(), &m.Parts, &use
	}
	if m := p.AtProfile; m != nil {
		use := kvOf(m.Row)
		row.ProfileMS, row.ProfileIn, row.ProfileKV = 1e3*m.Row.MedianStep(), &m.Parts, &use
	}
	if m := p.Measured; m != nil {
		use := kvOf(m.Row)
		row.MeasuredMS, row.AllMS, row.MeasuredIn, row.MeasuredKV, row.MeasuredFrom = 1e3*m.Row.MedianStep(), m.StepsMS(), &m.Parts, &use, m.Row.Source()
	}
	return row
}

// openPredicted opens a case of a prediction on a machine.
func (bc *benchCommand) openPredicted(c predict.Case, tokens int, machine tier.Machine) (*predict.Opened, error) {
	own := *bc
	own.load.machine = machine
	if own.load.context == "" || own.load.context == "0" {
		own.load.context = contextFor(tokens)
	}
	cases, err := own.openBenchCases([]kvFlags{{policy: c.Policy, tiers: c.Tiers}})
	if err != nil {
		for _, c := range cases {
			c.close()
		}
		return nil, err
	}
	return &predict.Opened{Name: cases[0].name(), Engine: cases[0].l.engine, Text: cases[0].text, Close: cases[0].close}, nil
}

// benchPredict measures each case on tiers and predicts it, or predicts it for the host of a hardware file alone.
func (bc *benchCommand) benchPredict(kvs []kvFlags) error {
	if bc.o.N == 0 || bc.o.D == 0 || !bc.o.Continue || len(bc.load.backends) != 1 || bc.load.backends[0] != "native" {
		return usageErrorf("--predict: want -n and -d above 0, --continue, and the native backend")
	}
	bc.o.P = 0
	p := &predict.Predictor{Open: bc.openPredicted, Bench: bc.o, Cores: processors, Threads: bc.load.threads, HostEach: hostEach, DiskEach: diskEach, ProfileOnly: bc.atProfile}
	p.HostBytes = hostBytes
	if bc.atProfile && (bc.hardware != "" || bc.record != "") {
		return usageErrorf("--at-profile measures no run on a drive: --hardware and --record-trace exclude it")
	}
	if bc.hardware != "" {
		return bc.benchModelled(p, kvs)
	}
	if bc.record != "" {
		p.Record = simulate.NewRecording()
	}
	for _, kv := range kvs {
		if _, err := tierList(kv.tiers); err != nil {
			return err
		}
		if err := (predict.Case{Policy: kv.policy, Tiers: kv.tiers}).Check(); err != nil {
			return usageErrorf("--predict: %w", err)
		}
	}
	var rows []predictedRow
	for _, kv := range kvs {
		c := predict.Case{Policy: kv.policy, Tiers: kv.tiers}
		predicted, err := p.Measure(bc.ctx, c)
		if err != nil {
			return err
		}
		rows = append(rows, bc.predictedRow(c, predicted))
	}
	if p.Record != nil {
		var b bytes.Buffer
		if err := errors.Join(p.Record.Write(&b), replace.WriteFile(bc.record, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	return bc.printPredicted(bc.format, rows)
}

// benchModelled predicts cases for the host of a hardware file, which infer simulate --fit has written; nothing is measured.
func (bc *benchCommand) benchModelled(p *predict.Predictor, kvs []kvFlags) error {
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
		c := predict.Case{Policy: kv.policy, Tiers: kv.tiers}
		host, ok := fitted.Of(c.PolicyName(), max(bc.o.Batch, 1))
		if !ok {
			return usageErrorf("--hardware %s: nothing about policy %s at batch %d", bc.hardware, c.PolicyName(), max(bc.o.Batch, 1))
		}
		if lacks := c.Lacks(host); lacks != "" {
			return usageErrorf("--hardware %s: nothing about a tier %s of policy %s: record a run on one (--record-trace) and fit it (infer simulate --fit)", bc.hardware, lacks, c.PolicyName())
		}
		predicted, err := p.Model(bc.ctx, c, host)
		if err != nil {
			return err
		}
		rows = append(rows, bc.predictedRow(c, predicted))
	}
	return bc.printPredicted(bc.format, rows)
}

// printPredicted prints rows.
func (bc *benchCommand) printPredicted(format string, rows []predictedRow) error {
	for i := range rows {
		if rows[i].ProfileMS > 0 {
			rows[i].ProfileTimes = rows[0].ProfileMS / rows[i].ProfileMS
		}
	}
	if format == "json" {
		e := json.NewEncoder(bc.stdout)
		e.SetIndent("", "  ")
		return e.Encode(rows)
	}
	if format != "table" && format != "auto" {
		return usageErrorf("--predict: -o %s: want table or json", format)
	}
	w := bc.newTable()
	fmt.Fprintln(w, "case\tbatch\tdepth\tin memory ms\tmeasured ms\tpredicted ms\tratio\tat profile ms\ttimes first\tfrom")
	for _, r := range rows {
		memory, measured, ratio, predicted := fmt.Sprintf("%.1f", r.MemoryMS), fmt.Sprintf("%.1f", r.MeasuredMS), fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.1f", r.PredictedMS)
		profile, times := "-", "-"
		if r.ProfileMS > 0 {
			profile, times = fmt.Sprintf("%.1f", r.ProfileMS), fmt.Sprintf("%.2f", r.ProfileTimes)
		}
		if r.MemoryMS == 0 { // of a hardware file alone
			memory = "-"
		}
		if r.MeasuredMS == 0 {
			measured, ratio = "-", "-"
		}
		if r.PredictedMS == 0 { // at its profile alone
			predicted = "-"
		}
		fmt.Fprintf(w, "%s on %s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Policy, strings.Join(r.Tiers, " "), r.Batch, r.Depth, memory, measured, predicted, ratio, profile, times, r.MeasuredFrom)
	}
	return w.Flush()
}
