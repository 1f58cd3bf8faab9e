package vulkan

import (
	"embed"
	"encoding/binary"
	"fmt"
	"math"

	"terrace/internal/vulkan"
)

//go:embed spirv/*.spv
var spirv embed.FS

// kernelKey names a pipeline: a module and its specialisation constants.
type kernelKey struct {
	name      string
	constants [4]uint32
}

// pipelines are the kernels that were wanted, built at their first use.
type pipelines map[kernelKey]*vulkan.Kernel

func (k pipelines) get(d *vulkan.Device, name string, constants ...uint32) (*vulkan.Kernel, error) {
	key := kernelKey{name: name}
	copy(key.constants[:], constants)
	if got := k[key]; got != nil {
		return got, nil
	}
	code, err := spirv.ReadFile("spirv/" + name + ".spv")
	if err != nil {
		return nil, fmt.Errorf("vulkan: kernel %s: %w", name, err)
	}
	made, err := d.Kernel(name, code, constants...)
	if err == nil {
		k[key] = made
	}
	return made, err
}

// push are a kernel's push constants: addresses first, then numbers.
type push []byte

func (p push) at(s span) push       { return binary.LittleEndian.AppendUint64(p, s.address()) }
func (p push) int(v int) push       { return binary.LittleEndian.AppendUint32(p, uint32(v)) }
func (p push) float(v float32) push { return binary.LittleEndian.AppendUint32(p, math.Float32bits(v)) }

// grid spreads work groups over the first two dimensions of a dispatch.
func (r *recorder) grid(groups int) (x, y int) {
	const across = 32768
	if groups <= across {
		return groups, 1
	}
	return across, (groups + across - 1) / across
}

func groupsOf(n, size int) int { return (n + size - 1) / size }
