package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"terrace/hub"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/policy"
	"terrace/simulate"
	"terrace/weights/convert"
)

func init() { register(newMan) }

// addCompletions has the shell complete names that are known here.
func addCompletions(root *cobra.Command) {
	for _, c := range root.Commands() {
		for flag, names := range map[string]func() []string{"model": modelNames, "policy": policy.Names, "backend": model.Backends, "cpu": func() []string { return []string{"auto", "amx", "avx512", "avx2", "i8mm", "dotprod", "neon", "purego"} },
			"suite": suiteNames, "tasks": taskNames, "type": convert.Writable, "kv-type": kvpage.Names} {
			if c.Flags().Lookup(flag) == nil {
				continue
			}
			files := cobra.ShellCompDirectiveNoFileComp
			if flag == "model" { // or a file
				files = cobra.ShellCompDirectiveDefault
			}
			_ = c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return beginning(names(), begun), files
			})
		}
	}
	addArguments(root)
}

// addArguments has the shell complete the arguments of commands that take a name.
func addArguments(root *cobra.Command) {
	for command, names := range map[string]func() []string{"pull": modelNames, "show": modelNames, "fit": modelNames, "rm": modelNames, "chat": modelNames, "quantize": modelNames,
		"policies": policy.Names, "simulate": simulationNames} {
		c, _, err := root.Find([]string{command})
		if err != nil || c.ValidArgsFunction != nil {
			continue
		}
		files := cobra.ShellCompDirectiveDefault
		if command == "policies" || command == "simulate" || command == "pull" {
			files = cobra.ShellCompDirectiveNoFileComp
		}
		c.ValidArgsFunction = func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return beginning(names(), begun), files
		}
	}
}

// beginning are the names that begin so.
func beginning(names []string, begun string) (out []string) {
	for _, n := range names {
		if strings.HasPrefix(n, begun) {
			out = append(out, n)
		}
	}
	return out
}

func simulationNames() (names []string) {
	for _, e := range simulate.List() {
		names = append(names, e.ID)
	}
	return names
}

func suiteNames() (names []string) {
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// taskNames are the tasks of all suites.
func taskNames() (names []string) {
	for _, s := range suites {
		if s.tasks != nil {
			names = append(names, s.tasks()...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func modelNames() (names []string) {
	for _, m := range hub.Catalogue() {
		names = append(names, m.Name)
	}
	return names
}

// newMan writes manual pages.
func newMan(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write manual pages into a folder",
		Long:    "Write a manual page (section 1) of every command into the folder DIR, which must be there.",
		Example: "  infer man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			if st, err := os.Stat(args[0]); err != nil || !st.IsDir() {
				return usageErrorf("man: no folder %s: make it first, or mind the spelling", args[0])
			}
			return doc.GenManTree(root, &doc.GenManHeader{Title: "INFER", Section: "1", Source: "Terrace", Manual: "Terrace"}, args[0])
		},
	}
}
