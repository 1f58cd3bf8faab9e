package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"terrace/simulate"
)

func init() { register(newReproduce) }

type reproduceCommand struct {
	*app

	out, ids string
}

func newReproduce(a *app) *cobra.Command {
	c := &reproduceCommand{app: a}
	cmd := &cobra.Command{
		Use:     "reproduce --out DIR",
		Short:   "Write all figures of the papers, modelled and measured, as one page and one JSON file",
		Long:    "Runs every experiment of 'infer simulate', or those of --ids, and writes index.html, a page that loads nothing, and results.json with every row. Values are modelled at paper scale; rows that are called measured are this project's published benchmarks of small models.",
		Example: "  infer reproduce --out page\n  infer reproduce --out page --ids instinfer-fig12,sliminfer-tab4",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	cmd.Flags().StringVar(&c.out, "out", "", "folder to write to, made if it is not there")
	cmd.Flags().StringVar(&c.ids, "ids", "", "experiments, by commas; default all")
	return cmd
}

func (c *reproduceCommand) run() error {
	if c.out == "" {
		return usageErrorf("reproduce: --out is needed")
	}
	var list []string
	if c.ids != "" {
		list = strings.Split(c.ids, ",")
	}
	r, err := simulate.Reproduce(list)
	if errors.Is(err, simulate.ErrArgument) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	var html, rows bytes.Buffer
	if err := errors.Join(r.WriteHTML(&html), r.WriteJSON(&rows), os.MkdirAll(c.out, 0o755)); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(c.out, "index.html"), html.Bytes(), 0o644), os.WriteFile(filepath.Join(c.out, "results.json"), rows.Bytes(), 0o644))
}
