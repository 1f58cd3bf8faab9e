//go:build unix && !linux

package kernels

func adviseHuge(b []byte) {}
