//go:build xla

package main

import (
	"fmt"

	"github.com/gomlx/compute"

	"terrace/hub"
	"terrace/model/xla"
)

func init() {
	otherDevices = append(otherDevices, xlaDevices)
	findPlugins = func(a *app) { xla.FindPlugin = a.findPlugin }
}

// xlaDevices are those of the plugins that are here.
func xlaDevices(a *app) (list []device) {
	for _, plugin := range []string{"cpu", "cuda"} {
		c, err := xla.OpenPlugin(plugin)
		if err != nil {
			a.notice("%v", err)
			continue
		}
		for d := range c.NumDevices() {
			list = append(list, device{Backend: "xla:" + plugin, Name: fmt.Sprintf("%d: %s", d, c.DeviceDescription(compute.DeviceNum(d)))})
		}
		c.Finalize()
	}
	return list
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
