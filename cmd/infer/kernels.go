package main

import "terrace/internal/kernels"

// selectKernels forces the CPU path of the kernels; the empty name keeps the fastest that this CPU has.
func selectKernels(path string) error {
	if err := kernels.Select(path); err != nil {
		return usageErrorf("--cpu: %v", err)
	}
	return nil
}
