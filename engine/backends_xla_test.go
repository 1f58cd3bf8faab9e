//go:build xla

package engine

import (
	"errors"
	"fmt"

	"terrace/model/xla"
)

// xla:cpu joins the suite where its plugin is found (PJRT_PLUGIN_LIBRARY_PATH).
func init() {
	c, err := xla.OpenPlugin("cpu")
	if errors.Is(err, xla.ErrPlugin) {
		fmt.Println("xla:cpu is left out of the parity suite:", err)
		return
	}
	if err == nil {
		c.Finalize()
	}
	parityBackends = append(parityBackends, "xla:cpu")
}
