//go:build gpu && linux

package vulkan

import (
	"errors"

	"github.com/ebitengine/purego"
)

// loaders are the names that the Vulkan loader is opened by.
var loaders = []string{"libvulkan.so.1", "libvulkan.so"}

// openLibrary opens the first shared library of a list and returns what finds its functions.
func openLibrary(names []string) (find func(name string) (uintptr, error), err error) {
	var errs []error
	for _, name := range names {
		lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return func(name string) (uintptr, error) { return purego.Dlsym(lib, name) }, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// call calls a C function of integers and pointers.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
