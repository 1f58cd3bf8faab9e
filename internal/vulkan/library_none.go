//go:build !gpu || !linux

package vulkan

var loaders []string

func openLibrary([]string) (func(string) (uintptr, error), error) { return nil, ErrNotBuilt }

// call is reached by no one: nothing opens without a library.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr { panic("vulkan: call without a library") }
