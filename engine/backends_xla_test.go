//go:build xla

package engine

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"terrace/model/xla"
)

// xla:cpu joins the suite where its plugin is found (PJRT_PLUGIN_LIBRARY_PATH). TERRACE_TEST_XLA lists plugins that must be
// there: cpu, as in CI, or cuda on a machine with a GPU, which joins only then.
func init() {
	must := os.Getenv("TERRACE_TEST_XLA")
	for _, plugin := range []string{"cpu", "cuda"} {
		wanted := strings.Contains(must, plugin)
		if plugin == "cuda" && !wanted {
			continue
		}
		c, err := xla.OpenPlugin(plugin)
		if errors.Is(err, xla.ErrPlugin) && !wanted {
			fmt.Printf("xla:%s is left out of the parity suite: %v\n", plugin, err)
			continue
		}
		if err == nil {
			c.Finalize()
		}
		parityBackends = append(parityBackends, "xla:"+plugin)
	}
}
