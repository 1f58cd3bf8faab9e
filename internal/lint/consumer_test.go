package lint

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// maxModules is how many modules a program builds that imports the root package, this one among them.
const maxModules = 30

// TestConsumer: what only the command, servers' metrics, remote stores and tests need is not built by who imports the module.
func TestConsumer(t *testing.T) {
	c := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")
	c.Dir = "../.."
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
	if len(modules) < 10 || len(modules) > maxModules {
		t.Errorf("%d modules, want at most %d: %s", len(modules), maxModules, strings.Join(modules, " "))
	}
}
