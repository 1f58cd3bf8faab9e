//go:build arm64 && !purego

package kernels

import "terrace/internal/kernels/arm64/neon"

func init() {
	onSelect(func(path isa) {
		states = stateOps{lanes: 16}
		if path >= isaNEON {
			states = stateOps{16, neon.StateDot, neon.DeltaStep, neon.DeltaStepEach, neon.SSMStep, neon.Convolve}
		}
	})
}
