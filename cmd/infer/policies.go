package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"terrace/policy"
)

func init() { register(newPolicies) }

type policiesCommand struct {
	*app

	asJSON bool
}

func newPolicies(a *app) *cobra.Command {
	c := &policiesCommand{app: a}
	cmd := &cobra.Command{
		Use:   "policies [NAME]",
		Short: "List the KV policies: what each does, its parameters and defaults, its paper",
		Long: "Lists every method that --policy takes. A policy is name:key=value,key=value; several are joined by +. A budget is what is kept: a fraction below 1, 20%, " +
			"a count of tokens (1024, 1k) or bytes (64MiB); ratio is the part removed. Names of systems (flexgen, flexgen_sparq, deepspeed, insti_dense) stand for a method with parameters. With a NAME (kvpress's class names work too), only that one.",
		Example: "  infer policies\n  infer policies snapkv\n  infer policies --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorf("policies takes at most one name, got %d (see 'infer policies --help')", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			infos := policy.Infos()
			if len(args) == 1 {
				name, err := policy.Canonical(args[0])
				if err != nil {
					return usageErrorf("%v", err)
				}
				infos = oneInfo(infos, name)
			}
			switch {
			case c.asJSON:
				enc := json.NewEncoder(a.stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(infos)
			case len(args) == 1:
				return c.describe(infos[0])
			}
			return c.list(infos)
		},
	}
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print a JSON array")
	return cmd
}

func oneInfo(infos []policy.Info, name string) []policy.Info {
	for _, i := range infos {
		if i.Name == name {
			return []policy.Info{i}
		}
	}
	return nil
}

// listPolicies prints a line a method.
func (c *policiesCommand) list(infos []policy.Info) error {
	w := c.newTable()
	head := "NAME\tPHASE\tWHAT IT DOES\tPARAMETERS"
	if w.width > 0 {
		head = "NAME\tPHASE\tWHAT IT DOES (PARAMETERS)"
	}
	fmt.Fprintln(w, head)
	for _, i := range infos {
		var params []string
		if i.Wraps != "" {
			params = append(params, "press="+i.Wraps)
		}
		for _, p := range i.Params {
			if p.Default != "" {
				params = append(params, p.Name+"="+p.Default)
			}
		}
		if w.width > 0 && len(params) > 0 { // prose that can be folded
			fmt.Fprintf(w, "%s\t%s\t%s (%s)\n", i.Name, i.Phase, i.Summary, strings.Join(params, ", "))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Name, i.Phase, i.Summary, strings.Join(params, ","))
	}
	for _, i := range infos {
		for _, s := range i.Systems {
			fmt.Fprintf(w, "%s\t%s\t%s: %s\n", s.Name, "system", s.Spec(i.Name), s.Doc)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "\nPolicies act on %s.\n", policy.ActsOn)
	return err
}

// describePolicy prints everything about one method.
func (c *policiesCommand) describe(i policy.Info) error {
	w := c.newTable()
	row := func(key, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", key, value)
		}
	}
	row("name", i.Name)
	row("also", strings.Join(i.Aliases, ", "))
	row("does", i.Summary)
	row("paper", i.Paper)
	row("phase", string(i.Phase))
	row("acts on", i.Acts)
	row("can", strings.Join(i.Can, ", "))
	row("needs", strings.Join(i.Sees, ", "))
	for _, s := range i.Systems {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Spec(i.Name), s.Doc)
	}
	if i.Wraps != "" {
		row("press", i.Wraps+"\tthe policy it wraps; its parameters are given beside the wrapper's own")
	}
	for _, p := range i.Params {
		fmt.Fprintf(w, "%s\t%s\t%s\n", strings.Join(append([]string{p.Name}, p.Aliases...), ", "), p.Default, p.Doc)
	}
	return w.Flush()
}
