// Package vfs is access to files as a value: the system's own, in memory, with faults, with a log.
//
// It owns page-aligned memory (AlignedBytes). It never knows what the bytes mean.
package vfs
