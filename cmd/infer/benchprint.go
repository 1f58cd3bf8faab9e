package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strings"

	"terrace/bench"
	"terrace/internal/units"
)

// benchFormats are what -o takes. auto is md with a verdict where one case was measured, and table where several were.
var benchFormats = []string{"auto", "table", "json", "jsonl", "md", "csv"}

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
		mean, spread := bench.MeanDeviation(r.TPSAll)
		return fmt.Sprintf("%.2f ± %.2f", mean, spread)
	}},
}

// benchPrinter prints rows in one of benchFormats: row is called with each as soon as it is final, end after the last. A table's columns
// depend on all rows, and json is one array: these two print at the end.
type benchPrinter struct {
	row func(benchRow) error
	end func() error
}

func (bc *benchCommand) benchPrinter(format string) benchPrinter {
	nothing := func() error { return nil }
	switch format {
	case "jsonl":
		return benchPrinter{func(r benchRow) error { return bc.printJSON(r) }, nothing}
	case "md":
		return bc.benchMarkdown()
	case "csv":
		return bc.benchCSV()
	}
	var rows []benchRow
	keep := func(r benchRow) error {
		rows = append(rows, r)
		return nil
	}
	switch {
	case format == "json":
		return benchPrinter{keep, func() error { return bc.printJSON(rows) }}
	case format == "auto":
		return benchPrinter{keep, func() error { return bc.printBenchOfOne(rows) }}
	}
	return benchPrinter{keep, func() error { return bc.printBench(rows) }}
}

// printBenchOfOne prints the rows of one case as llama-bench does, with a verdict; those of several as a table.
func (bc *benchCommand) printBenchOfOne(rows []benchRow) error {
	for _, r := range rows {
		if x := rows[0]; r.Policy != x.Policy || r.Backend != x.Backend || r.Batch != x.Batch || len(r.Tiers) > 0 {
			return bc.printBench(rows)
		}
	}
	p := bc.benchMarkdown()
	for _, r := range rows {
		if err := p.row(r); err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	if line := verdict(rows); line != "" {
		_, err := fmt.Fprintf(bc.stdout, "\n%s\n", line)
		return err
	}
	return nil
}

// verdict says in a line how fast a model reads and writes here, and how far from what memory allows; "" where nothing was generated.
func verdict(rows []benchRow) string {
	prompt, text := 0.0, (*benchRow)(nil)
	for i := range rows {
		if rows[i].NPrompt > 0 {
			prompt = rows[i].TPSMedian
		} else {
			text = &rows[i]
		}
	}
	if text == nil {
		return ""
	}
	line := fmt.Sprintf("%.3g tokens/s", text.TPSMedian)
	if w := text.Weights; w != nil {
		line += fmt.Sprintf(", which reads weights at %.1f GB/s, %.0f %% of what these threads can read from memory", w.Share*w.ReadRate/1e9, 100*w.Share)
	}
	if prompt > 0 {
		line += fmt.Sprintf("; prompts are read %.0f times as fast", prompt/text.TPSMedian)
	}
	return line
}

// benchMarkdown prints a Markdown table.
func (bc *benchCommand) benchMarkdown() benchPrinter {
	begun := false
	begin := func() error {
		if begun {
			return nil
		}
		begun = true
		head, rule := "|", "|"
		for _, c := range benchColumns {
			head += " " + c.name + " |"
			rule += " --- |"
		}
		_, err := fmt.Fprintf(bc.stdout, "%s\n%s\n", head, rule)
		return err
	}
	return benchPrinter{end: begin, row: func(r benchRow) error {
		line := "|"
		for _, c := range benchColumns {
			line += " " + strings.ReplaceAll(c.of(&r), "|", "\\|") + " |"
		}
		if err := begin(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(bc.stdout, line)
		return err
	}}
}

// benchCSV prints speed and spread in columns of their own.
func (bc *benchCommand) benchCSV() benchPrinter {
	w, begun, last := csv.NewWriter(bc.stdout), false, len(benchColumns)-1
	begin := func() error {
		if begun {
			return nil
		}
		begun = true
		var head []string
		for _, c := range benchColumns[:last] {
			head = append(head, c.name)
		}
		return w.Write(append(head, "n_prompt", "n_gen", "depth", "avg_ts", "stddev_ts", "median_ts", "ttft_ms"))
	}
	flush := func(err error) error {
		w.Flush()
		return errors.Join(err, w.Error())
	}
	return benchPrinter{end: func() error { return flush(begin()) }, row: func(r benchRow) error {
		var line []string
		for _, c := range benchColumns[:last] {
			line = append(line, c.of(&r))
		}
		mean, spread := bench.MeanDeviation(r.TPSAll)
		line = append(line, fmt.Sprint(r.NPrompt), fmt.Sprint(r.NGen), fmt.Sprint(r.Depth))
		for _, x := range []float64{mean, spread, r.TPSMedian, r.TTFTMS} {
			line = append(line, fmt.Sprintf("%.3f", x))
		}
		if err := begin(); err != nil {
			return err
		}
		return flush(w.Write(line))
	}}
}
