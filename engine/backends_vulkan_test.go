package engine

import (
	"errors"
	"fmt"
	"os"
	"strings"

	ours "terrace/internal/vulkan"
	"terrace/model/vulkan"
)

// vulkan:cpu joins the suite where this build opens a loader that has a driver for the CPU (Mesa's lavapipe), and vulkan where there is
// a GPU. TERRACE_TEST_VULKAN lists those that must be there: cpu, gpu.
func init() {
	must, found := os.Getenv("TERRACE_TEST_VULKAN"), map[string]bool{}
	i, err := ours.Open()
	if err == nil {
		list, _ := i.Devices()
		for _, d := range list {
			found[vulkan.GPU] = found[vulkan.GPU] || d.Kind == ours.Discrete || d.Kind == ours.Integrated || d.Kind == ours.Virtual
			found[vulkan.CPU] = found[vulkan.CPU] || d.Kind == ours.CPU
		}
		i.Close()
	} else if !errors.Is(err, ours.ErrNotBuilt) || must != "" {
		fmt.Printf("vulkan is left out of the parity suite: %v\n", err)
	}
	for name, word := range map[string]string{vulkan.CPU: "cpu", vulkan.GPU: "gpu"} {
		if found[name] || strings.Contains(must, word) {
			parityBackends = append(parityBackends, name)
		}
	}
}
