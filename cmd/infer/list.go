package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"terrace/hub"
	"terrace/internal/units"
)

func init() { register(newListCommand) }

// listRow is one model in `infer list --json`.
type listRow struct {
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	SizeBytes int64     `json:"size_bytes"`
	Source    string    `json:"source"`
	Pulled    time.Time `json:"pulled"`
	External  bool      `json:"external"` // in the Hugging Face cache
}

type listCommand struct {
	*app

	asJSON bool
}

func newListCommand(a *app) *cobra.Command {
	c := &listCommand{app: a}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the models that are here",
		Long:    "Lists the models in the cache with their size, where they came from and where they lie, and the presets (--json: models alone).",
		Example: "  infer list\n  infer list --json",
		Args:    exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, _, err := c.newHub()
			if err != nil {
				return err
			}
			entries, err := h.List()
			if err != nil {
				return err
			}
			return c.print(entries)
		},
	}
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print a JSON array")
	return cmd
}

func (c *listCommand) print(entries []hub.Entry) error {
	if c.asJSON {
		rows := make([]listRow, len(entries))
		for i, e := range entries {
			rows[i] = listRow{e.Name, e.Path, e.SizeBytes, e.Source, e.Pulled, e.External}
		}
		enc := json.NewEncoder(c.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	presets := c.presets().Names()
	if len(entries)+len(presets) == 0 {
		c.notice("no models in %s yet: try 'infer pull %s'", c.home(), hub.Default)
		return nil
	}
	w := c.newTable()
	fmt.Fprintln(w, "NAME\tSIZE\tPULLED\tSOURCE\tPATH")
	for _, e := range entries {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", e.Name, units.FormatBytes(e.SizeBytes), e.Pulled.Local().Format("2006-01-02"), e.Source, e.Path)
	}
	for _, name := range presets {
		preset, ok, err := c.preset(name)
		st, statErr := os.Stat(c.presets().File(name))
		if err != nil || !ok || statErr != nil {
			c.notice("preset %s cannot be used: %v", name, errors.Join(err, statErr))
			continue
		}
		fmt.Fprintf(w, "%s\t-\t%s\tpreset of %s\t%s\n", name, st.ModTime().Format("2006-01-02"), preset.From, c.presets().File(name))
	}
	return w.Flush()
}
