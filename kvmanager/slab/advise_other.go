//go:build !linux

package slab

// adviseSmallPages has nothing to say to this system.
func adviseSmallPages([]byte) {}
