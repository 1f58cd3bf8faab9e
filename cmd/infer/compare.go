package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"terrace/eval/report"
	evalrun "terrace/eval/run"
	"terrace/internal/replace"
)

func init() {
	register(newCompare)
	dataSentinels = append(dataSentinels, evalrun.ErrFolder)
}

func newCompare(a *app) *cobra.Command {
	c := &compareCommand{app: a}
	cmd := &cobra.Command{
		Use:     "compare RUN…",
		Short:   "Compare evaluation runs: accuracy, time, memory",
		Long:    "Compare the folders that 'infer eval' made: a table of policies with paired 95 % intervals (bootstrap over samples, 2,000 draws from a fixed seed) against full or --against another (only samples with equal prompts are paired, at least 8; runs with other settings or another seed are shown apart), and with --html one self-contained page with error bars, Pareto fronts and needle-in-a-haystack maps; with --svg the Pareto fronts alone. --frontier and --csv are for the suite agreement: closeness to full over bytes moved a token, a panel for each model and length of prompts. --lm-eval DIR writes each policy of finished runs as lm-evaluation-harness writes its results: DIR/MODEL__POLICY/results_DATE.json and samples_TASK_DATE.jsonl.",
		Example: "  infer compare runs/a runs/b\n  infer compare runs/a --html a.html\n  infer compare runs/a -o md --svg docs/pareto.svg\n  infer compare runs/a --lm-eval lmeval\n  infer compare runs/a --equal-bytes 25%\n  infer compare runs/*/ --leaderboard board.html\n  infer compare frontier.csv --frontier frontier.svg",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageErrorf("compare needs at least one run folder")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(args) },
	}
	p := cmd.Flags()
	p.StringVar(&c.against, "against", report.Full, "policy that the others are measured against, as the runs name it")
	p.StringVar(&c.equalBytes, "equal-bytes", "", "compare policies at one amount of KV, as a share of what --against has: 25% or read=25% of the bytes that a step reads, held=25% of those that are held; interpolated between the budgets that were run; several, with commas, for --leaderboard")
	p.StringVar(&c.html, "html", "", "write a page to this file")
	p.StringVar(&c.title, "title", "KV policies compared", "title of the page, line below the picture")
	p.StringVar(&c.svg, "svg", "", "write the Pareto fronts to this file, as a picture for a README")
	p.StringVar(&c.frontier, "frontier", "", "write the divergence from full over the bytes moved a token (suite agreement) to this file, as a picture; several runs make several panels; instead of runs a file that --csv printed")
	p.StringVar(&c.leaderboard, "leaderboard", "", "write a page to this file that ranks methods at equal bytes, a table for each model and set of settings, and a CSV file beside it; --equal-bytes names the columns (10%,25%,50%)")
	p.StringVar(&c.lmEval, "lm-eval", "", "write results and samples in the format of lm-evaluation-harness below this folder")
	p.BoolVar(&c.csv, "csv", false, "print what --frontier draws, a line a policy")
	p.StringVarP(&c.output, "output", "o", "", "print the tables as text, md, csv (a line a policy and task), latex (booktabs) or json")
	p.BoolVar(&c.markdown, "markdown", false, "print the table in Markdown")
	p.BoolVar(&c.json, "json", false, "print one JSON object")
	cmd.MarkFlagsMutuallyExclusive("json", "markdown", "csv", "output")
	cmd.MarkFlagsMutuallyExclusive("equal-bytes", "frontier")
	cmd.MarkFlagsMutuallyExclusive("equal-bytes", "lm-eval")
	cmd.MarkFlagsMutuallyExclusive("equal-bytes", "csv")
	for _, other := range []string{"html", "svg", "frontier", "lm-eval"} {
		cmd.MarkFlagsMutuallyExclusive("leaderboard", other)
	}
	return cmd
}

// compareCommand is `infer compare`.
type compareCommand struct {
	*app

	html, svg, frontier, leaderboard, title, against, lmEval, output, equalBytes string
	json, markdown, csv                                                          bool
}

func (c *compareCommand) run(dirs []string) error {
	write, err := c.printer()
	if err != nil {
		return err
	}
	if table := func(name string) bool { return filepath.Ext(name) == ".csv" }; slices.ContainsFunc(dirs, table) {
		if len(dirs) > 1 || c.frontier == "" || c.html+c.svg+c.lmEval != "" {
			return usageErrorf("a CSV file (compare --csv) stands alone, for --frontier")
		}
		return c.redraw(dirs[0])
	}
	runs, err := report.Load(dirs)
	if err != nil {
		return err
	}
	if c.leaderboard != "" {
		if err := c.writeLeaderboard(runs); err != nil {
			return err
		}
		c.equalBytes = "" // its columns; what is printed is as it was run
	}
	compared, err := report.Compare(runs, c.against)
	if err != nil {
		return err
	}
	if compared, err = c.atBytes(compared); err != nil {
		return err
	}
	if c.html != "" {
		if err := c.writeFile(c.html, func(w io.Writer) error { return compared.WriteHTML(w, c.title) }); err != nil {
			return err
		}
	}
	if c.svg != "" {
		if len(compared.Groups) != 1 {
			return usageErrorf("--svg draws one suite with one set of settings; these runs have %d", len(compared.Groups))
		}
		if err := c.writeFile(c.svg, func(w io.Writer) error { return compared.Groups[0].WritePicture(w, c.title) }); err != nil {
			return err
		}
	}
	if c.frontier != "" {
		f, err := compared.Frontier()
		if err != nil {
			return err
		}
		if err := c.writeFile(c.frontier, func(w io.Writer) error { return f.WriteSVG(w, c.title) }); err != nil {
			return err
		}
	}
	if c.lmEval != "" {
		if err := c.writeLMEval(runs, c.lmEval); err != nil {
			return err
		}
	}
	return write(compared, c.stdout)
}

// redraw draws the picture of a table that --csv printed.
func (c *compareCommand) redraw(table string) error {
	in, err := os.Open(table)
	if err != nil {
		return dataErrorf("%w", err)
	}
	defer in.Close()
	f, err := report.ReadFrontier(in)
	if err != nil {
		return dataErrorf("%s: %w", table, err)
	}
	return c.writeFile(c.frontier, func(w io.Writer) error { return f.WriteSVG(w, c.title) })
}

// atBytes is the comparison at --equal-bytes, or as it is.
func (c *compareCommand) atBytes(compared *report.Comparison) (*report.Comparison, error) {
	if c.equalBytes == "" {
		return compared, nil
	}
	point, err := report.ParseBytesPoint(c.equalBytes)
	if err != nil {
		return nil, usageErrorf("--equal-bytes %w", err)
	}
	return compared.AtBytes(point)
}

// writeLeaderboard writes the page, and its CSV file beside it.
func (c *compareCommand) writeLeaderboard(runs []report.Run) error {
	table := strings.TrimSuffix(c.leaderboard, filepath.Ext(c.leaderboard)) + ".csv"
	if table == c.leaderboard {
		return usageErrorf("--leaderboard %s: name the page, such as board.html; the CSV file is written beside it", c.leaderboard)
	}
	var points []report.BytesPoint
	for _, text := range strings.Split(cmp.Or(c.equalBytes, "10%,25%,50%"), ",") {
		p, err := report.ParseBytesPoint(text)
		if err != nil {
			return usageErrorf("--equal-bytes %w", err)
		}
		points = append(points, p)
	}
	l, err := report.NewLeaderboard(runs, c.against, points)
	if err != nil {
		return err
	}
	if err := c.writeFile(c.leaderboard, func(w io.Writer) error { return l.WriteHTML(w, c.title) }); err != nil {
		return err
	}
	return c.writeFile(table, l.WriteCSV)
}

// printer prints a comparison in the form that was asked for.
func (c *compareCommand) printer() (func(*report.Comparison, io.Writer) error, error) {
	switch {
	case c.csv:
		return func(compared *report.Comparison, w io.Writer) error {
			f, err := compared.Frontier()
			if err != nil {
				return err
			}
			return f.WriteCSV(w)
		}, nil
	case c.json, c.output == "json":
		return (*report.Comparison).WriteJSON, nil
	case c.markdown, c.output == "md", c.output == "markdown":
		return (*report.Comparison).WriteMarkdown, nil
	case c.output == "csv":
		return (*report.Comparison).WriteCSV, nil
	case c.output == "latex", c.output == "tex":
		return (*report.Comparison).WriteLaTeX, nil
	case c.output == "", c.output == "text":
		return (*report.Comparison).WriteText, nil
	}
	return nil, usageErrorf("-o %s: want text, md, csv, latex or json", c.output)
}

// writeLMEval writes every policy of the runs as lm-evaluation-harness writes its results.
func (c *compareCommand) writeLMEval(runs []report.Run, dir string) error {
	list, err := report.LMEvalOf(runs)
	if err != nil {
		return err
	}
	for _, x := range list {
		files, err := x.Write(dir)
		if err != nil {
			return err
		}
		for _, name := range files {
			c.notice("written: %s", name)
		}
	}
	return nil
}

// writeFile makes a file in one step.
func (c *compareCommand) writeFile(name string, write func(w io.Writer) error) error {
	out, err := replace.New(name, 0o644)
	if err != nil {
		return err
	}
	defer out.Cleanup()
	if err := write(out); err != nil {
		return err
	}
	if err := out.CloseAtomicallyReplace(); err != nil {
		return err
	}
	c.notice("written: %s", name)
	return nil
}
