//go:build xla

package main

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/spf13/cobra"

	"terrace/hub"
	"terrace/model/xla"
)

func init() {
	register(newDevicesCommand)
}

// newDevicesCommand lists what the XLA backends would compute on. It also tells package xla where pulled plugins lie.
func newDevicesCommand(a *app) *cobra.Command {
	xla.FindPlugin = a.findPlugin
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices of the XLA plugins that are here",
		Example: "  infer pull plugin:xla-cpu\n  infer devices",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, plugin := range []string{"cpu", "cuda"} {
				c, err := xla.OpenPlugin(plugin)
				if err != nil {
					a.notice("%v", err)
					continue
				}
				for d := range c.NumDevices() {
					fmt.Fprintf(a.stdout, "xla:%s\t%d\t%s\n", plugin, d, c.DeviceDescription(compute.DeviceNum(d)))
				}
				c.Finalize()
			}
			return nil
		},
	}
}

// findPlugin gives the path of a plugin in the cache.
func (a *app) findPlugin(plugin string) (string, error) {
	h, done, err := a.newHub()
	if err != nil {
		return "", err
	}
	defer done()
	entries, err := h.List()
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.Name == "plugin:xla-"+plugin {
			return e.Path, nil
		}
	}
	return "", fmt.Errorf("plugin:xla-%s is not in the cache %s: %w", plugin, h.Home(), hub.ErrNotFound)
}
