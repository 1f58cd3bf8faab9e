package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"terrace/simulate"
)

// scoreFit is what a recorded score trace gave, beside the parameters that are built in.
type scoreFit struct {
	File     string              `json:"file"`
	Fit      simulate.ScoreFit   `json:"fit"`
	Turnover []simulate.Turnover `json:"turnover"`  // synthetic: by the mean fit, and as built in
	HitRates []simulate.HitRate  `json:"hit_rates"` // likewise
	trace    *simulate.ScoreTrace
}

// fitScores fits synthetic score traces to recorded ones and shows what both give.
func (c *simulateCommand) fitScores() error {
	var list []scoreFit
	var fits []simulate.ScoreFit
	for _, name := range c.fit {
		s := scoreFit{File: name}
		err := readFrom(name, func(in *bufio.Reader) (err error) { s.trace, err = simulate.ReadScoreTrace(in); return err })
		if err != nil {
			return err
		}
		if s.Fit, err = simulate.FitScores(s.trace); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		list, fits = append(list, s), append(fits, s.Fit)
	}
	mean, own := simulate.MeanFit(fits...), simulate.BuiltInScores()
	for i := range list {
		s := &list[i]
		var err error
		if s.Turnover, err = simulate.Turnovers(s.trace, mean, own); err == nil {
			s.HitRates, err = simulate.HitRates(s.trace, mean, own)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.File, err)
		}
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(map[string]any{"fit": mean, "built_in": own, "traces": list})
	}
	return c.printScoreFits(list, mean, own)
}

func (c *simulateCommand) printScoreFits(list []scoreFit, mean simulate.ScoreFit, own simulate.ScoreFit) error {
	w := c.newTable()
	fmt.Fprintln(w, "trace\tpersistence\tlevel\tlevel_shared\trest_shared\trecency\trecency_tokens")
	row := func(name string, f simulate.ScoreFit) {
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.0f\n", name, f.Persistence, f.Level, f.LevelShared, f.RestShared, f.Recency, f.RecencyTokens)
	}
	for _, s := range list {
		row(s.File, s.Fit)
	}
	row("mean", mean)
	row("built in", own)
	for _, s := range list {
		fmt.Fprintf(w, "\n%s under %s, %s, %d tokens\trecorded\tmean fit\tbuilt in\n", s.trace.Model, s.trace.Policy, s.trace.Text, s.trace.Prompt)
		for _, t := range s.Turnover {
			fmt.Fprintf(w, "picks of a fifth that were picked %d steps before\t%.3f\t%.3f\t%.3f\n", t.Lag, t.Recorded, t.Synthetic[0], t.Synthetic[1])
		}
		for _, h := range s.HitRates {
			fmt.Fprintf(w, "hits, pools=%s alpha=%v, %v hot\t%.3f\t%.3f\t%.3f\n", h.Pools, h.Alpha, h.Share, h.Recorded, h.Synthetic[0], h.Synthetic[1])
		}
	}
	return w.Flush()
}

// readFrom opens a file for a reader; an error names the file.
func readFrom(name string, read func(*bufio.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(bufio.NewReader(f)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
