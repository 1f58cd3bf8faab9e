package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/internal/replace"
	"terrace/simulate"
)

func init() { register(newSimulate) }

type simulateCommand struct {
	*app

	list, asJSON bool
	sets, fit    []string
	svg          string
}

func newSimulate(a *app) *cobra.Command {
	c := &simulateCommand{app: a}
	cmd := &cobra.Command{
		Use:   "simulate [ID]",
		Short: "Answer a paper's figure or table at paper scale, on a hardware model",
		Long: "Works out one experiment of the four papers with the hardware that they assume; nothing is measured. Every row says how its value was reached (closed_form, calibrated, predicted, or sensitivity with a band), what the paper prints, and how far it is off. " +
			"Parameters, and the values that x runs over, can be set.",
		Example: "  infer simulate --list\n  infer simulate instinfer-fig12\n  infer simulate hillinfer-fig14 --json --set batch=1/10 --set fs_bps=2e9\n  infer simulate hillinfer-built --set trace=scores.trace",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(c.fit) > 0 && !c.list && len(args) == 0 {
				return c.fitFiles()
			}
			if c.list == (len(args) == 1) || len(c.fit) > 0 {
				return usageErrorf("simulate: want an ID, or --list, or --fit FILE")
			}
			if c.list {
				return c.printList()
			}
			return c.run(args[0])
		},
	}
	cmd.Flags().BoolVar(&c.list, "list", false, "list the experiments")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringArrayVar(&c.fit, "fit", nil, "fit this file of infer bench --record-trace, may repeat: a host's rates to recorded calls (--predict; --json: as a hardware file for infer bench --predict --hardware), synthetic score traces to recorded scores, and show what both give")
	cmd.Flags().StringVar(&c.svg, "svg", "", "write what a step or layer consists of to this file, as a picture (experiments that name parts or stages)")
	cmd.Flags().StringArrayVar(&c.sets, "set", nil, "key=value of a parameter or of x, may repeat; a/b/c runs over several")
	return cmd
}

func (c *simulateCommand) printList() error {
	w := c.newTable()
	for _, e := range simulate.List() {
		fmt.Fprintf(w, "%s\t%s\n", e.ID, e.Title)
	}
	return w.Flush()
}

func (c *simulateCommand) run(id string) error {
	r, err := simulate.Run(id, c.sets)
	if err == nil && c.svg != "" {
		var picture string
		if picture, err = r.SVG(); err == nil {
			err = replace.WriteFile(c.svg, []byte(picture), 0o644)
		}
	}
	if errors.Is(err, simulate.ErrArgument) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(r)
	}
	w := c.newTable()
	for _, row := range r.Rows {
		paper := ""
		if row.Paper != nil {
			paper = fmt.Sprintf("paper %.4g", *row.Paper)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4g %s\t%s\t%s\n", row.Series, xText(row.X), row.Metric, row.Value, row.Unit, paper, row.Kind)
	}
	for i := range r.Accuracy {
		a := &r.Accuracy[i]
		fmt.Fprintf(w, "%s\t%s\tpaper %s (%s)\tmeasured %s\t%s\t%s\n", a.Claim, a.Where, a.Says(), a.Model, a.Text(), a.On, a.Verdict())
	}
	return w.Flush()
}

// fitFiles fits recordings: a host's rates to those of calls, synthetic score traces to those of scores.
func (c *simulateCommand) fitFiles() error {
	ofScores := 0
	for _, name := range c.fit {
		err := readFrom(name, func(in *bufio.Reader) error {
			if simulate.IsScoreTrace(in) {
				ofScores++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch ofScores {
	case 0:
		return c.fitHardware()
	case len(c.fit):
		return c.fitScores()
	}
	return usageErrorf("simulate: --fit of score traces and of recorded calls together: want one kind")
}

// fitHardware works out a host's rates from recordings.
func (c *simulateCommand) fitHardware() error {
	var r *simulate.Recording
	for _, name := range c.fit {
		var more *simulate.Recording
		err := readFrom(name, func(in *bufio.Reader) (err error) { more, err = simulate.ReadRecording(in); return err })
		switch {
		case err != nil:
			return err
		case r == nil:
			r = more
		default:
			r.Runs = append(r.Runs, more.Runs...)
		}
	}
	f, err := simulate.Fit(r)
	if err != nil {
		return err
	}
	if c.asJSON {
		e := json.NewEncoder(c.stdout)
		e.SetIndent("", "  ")
		return e.Encode(f)
	}
	w := c.newTable()
	fmt.Fprintln(w, "policy\twhat\tan event\ta MiB or 1,000 tokens more\tevents\ttook s\tthe fit gives s\terror of one")
	for _, t := range f.Terms {
		more := 1e6 * (1 << 20) * t.More
		if t.Name == simulate.Answering {
			more = 1e6 * 1000 * t.More
		}
		fmt.Fprintf(w, "%s\t%s\t%.1f us\t%.1f us\t%d\t%.3f\t%.3f\t%.0f %%\n", t.Policy, t.Name, 1e6*t.Each, more, t.Events, t.Took, t.Gives, 100*t.Error)
	}
	for _, h := range f.Hosts {
		if d := h.Device; d != nil {
			fmt.Fprintf(w, "%s\tlatency\t%.1f us\n%s\twaking\t%.1f us\n", h.Compute.Policy, 1e6*d.Latency, h.Compute.Policy, 1e6*d.Wake)
		}
	}
	return w.Flush()
}

// xText is a row's x on one line.
func xText(x map[string]any) string {
	var parts []string
	for k, v := range x {
		parts = append(parts, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}
