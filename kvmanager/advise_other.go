//go:build !linux

package kvmanager

// adviseSmallPages has nothing to say to this system.
func adviseSmallPages([]byte) {}
