//go:build !lean

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"terrace/internal/units"
	gpu "terrace/internal/vulkan"
	"terrace/model/vulkan"
)

func init() {
	register(newDevicesCommand)
}

// device is what a backend could compute on.
type device struct {
	Backend string    `json:"backend"` // --backend
	Name    string    `json:"name"`
	Kind    string    `json:"kind,omitempty"`
	Vulkan  *gpu.Info `json:"vulkan,omitempty"`
}

// otherDevices are listed by backends that a build tag adds; they tell a as a notice what is missing.
var otherDevices []func(a *app) []device

// findPlugins tells package xla where pulled plugins lie, in builds that have it.
var findPlugins = func(*app) {}

// newDevicesCommand lists what the backends with a device of their own would compute on.
func newDevicesCommand(a *app) *cobra.Command {
	findPlugins(a)
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the GPUs and other devices that backends can compute on",
		Long: "List the devices of the Vulkan loader (builds with -tags gpu) and of XLA's plugins (-tags xla): the backend that takes each, its memory and\n" +
			"the features that matter. --backend vulkan takes the first discrete GPU, else an integrated or a virtual one.",
		Example: "  infer devices\n  infer devices --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := vulkanDevices()
			for _, more := range otherDevices {
				list = append(list, more(a)...)
			}
			switch {
			case err != nil && len(list) == 0:
				return err
			case err != nil:
				a.notice("%v", err)
			}
			return a.printDevices(list, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object a device")
	return cmd
}

// vulkanDevices are the loader's. A build without Vulkan is wrong usage, none an error of missing data.
func vulkanDevices() ([]device, error) {
	i, err := gpu.Open()
	if errors.Is(err, gpu.ErrNotBuilt) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	defer i.Close()
	found, err := i.Devices()
	if err != nil {
		return nil, err
	}
	var list []device
	for _, p := range found {
		d := device{Backend: vulkan.GPU, Name: p.Name, Kind: p.Kind.String(), Vulkan: &p.Info}
		if p.Kind == gpu.CPU {
			d.Backend = vulkan.CPU
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("vulkan: the loader finds no driver with a device (Debian: mesa-vulkan-drivers, or the GPU maker's): %w", gpu.ErrNoDevice)
	}
	return list, nil
}

func (a *app) printDevices(list []device, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(a.stdout)
		for _, d := range list {
			if err := out.Encode(d); err != nil {
				return err
			}
		}
		return nil
	}
	t := a.newTable()
	fmt.Fprintln(t, "backend\tdevice\tkind\tmemory\tfeatures")
	for _, d := range list {
		memory, features := "", ""
		if d.Vulkan != nil {
			memory, features = units.FormatBytes(d.Vulkan.MemoryBytes), featuresOf(d.Vulkan)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.Backend, d.Name, d.Kind, memory, features)
	}
	return t.Flush()
}

// featuresOf are the features in words.
func featuresOf(i *gpu.Info) string {
	words := []string{"Vulkan " + i.API, fmt.Sprintf("subgroups of %d", i.SubgroupSize)}
	for _, f := range []struct {
		has  bool
		name string
	}{{i.Float16, "float16"}, {i.Storage8, "8-bit storage"}, {i.Storage16, "16-bit storage"}, {i.CooperativeMatrix, "cooperative matrices"},
		{!i.BufferAddress, "NO buffer addresses"}, {!i.SubgroupSums, "NO subgroup sums"}} {
		if f.has {
			words = append(words, f.name)
		}
	}
	return strings.Join(words, ", ") + "; " + i.Driver
}

// noVulkan is the error of a build that has none, for a backend's name; nil for other names and builds.
func noVulkan(name string) error {
	if _, err := gpu.Open(); (name == vulkan.GPU || name == vulkan.CPU) && errors.Is(err, gpu.ErrNotBuilt) {
		return usageErrorf("backend %s: %v", name, gpu.ErrNotBuilt)
	}
	return nil
}
