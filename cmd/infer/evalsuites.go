package main

import (
	"github.com/spf13/cobra"

	"terrace/eval"
	"terrace/eval/longbench"
	"terrace/internal/units"
)

// suiteFlags choose a suite and its settings.
type suiteFlags struct {
	name       string
	tasks      []string
	data       string
	limit      int
	maxContext string
	seed       uint64
	noChat     bool
}

// suites lists what --suite takes.
var suites = []struct {
	name, about string
	open        func(f *suiteFlags) (eval.Suite, error)
}{
	{"longbench", "21 tasks in their native JSONL (--data)", func(f *suiteFlags) (eval.Suite, error) { return f.longbench(false) }},
	{"longbench-e", "LongBench-E, by length (--data)", func(f *suiteFlags) (eval.Suite, error) { return f.longbench(true) }},
}

func suiteHelp() string {
	text := ""
	for _, s := range suites {
		text += "\n  " + s.name + ": " + s.about
	}
	return text
}

func (f *suiteFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.name, "suite", "", "the suite (required)")
	p.StringSliceVar(&f.tasks, "tasks", nil, "tasks of the suite (default all)")
	p.StringVar(&f.data, "data", "", "folder with the suite's data")
	p.IntVar(&f.limit, "limit", 0, "samples a task (0: all)")
	p.StringVar(&f.maxContext, "max-context", "0", "prompt tokens at most, counts take k; longer prompts lose their middle (0: what the context leaves)")
	p.Uint64Var(&f.seed, "seed", 1, "seed of everything that is drawn")
	p.BoolVar(&f.noChat, "no-chat", false, "no chat template (base models)")
}

func (f *suiteFlags) open() (eval.Suite, error) {
	for _, s := range suites {
		if s.name == f.name {
			return s.open(f)
		}
	}
	return nil, usageErrorf("--suite %q: want one of:%s", f.name, suiteHelp())
}

func (f *suiteFlags) longbench(extended bool) (eval.Suite, error) {
	if f.data == "" {
		return nil, usageErrorf("--suite %s needs --data DIR", f.name)
	}
	n, err := units.ParseCount(f.maxContext)
	if err != nil {
		return nil, usageErrorf("--max-context: %v", err)
	}
	return longbench.New(longbench.Options{Data: f.data, Tasks: f.tasks, Limit: f.limit, MaxContext: n, Extended: extended, NoChat: f.noChat})
}
