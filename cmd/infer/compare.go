package main

import (
	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"terrace/eval/report"
	evalrun "terrace/eval/run"
)

func init() {
	register(newCompare)
	dataSentinels = append(dataSentinels, evalrun.ErrFolder)
}

func newCompare(a *app) *cobra.Command {
	var html, title string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "compare RUN…",
		Short:   "Compare evaluation runs: accuracy, time, memory",
		Long:    "Compare the folders that 'infer eval' made: a table of policies with paired 95 % intervals against full, and with --html one self-contained page with error bars, Pareto fronts and needle-in-a-haystack maps.",
		Example: "  infer compare runs/a runs/b\n  infer compare runs/a --html a.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("compare needs at least one run folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.compare(args, html, title, asJSON) },
	}
	p := cmd.Flags()
	p.StringVar(&html, "html", "", "write a page to this file")
	p.StringVar(&title, "title", "KV policies compared", "title of the page")
	p.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func (a *app) compare(dirs []string, html, title string, asJSON bool) error {
	runs, err := report.Load(dirs)
	if err != nil {
		return err
	}
	c := report.Compare(runs)
	if html != "" {
		out, err := renameio.NewPendingFile(html, renameio.WithPermissions(0o644))
		if err != nil {
			return err
		}
		defer out.Cleanup()
		if err := c.WriteHTML(out, title); err != nil {
			return err
		}
		if err := out.CloseAtomicallyReplace(); err != nil {
			return err
		}
		a.notice("page in %s", html)
	}
	if asJSON {
		return c.WriteJSON(a.stdout)
	}
	return c.WriteText(a.stdout)
}
