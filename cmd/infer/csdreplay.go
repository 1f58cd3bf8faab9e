package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"terrace/csdshim"
	"terrace/csdshim/profiles"
)

type csdReplay struct {
	*app

	profile string
	asJSON  bool
}

func newCSDReplay(a *app) *cobra.Command {
	c := &csdReplay{app: a}
	cmd := &cobra.Command{
		Use:   "replay TRACE.jsonl",
		Short: "Run page requests through a profile's modelled flash alone",
		Long: "Says when page requests would be done on a profile's flash: a queue a channel, die and plane, without link, engine and translation layer. " +
			`A line of the trace is {"at_us": 0, "op": "read" or "write", "page": 0, "pages": 1}, arrivals rising; logical pages lie on channels first, then dies, then planes.`,
		Example: "  infer csd replay trace.jsonl --profile instcsd --json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return c.run(args[0]) },
	}
	cmd.Flags().StringVar(&c.profile, "profile", "smartssd", "hardware to model: "+strings.Join(profiles.Names(), ", ")+", or a TOML file")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print one JSON object, with each request's time")
	return cmd
}

func (c *csdReplay) run(path string) error {
	p, err := profiles.Load(c.profile)
	if err != nil {
		return usageErrorf("csd replay: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return dataErrorf("csd replay: %v", err)
	}
	defer f.Close()
	r, err := csdshim.Replay(f, p)
	if err != nil {
		return dataErrorf("csd replay: %s: %v", path, err)
	}
	if c.asJSON {
		return json.NewEncoder(c.stdout).Encode(r)
	}
	_, err = fmt.Fprintf(c.stdout, "%d requests, the last done after %.2f µs (%s, %s)\n", len(r.CompletedUs), r.MakespanUs, r.Source, p.Name)
	return err
}
