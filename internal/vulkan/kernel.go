package vulkan

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Kernel is a compute pipeline.
type Kernel struct {
	name     string
	pipeline uint64
}

// spirvMagic begins every module.
const spirvMagic = 0x07230203

// Kernel builds a pipeline of a SPIR-V module whose entry is main; constants are its specialisation constants from number 0 on.
func (d *Device) Kernel(name string, spirv []byte, constants ...uint32) (*Kernel, error) {
	if len(spirv) < 20 || len(spirv)%4 != 0 || binary.LittleEndian.Uint32(spirv) != spirvMagic {
		return nil, fmt.Errorf("vulkan: kernel %s: %d bytes that are no SPIR-V", name, len(spirv))
	}
	code := make([]uint32, len(spirv)/4)
	for i := range code {
		code[i] = binary.LittleEndian.Uint32(spirv[4*i:])
	}
	var module uint64
	shader := &shaderInfo{header: header{kind: kindShader}, size: uintptr(len(spirv)), code: &code[0]}
	if err := failed("vkCreateShaderModule", call(d.f.createShader, d.handle, uintptr(unsafe.Pointer(shader)), 0, uintptr(unsafe.Pointer(&module)))); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	defer call(d.f.destroyShader, d.handle, uintptr(module), 0)
	entry := []byte("main\x00")
	info := &computeInfo{header: header{kind: kindCompute}, layout: d.layout, index: ^uint32(0),
		stage: stageInfo{header: header{kind: kindStage}, stage: stageCompute, module: module, name: &entry[0]}}
	if len(constants) > 0 {
		entries := make([]specializationEntry, len(constants))
		for i := range entries {
			entries[i] = specializationEntry{id: uint32(i), offset: uint32(4 * i), size: 4}
		}
		info.stage.specialization = &specialization{count: uint32(len(constants)), entries: &entries[0], size: uintptr(4 * len(constants)), data: &constants[0]}
	}
	k := &Kernel{name: name}
	if err := failed("vkCreateComputePipelines", call(d.f.createPipelines, d.handle, 0, 1, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&k.pipeline)))); err != nil {
		return nil, fmt.Errorf("kernel %s on %s: %w", name, d.Name, err)
	}
	d.kernel = append(d.kernel, k)
	return k, nil
}
