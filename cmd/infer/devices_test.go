//go:build !lean

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	gpu "terrace/internal/vulkan"
)

// TestVulkan: a build without the tag says how to get it, before it looks for a model; one with it lists devices, as a table and as JSON,
// and takes a driver for the CPU by its name only.
func TestVulkan(t *testing.T) {
	bench := []string{"bench", "-m", "none.gguf", "--backend"}
	i, err := gpu.Open()
	if err != nil {
		for _, args := range [][]string{{"devices"}, append(bench, "vulkan"), append(bench, "vulkan:cpu")} {
			code, out, errs := runCommand(args...)
			if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "-tags gpu") {
				t.Errorf("%v: exit %d: %q%q", args, code, out, errs)
			}
		}
		if strings.Contains(os.Getenv("TERRACE_TEST_VULKAN"), "cpu") {
			t.Error(err)
		}
		t.Skipf("devices are not listed: %v", err)
	}
	list, err := i.Devices()
	i.Close()
	if err != nil || len(list) == 0 {
		t.Skipf("no device: %v", err)
	}
	code, out, errs := runCommand("devices")
	if code != exitDone || errs != "" || strings.Count(out, "\n") != 1+len(list) || !strings.Contains(out, list[0].Name) {
		t.Errorf("exit %d: %q%q", code, out, errs)
	}
	code, out, _ = runCommand("devices", "--json")
	var d device
	if err := json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &d); code != exitDone || err != nil || d.Name != list[0].Name || d.Vulkan == nil || d.Vulkan.MemoryBytes != list[0].MemoryBytes {
		t.Errorf("exit %d, %v: %+v", code, err, d)
	}
	for _, p := range list {
		if p.Kind != gpu.CPU {
			return // there is a GPU
		}
	}
	code, out, errs = runCommand("bench", "-m", synthModel(t), "--backend", "vulkan", "-p", "4", "-n", "0", "-r", "1")
	if code != exitData || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "--backend vulkan:cpu") {
		t.Errorf("exit %d: %q%q", code, out, errs)
	}
}
