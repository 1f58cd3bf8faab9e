package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"terrace/policy"
)

type placeCommand struct {
	*app

	instance, placement string
	asJSON              bool
}

func newStorePlace(a *app) *cobra.Command {
	c := &placeCommand{app: a}
	cmd := &cobra.Command{
		Use:   "place --instance F.json --placement P",
		Short: "Decide where contexts lie and how they are compressed, without a model",
		Long: "Reads tiers (fastest first) and contexts (in order of arrival, with the quality of each method and keep) from a JSON file and prints where a placement puts each, " +
			"what that is worth, and the steps it took. Utility is the sum of (alpha*quality - keep*bytes/bytes_per_s)*(freq+1), in seconds. " +
			"'evicpress' compresses and moves by utility lost, 'lru' moves whole contexts, 'fixed' compresses all alike and then moves them as lru, 'impress' keeps the most asked ones fast, 'none' stores nothing.",
		Example: "  infer store place --instance contexts.json --placement evicpress:alpha=1\n  infer store place --instance - --placement fixed:method=keydiff,keep=0.5 --json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run() },
	}
	cmd.Flags().StringVar(&c.instance, "instance", "", "JSON file of tiers and contexts, - for standard input")
	cmd.Flags().StringVar(&c.placement, "placement", "evicpress", "evicpress:alpha=A,methods=M/M,keeps=K/K,per_byte=false, lru, fixed:method=M,keep=K, impress or none")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object")
	return cmd
}

// placeOutput is what store place prints with --json.
type placeOutput struct {
	Placed  []placedOutput `json:"placed"`
	Utility float64        `json:"utility"`
	Steps   []stepOutput   `json:"steps"`
}

type placedOutput struct {
	ID     string  `json:"id"`
	Tier   string  `json:"tier"`
	Method string  `json:"method"`
	Keep   float64 `json:"keep"`
}

type stepOutput struct {
	Op     string  `json:"op"`
	ID     string  `json:"id"`
	From   string  `json:"from"`
	To     string  `json:"to"`
	Method string  `json:"method"`
	Keep   float64 `json:"keep"`
	Delta  float64 `json:"delta"`
}

func (c *placeCommand) run() error {
	if c.instance == "" {
		return usageErrorf("store place needs --instance")
	}
	p, err := policy.ParsePlacement(c.placement)
	if err != nil {
		return usageErrorf("--placement: %w", err)
	}
	text, err := c.readText(c.instance)
	if err != nil {
		return err
	}
	in, err := policy.ReadInstance([]byte(text))
	if err != nil {
		return fmt.Errorf("%s: %w", c.instance, err)
	}
	layout, steps, err := p.Place(in)
	if err != nil {
		return fmt.Errorf("%s: %w", c.instance, err)
	}
	out := placeOutput{Placed: []placedOutput{}, Utility: layout.Utility(), Steps: []stepOutput{}}
	for _, c := range layout.Placed() {
		out.Placed = append(out.Placed, placedOutput{c.ID, in.Tiers[c.Tier].Name, c.Method, c.Keep})
	}
	for _, s := range steps {
		out.Steps = append(out.Steps, stepOutput{s.Op(), s.ID, in.Tiers[s.From].Name, in.Tiers[s.To].Name, s.Method, s.Keep, s.Delta})
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(out)
	}
	return c.print(out)
}

func (c *placeCommand) print(out placeOutput) error {
	w := c.newTable()
	fmt.Fprintln(w, "CONTEXT\tTIER\tMETHOD\tKEEP")
	for _, p := range out.Placed {
		fmt.Fprintf(w, "%s\t%s\t%s\t%g\n", p.ID, p.Tier, p.Method, p.Keep)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.stdout, "utility %.6g s in %d steps\n", out.Utility, len(out.Steps))
	return err
}
