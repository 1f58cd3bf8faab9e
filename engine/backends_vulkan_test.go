package engine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"terrace/internal/golden"
	ours "terrace/internal/vulkan"
	"terrace/model"
	"terrace/model/vulkan"
)

// everySecond has every second layer on vulkan:cpu and the others on the host.
const everySecond = "vulkan:cpu, every second layer"

// expertsApart has all on vulkan:cpu but the experts of the first layer.
const expertsApart = "vulkan:cpu, experts apart"

// allThatFit has those on vulkan:cpu that it computes.
const allThatFit = "vulkan:cpu, auto"

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
	if found[vulkan.CPU] || strings.Contains(must, "cpu") {
		model.RegisterBackend(everySecond, func(m *model.Model, o model.BackendOptions) (model.Backend, error) {
			on := make([]bool, len(m.Layer))
			for i := 1 - len(on)%2; i < len(on); i += 2 { // the first and the last are the host's by turns
				on[i] = true
			}
			return vulkan.OpenLayers(vulkan.CPU, m, o, on)
		})
		model.RegisterBackend(allThatFit, func(m *model.Model, o model.BackendOptions) (model.Backend, error) {
			o.DeviceLayers = model.AutoLayers
			return model.OpenBackend(vulkan.CPU, m, o)
		})
		model.RegisterBackend(expertsApart, func(m *model.Model, o model.BackendOptions) (model.Backend, error) {
			o.HostExperts = 1
			return model.OpenBackend(vulkan.CPU, m, o)
		})
		parityBackends = append(parityBackends, everySecond, allThatFit)
	}
	for name, word := range map[string]string{vulkan.CPU: "cpu", vulkan.GPU: "gpu"} {
		if found[name] || strings.Contains(must, word) {
			parityBackends = append(parityBackends, name)
		}
	}
}

// TestVulkanExperts: the device computes all layers of these models with experts, so that the parity suite compares its own experts.
func TestVulkanExperts(t *testing.T) {
	if !slices.Contains(parityBackends, allThatFit) {
		t.Skip("no driver for the CPU")
	}
	for _, name := range []string{"tiny_hf/mixtral", "tiny_hf/qwen3_moe", "families/ernie4_5_moe", "families/glm4_moe", "families/gpt_oss", "families/gpt_oss_mxfp4",
		"families/granitemoe", "families/mellum", "families/minimax_m2", "families/phimoe", "families/qwen2_moe", "families/gemma4_moe"} {
		m := openFile(t, golden.Shared(t, "data", "golden", name))
		if m.Experts == 0 {
			t.Errorf("%s has no experts", name)
		}
		b, err := model.OpenBackend(vulkan.CPU, m, model.BackendOptions{Threads: 1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVulkanExpertsApart: what the host makes of experts in a layer whose attention is the device's agrees with the goldens.
func TestVulkanExpertsApart(t *testing.T) {
	if !slices.Contains(parityBackends, allThatFit) {
		t.Skip("no driver for the CPU")
	}
	seen := 0
	for _, c := range append(tinyHF(t), families(t)...) {
		if !slices.Contains([]string{"qwen3_moe", "family-gpt_oss", "family-gemma4_moe"}, c.name) {
			continue
		}
		seen++
		t.Run(c.name, func(t *testing.T) {
			m := openFile(t, c.path)
			b, err := model.OpenBackend(expertsApart, m, model.BackendOptions{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			if n, why := b.(model.LayerPlacer).DeviceLayers(); n != m.Layers-1 || why != "of 1 the device computes all but the experts" {
				t.Errorf("%d of %d layers on the device: %q", n, m.Layers, why)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			c.check(t, expertsApart, map[string]bool{})
		})
	}
	if seen != 3 {
		t.Errorf("%d models, want 3", seen)
	}
}

// TestDeviceLayers: of a model whose layers differ the device computes those that it has kernels for, and the last ones of a number; a model of which
// it computes none is refused, and where all were asked for one whose layers differ, too.
func TestDeviceLayers(t *testing.T) {
	if !slices.Contains(parityBackends, allThatFit) {
		t.Skip("no driver for the CPU")
	}
	dense := golden.Shared(t, "data", "golden", "tiny_hf", "qwen3")
	family := func(name string) string { return golden.Shared(t, "data", "golden", "families", name) }
	hybrid, experts := family("lfm2"), family("minimax_m2")
	latent := family("deepseek_v3")
	for _, c := range []struct {
		path       string
		layers, on int
		why        string
	}{
		{dense, model.AutoLayers, -1, ""}, {dense, model.AllLayers, -1, ""}, {dense, 1, 1, ""}, {dense, 99, -1, ""},
		{hybrid, model.AutoLayers, -1, ""}, {hybrid, model.AllLayers, -1, ""}, {hybrid, 2, 2, ""}, {experts, model.AutoLayers, -1, ""}, {experts, model.AllLayers, -1, ""},
		{latent, model.AutoLayers, -2, "the experts alone; there are no kernels for latent keys"}, {latent, model.AllLayers, 0, ""}, {family("qwen3_next"), model.AllLayers, -1, ""},
		{family("kimi_linear"), model.AutoLayers, 3, "the experts alone; there are no kernels for latent keys"}, {family("qwen3_5"), model.AllLayers, -1, ""}, {family("falcon_h1"), model.AllLayers, -1, ""}, {family("mamba2"), model.AllLayers, -1, ""},
		{family("nemotron_h"), model.AllLayers, -1, ""}, {family("lfm3"), model.AllLayers, -1, ""},
	} {
		m := openFile(t, c.path)
		b, err := model.OpenBackend(vulkan.CPU, m, model.BackendOptions{Threads: 1, DeviceLayers: c.layers})
		if c.on == 0 {
			if !errors.Is(err, model.ErrUnsupported) {
				t.Errorf("%s, %d layers: %v", c.path, c.layers, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n, why := b.(model.LayerPlacer).DeviceLayers()
		if want := c.on; (want == -1 && n != m.Layers) || want == -2 && n != 0 || want > 0 && n != want || !strings.Contains(why, c.why) || c.why == "" && why != "" {
			t.Errorf("%s, %d layers asked for: %d on the device (%q), want %d", c.path, c.layers, n, why, want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := model.OpenBackend("native", openFile(t, dense), model.BackendOptions{Threads: 1, DeviceLayers: 2}); !errors.Is(err, model.ErrUnsupported) {
		t.Errorf("layers of the native backend on a device: %v", err)
	}
}
