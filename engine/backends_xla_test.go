//go:build xla

package engine

import (
	"errors"
	"fmt"
	"os"

	"terrace/model/xla"
)

// xla:cpu joins the suite where its plugin is found (PJRT_PLUGIN_LIBRARY_PATH). TERRACE_TEST_XLA=cpu, as in CI, says that it
// must be there.
func init() {
	c, err := xla.OpenPlugin("cpu")
	if errors.Is(err, xla.ErrPlugin) && os.Getenv("TERRACE_TEST_XLA") != "cpu" {
		fmt.Println("xla:cpu is left out of the parity suite:", err)
		return
	}
	if err == nil {
		c.Finalize()
	}
	parityBackends = append(parityBackends, "xla:cpu")
}
