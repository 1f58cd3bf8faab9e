package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"terrace/hub"
	"terrace/model"
	"terrace/policy"
)

func init() { register(newMan) }

// addCompletions has the shell complete names that are known here.
func addCompletions(root *cobra.Command) {
	for _, c := range root.Commands() {
		for flag, names := range map[string]func() []string{"model": modelNames, "policy": policy.Names, "backend": model.Backends, "cpu": func() []string { return []string{"auto", "amx", "avx512", "avx2", "purego"} }} {
			if c.Flags().Lookup(flag) == nil {
				continue
			}
			files := cobra.ShellCompDirectiveNoFileComp
			if flag == "model" { // or a file
				files = cobra.ShellCompDirectiveDefault
			}
			_ = c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) (out []string, _ cobra.ShellCompDirective) {
				for _, n := range names() {
					if strings.HasPrefix(n, begun) {
						out = append(out, n)
					}
				}
				return out, files
			})
		}
	}
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
			return doc.GenManTree(root, &doc.GenManHeader{Title: "INFER", Section: "1", Source: "Terrace", Manual: "Terrace"}, args[0])
		},
	}
}
