package vulkan

import (
	"errors"
	"fmt"
)

var (
	// ErrNotBuilt: the program cannot open shared libraries.
	ErrNotBuilt = errors.New("this build has no Vulkan: build with -tags gpu on Linux")
	// ErrLoader: there is no usable Vulkan loader on this machine.
	ErrLoader = errors.New("no Vulkan loader")
	// ErrNoDevice: the loader has no device of the kind asked for.
	ErrNoDevice = errors.New("no Vulkan device")
	// ErrMemory: the device, or the host for it, has no memory left.
	ErrMemory = errors.New("out of the device's memory")
	// ErrLost: the device was reset or is gone; nothing that it held can be read.
	ErrLost = errors.New("the device was lost")
)

// result is a VkResult.
type result int32

const (
	success          result = 0
	incomplete       result = 5
	outOfHostMemory  result = -1
	outOfDeviceMem   result = -2
	deviceLost       result = -4
	tooManyObjects   result = -10
	outOfPoolMemory  result = -1000069000
	extensionMissing result = -7
)

var resultNames = map[result]string{
	1: "not ready", 2: "timeout", incomplete: "incomplete", outOfHostMemory: "out of host memory", outOfDeviceMem: "out of device memory",
	-3: "initialization failed", deviceLost: "device lost", -5: "memory map failed", -6: "layer not present", extensionMissing: "extension not present",
	-8: "feature not present", -9: "incompatible driver", tooManyObjects: "too many objects", -13: "unknown error",
	outOfPoolMemory: "out of pool memory", -1000012000: "invalid shader",
}

// failed is the error of a call, nil where it succeeded.
func failed(call string, code uintptr) error {
	r := result(int32(code))
	if r >= success {
		return nil
	}
	what, ok := resultNames[r]
	if !ok {
		what = fmt.Sprintf("result %d", r)
	}
	switch r {
	case outOfHostMemory, outOfDeviceMem, tooManyObjects, outOfPoolMemory:
		return fmt.Errorf("vulkan: %s: %s: %w", call, what, ErrMemory)
	case deviceLost:
		return fmt.Errorf("vulkan: %s: %w", call, ErrLost)
	}
	return fmt.Errorf("vulkan: %s: %s", call, what)
}
