//go:build !linux

package csdshim

import "fmt"

// PinToCore is not available on this system.
func PinToCore(core int) error {
	return fmt.Errorf("csdshim: core %d: this system does not keep a process on a core: %w", core, ErrUnsupported)
}
