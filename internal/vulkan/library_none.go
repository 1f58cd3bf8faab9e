//go:build !gpu || !linux

package vulkan

var loaders []string

// Both are variables so that what follows a call counts as reachable in this build too: the code is the same in every build.
var (
	openLibrary = func([]string) (func(string) (uintptr, error), error) { return nil, ErrNotBuilt }
	// call is reached by no one: nothing opens without a library.
	call = func(uintptr, ...uintptr) uintptr { panic("vulkan: call without a library") }
)
