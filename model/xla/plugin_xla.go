//go:build xla

package xla

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	goxla "github.com/gomlx/go-xla/compute/xla"

	"terrace/model"
)

// FindPlugin gives the path of a PJRT plugin, "cpu" or "cuda", that was fetched before; the program sets it. Where it fails,
// the folders of PJRT_PLUGIN_LIBRARY_PATH and the system's are searched, as go-xla does.
var FindPlugin = func(string) (string, error) { return "", nil }

func init() {
	goxla.EnableAutoInstall(false) // nothing is fetched unasked
	for _, plugin := range []string{"cpu", "cuda"} {
		model.RegisterBackend("xla:"+plugin, func(m *model.Model, o model.BackendOptions) (model.Backend, error) {
			c, err := OpenPlugin(plugin)
			if err != nil {
				return nil, err
			}
			return newBackend("xla:"+plugin, m, o, c)
		})
	}
}

// OpenPlugin starts XLA on a plugin, "cpu" or "cuda"; one that is not here is ErrPlugin. Products are float32, not TF32.
func OpenPlugin(plugin string) (compute.Backend, error) {
	config, err := FindPlugin(plugin)
	if err != nil || config == "" {
		if !slices.Contains(goxla.GetAvailablePlugins(), plugin) {
			missing := fmt.Errorf("xla: xla:%s: run 'infer pull plugin:xla-%s', or name the plugin's folder in PJRT_PLUGIN_LIBRARY_PATH: %w", plugin, plugin, ErrPlugin)
			if err != nil {
				missing = fmt.Errorf("%w: %w", missing, err)
			}
			return nil, missing
		}
		config = plugin
	}
	c, err := goxla.New(config + ",tf32=false")
	if err != nil {
		return nil, fmt.Errorf("xla: xla:%s: %w", plugin, err)
	}
	return c, nil
}
