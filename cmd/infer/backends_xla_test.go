//go:build xla

package main

import (
	"strings"
	"testing"
)

// TestXLAPluginMissing: a plugin that is not here ends the command with exit 3 and the command that fetches it.
func TestXLAPluginMissing(t *testing.T) {
	t.Setenv("PJRT_PLUGIN_LIBRARY_PATH", t.TempDir())
	path := synthModel(t)
	for _, plugin := range []string{"cuda", "cpu"} {
		code, out, errs := runCommand("bench", "--home", t.TempDir(), "-m", path, "--backend", "native,xla:"+plugin, "-p", "4", "-n", "0", "-r", "1")
		if code != exitData || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "infer pull plugin:xla-"+plugin) {
			t.Errorf("xla:%s: exit %d: %q", plugin, code, errs)
		}
	}
}
