package main

import (
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

func newSimulate(a *app) *cobra.Command {
	var list, asJSON bool
	var sets []string
	var svg string
	cmd := &cobra.Command{
		Use:   "simulate [ID]",
		Short: "Answer a paper's figure or table at paper scale, on a hardware model",
		Long: "Works out one experiment of the four papers with the hardware that they assume; nothing is measured. Every row says how its value was reached (closed_form, calibrated, predicted, or sensitivity with a band), what the paper prints, and how far it is off. " +
			"Parameters, and the values that x runs over, can be set.",
		Example: "  infer simulate --list\n  infer simulate instinfer-fig12\n  infer simulate hillinfer-fig14 --json --set batch=1/10 --set fs_bps=2e9",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list == (len(args) == 1) {
				return usageErrorf("simulate: want an ID, or --list")
			}
			if list {
				return a.listSimulations()
			}
			return a.simulate(args[0], sets, asJSON, svg)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "list the experiments")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&svg, "svg", "", "write what a step or layer consists of to this file, as a picture (experiments that name parts or stages)")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "key=value of a parameter or of x, may repeat; a/b/c runs over several")
	return cmd
}

func (a *app) listSimulations() error {
	w := a.newTable()
	for _, e := range simulate.List() {
		fmt.Fprintf(w, "%s\t%s\n", e.ID, e.Title)
	}
	return w.Flush()
}

func (a *app) simulate(id string, sets []string, asJSON bool, svg string) error {
	r, err := simulate.Run(id, sets)
	if err == nil && svg != "" {
		var picture string
		if picture, err = r.SVG(); err == nil {
			err = replace.WriteFile(svg, []byte(picture), 0o644)
		}
	}
	if errors.Is(err, simulate.ErrArgument) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(r)
	}
	w := a.newTable()
	for _, row := range r.Rows {
		paper := ""
		if row.Paper != nil {
			paper = fmt.Sprintf("paper %.4g", *row.Paper)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4g %s\t%s\t%s\n", row.Series, xText(row.X), row.Metric, row.Value, row.Unit, paper, row.Kind)
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
