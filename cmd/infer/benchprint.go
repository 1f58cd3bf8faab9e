package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"strings"

	"terrace/internal/units"
)

// benchFormats are what -o takes; "" is none of them.
var benchFormats = []string{"table", "json", "jsonl", "md", "csv"}

// benchColumns are llama-bench's, in its order as far as there is one, of the formats md and csv.
var benchColumns = []struct {
	name string
	of   func(r *benchRow) string
}{
	{"model", func(r *benchRow) string { return r.Model }},
	{"size", func(r *benchRow) string { return units.FormatBytes(r.modelBytes) }},
	{"backend", func(r *benchRow) string { return r.Backend }},
	{"threads", func(r *benchRow) string { return fmt.Sprint(r.Threads) }},
	{"cpu", func(r *benchRow) string { return r.CPU }},
	{"policy", func(r *benchRow) string { return r.Policy }},
	{"tiers", func(r *benchRow) string { return strings.Join(r.Tiers, " ") }},
	{"batch", func(r *benchRow) string { return fmt.Sprint(r.Batch) }},
	{"test", func(r *benchRow) string { return r.Test }},
	{"t/s", func(r *benchRow) string {
		mean, spread := meanSpread(r.TPSAll)
		return fmt.Sprintf("%.2f ± %.2f", mean, spread)
	}},
}

// printBenchAs prints rows in one of benchFormats.
func (a *app) printBenchAs(format string, rows []benchRow) error {
	switch format {
	case "json":
		return a.printJSON(rows)
	case "jsonl":
		for _, r := range rows {
			if err := a.printJSON(r); err != nil {
				return err
			}
		}
		return nil
	case "md":
		return a.printBenchTable(rows)
	case "csv":
		return a.printBenchCSV(rows)
	}
	return a.printBench(rows)
}

// printBenchTable prints a Markdown table.
func (a *app) printBenchTable(rows []benchRow) error {
	head, rule := "|", "|"
	for _, c := range benchColumns {
		head += " " + c.name + " |"
		rule += " --- |"
	}
	fmt.Fprintf(a.stdout, "%s\n%s\n", head, rule)
	for i := range rows {
		line := "|"
		for _, c := range benchColumns {
			line += " " + strings.ReplaceAll(c.of(&rows[i]), "|", "\\|") + " |"
		}
		if _, err := fmt.Fprintln(a.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// printBenchCSV prints speed and spread in columns of their own.
func (a *app) printBenchCSV(rows []benchRow) error {
	w := csv.NewWriter(a.stdout)
	var head []string
	last := len(benchColumns) - 1
	for _, c := range benchColumns[:last] {
		head = append(head, c.name)
	}
	if err := w.Write(append(head, "n_prompt", "n_gen", "depth", "avg_ts", "stddev_ts", "median_ts", "ttft_ms")); err != nil {
		return err
	}
	for i := range rows {
		r := &rows[i]
		var line []string
		for _, c := range benchColumns[:last] {
			line = append(line, c.of(r))
		}
		mean, spread := meanSpread(r.TPSAll)
		line = append(line, fmt.Sprint(r.NPrompt), fmt.Sprint(r.NGen), fmt.Sprint(r.Depth))
		for _, x := range []float64{mean, spread, r.TPSMedian, r.TTFTMS} {
			line = append(line, fmt.Sprintf("%.3f", x))
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// meanSpread is the mean and the sample's standard deviation (0 of one).
func meanSpread(x []float64) (mean, spread float64) {
	for _, v := range x {
		mean += v / float64(len(x))
	}
	if len(x) < 2 {
		return mean, 0
	}
	for _, v := range x {
		spread += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(spread / float64(len(x)-1))
}
