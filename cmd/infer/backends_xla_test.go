//go:build xla

package main

import (
	"strings"
	"testing"
)

// TestXLAPluginMissing: a plugin that is not here ends the command with exit 3 and the command that fetches it. xla:cpu's may
// be loaded in this process already, so it is xla:cuda's that is missing.
func TestXLAPluginMissing(t *testing.T) {
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	args := []string{"bench", "--home", t.TempDir(), "-m", synthModel(t), "--backend", "native,xla:cuda", "-p", "4", "-n", "0", "-r", "1"}
	code, out, errs := runCommand(args...)
	if code == 0 {
		t.Skip("this machine has xla:cuda's plugin in a folder of the system")
	}
	if code != exitData || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "infer pull plugin:xla-cuda") {
		t.Errorf("exit %d: %q", code, errs)
	}
}
